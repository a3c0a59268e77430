// Outputs ahead of a run, and the handle for any shapes. Its calls make no Tensors: a call like an earlier one is
// compared with it as it lies in the caller's structs.
#include "runtime/build.h"
#include "runtime/c_abi/c_abi.h"
#include "runtime/memory/borrow_dlpack.h"
#include "runtime/prepared.h"

namespace gradloom::c_abi {
namespace {

static_assert(max_rank == std::size(gradloom_output_info{}.shape));

// Dims, strides and data are compared with those of an earlier call, or checked. What no Argument can hold is borrowed,
// for its error.
Argument argument_of(const DLTensor& from, const char* function, const char* argument, int32_t i) {
  const std::optional<DType> dtype = dtype_of(from.dtype);
  const std::optional<int> device = device_of(from.device);
  const bool has_shape = from.ndim == 0 || (from.ndim > 0 && from.ndim <= max_rank && from.shape);
  if (!dtype || !device || !has_shape) borrow_one(from, function, argument, i);
  return {.data = from.data ? static_cast<char*>(from.data) + from.byte_offset : nullptr,
          .dims = from.shape,
          .strides = from.strides,
          .rank = from.ndim,
          .device = *device,
          .dtype = *dtype,
          .present = true};
}

// Those that the schema has; of others none may be given.
template <class List, class Pointer>
List arguments_of(const OpSchema& schema, size_t allowed, Pointer const* tensors, int32_t count, const char* function,
                  const char* argument) {
  check_count(tensors, count, function, argument);
  List list;
  for (int32_t i = 0; i < count; ++i) {
    if (static_cast<size_t>(i) < allowed)
      list.push_back(tensors[i] ? argument_of(*tensors[i], function, argument, i) : Argument{});
    else if (tensors[i])
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{}: {} {} given; it has {}", schema.name, count, argument, allowed));
  }
  return list;
}

InputArguments inputs_of(const OpSchema& schema, const DLTensor* const* inputs, int32_t count, const char* function) {
  return arguments_of<InputArguments>(schema, schema.inputs.size(), inputs, count, function, "inputs");
}

// Inputs without data are described: only the values of shape-like ones are read.
template <class Infer>
void infer(const DLTensor* const* inputs, int32_t input_count, gradloom_output_info* outputs, int32_t output_count,
           const char* function, const OpSchema& schema, Infer&& infer_outputs) {
  const InputArguments given = inputs_of(schema, inputs, input_count, function);
  InputArguments readable;
  for (int i = 0; i < given.size(); ++i) {
    if (given[i].data) borrow_one(*inputs[i], function, "inputs", i);  // for its checks
    readable.push_back(given[i].data ? given[i] : Argument{});
  }
  const Operands operands(schema, span_of(readable));
  InlineVector<Operand, max_inputs> described;
  for (int i = 0; i < given.size(); ++i) {
    described.push_back(operands.span()[i]);
    if (given[i].present && !given[i].data)
      described[i] = {
          .present = true, .dtype = given[i].dtype, .dims = dims_of(given[i]), .strides = strides_of(given[i])};
  }
  const std::vector<OutputInfo> infos = infer_outputs({described.data(), static_cast<size_t>(described.size())});
  for (int32_t o = 0; o < output_count && o < static_cast<int32_t>(infos.size()); ++o) {
    if (!infos[o].wanted) continue;
    outputs[o].given = 1;
    outputs[o].ndim = infos[o].dims.size();
    outputs[o].dtype = dlpack_dtype(infos[o].dtype);
    std::copy(infos[o].dims.begin(), infos[o].dims.end(), outputs[o].shape);
  }
}

}  // namespace
}  // namespace gradloom::c_abi

using namespace gradloom;
using namespace gradloom::c_abi;

gradloom_status gradloom_infer_outputs(const gradloom_runtime* runtime, const char* op, const DLTensor* const* inputs,
                                       int32_t input_count, const gradloom_attributes* attributes,
                                       const gradloom_run_options* options, gradloom_output_info* outputs,
                                       int32_t output_count) {
  const char* const name = __func__;
  if (outputs) std::fill_n(outputs, std::max(output_count, 0), gradloom_output_info{});
  return entry([&] {
    require(runtime, name, "runtime");
    require(op, name, "op");
    check_count(outputs, output_count, name, "outputs");
    const PreparedOp prepared =
        runtime->runtime->prepare(op, attributes_of(attributes), run_options(options, name)).value();
    infer(inputs, input_count, outputs, output_count, name, state_of(prepared).op.schema(),
          [&](std::span<const Operand> operands) { return prepared.infer_outputs(operands).value(); });
  });
}

gradloom_status gradloom_prepare(gradloom_runtime* runtime, const char* op, const gradloom_attributes* attributes,
                                 const gradloom_run_options* options, gradloom_prepared** prepared) {
  const char* const name = __func__;
  if (prepared) *prepared = nullptr;
  return entry([&] {
    require(runtime, name, "runtime");
    require(op, name, "op");
    require(prepared, name, "prepared");
    *prepared = new gradloom_prepared{
        runtime->runtime->prepare(op, attributes_of(attributes), run_options(options, name)).value()};
  });
}

void gradloom_prepared_destroy(gradloom_prepared* prepared) {
  const Entry entered;  // it may release the last reference to the runtime's threads and caches
  delete prepared;
}

gradloom_status gradloom_prepared_run(const gradloom_prepared* prepared, const DLTensor* const* inputs,
                                      int32_t input_count, const gradloom_launch_options* launch,
                                      DLManagedTensor** outputs, int32_t output_count) {
  const char* const name = __func__;
  return give_outputs(outputs, output_count, name, [&] {
    require(prepared, name, "prepared");
    auto& state = state_of(prepared->prepared);
    return state.run(span_of(inputs_of(state.op.schema(), inputs, input_count, name)), launch_options(launch, name));
  });
}

gradloom_status gradloom_prepared_run_into(const gradloom_prepared* prepared, const DLTensor* const* inputs,
                                           int32_t input_count, const gradloom_launch_options* launch,
                                           DLTensor* const* outputs, int32_t output_count) {
  const char* const name = __func__;
  return entry([&] {
    require(prepared, name, "prepared");
    auto& state = state_of(prepared->prepared);
    const OpSchema& schema = state.op.schema();
    const InputArguments in = inputs_of(schema, inputs, input_count, name);
    const OutputArguments out =
        arguments_of<OutputArguments>(schema, schema.outputs.size(), outputs, output_count, name, "outputs");
    state.run_into(span_of(in), span_of(out), launch_options(launch, name),
                   [outputs](size_t o, const Dims& found) { write_shape(*outputs[o], found); });
  });
}

gradloom_status gradloom_prepared_infer_outputs(const gradloom_prepared* prepared, const DLTensor* const* inputs,
                                                int32_t input_count, gradloom_output_info* outputs,
                                                int32_t output_count) {
  const char* const name = __func__;
  if (outputs) std::fill_n(outputs, std::max(output_count, 0), gradloom_output_info{});
  return entry([&] {
    require(prepared, name, "prepared");
    check_count(outputs, output_count, name, "outputs");
    infer(inputs, input_count, outputs, output_count, name, state_of(prepared->prepared).op.schema(),
          [&](std::span<const Operand> operands) { return prepared->prepared.infer_outputs(operands).value(); });
  });
}
