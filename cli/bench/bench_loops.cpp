// The loops behind the memory roof: sums with more or fewer accumulators, with and without prefetch, along one stream
// or four; memset, vector stores, streaming stores. Each is compiled for every supported instruction set and dispatched
// at run time.
#include <cmath>
#include <cstdint>
#include <cstring>

#include "cli/bench/bench_probe.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gradloom::cli {
namespace {

// Integer sums: no denormal or NaN in the data can slow them.
template <int Bytes>
struct VectorOf;
template <>
struct VectorOf<16> {
  typedef uint64_t type __attribute__((vector_size(16), aligned(8), may_alias));
};
template <>
struct VectorOf<32> {
  typedef uint64_t type __attribute__((vector_size(32), aligned(8), may_alias));
};
template <>
struct VectorOf<64> {
  typedef uint64_t type __attribute__((vector_size(64), aligned(8), may_alias));
};

uint64_t sum_tail(const char* data, int64_t bytes) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < bytes; ++i) sum += static_cast<unsigned char>(data[i]);
  return sum;
}

// One loop body for all instruction sets: a function's target attribute does not extend to a template that it calls, so
// the body is a macro. `Streams` address streams are interleaved, each unrolled by `Accumulators / Streams` vectors.
#define GRADLOOM_READ_LOOP(NAME, TARGET, BYTES)                                         \
  template <int Accumulators, int Streams, int Ahead>                                   \
  TARGET uint64_t NAME(const void* data, int64_t bytes) {                               \
    using Vector = VectorOf<BYTES>::type;                                               \
    constexpr int each = Accumulators / Streams;                                        \
    Vector sums[Accumulators] = {};                                                     \
    const auto* from = static_cast<const char*>(data);                                  \
    const int64_t part = bytes / Streams / (each * BYTES) * (each * BYTES);             \
    for (int64_t i = 0; i < part; i += each * BYTES) {                                  \
      _Pragma("GCC unroll 4") for (int s = 0; s < Streams; ++s) {                       \
        _Pragma("GCC unroll 16") for (int k = 0; k < each; ++k) {                       \
          const char* at = from + s * part + i + k * BYTES;                             \
          if (Ahead > 0 && (k * BYTES) % 64 == 0) __builtin_prefetch(at + Ahead);       \
          sums[s * each + k] += *reinterpret_cast<const Vector*>(at);                   \
        }                                                                               \
      }                                                                                 \
    }                                                                                   \
    _Pragma("GCC unroll 16") for (int k = 1; k < Accumulators; ++k) sums[0] += sums[k]; \
    uint64_t sum = sum_tail(from + Streams * part, bytes - Streams * part);             \
    for (int k = 0; k < BYTES / 8; ++k) sum += sums[0][k];                              \
    return sum;                                                                         \
  }

#define GRADLOOM_WRITE_LOOP(NAME, TARGET, BYTES)                             \
  TARGET void NAME(void* data, int64_t bytes) {                              \
    using Vector = VectorOf<BYTES>::type;                                    \
    const Vector zero = {};                                                  \
    auto* to = static_cast<char*>(data);                                     \
    int64_t i = 0;                                                           \
    for (; i + 4 * BYTES <= bytes; i += 4 * BYTES) {                         \
      _Pragma("GCC unroll 4") for (int k = 0; k < 4; ++k) {                  \
        *reinterpret_cast<Vector*>(to + i + k * BYTES) = zero;               \
        asm volatile("" ::: "memory"); /* else the compiler sees a memset */ \
      }                                                                      \
    }                                                                        \
    std::memset(to + i, 0, bytes - i);                                       \
  }

GRADLOOM_READ_LOOP(read_16, , 16)
GRADLOOM_WRITE_LOOP(write_16, , 16)
void write_memset(void* data, int64_t bytes) { std::memset(data, 0, bytes); }

#if defined(__x86_64__)
GRADLOOM_READ_LOOP(read_32, __attribute__((target("avx2"))), 32)
GRADLOOM_READ_LOOP(read_64, __attribute__((target("avx512f"))), 64)
GRADLOOM_WRITE_LOOP(write_32, __attribute__((target("avx2"))), 32)
GRADLOOM_WRITE_LOOP(write_64, __attribute__((target("avx512f"))), 64)

void stream_16(void* data, int64_t bytes) {
  auto* to = static_cast<char*>(data);
  int64_t i = 0;
  for (; i + 64 <= bytes; i += 64)
    for (int k = 0; k < 64; k += 16) _mm_stream_si128(reinterpret_cast<__m128i*>(to + i + k), _mm_setzero_si128());
  std::memset(to + i, 0, bytes - i);
  _mm_sfence();
}
__attribute__((target("avx2"))) void stream_32(void* data, int64_t bytes) {
  auto* to = static_cast<char*>(data);
  int64_t i = 0;
  for (; i + 64 <= bytes; i += 64)
    for (int k = 0; k < 64; k += 32)
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i + k), _mm256_setzero_si256());
  std::memset(to + i, 0, bytes - i);
  _mm_sfence();
}
__attribute__((target("avx512f"))) void stream_64(void* data, int64_t bytes) {
  auto* to = static_cast<char*>(data);
  int64_t i = 0;
  for (; i + 64 <= bytes; i += 64) _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), _mm512_setzero_si512());
  std::memset(to + i, 0, bytes - i);
  _mm_sfence();
}
// Twelve independent sums hide the latency of two multiply-adds issued per cycle. The empty asm statement pins them to
// registers and keeps the compiler from merging rounds.
#define GRADLOOM_MULTIPLY_ADD(NAME, TARGET, VECTOR, SET1, FMADD, LANE0, REGISTER)                 \
  TARGET float NAME(int64_t rounds) {                                                             \
    VECTOR sums[12];                                                                              \
    const VECTOR a = SET1(0.5f), b = SET1(0.25f);                                                 \
    _Pragma("GCC unroll 12") for (int i = 0; i < 12; ++i) sums[i] = SET1(1.0f);                   \
    for (int64_t r = 0; r < rounds; ++r) {                                                        \
      _Pragma("GCC unroll 12") for (int i = 0; i < 12; ++i) sums[i] = FMADD(sums[i], a, b);       \
      _Pragma("GCC unroll 12") for (int i = 0; i < 12; ++i) asm volatile("" : REGISTER(sums[i])); \
    }                                                                                             \
    float total = 0;                                                                              \
    _Pragma("GCC unroll 12") for (int i = 0; i < 12; ++i) total += LANE0(sums[i]);                \
    return total;                                                                                 \
  }
GRADLOOM_MULTIPLY_ADD(multiply_add_32, __attribute__((target("avx2,fma"))), __m256, _mm256_set1_ps, _mm256_fmadd_ps,
                      _mm256_cvtss_f32, "+x")
GRADLOOM_MULTIPLY_ADD(multiply_add_64, __attribute__((target("avx512f"))), __m512, _mm512_set1_ps, _mm512_fmadd_ps,
                      _mm512_cvtss_f32, "+v")

__attribute__((target("avx2,fma"))) void multiply_add_row_fma(const float* factors, const float* columns, float* row,
                                                              int64_t k, int64_t n) {
  for (int64_t j = 0; j < n; ++j) row[j] = 0;
  for (int64_t i = 0; i < k; ++i)
    for (int64_t j = 0; j < n; ++j) row[j] = __builtin_fmaf(factors[i], columns[i * n + j], row[j]);
}
void write_rep(void* data, int64_t bytes) { asm volatile("rep stosb" : "+D"(data), "+c"(bytes) : "a"(0) : "memory"); }
#endif

#define GRADLOOM_READ_LOOPS(NAME)                                                           \
  {                                                                                         \
    {"4 sums", NAME<4, 1, 0>}, {"8 sums", NAME<8, 1, 0>}, {"16 sums", NAME<16, 1, 0>},      \
        {"8 sums, prefetch", NAME<8, 1, 2048>}, {"8 sums, far prefetch", NAME<8, 1, 8192>}, \
        {"4 streams", NAME<8, 4, 0>}, {                                                     \
      "4 streams, prefetch", NAME<8, 4, 2048>                                               \
    }                                                                                       \
  }

}  // namespace

std::vector<ReadLoop> read_loops() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return GRADLOOM_READ_LOOPS(read_64);
  if (__builtin_cpu_supports("avx2")) return GRADLOOM_READ_LOOPS(read_32);
#endif
  return GRADLOOM_READ_LOOPS(read_16);
}

std::vector<WriteLoop> write_loops() {
  std::vector<WriteLoop> loops{{"memset", write_memset}};
#if defined(__x86_64__)
  loops.push_back({"rep stosb", write_rep});
  if (__builtin_cpu_supports("avx512f")) {
    loops.push_back({"stores", write_64});
    loops.push_back({"streaming stores", stream_64});
  } else if (__builtin_cpu_supports("avx2")) {
    loops.push_back({"stores", write_32});
    loops.push_back({"streaming stores", stream_32});
  } else {
    loops.push_back({"stores", write_16});
    loops.push_back({"streaming stores", stream_16});
  }
#else
  loops.push_back({"stores", write_16});
#endif
  return loops;
}

MultiplyAddLoop multiply_add_loop() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return {2 * 12 * 16, multiply_add_64};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {2 * 12 * 8, multiply_add_32};
#endif
  return {2 * 12, [](int64_t rounds) {
            float sums[12] = {};
            for (int64_t r = 0; r < rounds; ++r)
              for (float& sum : sums) sum = std::fma(sum, 0.5f, 0.25f);
            float total = 0;
            for (const float sum : sums) total += sum;
            return total;
          }};
}

void multiply_add_row(const float* factors, const float* columns, float* row, int64_t k, int64_t n) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return multiply_add_row_fma(factors, columns, row, k, n);
#endif
  for (int64_t j = 0; j < n; ++j) row[j] = 0;
  for (int64_t i = 0; i < k; ++i)
    for (int64_t j = 0; j < n; ++j) row[j] = std::fma(factors[i], columns[i * n + j], row[j]);
}

}  // namespace gradloom::cli
