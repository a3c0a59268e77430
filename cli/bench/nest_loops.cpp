#include "cli/bench/nest_loops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

// Compiled for the newest instructions of the machine that runs it, as -march=native would.
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__)
#define NATIVE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define NATIVE
#endif
#define LOOP(NAME) NATIVE void NAME(void* const* b, const int64_t* n)

namespace gradloom::cli::loops {
namespace {

template <class T>
inline T* of(void* const* b, int i) {
  return static_cast<T*>(b[i]);
}
using Float = float* __restrict;
using In = const float* __restrict;
using Index = const int64_t* __restrict;

constexpr int64_t row = 64, ahead = 12;  // elements of the nests' rows; rows of lead for a prefetch

// The sums' declared order: blocks of 256 terms, 16 strided partials each; of columns, blocks of 16 rows, 64 a part.
constexpr int64_t partials = 16, columns_part = 64 * partials;

inline float folded(float (&p)[partials]) {
  for (int64_t h = partials / 2; h > 0; h /= 2)
    for (int64_t l = 0; l < h; ++l) p[l] += p[l + h];
  return p[0];
}
template <class Term>
__attribute__((always_inline)) inline float tree_sum(int64_t n, const Term& term) {
  float total = 0, part = 0;
  for (int64_t i = 0; i < n; i += 256) {
    float p[partials] = {};
    for (int64_t k = i; k < std::min(i + 256, n); k += partials)
      for (int64_t l = 0; l < partials && k + l < n; ++l) p[l] += term(k + l);
    part += folded(p);
    if ((i / 256 + 1) % 64 == 0) total += part, part = 0;
  }
  return n <= 64 * 256 ? part : total + part;
}
// Into `to`, with the part's sums in `part`.
template <class Term>
__attribute__((always_inline)) inline void column_sums(int64_t n, int64_t m, float* __restrict to,
                                                       float* __restrict part, const Term& term) {
  std::fill_n(to, m, 0.0f);
  for (int64_t i = 0; i < n; i += columns_part) {
    std::fill_n(part, m, 0.0f);
    for (int64_t k = i; k < std::min(i + columns_part, n); k += partials)
      for (int64_t j = 0; j < m; ++j) {
        float p[partials] = {};
        for (int64_t l = 0; l < std::min(partials, n - k); ++l) p[l] = 0.0f + term(k + l, j);
        part[j] += folded(p);
      }
    for (int64_t j = 0; j < m; ++j) to[j] += part[j];
  }
}

inline void fetch_row(const float* at) {
  for (int64_t q = 0; q < row; q += 16) __builtin_prefetch(at + q, 1);
}

}  // namespace

LOOP(relu_grad) {
  In dy = of<float>(b, 0), x = of<float>(b, 1);
  Float dx = of<float>(b, 2);
  for (int64_t i = 0; i < n[0]; ++i) dx[i] = x[i] > 0 ? dy[i] : 0;
}

LOOP(softmax_grad) {
  const int64_t m = n[1];
  for (int64_t i = 0; i < n[0]; ++i) {
    In dy = of<float>(b, 0) + i * m, y = of<float>(b, 1) + i * m;
    Float dx = of<float>(b, 2) + i * m;
    const float total = tree_sum(m, [=](int64_t k) { return dy[k] * y[k]; });
    for (int64_t j = 0; j < m; ++j) dx[j] = (dy[j] - total) * y[j];
  }
}

LOOP(layer_norm_grad) {
  const int64_t m = n[1];
  In dys = of<float>(b, 0), xs = of<float>(b, 1), scale = of<float>(b, 2), mean = of<float>(b, 3),
     inverse = of<float>(b, 4);
  for (int64_t i = 0; i < n[0]; ++i) {
    In dy = dys + i * m, x = xs + i * m;
    Float dx = of<float>(b, 5) + i * m;
    const float mu = mean[i], r = inverse[i];
    const float s = tree_sum(m, [=](int64_t k) { return dy[k] * scale[k]; }) / static_cast<float>(m);
    const float t =
        tree_sum(m, [=](int64_t k) { return dy[k] * scale[k] * ((x[k] - mu) * r); }) / static_cast<float>(m);
    for (int64_t j = 0; j < m; ++j) dx[j] = (dy[j] * scale[j] - s - (x[j] - mu) * r * t) * r;
  }
  std::vector<float> part(static_cast<size_t>(m));
  column_sums(n[0], m, of<float>(b, 6), part.data(),
              [=](int64_t i, int64_t j) { return dys[i * m + j] * ((xs[i * m + j] - mean[i]) * inverse[i]); });
  column_sums(n[0], m, of<float>(b, 7), part.data(), [=](int64_t i, int64_t j) { return dys[i * m + j]; });
}

LOOP(row_sum) {
  In x = of<float>(b, 0);
  Float y = of<float>(b, 1);
  for (int64_t i = 0; i < n[0]; ++i) {
    float sum = 0;
    for (int64_t k = 0; k < n[1]; ++k) sum += x[i * n[1] + k];
    y[i] = sum;
  }
}

LOOP(column_sum) {
  In x = of<float>(b, 0);
  Float y = of<float>(b, 1);
  const int64_t m = n[1];
  for (int64_t i = 0; i < n[0]; ++i)
    for (int64_t j = 0; j < m; ++j) y[j] += x[i * m + j];
}

LOOP(stencil) {
  const int64_t m = n[1];
  Float y = of<float>(b, 1);
  for (int64_t i = 0; i < n[0] - 2; ++i) {
    In x = of<float>(b, 0) + i * m;
    for (int64_t j = 0; j < m - 2; ++j)
      y[i * (m - 2) + j] = x[m + j + 1] * 4.0f - x[j + 1] - x[2 * m + j + 1] - x[m + j] - x[m + j + 2];
  }
}

LOOP(transpose) {
  In x = of<float>(b, 0);
  Float y = of<float>(b, 1);
  for (int64_t i = 0; i < n[1]; ++i)
    for (int64_t j = 0; j < n[0]; ++j) y[i * n[0] + j] = x[j * n[1] + i];
}

LOOP(pool_grad) {
  const int64_t width = n[1], all = 2 * width;
  In dy = of<float>(b, 1);
  for (int64_t i = 0; i < n[0]; ++i) {
    In x0 = of<float>(b, 0) + 2 * i * all, x1 = x0 + all;
    float* __restrict d0 = of<float>(b, 2) + 2 * i * all, * __restrict d1 = d0 + all;
    for (int64_t j = 0; j < width; ++j) {
      const float p = x0[2 * j], q = x0[2 * j + 1], r = x1[2 * j], s = x1[2 * j + 1], g = dy[i * width + j];
      const float t = std::max(std::max(p, q), std::max(r, s));
      d0[2 * j] = p == t ? g : 0;
      d0[2 * j + 1] = q == t && p != t ? g : 0;
      d1[2 * j] = r == t && p != t && q != t ? g : 0;
      d1[2 * j + 1] = s == t && p != t && q != t && r != t ? g : 0;
    }
  }
}

LOOP(product) {
  In a = of<float>(b, 0), x = of<float>(b, 1);
  Float c = of<float>(b, 2);
  const int64_t m = n[1], p = n[2];
  for (int64_t i = 0; i < n[0]; ++i) {
    for (int64_t j = 0; j < m; ++j) c[i * m + j] = 0;
    for (int64_t k = 0; k < p; ++k)
      for (int64_t j = 0; j < m; ++j) c[i * m + j] += a[i * p + k] * x[k * m + j];
  }
}

LOOP(fma_product) {
  In a = of<float>(b, 0), x = of<float>(b, 1);
  Float c = of<float>(b, 2);
  const int64_t m = n[1], p = n[2];
  for (int64_t i = 0; i < n[0]; ++i) {
    for (int64_t j = 0; j < m; ++j) c[i * m + j] = 0;
    for (int64_t k = 0; k < p; ++k)
      for (int64_t j = 0; j < m; ++j) c[i * m + j] = __builtin_fmaf(a[i * p + k], x[k * m + j], c[i * m + j]);
  }
}

LOOP(embedding_bag) {
  Index offsets = of<int64_t>(b, 0), indices = of<int64_t>(b, 1);
  Float dw = of<float>(b, 3);
  std::memset(dw, 0, static_cast<size_t>(n[2] * row) * 4);
  for (int64_t bag = 0; bag < n[0]; ++bag)
    for (int64_t k = offsets[bag]; k < offsets[bag + 1]; ++k) {
      In dy = of<float>(b, 2) + bag * row;
      for (int64_t j = 0; j < row; ++j) dw[indices[k] * row + j] += dy[j];
    }
}

LOOP(max_pool_grad) {
  In dy = of<float>(b, 0);
  Index argmax = of<int64_t>(b, 1);
  std::memset(b[2], 0, static_cast<size_t>(n[0] * n[2]) * 4);
  for (int64_t c = 0; c < n[0]; ++c)
    for (int64_t i = 0; i < n[1]; ++i) of<float>(b, 2)[c * n[2] + argmax[c * n[1] + i]] += dy[c * n[1] + i];
}

LOOP(histogram) {
  const int32_t* values = of<int32_t>(b, 0);
  for (int64_t i = 0; i < n[0]; ++i) of<int32_t>(b, 1)[values[i]] += 1;
}

LOOP(scatter_nd) {
  Index at = of<int64_t>(b, 0);
  Float y = of<float>(b, 2);
  for (int64_t k = 0; k < n[0]; ++k) {
    In from = of<float>(b, 1) + k * 16;
    for (int64_t j = 0; j < 16; ++j) y[(at[2 * k] * n[2] + at[2 * k + 1]) * 16 + j] += from[j];
  }
}

LOOP(segment_sum) {
  Index ids = of<int64_t>(b, 0);
  In x = of<float>(b, 1);
  Float y = of<float>(b, 2);
  std::memset(y, 0, static_cast<size_t>(n[1] * row) * 4);
  for (int64_t k = 0; k < n[0]; ++k)
    for (int64_t j = 0; j < row; ++j) y[ids[k] * row + j] += x[k * row + j];
}

LOOP(csr_transposed) {
  Index begin = of<int64_t>(b, 0), column = of<int64_t>(b, 1);
  In value = of<float>(b, 2);
  Float y = of<float>(b, 4);
  std::memset(y, 0, static_cast<size_t>(n[2] * row) * 4);
  for (int64_t r = 0; r < n[0]; ++r)
    for (int64_t k = begin[r]; k < begin[r + 1]; ++k) {
      In x = of<float>(b, 3) + r * row;
      for (int64_t j = 0; j < row; ++j) y[column[k] * row + j] += value[k] * x[j];
    }
}

LOOP(bilinear_grad) {
  In py = of<float>(b, 0), px = of<float>(b, 1), dout = of<float>(b, 2);
  float* dx = of<float>(b, 3);
  const int64_t w = n[2];
  std::memset(dx, 0, static_cast<size_t>(n[1] * w) * 4);
  for (int64_t i = 0; i < n[0]; ++i) {
    const float top = std::floor(py[i]), left = std::floor(px[i]), wy = py[i] - top, wx = px[i] - left, g = dout[i];
    float* to = dx + static_cast<int64_t>(top) * w + static_cast<int64_t>(left);
    to[0] += g * (1 - wy) * (1 - wx);
    to[1] += g * (1 - wy) * wx;
    to[w] += g * wy * (1 - wx);
    to[w + 1] += g * wy * wx;
  }
}

LOOP(column_scatter) {
  Index at = of<int64_t>(b, 0);
  In dy = of<float>(b, 1);
  const int64_t m = n[1];
  std::memset(b[2], 0, static_cast<size_t>(n[2] * m) * 4);
  for (int64_t i = 0; i < n[0]; ++i)
    for (int64_t j = 0; j < m; ++j) of<float>(b, 2)[at[i * m + j] * m + j] += dy[i * m + j];
}

LOOP(tuned_embedding_bag) {
  Index offsets = of<int64_t>(b, 0), indices = of<int64_t>(b, 1);
  Float dw = of<float>(b, 3);
  std::memset(dw, 0, static_cast<size_t>(n[2] * row) * 4);
  for (int64_t bag = 0; bag < n[0]; ++bag)
    for (int64_t k = offsets[bag]; k < offsets[bag + 1]; ++k) {
      In dy = of<float>(b, 2) + bag * row;
      if (k + ahead < n[1]) fetch_row(dw + indices[k + ahead] * row);
      float* to = dw + indices[k] * row;
      for (int64_t j = 0; j < row; ++j) to[j] += dy[j];
    }
}

LOOP(tuned_few_bins) {  // four tables, so that equal neighbours do not wait for one another
  constexpr int64_t copies = 4, most = 256;
  const int32_t* values = of<int32_t>(b, 0);
  int32_t tables[copies][most] = {};
  int64_t i = 0;
  for (; i + copies <= n[0]; i += copies)
    for (int64_t c = 0; c < copies; ++c) ++tables[c][values[i + c]];
  for (; i < n[0]; ++i) ++tables[0][values[i]];
  for (int64_t v = 0; v < n[1]; ++v)
    for (auto& table : tables) of<int32_t>(b, 1)[v] += table[v];
}

LOOP(tuned_many_bins) {  // values to blocks of bins that fit a cache, then block by block
  constexpr int block_bits = 17;
  const int32_t* values = of<int32_t>(b, 0);
  const int64_t blocks = (n[1] >> block_bits) + 1;
  std::vector<int64_t> first(static_cast<size_t>(blocks) + 1);
  for (int64_t i = 0; i < n[0]; ++i) ++first[static_cast<size_t>(values[i] >> block_bits) + 1];
  for (size_t k = 1; k < first.size(); ++k) first[k] += first[k - 1];
  static std::vector<int32_t> sorted;  // memory of earlier calls, as a library would keep
  sorted.resize(static_cast<size_t>(n[0]));
  for (int64_t i = 0; i < n[0]; ++i) sorted[static_cast<size_t>(first[values[i] >> block_bits]++)] = values[i];
  for (const int32_t v : sorted) of<int32_t>(b, 1)[v] += 1;
}

LOOP(tuned_scatter_nd) {
  Index at = of<int64_t>(b, 0);
  Float y = of<float>(b, 2);
  for (int64_t k = 0; k < n[0]; ++k) {
    const int64_t next = k + 2 * ahead;
    if (next < n[0]) __builtin_prefetch(y + (at[2 * next] * n[2] + at[2 * next + 1]) * 16, 1);
    In from = of<float>(b, 1) + k * 16;
    float* to = y + (at[2 * k] * n[2] + at[2 * k + 1]) * 16;
    for (int64_t j = 0; j < 16; ++j) to[j] += from[j];
  }
}

LOOP(tuned_segment_sum) {  // a segment's sums stay in registers
  Index ids = of<int64_t>(b, 0);
  In x = of<float>(b, 1);
  Float y = of<float>(b, 2);
  std::memset(y, 0, static_cast<size_t>(n[1] * row) * 4);
  for (int64_t k = 0; k < n[0];) {
    const int64_t id = ids[k];
    float sums[row];
    std::memcpy(sums, y + id * row, sizeof sums);
    for (; k < n[0] && ids[k] == id; ++k)
      for (int64_t j = 0; j < row; ++j) sums[j] += x[k * row + j];
    std::memcpy(y + id * row, sums, sizeof sums);
  }
}

LOOP(tuned_csr_transposed) {
  Index begin = of<int64_t>(b, 0), column = of<int64_t>(b, 1);
  In value = of<float>(b, 2);
  Float y = of<float>(b, 4);
  std::memset(y, 0, static_cast<size_t>(n[2] * row) * 4);
  for (int64_t r = 0; r < n[0]; ++r)
    for (int64_t k = begin[r]; k < begin[r + 1]; ++k) {
      In x = of<float>(b, 3) + r * row;
      if (k + ahead < n[1]) fetch_row(y + column[k + ahead] * row);
      float* to = y + column[k] * row;
      for (int64_t j = 0; j < row; ++j) to[j] += value[k] * x[j];
    }
}

LOOP(tuned_bilinear_grad) {
  In py = of<float>(b, 0), px = of<float>(b, 1), dout = of<float>(b, 2);
  float* dx = of<float>(b, 3);
  const int64_t w = n[2];
  std::memset(dx, 0, static_cast<size_t>(n[1] * w) * 4);
  for (int64_t i = 0; i < n[0]; ++i) {
    if (const int64_t next = i + 2 * ahead; next < n[0]) {
      const float* to = dx + static_cast<int64_t>(py[next]) * w + static_cast<int64_t>(px[next]);
      __builtin_prefetch(to, 1);
      __builtin_prefetch(to + w, 1);
    }
    const float top = std::floor(py[i]), left = std::floor(px[i]), wy = py[i] - top, wx = px[i] - left, g = dout[i];
    float* to = dx + static_cast<int64_t>(top) * w + static_cast<int64_t>(left);
    to[0] += g * (1 - wy) * (1 - wx);
    to[1] += g * (1 - wy) * wx;
    to[w] += g * wy * (1 - wx);
    to[w + 1] += g * wy * wx;
  }
}

LOOP(tuned_column_scatter) {  // a strip of columns at a time, kept in a buffer whose rows lie side by side
  constexpr int64_t width = 32, lead = 12;
  Index at = of<int64_t>(b, 0);
  In dy = of<float>(b, 1);
  Float dx = of<float>(b, 2);
  const int64_t m = n[1];
  static std::vector<float> strip;
  for (int64_t first = 0; first < m; first += width) {
    const int64_t here = std::min(width, m - first);
    strip.assign(static_cast<size_t>(n[2] * width), 0.0f);
    float* to = strip.data();
    for (int64_t i = 0; i < n[0]; ++i) {
      if (i + lead < n[0]) {
        const int64_t next = (i + lead) * m + first;
        for (int64_t j = 0; j < width; j += 16) __builtin_prefetch(dy + next + j);
        for (int64_t j = 0; j < width; j += 8) __builtin_prefetch(at + next + j);
      }
      for (int64_t j = 0; j < here; ++j) to[at[i * m + first + j] * width + j] += dy[i * m + first + j];
    }
    for (int64_t r = 0; r < n[2]; ++r) std::copy_n(to + r * width, here, dx + r * m + first);
  }
}

}  // namespace gradloom::cli::loops
