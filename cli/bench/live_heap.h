#pragma once
// How much of the C library's heap is in use. What a process holds of the system is more: freed pieces between live
// ones.
#include <malloc.h>

#include <cstdint>

namespace gradloom::cli {

// Of all threads. 0 where another allocator took the C library's place, as a sanitizer's does.
inline int64_t live_heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

}  // namespace gradloom::cli
