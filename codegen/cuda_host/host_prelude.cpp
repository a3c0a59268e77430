// Host implementations of the primitives that have no plain C++ form; those that wait call the executor. They precede
// the helpers that both preludes share.
#include "codegen/cuda/prelude.h"
#include "codegen/cuda_host/host_state.h"

#define GRADLOOM_TEXT_OF(...) #__VA_ARGS__
#define GRADLOOM_TEXT(...) GRADLOOM_TEXT_OF(__VA_ARGS__)

namespace gradloom::codegen {

// Atomics are plain accesses: the threads of a launch share one host thread, and switch only where they wait.
const char* host_prelude() {
  return GRADLOOM_TEXT(GRADLOOM_HOST_STATE) R"cpp(
    static thread_local GlHostState* gl_state;
    extern "C" void gl_enter(GlHostState* state) { gl_state = state; }
    template <unsigned... i>
    struct gl_indices {};
    template <unsigned n, unsigned... i>
    struct gl_count : gl_count<n - 1, n - 1, i...> {};
    template <unsigned... i>
    struct gl_count<0, i...> {
      using type = gl_indices<i...>;
    };
    template <class... A, unsigned... i>
    static inline void gl_apply(void (*kernel)(A...), void** arguments, gl_indices<i...>) {
      kernel(*(A*)arguments[i]...);
    }
    template <unsigned n, class... A>
    static inline void gl_call(void (*kernel)(A...), void** arguments) {
      static_assert(sizeof...(A) == n, "the function has other parameters than the module says");
      gl_apply(kernel, arguments, typename gl_count<n>::type());
    }
#define GL_INLINE static inline
#define GL_KERNEL(...) static void
#define GL_SHARED(bytes) unsigned char* const gl_shared = gl_shared_memory(bytes)
    static inline unsigned char* gl_shared_memory(long long bytes, int site = __builtin_LINE()) {
      if (bytes > gl_state->shared_bytes) gl_state->wait(gl_state, gl_wait_shared, site, (unsigned long long)bytes, 0);
      return gl_state->shared;
    }

    static inline int gl_thread() { return gl_state->thread; }
    static inline long long gl_block() { return gl_state->block; }
    static inline long long gl_blocks() { return gl_state->blocks; }
    static inline void gl_sync_block(int site = __builtin_LINE()) { gl_state->wait(gl_state, gl_wait_block, site, 0, 0); }
    static inline void gl_sync_grid(unsigned*, int site = __builtin_LINE()) {
      gl_state->wait(gl_state, gl_wait_grid, site, 0, 0);
    }
    static inline void gl_sync_warp(int site = __builtin_LINE()) { gl_state->wait(gl_state, gl_wait_warp, site, 0, 0); }
    static inline unsigned gl_ballot(bool on, int site = __builtin_LINE()) {
      return (unsigned)gl_state->wait(gl_state, gl_wait_ballot, site, on, 0);
    }
    static inline unsigned gl_match(unsigned long long v, int site = __builtin_LINE()) {
      return (unsigned)gl_state->wait(gl_state, gl_wait_match, site, v, 0);
    }
    template <class T>
    static inline T gl_shuffle(T v, int lane, int site = __builtin_LINE()) {
      unsigned long long bits = 0;
      __builtin_memcpy(&bits, &v, sizeof v);
      bits = gl_state->wait(gl_state, gl_wait_shuffle, site, bits, lane);
      __builtin_memcpy(&v, &bits, sizeof v);
      return v;
    }

    // The lanes lay their pieces side by side; the executor takes them as the instruction would.
    template <bool bf16>
    static inline void gl_matrix_unit(float* sums, const unsigned* a, const unsigned* b, int site = __builtin_LINE()) {
      GlMatrixPiece piece = {sums, a, b, bf16};
      gl_state->wait(gl_state, gl_wait_matrix, site, (unsigned long long)&piece, 0);
    }

    template <bool transposed>
    static inline void gl_load_matrices(unsigned* piece, const unsigned short* row, int site = __builtin_LINE()) {
      GlMatrixRow own = {piece, row, transposed};
      gl_state->wait(gl_state, gl_wait_matrix_rows, site, (unsigned long long)&own, 0);
    }

    static inline void gl_mark(void* place, unsigned v) { __builtin_memcpy(place, &v, sizeof v); }
    static inline unsigned gl_marked(const void* place) {
      unsigned v;
      __builtin_memcpy(&v, place, sizeof v);
      return v;
    }
    static inline int gl_first_bit(unsigned v) { return __builtin_ctz(v); }
    static inline void gl_atomic_min(long long* place, long long v) {
      if (v < *place) *place = v;
    }
    static inline void gl_atomic_add(int* place, int v) { *place = (int)((unsigned)*place + (unsigned)v); }
    static inline void gl_atomic_add(unsigned* place, unsigned v) { *place += v; }
    static inline void gl_atomic_add(float* place, float v) { *place += v; }
    static inline void gl_atomic_add(double* place, double v) { *place += v; }
    static inline void gl_atomic_add(long long* place, long long v) {
      *place = (long long)((unsigned long long)*place + (unsigned long long)v);
    }
    static inline void gl_atomic_add(unsigned long long* place, unsigned long long v) { *place += v; }

    static inline float gl_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
    static inline double gl_fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
    static inline float gl_sqrt(float a) { return __builtin_sqrtf(a); }
    static inline double gl_sqrt(double a) { return __builtin_sqrt(a); }
    static inline float gl_floor(float a) { return __builtin_floorf(a); }
    static inline double gl_floor(double a) { return __builtin_floor(a); }
    static inline float gl_ceil(float a) { return __builtin_ceilf(a); }
    static inline double gl_ceil(double a) { return __builtin_ceil(a); }
    static inline float gl_trunc(float a) { return __builtin_truncf(a); }
    static inline double gl_trunc(double a) { return __builtin_trunc(a); }

    static inline unsigned gl_bits(float a) {
      unsigned b;
      __builtin_memcpy(&b, &a, 4);
      return b;
    }
    static inline unsigned long long gl_bits(double a) {
      unsigned long long b;
      __builtin_memcpy(&b, &a, 8);
      return b;
    }
    static inline float gl_float(unsigned a) {
      float b;
      __builtin_memcpy(&b, &a, 4);
      return b;
    }
    static inline double gl_double(unsigned long long a) {
      double b;
      __builtin_memcpy(&b, &a, 8);
      return b;
    }
  )cpp";
}

}  // namespace gradloom::codegen
