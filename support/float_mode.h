#pragma once
// The CPU's floating-point mode that all of this library's arithmetic assumes: denormals kept, round to nearest,
// exceptions masked.
#if defined(__SSE__) || defined(_M_X64)
#include <xmmintrin.h>
#define GRADLOOM_HAS_MXCSR 1
#endif

namespace gradloom {

// Sets the mode for a scope, on this thread; the caller's is restored at its end.
class FloatMode {
 public:
#ifdef GRADLOOM_HAS_MXCSR
  FloatMode() : saved_(_mm_getcsr()) {
    if ((saved_ & control_bits) != wanted) _mm_setcsr(wanted);
  }
  ~FloatMode() {
    if ((saved_ & control_bits) != wanted) _mm_setcsr(saved_);
  }
#else
  FloatMode() {}
#endif
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
#ifdef GRADLOOM_HAS_MXCSR
  static constexpr unsigned control_bits = 0xffc0;  // all but the sticky exception flags
  static constexpr unsigned wanted = 0x1f80;        // every exception masked; nearest; neither FTZ nor DAZ
  unsigned saved_;
#endif
};

}  // namespace gradloom
