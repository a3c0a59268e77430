#include "runtime/outputs.h"

#include <fmt/format.h>

#include <algorithm>

namespace gradloom {
namespace {

std::string describe_output(const OpSchema& schema, size_t o) {
  return fmt::format("{}: output {} ({})", schema.name, o, schema.outputs[o].name);
}

[[noreturn]] void refuse_output(const OpSchema& schema, size_t o, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, describe_output(schema, o) + " " + what);
}

}  // namespace

bool overlap(const Tensor& a, const Tensor& b) {
  return a.elements() > 0 && b.elements() > 0 && a.begin_byte() < b.end_byte() && b.begin_byte() < a.end_byte();
}

bool aligned(const Tensor& tensor, int64_t bytes) {
  return tensor.elements() == 0 || reinterpret_cast<uintptr_t>(tensor.data()) % bytes == 0;
}

uint32_t present_outputs(const OpSchema& schema, std::span<const Tensor> outputs) {
  uint32_t present = 0;
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (!outputs[o].present()) continue;
    if (o >= schema.outputs.size()) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{}: {} outputs given; it has {}", schema.name, outputs.size(), schema.outputs.size()));
    }
    present |= 1u << o;
  }
  return present;
}

void check_outputs(const OpSchema& schema, const Plan& plan, std::span<const Tensor> inputs,
                   std::span<const Tensor> outputs) {
  for (size_t o = 0; o < outputs.size(); ++o) {
    const Tensor& out = outputs[o];
    if (!out.present()) continue;
    if (static_cast<int>(o) >= plan.outputs.size() || !plan.outputs[o].wanted)
      refuse_output(schema, o, "is given, but this call does not have it");
    const OutputInfo& info = plan.outputs[o];
    if (out.dtype() != info.dtype)
      refuse_output(schema, o,
                    fmt::format("has dtype {}; it must have {}", onnx_name(out.dtype()), onnx_name(info.dtype)));
    if (!(out.dims() == info.dims))
      refuse_output(schema, o,
                    fmt::format("has shape {}; it must have {}", to_string(out.dims()), to_string(info.dims)));
    if (!out.dense())
      refuse_output(schema, o, fmt::format("has strides {}; it must be dense", to_string(out.strides())));
    if (!out.writable()) refuse_output(schema, o, "is read-only; it must be writable");
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (overlap(out, inputs[i]))
        refuse_output(schema, o,
                      fmt::format("overlaps input {} ({}); they must not share memory", i, schema.inputs[i].name));
    }
    for (size_t other = 0; other < o; ++other) {
      if (overlap(out, outputs[other]))
        refuse_output(
            schema, o,
            fmt::format("overlaps output {} ({}); they must not share memory", other, schema.outputs[other].name));
    }
  }
}

void trim_outputs(const Op& op, const Plan& plan, std::span<void* const> memory, std::span<Tensor> outputs) {
  for (size_t o = 0; o < outputs.size() && static_cast<int>(o) < plan.outputs.size(); ++o) {
    if (!outputs[o].present()) continue;
    const Dims found = op.found_dims(plan, static_cast<int>(o), memory);
    if (!(outputs[o].dims() == found)) outputs[o] = outputs[o].trimmed(found);
  }
}

void check_devices(const OpSchema& schema, int device, std::span<const Tensor> inputs,
                   std::span<const Tensor> outputs) {
  const auto place = [](int which) {
    return which < 0 ? std::string("host memory") : fmt::format("memory of cuda device {}", which);
  };
  const auto check = [&](const Tensor& tensor, int wanted, const char* role, size_t number, const std::string& name) {
    if (!tensor.present() || tensor.device() == wanted) return;
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: {} {} ({}) is in {}; it must be in {}", schema.name, role,
                                                         number, name, place(tensor.device()), place(wanted)));
  };
  for (size_t i = 0; i < std::min(inputs.size(), schema.inputs.size()); ++i)
    check(inputs[i], schema.inputs[i].shape_like ? -1 : device, "input", i, schema.inputs[i].name);
  for (size_t o = 0; o < std::min(outputs.size(), schema.outputs.size()); ++o)
    check(outputs[o], device, "output", o, schema.outputs[o].name);
}

CallBuffers::CallBuffers(const Core& core, int device, const Plan& plan, std::span<const Tensor> inputs,
                         std::span<const Tensor> given, const LaunchOptions& launch)
    : alignment(aligned_outputs) {
  for (int v = 0; v < plan.views.size(); ++v) {
    const View& view = plan.views[v];
    const std::span<const Tensor> tensors = view.output ? given : inputs;
    const bool there = static_cast<size_t>(view.index) < tensors.size() && tensors[view.index].present();
    if (!there && !view.output)
      throw Error(ErrorCode::internal, fmt::format("view {} of a plan is of input {}, which is absent", v, view.index));
    if (!there)
      hidden_.push_back(core.allocate(device, plan.outputs[view.index].dtype, plan.outputs[view.index].dims, launch));
    const Tensor& tensor = there ? tensors[view.index] : hidden_.back();
    views[v] = tensor.data();
    if (!view.output) {
      if (!aligned(tensor, input_alignment(core.target(), aligned_outputs))) alignment = any_outputs;
      continue;
    }
    outputs[view.index] = tensor.data();
    if (!aligned(tensor, aligned_outputs)) alignment = any_outputs;
  }
}

}  // namespace gradloom
