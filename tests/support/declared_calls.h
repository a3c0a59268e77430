#pragma once
// Calls of declared ops: what any declaration takes, drawn from its dims.
#include "ops/declared/declared_op.h"
#include "ops/registry.h"
#include "tests/support/op_calls.h"

namespace gradloom::testing_ops {

// The dims of an operand of a call whose first one has `all`.
inline Dims dims_over(const Declaration& d, const Dims& all, const Attributes& attributes,
                      const DeclaredOperand& operand) {
  int first = all.size(), end = all.size();
  if (d.reduced == Reduced::second) first = 1, end = 2;
  if (d.reduced == Reduced::axis || d.reduced == Reduced::from_axis) {
    const auto axis = attributes.find("axis");
    first = axis == attributes.end() ? -1 : static_cast<int>(std::get<int64_t>(axis->second));
    if (first < 0) first += all.size();
    end = d.reduced == Reduced::axis ? first + 1 : all.size();
  }
  Over over = operand.over;
  if (const auto choice = attributes.find(operand.where.attribute); choice != attributes.end())
    if (std::get<std::string>(choice->second) == operand.where.value) over = operand.where.over;
  Dims dims;
  for (int k = 0; k < all.size(); ++k) {
    const bool reduced = k >= first && k < end;
    if (has_dim(over, reduced)) dims.push_back(all[k]);
    if (over == Over::kept_ones && reduced) dims.push_back(1);
  }
  return dims;
}

// An input of one of the two ops.
struct DeclaredInput {
  const DeclaredOperand* operand;
  bool adjoint;  // of it
};
inline std::vector<DeclaredInput> inputs_of(const Declaration& d, bool gradient) {
  std::vector<DeclaredInput> all;
  if (!gradient)
    for (const DeclaredOperand& operand : d.inputs) all.push_back({&operand, false});
  else
    for (const GradientOperand& g : d.gradient.inputs) {
      const bool adjoint = g.of.starts_with("d_");
      for (const auto* operands : {&d.inputs, &d.outputs})
        for (const DeclaredOperand& operand : *operands)
          if (operand.name == (adjoint ? g.of.substr(2) : g.of)) all.push_back({&operand, adjoint});
    }
  return all;
}

// Indices below `bound`, not sorted.
inline Tensor indices(DType dtype, const Dims& dims, int64_t bound) {
  std::vector<int64_t> values(static_cast<size_t>(element_count(dims)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int64_t>(i * 7 + 3) % bound;
  return Tensor::of(dtype, dims, values);
}

// The forward op's inputs: floats of one dtype; indices in range.
inline std::vector<Tensor> declared_inputs(const Declaration& d, const Dims& all, const Attributes& attributes,
                                           DType dtype, Random& random) {
  std::vector<Tensor> inputs;
  for (const DeclaredInput& input : inputs_of(d, false)) {
    const Dims dims = dims_over(d, all, attributes, *input.operand);
    inputs.push_back(input.operand->name == d.indices ? indices(input.operand->dtypes.back(), dims, all[1])
                                                      : random.values(dtype, dims));
  }
  return inputs;
}

// The gradient op's inputs, from the forward op's inputs and its results.
inline std::vector<Tensor> gradient_inputs(const Declaration& d, const std::vector<Tensor>& inputs,
                                           const std::vector<Tensor>& outputs, Random& random) {
  std::vector<Tensor> all;
  for (const DeclaredInput& input : inputs_of(d, true)) {
    Tensor of;
    for (size_t i = 0; i < d.inputs.size(); ++i)
      if (&d.inputs[i] == input.operand) of = inputs[i];
    for (size_t o = 0; o < d.outputs.size(); ++o)
      if (&d.outputs[o] == input.operand) of = outputs[o];
    all.push_back(input.adjoint ? random.values(of.dtype(), of.dims()) : of);
  }
  return all;
}

// The attributes that the gradient op has, too.
inline Attributes gradient_attributes(const Declaration& d, const Attributes& attributes) {
  Attributes own;
  for (const std::string& name : d.gradient.attributes)
    if (const auto found = attributes.find(name); found != attributes.end()) own.insert(*found);
  return own;
}

// Of each declaration both ops, on dims with odd residues.
inline std::vector<Call> declared_calls() {
  std::vector<Call> calls;
  Runtime forward({.target = TargetKind::interpreter});
  Random random(6);
  for (const DeclaredOps* both : all_declared_ops()) {
    const Declaration& d = both->declaration();
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const std::vector<Tensor> inputs = declared_inputs(d, {5, 37}, {}, dtype, random);
      const auto outputs = forward.run(d.name, inputs);
      if (!outputs) throw std::runtime_error(outputs.error().what());
      const std::string name = std::string("declared_") + to_string(dtype);
      if (dtype == DType::f32) calls.push_back({name, d.name, inputs, {}});
      calls.push_back(
          {name, d.gradient.name, gradient_inputs(d, inputs, outputs.value(), random), {}, dtype == DType::bf16});
    }
  }
  return calls;
}

}  // namespace gradloom::testing_ops
