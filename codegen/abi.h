#pragma once
// The interface between generated code and whatever launches it. Plain C layout: generated code reads these fields by
// offset, and an embedder's thread pool calls back through it.
#include <cstdint>
#include <limits>

namespace gradloom {

inline constexpr int64_t no_bad_position = std::numeric_limits<int64_t>::max();

struct LaunchContext {
  // Runs fn(env, begin, end) over a partition of [0, n), by any threads, and returns when all is done. Does not throw.
  void (*parallel_for)(LaunchContext* context, int64_t n, void (*fn)(void* env, int64_t begin, int64_t end), void* env);
  // Returns 64-byte-aligned scratch, or null when there is none: the kernel then sets out_of_scratch and skips the code
  // that needed it.
  void* (*acquire_scratch)(LaunchContext* context, int64_t bytes);
  void (*release_scratch)(LaunchContext* context, void* data, int64_t bytes);
  int64_t bad_position = no_bad_position;  // smallest position of a failed Check; lowered atomically
  int64_t out_of_scratch = 0;              // nonzero: a scratch request failed
  void* owner = nullptr;                   // for the launcher's own use
};

// buffers: one pointer per kernel buffer. scalars: one 64-bit slot per kernel scalar.
using KernelFunction = void (*)(LaunchContext* context, void* const* buffers, const int64_t* scalars);

}  // namespace gradloom
