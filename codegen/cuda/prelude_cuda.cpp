// CUDA's own words for the device: what has no meaning in plain C++. NVRTC gets no headers.
#include <string>

#include "codegen/cuda/prelude.h"

namespace gradloom::codegen {

const char* cuda_prelude() {
  static const std::string text = std::string(R"cuda(// The helpers of gradloom's kernels, for NVRTC.
#define GL_INLINE __device__ __forceinline__
#define GL_KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#define GL_SHARED(bytes) extern __shared__ __align__(16) unsigned char gl_shared[]
GL_INLINE int gl_thread() { return (int)threadIdx.x; }
GL_INLINE long long gl_block() { return blockIdx.x; }
GL_INLINE long long gl_blocks() { return gridDim.x; }
GL_INLINE void gl_sync_block() { __syncthreads(); }
GL_INLINE void gl_sync_warp() { __syncwarp(); }
GL_INLINE unsigned gl_ballot(bool on) { return __ballot_sync(0xffffffffu, on); }
#if __CUDA_ARCH__ >= 700
GL_INLINE unsigned gl_match(unsigned long long v) { return __match_any_sync(0xffffffffu, v); }
#endif
GL_INLINE unsigned long long gl_shuffle(unsigned long long v, int lane) { return __shfl_sync(0xffffffffu, v, lane); }
GL_INLINE void gl_atomic_min(long long* place, long long v) { atomicMin(place, v); }
GL_INLINE void gl_atomic_add(int* place, int v) { atomicAdd(place, v); }
GL_INLINE void gl_atomic_add(unsigned* place, unsigned v) { atomicAdd(place, v); }
GL_INLINE void gl_atomic_add(unsigned long long* place, unsigned long long v) { atomicAdd(place, v); }
GL_INLINE void gl_atomic_add(long long* place, long long v) { atomicAdd((unsigned long long*)place, (unsigned long long)v); }
GL_INLINE float gl_fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
GL_INLINE double gl_fma(double a, double b, double c) { return __fma_rn(a, b, c); }
GL_INLINE float gl_sqrt(float a) { return __fsqrt_rn(a); }
GL_INLINE double gl_sqrt(double a) { return __dsqrt_rn(a); }
GL_INLINE float gl_floor(float a) { return floorf(a); }
GL_INLINE double gl_floor(double a) { return floor(a); }
GL_INLINE float gl_ceil(float a) { return ceilf(a); }
GL_INLINE double gl_ceil(double a) { return ceil(a); }
GL_INLINE float gl_trunc(float a) { return truncf(a); }
GL_INLINE double gl_trunc(double a) { return trunc(a); }
GL_INLINE unsigned gl_bits(float a) { return __float_as_uint(a); }
GL_INLINE unsigned long long gl_bits(double a) { return (unsigned long long)__double_as_longlong(a); }
GL_INLINE float gl_float(unsigned a) { return __uint_as_float(a); }
GL_INLINE double gl_double(unsigned long long a) { return __longlong_as_double((long long)a); }
#define GL_HAS_F16
GL_INLINE float gl_from_f16(unsigned short v) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v));
  return f;
}
GL_INLINE unsigned short gl_to_f16(float v) {
  unsigned short h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(v));
  return h;
}
)cuda") + common_prelude();
  return text.c_str();
}

}  // namespace gradloom::codegen
