#include "runtime/prewarm.h"

#include <fmt/format.h>

#include <deque>

#include "runtime/build.h"
#include "runtime/cache/saved_call.h"

namespace gradloom {
namespace {

// The op checks the call as it would at run time, so an untrusted list yields no kernel that a call could not.
void make_ready(Core& core, const CallKey& key) {
  const Op* op = find_op(key.op);
  if (!op) throw Error(ErrorCode::unsupported, fmt::format("there is no op \"{}\"", key.op));
  if (key.inputs.size() > static_cast<size_t>(max_inputs))
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: {} inputs", key.op, key.inputs.size()));
  check_output_alignment(key);
  InlineVector<Operand, max_inputs> operands;
  std::deque<std::vector<int64_t>> values;  // aligned, unlike the list's
  for (size_t i = 0; i < key.inputs.size(); ++i) {
    const CallKey::Input& input = key.inputs[i];
    Operand operand{input.present, input.dtype, input.dims, input.strides, nullptr};
    if (input.strides.size() != input.dims.size())
      throw Error(ErrorCode::invalid_argument, fmt::format("{}: input {} has as many strides as dims: no", key.op, i));
    if (input.present && i < op->schema().inputs.size() && op->schema().inputs[i].shape_like) {
      int64_t elements = 1;
      for (const int64_t dim : input.dims) {
        if (dim < 0 || __builtin_mul_overflow(elements, dim, &elements))
          throw Error(ErrorCode::invalid_argument, fmt::format("{}: input {} is too large", key.op, i));
      }
      if (elements > static_cast<int64_t>(input.values.size()) ||
          elements * size_of(input.dtype) != static_cast<int64_t>(input.values.size())) {
        throw Error(ErrorCode::invalid_argument, fmt::format("{}: input {} has {} elements and {} bytes of values",
                                                             key.op, i, elements, input.values.size()));
      }
      if (elements > 0) {
        values.emplace_back(input.values.size() / 8 + 1);
        std::memcpy(values.back().data(), input.values.data(), input.values.size());
        operand.host = values.back().data();
      }
    }
    operands.push_back(operand);
  }
  const Request request{.inputs = {operands.data(), static_cast<size_t>(operands.size())},
                        .attributes = key.attributes,
                        .outputs_wanted = key.outputs_wanted,
                        .accumulate = key.options.accumulate,
                        .determinism = core.level(key.options)};
  const Plan plan = op->check(request);
  RunOptions options = key.options;
  const Strategy& strategy = choose_strategy(*op, plan, options, core.target());
  options.strategy.clear();  // chosen automatically, and may fall back again: it was not requested by name
  core.kernel_for({*op, plan, strategy, options, key.outputs_wanted, key.output_alignment, &request});
}

}  // namespace

PrewarmReport prewarm(Core& core, std::span<const CallKey> calls) {
  PrewarmReport report;
  for (const CallKey& call : calls) {
    try {
      make_ready(core, call);
      ++report.ready;
      report.compiled += core.last_report().compiled;
    } catch (const Error& error) {
      if (report.failed++ == 0) report.first_failure = error.what();
    }
  }
  return report;
}

}  // namespace gradloom
