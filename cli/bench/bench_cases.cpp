#include "cli/bench/bench_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "cli/usage_error.h"
#include "ir/scalar_math.h"

namespace gradloom::cli {
namespace {

constexpr int64_t to_end = std::numeric_limits<int64_t>::max(), past_start = std::numeric_limits<int64_t>::min();

int64_t product(const Dims& dims) { return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>()); }
BenchInput values(const Dims& dims) { return {BenchInput::values, dims}; }
BenchInput ints(std::vector<int64_t> v) {
  return {BenchInput::shape_like, Dims{static_cast<int64_t>(v.size())}, 0, std::move(v)};
}
BenchInput shape(const Dims& dims) { return ints({dims.begin(), dims.end()}); }

BenchCase gather_elements(std::string name, const Dims& data, int axis, const Dims& indices,
                          BenchInput::Kind distribution = BenchInput::uniform) {
  BenchCase c{std::move(name), "ge", "GatherElementsGrad", {{"axis", int64_t{axis}}}};
  c.inputs = {values(indices), shape(data), {distribution, indices, data[axis]}};
  c.output = data;
  c.axis = axis;
  c.bytes_read = product(indices) * (4 + 8);
  return c;
}

BenchCase gather(std::string name, const Dims& data, const Dims& indices, BenchInput::Kind distribution) {
  BenchCase c{std::move(name), "gg", "GatherGrad", {{"axis", int64_t{0}}}};
  Dims dy = indices;
  dy.push_back(data[1]);
  c.inputs = {shape(data), {distribution, indices, data[0]}, values(dy)};
  c.output = data;
  c.bytes_read = product(dy) * 4 + product(indices) * 8;
  return c;
}

BenchCase slice(std::string name, const Dims& data, std::vector<SlicedAxis> slices, std::vector<int64_t> starts,
                std::vector<int64_t> ends, std::vector<int64_t> axes, std::vector<int64_t> steps) {
  BenchCase c{std::move(name), "sl", "SliceGrad"};
  Dims dy;
  for (const SlicedAxis& s : slices) dy.push_back(s.count);
  c.inputs = {values(dy),
              shape(data),
              ints(std::move(starts)),
              ints(std::move(ends)),
              ints(std::move(axes)),
              ints(std::move(steps))};
  c.output = data;
  c.slices = std::move(slices);
  c.bytes_read = product(dy) * 4;
  return c;
}

BenchCase broadcast(std::string name, const Dims& dy, const Dims& to) {
  BenchCase c{std::move(name), "bg", "BroadcastGrad"};
  c.inputs = {values(dy), shape(to)};
  c.output = to;
  c.bytes_read = product(dy) * 4;
  return c;
}

std::vector<BenchCase> with_bytes_written(std::vector<BenchCase> cases) {
  for (BenchCase& c : cases) c.bytes_written = product(c.output) * 4;
  return cases;
}

const Dims s3{64, 512, 768};

std::vector<BenchCase> make_cases() {
  const SlicedAxis all64{0, 1, 64}, all512{0, 1, 512}, all768{0, 1, 768}, all4096{0, 1, 4096}, every_second{0, 2, 4096};
  return with_bytes_written({
      gather_elements("ge_ax0", {4096, 4096}, 0, {4096, 4096}),
      gather_elements("ge_ax1", {4096, 4096}, 1, {4096, 4096}),
      gather_elements("ge_3d", {64, 1024, 256}, 1, {64, 128, 256}),
      gather_elements("ge_1d", {1 << 24}, 0, {1 << 22}),
      gather("gg_uni", {50000, 768}, {8, 512}, BenchInput::uniform),
      gather("gg_zipf", {50000, 768}, {8, 512}, BenchInput::zipf),
      gather("gg_1m", {1000000, 64}, {65536}, BenchInput::uniform),
      slice("sl_mid", s3, {all64, {1, 1, 510}, all768}, {1}, {-1}, {1}, {1}),
      slice("sl_step2", {8192, 8192}, {every_second, every_second}, {0, 0}, {to_end, to_end}, {0, 1}, {2, 2}),
      slice("sl_negrow", s3, {all64, {511, -1, 512}, all768}, {-1}, {past_start}, {1}, {-1}),
      slice("sl_neginner", {4096, 4096}, {all4096, {4095, -2, 2048}}, {-1}, {past_start}, {1}, {-2}),
      slice("sl_inner", s3, {all64, all512, {64, 1, 64}}, {64}, {128}, {2}, {1}),
      broadcast("bg_768", s3, {768}),
      broadcast("bg_row", s3, {64, 1, 768}),
      broadcast("bg_col", s3, {64, 512, 1}),
  });
}

std::vector<BenchCase> make_more_gpu_cases() {
  return with_bytes_written({
      gather_elements("ge_ax0_one", {4096, 4096}, 0, {4096, 4096}, BenchInput::all_equal),
      gather_elements("ge_ax1_one", {4096, 4096}, 1, {4096, 4096}, BenchInput::all_equal),
      gather("gg_one", {50000, 768}, {8, 512}, BenchInput::all_equal),
      gather("gg_1m_zipf", {1000000, 64}, {65536}, BenchInput::zipf),
      gather("gg_32k", {32000, 4096}, {8, 2048}, BenchInput::zipf),
      broadcast("bg_mid", s3, {1, 512, 1}),
  });
}

// splitmix64: the same inputs in every run.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  int64_t below(int64_t bound) {
    return static_cast<int64_t>((static_cast<unsigned __int128>(next()) * static_cast<uint64_t>(bound)) >> 64);
  }
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  // Near normal, variance 1: the sum of four uniforms.
  float value() {
    const uint64_t bits = next();
    int64_t sum = -2 * 65535;
    for (int k = 0; k < 64; k += 16) sum += (bits >> k) & 0xffff;
    return static_cast<float>(sum) * (1.7320508f / 65536);
  }

 private:
  uint64_t state_;
};

// Ranks drawn with probability rank^-1.2, as word frequencies are, then scattered over the table.
void fill_zipf(int64_t* indices, int64_t count, int64_t bound, Random& random) {
  std::vector<double> cumulative(bound);
  double sum = 0;
  for (int64_t k = 0; k < bound; ++k) cumulative[k] = sum += std::pow(static_cast<double>(k + 1), -1.2);
  std::vector<int64_t> permutation(bound);
  std::iota(permutation.begin(), permutation.end(), 0);
  for (int64_t k = bound - 1; k > 0; --k) std::swap(permutation[k], permutation[random.below(k + 1)]);
  for (int64_t i = 0; i < count; ++i) {
    const auto rank = std::lower_bound(cumulative.begin(), cumulative.end(), random.unit() * sum) - cumulative.begin();
    indices[i] = permutation[std::min<int64_t>(rank, bound - 1)];
  }
}

}  // namespace

const std::vector<BenchCase>& bench_cases() {
  static const std::vector<BenchCase> cases = make_cases();
  return cases;
}

std::vector<const BenchCase*> chosen_cases(const std::vector<std::string>& names, bool on_gpu) {
  static const std::vector<BenchCase> more = make_more_gpu_cases();
  std::vector<const BenchCase*> all, chosen;
  for (const BenchCase& c : bench_cases()) all.push_back(&c);
  if (on_gpu)
    for (const BenchCase& c : more) all.push_back(&c);
  for (const std::string& name : names) {
    bool found = false;
    for (const BenchCase* c : all) {
      if (name != "all" && name != c->name && name != c->group) continue;
      found = true;
      if (std::find(chosen.begin(), chosen.end(), c) == chosen.end()) chosen.push_back(c);
    }
    if (found) continue;
    std::vector<std::string> known;
    for (const BenchCase* c : all) known.push_back(c->name);
    if (on_gpu)
      for (const GruCase& c : gru_cases()) known.push_back(c.name);
    throw UsageError(fmt::format("bench: got case \"{}\", expected all, ge, gg, sl, bg{}, or one of {}", name,
                                 on_gpu ? ", gru_grad" : "", fmt::join(known, ", ")));
  }
  return chosen;
}

const std::vector<GruCase>& gru_cases() {
  static const std::vector<GruCase> cases{
      {"gru_a", 50, 32, 128, 256}, {"gru_b", 128, 64, 512, 512}, {"gru_c", 20, 1, 64, 128}};
  return cases;
}

std::vector<Tensor> bench_inputs(const BenchCase& c) {
  Random random(std::hash<std::string>{}(c.name));
  std::vector<Tensor> tensors;
  for (const BenchInput& input : c.inputs) {
    Tensor t = Tensor::empty(input.kind == BenchInput::values ? DType::f32 : DType::i64, input.dims);
    const int64_t count = t.elements();
    auto* integers = static_cast<int64_t*>(t.data());
    switch (input.kind) {
      case BenchInput::values:
        std::generate_n(static_cast<float*>(t.data()), count, [&] { return random.value(); });
        break;
      case BenchInput::uniform:
        std::generate_n(integers, count, [&] { return random.below(input.bound); });
        break;
      case BenchInput::zipf:
        fill_zipf(integers, count, input.bound, random);
        break;
      case BenchInput::all_equal:
        std::fill_n(integers, count, input.bound / 2);
        break;
      case BenchInput::given:
      case BenchInput::shape_like:
        std::copy(input.ints.begin(), input.ints.end(), integers);
        break;
    }
    tensors.push_back(std::move(t));
  }
  return tensors;
}

Tensor values_as(DType dtype, const Tensor& dense) {
  if (dense.dtype() == dtype || !is_float(dense.dtype())) return dense;
  const int64_t count = dense.elements();
  if (dtype != DType::f32) {
    const auto* from = static_cast<const float*>(dense.data());
    return Tensor::of<float>(dtype, dense.dims(), std::vector<float>(from, from + count));
  }
  Tensor wide = Tensor::empty(dtype, dense.dims());
  const auto* from = static_cast<const uint16_t*>(dense.data());
  auto* to = static_cast<float*>(wide.data());
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(ir::double_from_bits(dense.dtype(), from[i]));
  return wide;
}

Tensor copy_of(const Tensor& dense) {
  Tensor copy = Tensor::empty(dense.dtype(), dense.dims());
  if (dense.elements() > 0) std::memcpy(copy.data(), dense.data(), dense.elements() * size_of(dense.dtype()));
  return copy;
}

std::vector<Operand> bench_operands(const BenchCase& c, std::vector<std::vector<int64_t>>& storage) {
  std::vector<Operand> operands;
  storage.clear();
  for (const BenchInput& input : c.inputs) storage.push_back(input.ints);
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const BenchInput& input = c.inputs[i];
    const DType dtype = input.kind == BenchInput::values ? DType::f32 : DType::i64;
    operands.push_back({true, dtype, input.dims, dense_strides(input.dims),
                        input.kind == BenchInput::shape_like ? storage[i].data() : nullptr});
  }
  return operands;
}

}  // namespace gradloom::cli
