#include "runtime/known_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "runtime/strided_outputs.h"

namespace gradloom {
namespace {

bool same_place(const KnownCall::Input& known, const Argument& is) {
  const Operand& was = known.operand;
  if (was.present != is.present) return false;
  if (!was.present) return true;
  return was.dtype == is.dtype && same_dims(was.dims, is) &&
         (is.strides ? same_numbers(was.strides, is.strides) : known.dense);
}

bool same_input(const KnownCall::Input& known, const Argument& is) {
  if (!same_place(known, is)) return false;
  if (known.elements == 0) return true;
  if (!is.data) return false;
  return !known.shape_like || std::memcmp(known.values.data(), is.data, known.values.size()) == 0;
}

std::string describe(bool present, DType dtype, const Dims& dims, const Dims& strides) {
  if (!present) return "absent";
  return fmt::format("{}{}{}", onnx_name(dtype), to_string(dims),
                     is_dense(dims, strides) ? "" : " with strides " + to_string(strides));
}

}  // namespace

KnownCall::KnownCall(const CallSettings& call, Arguments arguments, uint32_t wanted) : outputs_wanted(wanted) {
  const OpSchema& schema = call.op.schema();
  const Operands operands(schema, arguments);
  plan =
      call.op.check(operands.request(call.attributes, wanted, call.options.accumulate, call.core.level(call.options)));
  for (int o = 0; o < static_cast<int>(schema.outputs.size()); ++o)
    if (plan.outputs[o].wanted) outputs_had |= wanted & 1u << o;
  for (size_t i = 0; i < arguments.size(); ++i) {
    Input input{.operand = operands.span()[i]};
    input.operand.host = nullptr;  // it points to the caller's memory
    if (input.operand.present) {
      input.dense = is_dense(input.operand.dims, input.operand.strides);
      input.elements = element_count(input.operand.dims);
      input.shape_like = schema.inputs[i].shape_like;
    }
    if (const auto* values = static_cast<const char*>(operands.span()[i].host))
      input.values.assign(values, values + input.elements * size_of(input.operand.dtype));
    inputs.push_back(std::move(input));
  }
}

bool KnownCall::same(Arguments arguments) const {
  for (size_t i = 0; i < std::max(inputs.size(), arguments.size()); ++i) {
    if (i >= inputs.size()      ? arguments[i].present
        : i >= arguments.size() ? inputs[i].operand.present
                                : !same_input(inputs[i], arguments[i]))
      return false;
  }
  return true;
}

void KnownCall::write_in_place(Arguments outputs) {
  if (!std::any_of(outputs.begin(), outputs.end(), is_strided)) return;
  in_place = gradloom::write_in_place(plan, outputs);
  for (const Argument& output : outputs) output_strides.push_back(is_strided(output) ? strides_of(output) : Dims());
}

bool KnownCall::same_strides(Arguments outputs) const {
  for (size_t o = 0; o < std::max(outputs.size(), output_strides.size()); ++o) {
    const Dims known = o < output_strides.size() ? output_strides[o] : Dims();
    const bool strided = o < outputs.size() && is_strided(outputs[o]);
    if (strided ? !(known == strides_of(outputs[o])) : !known.empty()) return false;
  }
  return true;
}

std::string KnownCall::difference(const OpSchema& schema, Arguments arguments, const char* then) const {
  for (size_t i = 0; i < std::max(inputs.size(), arguments.size()); ++i) {
    const Input was = i < inputs.size() ? inputs[i] : Input{};
    const Argument is = i < arguments.size() ? arguments[i] : Argument{};
    if (same_place(was, is)) continue;
    return fmt::format("{} is {}; {} {}", describe_input(schema, static_cast<int>(i)),
                       describe(is.present, is.dtype, dims_of(is), strides_of(is)), then,
                       describe(was.operand.present, was.operand.dtype, was.operand.dims, was.operand.strides));
  }
  return "";
}

}  // namespace gradloom
