// The device-only helpers: CUDA intrinsics and PTX that have no plain C++ form. NVRTC gets no headers.
#include <algorithm>
#include <cctype>
#include <vector>

#include "codegen/cuda/prelude.h"
#include "support/lasting.h"

namespace gradloom::codegen {
namespace {

constexpr const char* device_words = R"cuda(// The helpers of gradloom's kernels, for NVRTC.
#define GL_INLINE __device__ __forceinline__
#define GL_KERNEL(...) extern "C" __global__ void __launch_bounds__(__VA_ARGS__)
#define GL_HAS_F16
#define GL_SHARED(bytes) extern __shared__ __align__(16) unsigned char gl_shared[]

GL_INLINE int gl_thread() { return (int)threadIdx.x; }

GL_INLINE long long gl_block() { return blockIdx.x; }

GL_INLINE long long gl_blocks() { return gridDim.x; }

GL_INLINE void gl_sync_block() { __syncthreads(); }

// Block 0 adds what the others leave to half of the range, so that all of them together turn the upper bit and leave the rest at 0.
GL_INLINE void gl_sync_grid(unsigned* place) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    const unsigned old = atomicAdd(place, blockIdx.x == 0 ? 0x80000001u - gridDim.x : 1u);
    while (((*(volatile unsigned*)place ^ old) & 0x80000000u) == 0) {}
    __threadfence();
  }
  __syncthreads();
}

GL_INLINE void gl_sync_warp() { __syncwarp(); }

GL_INLINE unsigned gl_ballot(bool on) { return __ballot_sync(0xffffffffu, on); }

GL_INLINE unsigned gl_match(unsigned v) { return __match_any_sync(0xffffffffu, v); }
GL_INLINE unsigned gl_match(unsigned long long v) { return __match_any_sync(0xffffffffu, v); }

// A word of shared memory that lanes write at the same time: one of them is the last, and no tool takes it for a race.
GL_INLINE void gl_mark(void* place, unsigned v) { atomicExch((unsigned*)place, v); }
GL_INLINE unsigned gl_marked(const void* place) { return *(const volatile unsigned*)place; }

GL_INLINE int gl_first_bit(unsigned v) { return __ffs((int)v) - 1; }

template <class T> GL_INLINE T gl_shuffle(T v, int lane) { return (T)__shfl_sync(0xffffffffu, v, lane); }

GL_INLINE void gl_atomic_min(long long* place, long long v) { atomicMin(place, v); }

GL_INLINE void gl_atomic_add(int* place, int v) { atomicAdd(place, v); }
GL_INLINE void gl_atomic_add(unsigned* place, unsigned v) { atomicAdd(place, v); }
GL_INLINE void gl_atomic_add(float* place, float v) { atomicAdd(place, v); }
GL_INLINE void gl_atomic_add(double* place, double v) { atomicAdd(place, v); }
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

// Four matrices of 8 rows of 16 bytes from shared memory: lane l has the address of row l % 8 of matrix l / 8, and gets the elements 2 (l % 4) and the next of
// row l / 4 of each, or of its column.
template <bool transposed> GL_INLINE void gl_load_matrices(unsigned* piece, const unsigned short* row) {
  const unsigned at = (unsigned)__cvta_generic_to_shared(row);
  if (transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(piece[0]), "=r"(piece[1]), "=r"(piece[2]), "=r"(piece[3]) : "r"(at) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(piece[0]), "=r"(piece[1]), "=r"(piece[2]), "=r"(piece[3]) : "r"(at) : "memory");
}

// sums += a b for 16 rows, 8 columns and 16 along k, spread over the warp's lanes as the instruction wants them.
template <bool bf16> GL_INLINE void gl_matrix_unit(float* sums, const unsigned* a, const unsigned* b) {
  if (bf16)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
)cuda";

// The names that a section defines: after GL_INLINE or struct, the first identifier that starts with gl_.
std::vector<std::string_view> defined(std::string_view piece) {
  std::vector<std::string_view> names;
  for (const std::string_view key : {std::string_view("GL_INLINE "), std::string_view("struct ")})
    for (size_t at = piece.find(key); at != std::string_view::npos; at = piece.find(key, at + 1)) {
      const size_t from = piece.find("gl_", at);
      if (from == std::string_view::npos || piece.substr(at, from - at).find('\n') != std::string_view::npos) continue;
      names.push_back(piece.substr(from, piece.find_first_of("( ", from) - from));
    }
  return names;
}

bool mentions(std::string_view text, std::string_view name) {
  for (size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    const char next = at + name.size() < text.size() ? text[at + name.size()] : ' ';
    if (!std::isalnum(static_cast<unsigned char>(next)) && next != '_') return true;
  }
  return false;
}

}  // namespace

std::string used_helpers(std::string_view helpers, std::string_view text) {
  std::vector<std::string_view> pieces;
  while (!helpers.empty()) {
    const size_t end = std::min(helpers.find("\n\n"), helpers.size());
    pieces.push_back(helpers.substr(0, end));
    helpers.remove_prefix(std::min(end + 2, helpers.size()));
  }
  std::string kept(text);
  std::vector<std::string_view> chosen;
  for (size_t i = pieces.size(); i-- > 0;) {
    const std::vector<std::string_view> names = defined(pieces[i]);
    if (!names.empty() &&
        std::none_of(names.begin(), names.end(), [&](std::string_view name) { return mentions(kept, name); }))
      continue;
    chosen.push_back(pieces[i]);
    kept += pieces[i];
  }
  std::string result;
  for (size_t i = chosen.size(); i-- > 0;) result.append(chosen[i]).append("\n");
  return result;
}

std::string cuda_prelude(std::string_view kernel_text) {
  static constinit Lasting<const std::string> all;
  return used_helpers(all.get([] { return std::string(device_words) + common_prelude(); }), kernel_text);
}

}  // namespace gradloom::codegen
