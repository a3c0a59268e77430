#pragma once
// How much of the C library's heap is in use. The process's resident memory is larger: freed chunks between live ones.
#include <malloc.h>

#include <cstdint>

namespace gradloom::cli {

// Over all threads. 0 where another allocator replaces the C library's, as under a sanitizer.
inline int64_t live_heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

}  // namespace gradloom::cli
