// Plain loops that compute the expected output of each timed case.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cli/bench/bench_cases.h"
#include "cli/cases.h"

namespace gradloom::cli {
namespace {

// Calls body(flat position in an array of `dims`, index along every axis), in row-major order.
template <class Body>
void for_each(const Dims& dims, const Body& body) {
  Dims index;
  index.resize(dims.size());
  const int64_t count = element_count(dims);
  for (int64_t flat = 0; flat < count; ++flat) {
    body(flat, index);
    for (int d = dims.size() - 1; d >= 0 && ++index[d] == dims[d]; --d) index[d] = 0;
  }
}

Tensor zeros(const Dims& dims) {
  Tensor t = Tensor::empty(DType::f32, dims);
  std::memset(t.data(), 0, t.elements() * 4);
  return t;
}

constexpr double sum_tolerance = 4e-7;

}  // namespace

Reference::Reference(const BenchCase& c, const std::vector<Tensor>& inputs, bool in_order, DType dtype)
    : rounding_(is_storage_float(dtype) ? std::ldexp(1.0, -1 - info_of(dtype).mantissa_bits) : 0) {
  if (c.group == "bg" || (!in_order && c.group != "sl")) {
    sums_.assign(element_count(c.output), 0);
    magnitudes_ = sums_;
    const auto add = [&](int64_t to, float v) { sums_[to] += v, magnitudes_[to] += std::abs(v); };
    c.group == "bg" ? sum(c, inputs[0]) : scatter(c, inputs, add);
    return;
  }
  want_ = zeros(c.output);
  auto* want = static_cast<float*>(want_.data());
  c.group == "sl" ? slice(c, inputs[0]) : scatter(c, inputs, [&](int64_t to, float v) { want[to] += v; });
  want_ = values_as(dtype, want_);
}

template <class Add>
void Reference::scatter(const BenchCase& c, const std::vector<Tensor>& inputs, const Add& add) {
  const bool elements = c.group == "ge";
  const auto* dy = static_cast<const float*>(inputs[elements ? 0 : 2].data());
  const Tensor& index_tensor = inputs[elements ? 2 : 1];
  const auto* indices = static_cast<const int64_t*>(index_tensor.data());
  if (elements) {
    const Dims strides = dense_strides(c.output);
    for_each(index_tensor.dims(), [&](int64_t flat, const Dims& index) {
      int64_t to = 0;
      for (int d = 0; d < index.size(); ++d) to += strides[d] * (d == c.axis ? indices[flat] : index[d]);
      add(to, dy[flat]);
    });
  } else {
    const int64_t width = c.output[1];
    for (int64_t k = 0; k < index_tensor.elements(); ++k)
      for (int64_t j = 0; j < width; ++j) add(indices[k] * width + j, dy[k * width + j]);
  }
}

void Reference::slice(const BenchCase& c, const Tensor& dy) {
  auto* want = static_cast<float*>(want_.data());
  const auto* from = static_cast<const float*>(dy.data());
  const Dims strides = dense_strides(c.output);
  for_each(dy.dims(), [&](int64_t flat, const Dims& index) {
    int64_t to = 0;
    for (int d = 0; d < index.size(); ++d) to += strides[d] * (c.slices[d].first + c.slices[d].step * index[d]);
    want[to] = from[flat];
  });
}

void Reference::sum(const BenchCase& c, const Tensor& dy) {
  const int lead = dy.dims().size() - c.output.size();
  const Dims strides = dense_strides(c.output);
  const auto* from = static_cast<const float*>(dy.data());
  for_each(dy.dims(), [&](int64_t flat, const Dims& index) {
    int64_t to = 0;
    for (int d = 0; d < c.output.size(); ++d) to += c.output[d] == 1 ? 0 : strides[d] * index[lead + d];
    sums_[to] += from[flat];
    magnitudes_[to] += std::abs(from[flat]);
  });
}

std::optional<std::string> Reference::difference(const Tensor& output) const {
  if (want_.present()) {
    const size_t bytes = want_.elements() * size_of(want_.dtype());
    if (output.dtype() == want_.dtype() && output.dims() == want_.dims() &&
        std::memcmp(output.data(), want_.data(), bytes) == 0)
      return std::nullopt;
    return cases::difference(output, want_, 0, 0).value_or("the bits differ");
  }
  const Tensor wide = values_as(DType::f32, output);
  const auto* got = static_cast<const float*>(wide.data());
  for (size_t i = 0; i < sums_.size(); ++i)
    if (!(std::abs(got[i] - sums_[i]) <= sum_tolerance * magnitudes_[i] + rounding_ * std::abs(sums_[i])))
      return fmt::format("element {}: got {}, want {}", i, got[i], sums_[i]);
  return std::nullopt;
}

double Reference::largest_error(const Tensor& output) const {
  if (want_.present()) return cases::largest_error(output, want_);
  double largest = 0;
  const auto* got = static_cast<const float*>(output.data());
  for (size_t i = 0; i < sums_.size(); ++i) {
    const double error = std::abs(got[i] - sums_[i]) / std::max(1.0, std::abs(sums_[i]));
    largest = std::isnan(error) ? INFINITY : std::max(largest, error);
  }
  return largest;
}

}  // namespace gradloom::cli
