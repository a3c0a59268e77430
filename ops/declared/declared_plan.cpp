#include "ops/declared/declared_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <map>

#include "gradloom/merge_dims.h"
#include "gradloom/plan_key.h"

namespace gradloom {
namespace {

constexpr int max_declared_inputs = 8;
using DeclaredDim = LoopDimOf<max_declared_inputs>;

using Words = InlineVector<int64_t, 2 * max_rank>;

int64_t word_of(const Declaration& declaration, const OpSchema& schema, const AttributeSchema& attribute,
                const Attribute& value) {
  if (const int64_t* number = std::get_if<int64_t>(&value)) return *number;
  if (const double* number = std::get_if<double>(&value)) return std::bit_cast<int64_t>(*number);
  const auto& name = std::get<std::string>(value);
  const auto& choices = declaration.choices;
  const auto found = std::find(choices.begin(), choices.end(), name);
  if (found == choices.end())
    refuse(schema, ErrorCode::invalid_argument,
           fmt::format("attribute {} is \"{}\"; it must be one of {}", attribute.name, name, fmt::join(choices, ", ")));
  return found - choices.begin();
}

// The axis is in the dims' roles.
Words attribute_words(const Declaration& declaration, const OpSchema& schema, const Request& request) {
  Words words;
  for (const AttributeSchema& attribute : declaration.attributes) {
    if (attribute.name == "axis") continue;
    const auto given = request.attributes.find(attribute.name);
    const Attribute* value = given != request.attributes.end() ? &given->second
                             : attribute.otherwise             ? &*attribute.otherwise
                                                               : nullptr;
    words.push_back(value != nullptr);
    words.push_back(value ? word_of(declaration, schema, attribute, *value) : 0);
  }
  return words;
}

class Check {
 public:
  Check(const Declaration& declaration, const OpSchema& schema, const std::vector<DeclaredArgument>& inputs,
        const std::vector<DeclaredArgument>& outputs, const Request& request)
      : declaration_(declaration), schema_(schema), inputs_(inputs), outputs_(outputs), request_(request) {}

  Plan run() {
    key_.attributes = attribute_words(declaration_, schema_, request_);
    find_dims();
    for (int i = 0; i < std::ssize(inputs_); ++i)
      if (request_.input(i).present) check_input(i);
    Plan plan;
    for (int o = 0; o < std::ssize(outputs_); ++o)
      plan.outputs.push_back({.wanted = (request_.outputs_wanted >> o & 1) != 0,
                              .dtype = dtype_of(*outputs_[o].operand),
                              .dims = dims_of(over(outputs_[o]))});
    add_views(plan);
    key_.accumulate = request_.accumulate;
    set_key(plan, key_);
    return plan;
  }

 private:
  Over over(const DeclaredArgument& argument) const {
    return over_of(declaration_, *argument.operand, key_.attributes);
  }

  void find_dims() {
    main_ = main_input(declaration_, inputs_, key_.attributes);
    dims_ = request_.input(main_).dims;
    const int rank = dims_.size();
    reduced_.resize(rank);
    if (declaration_.reduced == Reduced::none) return;
    if (declaration_.reduced == Reduced::second) {
      if (rank < 2)
        refuse(schema_, ErrorCode::invalid_argument,
               fmt::format("{} has rank {} (shape {}); it must have at least rank 2", describe_input(schema_, main_),
                           rank, to_string(dims_)));
      reduced_[1] = true;
      return;
    }
    const auto own = std::find_if(declaration_.attributes.begin(), declaration_.attributes.end(),
                                  [](const AttributeSchema& a) { return a.name == "axis"; });
    const int64_t otherwise = std::get<int64_t>(*own->otherwise);
    const int axis = wrap_axis(schema_, int_attribute(request_, "axis", otherwise), rank, "attribute axis");
    const int end = declaration_.reduced == Reduced::axis ? axis + 1 : rank;
    for (int d = axis; d < end; ++d) reduced_[d] = true;
  }

  Dims dims_of(Over over) const {
    Dims dims;
    for (int d = 0; d < dims_.size(); ++d) {
      if (has_dim(over, reduced_[d])) dims.push_back(dims_[d]);
      if (over == Over::kept_ones && reduced_[d]) dims.push_back(1);
    }
    return dims;
  }

  void check_input(int i) {
    const Operand& operand = request_.input(i);
    const Dims wanted = dims_of(over(inputs_[i]));
    if (operand.dims != wanted)
      refuse(schema_, ErrorCode::invalid_argument,
             fmt::format("{} has shape {}; with {} of shape {} it must be {}", describe_input(schema_, i),
                         to_string(operand.dims), describe_input(schema_, main_), to_string(dims_), to_string(wanted)));
    const auto [known, fresh] = dtypes_.try_emplace(inputs_[i].operand->type, i);
    const DType dtype = request_.input(known->second).dtype;
    if (operand.dtype != dtype)
      refuse(schema_, ErrorCode::invalid_argument,
             fmt::format("{} is {}; it must be {} as {}", describe_input(schema_, i), onnx_name(operand.dtype),
                         onnx_name(dtype), describe_input(schema_, known->second)));
  }
  DType dtype_of(const DeclaredOperand& operand) const {
    const auto found = dtypes_.find(operand.type);
    return found == dtypes_.end() ? operand.dtypes.at(0) : request_.input(found->second).dtype;
  }

  // The dims, merged as far as all operands' strides and the roles let them be.
  LoopDimsOf<max_declared_inputs> merged() const {
    LoopDimsOf<max_declared_inputs> dims;
    InlineVector<int, max_declared_inputs> at;  // the next dim of each input
    at.resize(static_cast<int>(inputs_.size()));
    for (int d = 0; d < dims_.size(); ++d) {
      DeclaredDim dim{.role = reduced_[d], .full = dims_[d], .extent = dims_[d]};
      for (int i = 0; i < std::ssize(inputs_); ++i) {
        const Operand& operand = request_.input(i);
        if (!operand.present) continue;
        const Over has = over(inputs_[i]);
        if (has_dim(has, reduced_[d]))
          dim.strides[static_cast<size_t>(i)] = operand.strides[at[i]++];
        else if (has == Over::kept_ones)
          ++at[i];
      }
      dims.push_back(dim);
    }
    LoopDimsOf<max_declared_inputs> result = merge_dims(dims);
    const bool reduces = declaration_.reduced != Reduced::none;
    const bool any = std::any_of(result.begin(), result.end(), [](const DeclaredDim& d) { return d.role != 0; });
    if (reduces ? !any : result.empty()) result.push_back({.role = reduces});
    return result;
  }

  void add_views(Plan& plan) {
    const LoopDimsOf<max_declared_inputs> dims = merged();
    key_.rank = dims.size();
    for (int d = 0; d < dims.size(); ++d) key_.reduced |= dims[d].role << d;
    const auto add = [&](const DeclaredArgument& argument, int index, bool output, DType dtype) {
      View view{.output = output, .index = index, .dtype = dtype};
      for (const DeclaredDim& d : dims) {
        if (!has_dim(over(argument), d.role != 0)) continue;
        view.dims.push_back(d.extent);
        if (!output) view.strides.push_back(d.strides[static_cast<size_t>(index)]);
      }
      if (view.dims.empty()) {
        view.dims.push_back(1);
        if (!output) view.strides.push_back(1);
      }
      if (output) view.strides = dense_strides(view.dims);
      plan.views.push_back(view);
      return element_count(view.dims) * size_of(dtype);
    };
    for (int i = 0; i < std::ssize(inputs_); ++i) {
      if (!request_.input(i).present) continue;
      key_.present |= int64_t{1} << i;
      plan.bytes_read += add(inputs_[i], i, false, request_.input(i).dtype);
    }
    for (int o = 0; o < std::ssize(outputs_); ++o) {
      if (!plan.outputs[o].wanted) continue;
      key_.wanted |= int64_t{1} << o;
      const int64_t bytes = add(outputs_[o], o, true, plan.outputs[o].dtype);
      plan.bytes_written += bytes;
      if (request_.accumulate) plan.bytes_read += bytes;
    }
  }

  const Declaration& declaration_;
  const OpSchema& schema_;
  const std::vector<DeclaredArgument>&inputs_, &outputs_;
  const Request& request_;
  int main_ = 0;  // the input whose dims are the call's
  Dims dims_;
  InlineVector<bool, max_rank> reduced_;
  std::map<std::string, int> dtypes_;  // an input of each type
  DeclaredKey key_;
};

}  // namespace

Plan plan_declared(const Declaration& declaration, const OpSchema& schema, const std::vector<DeclaredArgument>& inputs,
                   const std::vector<DeclaredArgument>& outputs, const Request& request) {
  return Check(declaration, schema, inputs, outputs, request).run();
}

int main_input(const Declaration& declaration, const std::vector<DeclaredArgument>& inputs, const Words& attributes) {
  const auto has_all = [&](const DeclaredArgument& a) {
    return over_of(declaration, *a.operand, attributes) == Over::all;
  };
  return static_cast<int>(std::find_if(inputs.begin(), inputs.end(), has_all) - inputs.begin());
}

bool has_dim(Over over, bool reduced) {
  return over == Over::all || (reduced ? over == Over::reduced : over == Over::kept || over == Over::kept_ones);
}

Over over_of(const Declaration& declaration, const DeclaredOperand& operand,
             const InlineVector<int64_t, 2 * max_rank>& attributes) {
  if (operand.where.attribute.empty()) return operand.over;
  int word = 0;
  for (const AttributeSchema& attribute : declaration.attributes) {
    if (attribute.name == "axis") continue;
    if (attribute.name == operand.where.attribute) break;
    word += 2;
  }
  const bool holds = declaration.choices.at(static_cast<size_t>(attributes[word + 1])) == operand.where.value;
  return holds ? operand.where.over : operand.over;
}

}  // namespace gradloom
