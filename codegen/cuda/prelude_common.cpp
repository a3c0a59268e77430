// The helpers shared by device and host: exact arithmetic and conversions in plain C++, with the semantics of
// gradloom/expr.h. GL_INLINE makes them device functions.
#include "codegen/cuda/prelude.h"

namespace gradloom::codegen {

const char* common_prelude() {
  return R"cuda(
// Integers wrap: arithmetic is done unsigned, in 64 bits, and cut to the type.
template <class T> GL_INLINE T gl_add(T a, T b) { return (T)((unsigned long long)a + (unsigned long long)b); }

template <class T> GL_INLINE T gl_sub(T a, T b) { return (T)((unsigned long long)a - (unsigned long long)b); }

template <class T> GL_INLINE T gl_mul(T a, T b) { return (T)((unsigned long long)a * (unsigned long long)b); }

template <class T> GL_INLINE T gl_shl(T a, T count) { return (T)((unsigned long long)a << (int)count); }

template <class T> GL_INLINE T gl_min(T a, T b) { return b < a ? b : a; }

template <class T> GL_INLINE T gl_max(T a, T b) { return a < b ? b : a; }

template <class T> GL_INLINE T gl_abs(T a) { return a < (T)0 ? gl_sub((T)0, a) : a; }

// Towards minus infinity. INT_MIN / -1 wraps.
template <class T> GL_INLINE T gl_floor_div(T a, T b) {
  if (b == (T)-1 && (T)-1 < (T)0) return gl_sub((T)0, a);
  const T quotient = (T)(a / b);
  return (T)(a % b) != (T)0 && (a < (T)0) != (b < (T)0) ? (T)(quotient - (T)1) : quotient;
}

template <class T> GL_INLINE T gl_floor_mod(T a, T b) { return gl_sub(a, gl_mul(gl_floor_div(a, b), b)); }

// IEEE 754-2019 minimum and maximum: a NaN wins, -0 is less than +0.
GL_INLINE float gl_min(float a, float b) { return a != a ? a : b != b ? b : a == b ? gl_float(gl_bits(a) | gl_bits(b)) : a < b ? a : b; }

GL_INLINE float gl_max(float a, float b) { return a != a ? a : b != b ? b : a == b ? gl_float(gl_bits(a) & gl_bits(b)) : a < b ? b : a; }

GL_INLINE double gl_min(double a, double b) { return a != a ? a : b != b ? b : a == b ? gl_double(gl_bits(a) | gl_bits(b)) : a < b ? a : b; }

GL_INLINE double gl_max(double a, double b) { return a != a ? a : b != b ? b : a == b ? gl_double(gl_bits(a) & gl_bits(b)) : a < b ? b : a; }

GL_INLINE float gl_neg(float a) { return gl_float(gl_bits(a) ^ 0x80000000u); }
GL_INLINE double gl_neg(double a) { return gl_double(gl_bits(a) ^ 0x8000000000000000ull); }

GL_INLINE float gl_abs(float a) { return gl_float(gl_bits(a) & 0x7fffffffu); }
GL_INLINE double gl_abs(double a) { return gl_double(gl_bits(a) & 0x7fffffffffffffffull); }

// Float to integer: truncates, saturates, NaN gives 0. `above` is 2^bits of the type, exact.
template <class T, class F> GL_INLINE T gl_to_int(F v, F low, F above, T least, T most) {
  return v != v ? (T)0 : v < low ? least : v >= above ? most : (T)v;
}

// bf16 and f16 are held as their bits.
GL_INLINE float gl_from_bf16(unsigned short v) { return gl_float((unsigned)v << 16); }

GL_INLINE unsigned short gl_to_bf16(float v) {
  const unsigned bits = gl_bits(v);
  if (v != v) return (unsigned short)(bits >> 16 | 0x40u);
  return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

#ifndef GL_HAS_F16
GL_INLINE float gl_from_f16(unsigned short v) {
  const unsigned magnitude = (v & 0x7fffu) << 13, sign = (v & 0x8000u) << 16;
  // Scaling by 2^112 moves the exponent and makes f16's denormals normal, exactly.
  return gl_float((magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : gl_bits(gl_float(magnitude) * gl_float(0x77800000u))) | sign);
}
GL_INLINE unsigned short gl_to_f16(float v) {
  const unsigned bits = gl_bits(v), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  unsigned result;
  if (magnitude > 0x7f800000u) result = 0x7e00u;
  else if (magnitude >= 0x477ff000u) result = 0x7c00u;
  else if (magnitude < 0x38800000u) result = gl_bits(gl_float(magnitude) + 0.5f) - 0x3f000000u;  // 0.5's last place is f16's smallest denormal
  else result = (magnitude + 0xc8000fffu + (magnitude >> 13 & 1u)) >> 13;
  return (unsigned short)(result | sign);
}
#endif

// Wide types go to f16 and bf16 through an f32 rounded to odd: only the second rounding shows.
GL_INLINE float gl_odd(double v) {
  const float nearest = (float)v;
  const double back = (double)nearest;
  if (back == v || v != v) return nearest;
  const unsigned bits = gl_bits(nearest);
  return gl_float((gl_abs(back) > gl_abs(v) ? bits - 1u : bits) | 1u);
}

GL_INLINE float gl_odd(long long v) {
  const bool fits = v >= -(1ll << 53) && v <= 1ll << 53;
  return gl_odd((double)(fits ? v : (v & ~0x7ffll) | ((v & 0x7ffll) ? 0x800ll : 0ll)));
}

GL_INLINE float gl_odd(unsigned long long v) {
  const bool fits = v <= 1ull << 53;
  return gl_odd((double)(fits ? v : (v & ~0x7ffull) | ((v & 0x7ffull) ? 0x800ull : 0ull)));
}

// A few neighbours, moved at once.
template <class T, int n> struct alignas(sizeof(T) * n) gl_vector { T lane[n]; };

// update(*place, what...) for the warp's lanes that are on: those of one place in lane order, by its first lane. All lanes of the warp call it. `near`: the
// place is in shared memory and of 32 bits or more. There, that no lanes meet is found without comparing all places, as matching takes a turn for each: every
// lane leaves its number at its place, and finds it again.
template <bool near, class T, class Update, class... V> GL_INLINE void gl_ordered(bool on, T* place, Update update, V... what) {
  const int lane = gl_thread() % 32;
  T sum = 0;
  if (on) sum = *place;
  if (near) {
    gl_sync_warp();
    if (on) gl_mark(place, (unsigned)lane);
    gl_sync_warp();
    if (!gl_ballot(on && gl_marked(place) != (unsigned)lane)) {
      update(sum, what...);
      if (on) *place = sum;
      return;
    }
  }
  const unsigned long long address = (unsigned long long)place;
  const unsigned active = gl_ballot(on), same = (near ? gl_match((unsigned)address) : gl_match(address)) & active;
  const bool first = on && !(same & ((1u << lane) - 1u));
  if (gl_ballot(same == 0xffffffffu)) {
#pragma unroll
    for (int next = 0; next < 32; ++next) update(sum, gl_shuffle(what, next)...);
  } else {
    update(sum, what...);
    for (unsigned left = first ? same & (same - 1u) : 0u; gl_ballot(left != 0u); left &= left - 1u) {
      T more = sum;
      update(more, gl_shuffle(what, left ? gl_first_bit(left) : lane)...);
      if (left) sum = more;
    }
  }
  gl_sync_warp();  // all have read what lies there
  if (first) *place = sum;
}

// A tile of a warp is laid out by pieces of 16 rows by 8 columns, each with two pairs in every lane: two neighbours in row lane / 4, two 8 rows below.
template <int columns> GL_INLINE int gl_fragment_row(int pair) { return pair / 2 / (columns / 8) * 16 + pair % 2 * 8 + gl_thread() % 32 / 4; }

template <int columns> GL_INLINE int gl_fragment_pair(int pair) { return pair / 2 % (columns / 8) * 4 + gl_thread() % 4; }

// How a warp comes by an operand of f16 or bf16: elements from one row (column) to the next, from one k to the next.
// In pairs along k; whether these may be read as one.
template <int along, int along_k, bool together> struct gl_pairs {
  enum { step = along_k };
  GL_INLINE unsigned pair(const unsigned short* p) {
    return together ? *(const unsigned*)p : p[0] | (unsigned)p[along_k] << 16;
  }
  GL_INLINE int own() {
    return gl_thread() % 32 / 4 * along + gl_thread() % 4 * 2 * along_k;
  }
  template <int n> GL_INLINE void rows(unsigned (&piece)[n], const unsigned short* a) {
#pragma unroll
    for (int i = 0; i < n; ++i) piece[i] = pair(a + own() + (i / 4 * 16 + i % 2 * 8) * along + i % 4 / 2 * 8 * along_k);
  }
  template <int n> GL_INLINE void columns(unsigned (&piece)[n], const unsigned short* b) {
#pragma unroll
    for (int j = 0; j < n; ++j) piece[j] = pair(b + own() + j / 2 * 8 * along + j % 2 * 8 * along_k);
  }
};

// Four matrices of 8 by 8 at once, whose rows of 16 bytes lie along k, or else along rows (columns).
template <int along, int along_k> struct gl_matrices {
  enum { step = along_k };
  template <int n> GL_INLINE void rows(unsigned (&piece)[n], const unsigned short* a) {
    const int lane = gl_thread() % 32, first = lane % 8, second = lane / 8 % 2 * 8, fourth = lane / 16 * 8;
    a += along_k == 1 ? (first + second) * along + fourth : (first + fourth) * along_k + second;
#pragma unroll
    for (int i = 0; i < n / 4; ++i) gl_load_matrices<along_k != 1>(piece + i * 4, a + i * 16 * along);
  }
  template <int n> GL_INLINE void columns(unsigned (&piece)[n], const unsigned short* b) {
    const int lane = gl_thread() % 32, first = lane % 8, second = lane / 8 % 2 * 8, fourth = lane / 16 * 8;
    b += along_k == 1 ? (first + fourth) * along + second : (first + second) * along_k + fourth;
#pragma unroll
    for (int j = 0; j < n / 4; ++j) gl_load_matrices<along_k != 1>(piece + j * 4, b + j * 16 * along);
  }
};

// sums += a b over `depth` steps along k, for the tile of a warp.
template <bool bf16, int rows, int columns, int depth, class A, class B>
GL_INLINE void gl_fragment_product(float* sums, const unsigned short* a, const unsigned short* b) {
#pragma unroll
  for (int k = 0; k < depth; k += 16) {
    unsigned piece_a[rows / 4], piece_b[columns / 4];
    A().rows(piece_a, a + k * A::step);
    B().columns(piece_b, b + k * B::step);
#pragma unroll
    for (int i = 0; i < rows / 16; ++i)
#pragma unroll
      for (int j = 0; j < columns / 8; ++j) gl_matrix_unit<bf16>(sums + (i * (columns / 8) + j) * 4, piece_a + i * 4, piece_b + j * 2);
  }
}
)cuda";
}

}  // namespace gradloom::codegen
