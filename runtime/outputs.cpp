#include "runtime/outputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "runtime/kernel_arguments.h"
#include "runtime/strided_outputs.h"

namespace gradloom {
namespace {

std::string describe_output(const OpSchema& schema, size_t o) {
  return fmt::format("{}: output {} ({})", schema.name, o, schema.outputs[o].name);
}

[[noreturn]] void refuse_output(const OpSchema& schema, size_t o, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, describe_output(schema, o) + " " + what);
}

void check_strides(const OpSchema& schema, size_t o, const Argument& out) {
  try {
    tensor_of(out);
  } catch (const Error& error) {
    refuse_output(schema, o, error.what());
  }
  if (elements_overlap(dims_of(out), strides_of(out)))
    refuse_output(schema, o,
                  fmt::format("has shape {} and strides {}: its elements overlap; each must have memory of its own",
                              to_string(dims_of(out)), to_string(strides_of(out))));
}

}  // namespace

void refuse_accumulate(const OpSchema& schema, const RunOptions& options) {
  if (options.accumulate)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: accumulate adds into outputs that the caller gives; use run_into", schema.name));
}

uint32_t present_outputs(Arguments outputs) {
  uint32_t present = 0;
  for (size_t o = 0; o < outputs.size(); ++o) present |= static_cast<uint32_t>(outputs[o].present) << o;
  return present;
}

void check_outputs(const OpSchema& schema, const Plan& plan, Arguments inputs, Arguments outputs) {
  for (size_t o = 0; o < outputs.size(); ++o) {
    const Argument& out = outputs[o];
    if (!out.present) continue;
    if (static_cast<int>(o) >= plan.outputs.size() || !plan.outputs[o].wanted)
      refuse_output(schema, o, "is given, but this call does not have it");
    const OutputInfo& info = plan.outputs[o];
    if (out.dtype != info.dtype)
      refuse_output(schema, o,
                    fmt::format("has dtype {}; it must have {}", onnx_name(out.dtype), onnx_name(info.dtype)));
    if (!same_dims(info.dims, out))
      refuse_output(schema, o,
                    fmt::format("has shape {}; it must have {}", to_string(dims_of(out)), to_string(info.dims)));
    if (!out.data && out.elements() > 0) refuse_output(schema, o, "has no data");
    if (is_strided(out)) check_strides(schema, o, out);
    if (!out.writable) refuse_output(schema, o, "is read-only; it must be writable");
  }
  check_overlaps(schema, inputs, outputs);
}

void check_overlaps(const OpSchema& schema, Arguments inputs, Arguments outputs) {
  for (size_t o = 0; o < outputs.size(); ++o) {
    const ByteRange written = bytes_of(outputs[o]);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (overlap(written, bytes_of(inputs[i])))
        refuse_output(schema, o,
                      fmt::format("overlaps input {} ({}); they must not share memory", i, schema.inputs[i].name));
    }
    for (size_t other = 0; other < o; ++other) {
      if (overlap(written, bytes_of(outputs[other])))
        refuse_output(
            schema, o,
            fmt::format("overlaps output {} ({}); they must not share memory", other, schema.outputs[other].name));
    }
  }
}

namespace {

Tensor allocated_by_caller(int device, const OpSchema& schema, int o, DType dtype, const Dims& dims,
                           const AllocateOutput& allocate) {
  void* const data = allocate(schema.name, o, dtype, dims);
  const int64_t bytes = element_count(dims, size_of(dtype)) * size_of(dtype);
  if (!data && bytes != 0)
    throw Error(ErrorCode::resource_exhausted,
                fmt::format("{}: the allocate callback gave no memory for shape {}, {} bytes",
                            describe_output(schema, o), to_string(dims), bytes));
  return device < 0 ? Tensor::borrow(data, dtype, dims) : Tensor::share_device(nullptr, data, device, dtype, dims);
}

}  // namespace

Tensor of_size(const Tensor& output, const Dims& found) {
  if (output.dims() == found) return output;
  return output.dense() ? output.trimmed(found) : output.view(found, output.strides());
}

std::vector<Tensor> make_outputs(const Core& core, int device, const OpSchema& schema, const Plan& plan,
                                 uint32_t wanted, const LaunchOptions& launch) {
  std::vector<Tensor> made(schema.outputs.size());
  for (int o = 0; o < static_cast<int>(made.size()); ++o) {
    const OutputInfo& info = plan.outputs[o];
    if (!info.wanted || !(wanted >> o & 1)) continue;
    made[o] = launch.allocate && !schema.outputs[o].found_size
                  ? allocated_by_caller(device, schema, o, info.dtype, info.dims, launch.allocate)
                  : core.allocate(device, info.dtype, info.dims, launch);
  }
  return made;
}

void give_found(const OpSchema& schema, Arguments inputs, std::vector<Tensor>& made, const LaunchOptions& launch) {
  const std::vector<Tensor> found = made;
  for (int o = 0; o < static_cast<int>(made.size()); ++o)
    if (made[o].present() && schema.outputs[o].found_size)
      made[o] = allocated_by_caller(made[o].device(), schema, o, made[o].dtype(), made[o].dims(), launch.allocate);
  check_overlaps(schema, inputs, span_of(output_arguments(schema, made)));
  for (size_t o = 0; o < made.size(); ++o)
    if (made[o].data() != found[o].data() && made[o].elements() > 0)
      std::memcpy(made[o].data(), found[o].data(), static_cast<size_t>(made[o].end_byte() - made[o].begin_byte()));
}

void check_devices(const OpSchema& schema, int device, Arguments inputs, Arguments outputs) {
  const auto in_host = [](const Argument& a) { return a.device < 0; };
  if (device < 0 && std::all_of(inputs.begin(), inputs.end(), in_host) &&
      std::all_of(outputs.begin(), outputs.end(), in_host))
    return;
  const auto place = [](int which) {
    return which < 0 ? std::string("host memory") : fmt::format("memory of cuda device {}", which);
  };
  const auto check = [&](const Argument& a, int wanted, const char* role, size_t number, const std::string& name) {
    if (!a.present || a.device == wanted) return;
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: {} {} ({}) is in {}; it must be in {}", schema.name, role,
                                                         number, name, place(a.device), place(wanted)));
  };
  for (size_t i = 0; i < std::min(inputs.size(), schema.inputs.size()); ++i)
    check(inputs[i], schema.inputs[i].shape_like ? -1 : device, "input", i, schema.inputs[i].name);
  for (size_t o = 0; o < std::min(outputs.size(), schema.outputs.size()); ++o)
    check(outputs[o], device, "output", o, schema.outputs[o].name);
}

CallBuffers::CallBuffers(const Core& core, int device, const Plan& plan, Arguments inputs, Arguments given,
                         const LaunchOptions& launch)
    : alignment(aligned_outputs) {
  const uintptr_t inputs_mask = input_alignment(core.target(), aligned_outputs) - 1;  // of a power of two
  for (int v = 0; v < plan.views.size(); ++v) {
    const View& view = plan.views[v];
    const Arguments arguments = view.output ? given : inputs;
    const bool there = static_cast<size_t>(view.index) < arguments.size() && arguments[view.index].present;
    if (!there && !view.output)
      throw Error(ErrorCode::internal, fmt::format("view {} of a plan is of input {}, which is absent", v, view.index));
    if (!there)
      hidden_.push_back(core.allocate(device, plan.outputs[view.index].dtype, plan.outputs[view.index].dims, launch));
    views[v] = there ? arguments[view.index].data : hidden_.back().data();
    if (view.output) outputs[view.index] = views[v];
    // An empty tensor is at any address.
    if ((reinterpret_cast<uintptr_t>(views[v]) & (view.output ? aligned_outputs - 1 : inputs_mask)) != 0 &&
        (!there || arguments[view.index].elements() != 0))
      alignment = any_outputs;
  }
}

}  // namespace gradloom
