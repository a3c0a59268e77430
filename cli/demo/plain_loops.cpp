#include "cli/demo/plain_loops.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "cli/bench/bench_measure.h"
#include "cli/bench/bench_probe.h"

namespace gradloom::cli {
namespace {

const float* floats(const Tensor& t) { return static_cast<const float*>(t.data()); }
const int64_t* integers(const Tensor& t) { return static_cast<const int64_t*>(t.data()); }

int64_t product(const Dims& dims, int begin, int end) {
  int64_t count = 1;
  for (int d = begin; d < end; ++d) count *= dims[d];
  return count;
}

// Padded with leading dims of 1.
std::array<int64_t, 3> three(const Dims& dims) {
  std::array<int64_t, 3> out{1, 1, 1};
  for (int d = 0; d < dims.size(); ++d) out[3 - dims.size() + d] = dims[d];
  return out;
}

void gather_elements(const Dims& dims, int axis, const Tensor& dy, const Tensor& indices, float* dx) {
  const int64_t outer = product(dims, 0, axis), extent = dims[axis], inner = product(dims, axis + 1, dims.size());
  const int64_t taken = indices.dims()[axis];
  const float* from = floats(dy);
  const int64_t* index = integers(indices);
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < taken; ++i)
      for (int64_t k = 0; k < inner; ++k) dx[(o * extent + *index++) * inner + k] += *from++;
}

void gather_rows(int64_t width, const Tensor& indices, const Tensor& dy, float* dx) {
  for (int64_t r = 0; r < indices.elements(); ++r) {
    const float* from = floats(dy) + r * width;
    float* to = dx + integers(indices)[r] * width;
    for (int64_t k = 0; k < width; ++k) to[k] += from[k];
  }
}

void slice(const BenchCase& c, const Tensor& dy, float* dx) {
  const auto dims = three(c.output);
  std::array<SlicedAxis, 3> axes{SlicedAxis{0, 1, 1}, {0, 1, 1}, {0, 1, 1}};
  std::copy(c.slices.begin(), c.slices.end(), axes.end() - static_cast<int64_t>(c.slices.size()));
  const auto [a0, a1, a2] = axes;
  const float* from = floats(dy);
  for (int64_t i = 0; i < a0.count; ++i)
    for (int64_t j = 0; j < a1.count; ++j) {
      float* to = dx + ((a0.first + i * a0.step) * dims[1] + a1.first + j * a1.step) * dims[2] + a2.first;
      for (int64_t k = 0; k < a2.count; ++k) to[k * a2.step] = *from++;
    }
}

// The sum over the axes along which the output has extent 1.
void sum(const Dims& dy_dims, const Dims& dx_dims, const Tensor& dy, float* dx) {
  const auto from_dims = three(dy_dims), to_dims = three(dx_dims);
  const float* from = floats(dy);
  for (int64_t i = 0; i < from_dims[0]; ++i)
    for (int64_t j = 0; j < from_dims[1]; ++j, from += from_dims[2]) {
      float* to = dx + ((to_dims[0] == 1 ? 0 : i) * to_dims[1] + (to_dims[1] == 1 ? 0 : j)) * to_dims[2];
      if (to_dims[2] == 1) {
        float total = 0;
        for (int64_t k = 0; k < from_dims[2]; ++k) total += from[k];
        *to += total;
      } else {
        for (int64_t k = 0; k < from_dims[2]; ++k) to[k] += from[k];
      }
    }
}

std::vector<float> transposed(const float* from, int64_t rows, int64_t columns) {
  std::vector<float> to(rows * columns);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) to[c * rows + r] = from[r * columns + c];
  return to;
}

float logistic(float x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

void plain_gradient(const BenchCase& c, const std::vector<Tensor>& inputs, const Tensor& out) {
  auto* dx = static_cast<float*>(out.data());
  std::fill_n(dx, out.elements(), 0.0f);
  if (c.group == "ge") gather_elements(c.output, c.axis, inputs[0], inputs[2], dx);
  if (c.group == "gg") gather_rows(c.output[1], inputs[1], inputs[2], dx);
  if (c.group == "sl") slice(c, inputs[0], dx);
  if (c.group == "bg") sum(inputs[0].dims(), c.output, inputs[0], dx);
}

void plain_gru(const GruCase& c, const std::vector<Tensor>& inputs, const Tensor& states) {
  const int64_t h = c.hidden;
  const float *x = floats(inputs[0]), *bias = floats(inputs[3]), *before = floats(inputs[5]);
  const std::vector<float> w = transposed(floats(inputs[1]), 3 * h, c.inputs),
                           r = transposed(floats(inputs[2]), 3 * h, h);
  std::vector<float> input(3 * h), state(3 * h);
  auto* out = static_cast<float*>(states.data());
  for (int64_t s = 0; s < c.steps; ++s, before = out, out += c.batch * h)
    for (int64_t n = 0; n < c.batch; ++n, x += c.inputs) {
      multiply_add_row(x, w.data(), input.data(), c.inputs, 3 * h);
      multiply_add_row(before + n * h, r.data(), state.data(), h, 3 * h);
      for (int64_t k = 0; k < 3 * h; ++k) input[k] += bias[k], state[k] += bias[3 * h + k];
      for (int64_t k = 0; k < h; ++k) {
        const float z = logistic(input[k] + state[k]), reset = logistic(input[h + k] + state[h + k]);
        const float candidate = std::tanh(input[2 * h + k] + reset * state[2 * h + k]);
        out[n * h + k] = (1 - z) * candidate + z * before[n * h + k];
      }
    }
}

void plain_silu_grad(const float* dy, const float* x, float* dx, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float s = logistic(x[i]);
    dx[i] = dy[i] * (s * (1 + x[i] * (1 - s)));
  }
}

double call_ms(const std::function<void()>& call, double seconds) {
  call();
  std::vector<double> samples;
  const double deadline = elapsed_ms() + seconds * 1000;
  do {
    const double begin = elapsed_ms();
    call();
    samples.push_back(elapsed_ms() - begin);
  } while (elapsed_ms() < deadline);
  return median(samples);
}

}  // namespace gradloom::cli
