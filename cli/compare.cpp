// Compares a call's outputs with those of a case.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cli/cases.h"
#include "ir/scalar_math.h"
#include "runtime/build.h"

namespace gradloom::cases {
namespace {

uint64_t bits_at(const Tensor& dense, int64_t position) {
  const int bytes = size_of(dense.dtype());
  uint64_t bits = 0;
  std::memcpy(&bits, static_cast<const char*>(dense.data()) + position * bytes, bytes);
  return bits;
}

std::string position_text(const Dims& dims, int64_t position) {
  Dims index;
  index.resize(dims.size());
  for (int d = dims.size() - 1; d >= 0; --d) {
    index[d] = position % dims[d];
    position /= dims[d];
  }
  return to_string(index);
}

bool equal_values(double got, double want) { return got == want || (std::isnan(got) && std::isnan(want)); }

bool within(double got, double want, double rtol, double atol) {
  if (equal_values(got, want)) return true;
  return std::isfinite(got) && std::isfinite(want) && std::abs(got - want) <= atol + rtol * std::abs(want);
}

// Whether an output may be shorter than its allocation, which only the call determines: such an output cannot be
// preallocated at the case's shape.
bool trims_outputs(const Case& c) {
  try {
    const Plan plan = plan_of(c);
    for (size_t i = 0; i < std::min<size_t>(c.outputs.size(), plan.outputs.size()); ++i)
      if (c.outputs[i].present() && !(plan.outputs[i].dims == c.outputs[i].dims())) return true;
  } catch (const Error&) {  // the call's own error takes precedence
  }
  return false;
}

}  // namespace

double element_value(const Tensor& dense, int64_t position) {
  return ir::double_from_bits(dense.dtype(), bits_at(dense, position));
}

std::string element_text(const Tensor& dense, int64_t position) {
  const uint64_t bits = bits_at(dense, position);
  const DType t = dense.dtype();
  if (t == DType::boolean) return bits == 0 ? "false" : bits == 1 ? "true" : fmt::format("the byte {}", bits);
  if (t == DType::u64) return fmt::format("{}", bits);
  if (!is_float(t)) return fmt::format("{}", ir::int_from_bits(t, bits));
  const double value = ir::double_from_bits(t, bits);
  if (is_storage_float(t)) return fmt::format("{:.5g}", value);
  return t == DType::f32 ? fmt::format("{}", static_cast<float>(value)) : fmt::format("{}", value);
}

std::optional<std::string> difference(const Tensor& got, const Tensor& want, double rtol, double atol) {
  if (got.dtype() != want.dtype())
    return fmt::format("dtype: got {}, want {}", onnx_name(got.dtype()), onnx_name(want.dtype()));
  if (!(got.dims() == want.dims()))
    return fmt::format("shape: got {}, want {}", to_string(got.dims()), to_string(want.dims()));
  const int64_t count = want.elements();
  for (int64_t i = 0; i < count; ++i) {
    const bool same = is_float(want.dtype()) ? within(element_value(got, i), element_value(want, i), rtol, atol)
                                             : bits_at(got, i) == bits_at(want, i);
    if (!same)
      return fmt::format("position {}: got {}, want {}", position_text(want.dims(), i), element_text(got, i),
                         element_text(want, i));
  }
  return std::nullopt;
}

double largest_error(const Tensor& got, const Tensor& want) {
  double largest = 0;
  if (got.dtype() != want.dtype() || !(got.dims() == want.dims())) return std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < want.elements(); ++i) {
    const double g = element_value(got, i), w = element_value(want, i);
    if (equal_values(g, w)) continue;
    const double error = std::abs(g - w) / std::max(1.0, std::abs(w));
    largest = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(largest, error);
  }
  return largest;
}

namespace {

// Precondition: the inputs are in the memory that the runtime requires.
Result<std::vector<Tensor>> call_there(Runtime& runtime, const Case& c, const RunOptions& options) {
  const bool all_wanted = std::all_of(c.outputs.begin(), c.outputs.end(), [](const Tensor& t) { return t.present(); });
  if (all_wanted || trims_outputs(c)) {
    RunOptions wanted = options;
    for (size_t i = 0; i < c.outputs.size(); ++i)
      if (!c.outputs[i].present()) wanted.outputs_wanted &= ~(1u << i);
    auto outputs = runtime.run(c.op, c.inputs, c.attributes, wanted);
    if (outputs && !c.error && outputs.value().size() > c.outputs.size()) outputs.value().resize(c.outputs.size());
    return outputs;
  }
  std::vector<Tensor> outputs;
  for (const Tensor& want : c.outputs) {
    outputs.push_back(want.present() ? Tensor::empty(want.dtype(), want.dims()) : Tensor());
    if (want.present() && want.elements() > 0)
      std::memset(outputs.back().data(), 0xff, want.elements() * size_of(want.dtype()));  // unwritten elements show
    outputs.back() = runtime.to_device(outputs.back()).value();
  }
  auto done = runtime.run_into(c.op, c.inputs, outputs, c.attributes, options);
  if (!done) return done.error();
  return outputs;
}

// A case's tensors are in host memory; a device's are copied there and back.
std::vector<Tensor> copied(Runtime& runtime, std::vector<Tensor> tensors, bool back) {
  for (Tensor& t : tensors) t = (back ? runtime.to_host(t) : runtime.to_device(t)).value();
  return tensors;
}

Result<std::vector<Tensor>> call_on_device(Runtime& runtime, const Case& c, RunOptions options) {
  const Op* op = find_op(c.op);
  if (!op || op->schema().on_host) return call_there(runtime, c, options);
  options.launch.check = CheckMode::sync;
  return capture([&] {
    Case there = c;
    there.inputs = copied(runtime, c.inputs, false);
    for (size_t i = 0; i < std::min(there.inputs.size(), op->schema().inputs.size()); ++i)
      if (op->schema().inputs[i].shape_like) there.inputs[i] = c.inputs[i];
    std::vector<Tensor> outputs = copied(runtime, call_there(runtime, there, options).value(), true);
    return outputs;
  });
}

}  // namespace

Result<std::vector<Tensor>> call(Runtime& runtime, const Case& c, const RunOptions& options) {
  return runtime.device() < 0 ? call_there(runtime, c, options) : call_on_device(runtime, c, options);
}

Plan plan_of(const Case& c) {
  const Op* op = find_op(c.op);
  if (!op) throw Error(ErrorCode::unsupported, fmt::format("op {} is not there", c.op));
  const Operands operands(op->schema(), c.inputs);
  return op->check(operands.request(c.attributes));
}

std::optional<std::string> failure(Runtime& runtime, const Case& c, std::string_view target,
                                   const RunOptions& options) {
  const auto result = call(runtime, c, options);
  if (c.error) {
    if (result) return fmt::format("no error, want error {}", to_string(*c.error));
    if (result.error().code() != *c.error)
      return fmt::format("got error {} ({}), want error {}", to_string(result.error().code()), result.error().what(),
                         to_string(*c.error));
    return std::nullopt;
  }
  if (!result)
    return fmt::format("got error {} ({}), want outputs", to_string(result.error().code()), result.error().what());
  const KernelReport& report = runtime.last_report();
  if (!report.target.starts_with(target)) return fmt::format("answered by target {}, want {}", report.target, target);
  if (!options.strategy.empty() && report.strategy != options.strategy)
    return fmt::format("answered by strategy {}, want {}", report.strategy, options.strategy);
  const std::vector<Tensor>& outputs = result.value();
  if (outputs.size() != c.outputs.size())
    return fmt::format("got {} outputs, want {}", outputs.size(), c.outputs.size());
  const bool exact = c.exact_on(target);
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (!c.outputs[o].present()) continue;
    if (!outputs[o].present()) return fmt::format("output {} is absent", o);
    if (auto what = difference(outputs[o], c.outputs[o], exact ? 0 : c.rtol, exact ? 0 : c.atol))
      return fmt::format("output {} {}", o, *what);
  }
  return std::nullopt;
}

}  // namespace gradloom::cases
