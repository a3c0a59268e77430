// The two ops of a declaration.
#include "ops/declared/declared_op.h"

#include <fmt/format.h>

#include "gradloom/plan_key.h"
#include "ops/index_error.h"
#include "ops/patterns/derived_nest.h"

namespace gradloom {
namespace {

using ir::Buffer;
using ir::Expr;
using Arguments = std::vector<DeclaredArgument>;

constexpr std::string_view adjoint_prefix = "d_";

const DeclaredOperand& operand_of(const Declaration& d, const std::string& name) {
  for (const auto* operands : {&d.inputs, &d.outputs})
    for (const DeclaredOperand& operand : *operands)
      if (operand.name == name) return operand;
  throw Error(ErrorCode::internal, d.name + " has no operand " + name);
}

bool is_output(const Declaration& d, const DeclaredOperand& operand) {
  return !d.outputs.empty() && &operand >= d.outputs.data() && &operand < d.outputs.data() + d.outputs.size();
}

ArgumentSchema argument_schema(const DeclaredOperand& operand, std::string name, std::string doc, bool optional) {
  return {.name = std::move(name),
          .optional = optional,
          .dtypes = operand.dtypes.empty() ? dtypes_where(is_float) : operand.dtypes,
          .doc = std::move(doc),
          .type = operand.type};
}

// One of the two ops: its schema, and which forward operand each argument is of.
struct Face {
  OpSchema schema;
  Arguments inputs, outputs;
};

Face forward_face(const Declaration& d) {
  Face face{.schema = {.name = d.name, .doc = d.doc, .attributes = d.attributes}};
  for (const DeclaredOperand& operand : d.inputs) {
    face.schema.inputs.push_back(argument_schema(operand, operand.name, operand.doc, operand.optional));
    face.inputs.push_back({&operand});
  }
  for (const DeclaredOperand& operand : d.outputs) {
    face.schema.outputs.push_back(argument_schema(operand, operand.name, operand.doc, operand.optional));
    face.outputs.push_back({&operand, false, true});
  }
  return face;
}

Face gradient_face(const Declaration& d) {
  Face face{.schema = {.name = d.gradient.name, .doc = d.gradient.doc}};
  for (const AttributeSchema& attribute : d.attributes)
    if (const auto& own = d.gradient.attributes; std::find(own.begin(), own.end(), attribute.name) != own.end())
      face.schema.attributes.push_back(attribute);
  const auto add = [&](const GradientOperand& g, std::vector<ArgumentSchema>& schemas, Arguments& arguments,
                       bool optional) {
    const bool adjoint = g.of.starts_with(adjoint_prefix);
    const DeclaredOperand& operand = operand_of(d, adjoint ? g.of.substr(adjoint_prefix.size()) : g.of);
    schemas.push_back(
        argument_schema(operand, g.name, g.doc, optional || (operand.optional && !adjoint && !is_output(d, operand))));
    arguments.push_back({&operand, adjoint, is_output(d, operand)});
  };
  for (const GradientOperand& g : d.gradient.inputs) add(g, face.schema.inputs, face.inputs, false);
  const bool several = d.gradient.outputs.size() > 1;
  for (const GradientOperand& g : d.gradient.outputs) add(g, face.schema.outputs, face.outputs, several);
  return face;
}

// The buffers of a kernel, by the plan's views.
struct Views {
  std::vector<Buffer> inputs, outputs;  // by argument; absent: not in the call
};
Views take_views(KernelFrame& frame, const OpSchema& schema) {
  const DeclaredKey key = key_of<DeclaredKey>(frame.plan());
  Views views;
  views.inputs.resize(schema.inputs.size()), views.outputs.resize(schema.outputs.size());
  for (int v = 0; v < frame.plan().views.size(); ++v) {
    const View& view = frame.plan().views[v];
    const auto& arguments = view.output ? schema.outputs : schema.inputs;
    (view.output ? views.outputs : views.inputs)[static_cast<size_t>(view.index)] =
        frame.view(v, arguments[static_cast<size_t>(view.index)].name, view.output && key.accumulate);
  }
  return views;
}

const Buffer& main_buffer(const Declaration& d, const DeclaredKey& key, const Arguments& inputs, const Views& views) {
  return views.inputs[static_cast<size_t>(main_input(d, inputs, key.attributes))];
}

// What values are computed in: f64 where a float of the call is.
DType wide_of(const Plan& plan) {
  const bool f64 =
      std::any_of(plan.views.begin(), plan.views.end(), [](const View& v) { return v.dtype == DType::f64; });
  return f64 ? DType::f64 : DType::f32;
}

ScheduleNest author_forward(const Declaration& d, KernelFrame& frame, const Face& face) {
  const DeclaredKey key = key_of<DeclaredKey>(frame.plan());
  const Views views = take_views(frame, face.schema);
  const Buffer main = main_buffer(d, key, face.inputs, views);
  DeclaredNest nest(frame.builder, d, key, main->dims, wide_of(frame.plan()));
  const auto add = [&](const Arguments& arguments, const std::vector<Buffer>& buffers) {
    for (size_t i = 0; i < arguments.size(); ++i)
      if (buffers[i])
        nest.add(arguments[i].operand->name, {buffers[i], over_of(d, *arguments[i].operand, key.attributes)});
  };
  add(face.inputs, views.inputs), add(face.outputs, views.outputs);
  d.write(nest);
  return {};
}

// The forward nest on dense operands of the call's extents, derived, and put on the call's own buffers.
class Gradient {
 public:
  Gradient(const Declaration& d, KernelFrame& frame, const Face& face)
      : d_(d),
        frame_(frame),
        face_(face),
        key_(key_of<DeclaredKey>(frame.plan())),
        views_(take_views(frame, face.schema)),
        main_(main_buffer(d, key_, face.inputs, views_)),
        derived_(d.name, 0, frame.plan().views[0].most_of_a_dim),
        nest_(derived_.forward, d, key_, main_->dims, wide_of(frame.plan())) {}

  void write() {
    for (const DeclaredOperand& operand : d_.inputs)
      if (is_there(operand))
        nest_.add(operand.name, {derived_.forward.input(operand.name, dtype_of(operand), dims_of(operand)),
                                 over_of(d_, operand, key_.attributes)});
    for (const DeclaredOperand& operand : d_.outputs)
      if (is_read(operand))
        nest_.add(operand.name, {derived_.forward.output(operand.name, dtype_of(operand), dims_of(operand)),
                                 over_of(d_, operand, key_.attributes)});
    nest_.derive();
    d_.write(nest_);
    const ir::Derivation how = derivation();
    if (how.wanted.empty()) return;
    DerivedNest::Views views;
    each_argument([&](const DeclaredArgument& a, const Buffer& view, bool) { views[name_of(a)] = view; });
    frame_.builder.append(derived_.gradient(how, views, key_.accumulate ? sum_of : DerivedNest::Added()));
  }

 private:
  static std::string name_of(const DeclaredArgument& a) {
    return (a.adjoint ? std::string(adjoint_prefix) : "") + a.operand->name;
  }
  template <class Visit>
  void each_argument(Visit&& visit) const {
    for (size_t i = 0; i < face_.inputs.size(); ++i)
      if (views_.inputs[i]) visit(face_.inputs[i], views_.inputs[i], false);
    for (size_t o = 0; o < face_.outputs.size(); ++o)
      if (views_.outputs[o]) visit(face_.outputs[o], views_.outputs[o], true);
  }
  // Of an optional operand that the gradient gets, whether the call has it.
  bool is_there(const DeclaredOperand& operand) const {
    for (size_t i = 0; i < face_.inputs.size(); ++i)
      if (face_.inputs[i].operand == &operand && !face_.inputs[i].adjoint) return static_cast<bool>(views_.inputs[i]);
    return true;
  }
  // Whether the gradient gets the output, or its adjoint.
  bool is_read(const DeclaredOperand& output) const {
    return std::any_of(face_.inputs.begin(), face_.inputs.end(),
                       [&](const DeclaredArgument& a) { return a.operand == &output; });
  }
  DType dtype_of(const DeclaredOperand& operand) const {
    DType dtype = operand.dtypes.empty() ? main_->dtype : operand.dtypes[0];
    each_argument([&](const DeclaredArgument& a, const Buffer& view, bool) {
      if (a.operand->type == operand.type) dtype = view->dtype;
    });
    return dtype;
  }
  std::vector<Expr> dims_of(const DeclaredOperand& operand) const {
    const Over over = over_of(d_, operand, key_.attributes);
    std::vector<Expr> dims;
    for (int d = 0; d < key_.rank; ++d)
      if (has_dim(over, key_.is_reduced(d))) dims.push_back(main_->dims[static_cast<size_t>(d)]);
    if (dims.empty()) dims.push_back(1);
    return dims;
  }

  ir::Derivation derivation() const {
    ir::Derivation how{.kept = std::vector<std::string>(),
                       .inactive = d_.gradient.inactive,
                       .tie = d_.gradient.tie,
                       .sums = ir::SumOrder::tree,
                       .seeded = std::vector<std::string>(),
                       .known = nest_.all_known()};
    each_argument([&](const DeclaredArgument& a, const Buffer&, bool output) {
      (output ? how.wanted : a.adjoint ? *how.seeded : *how.kept).push_back(a.operand->name);
    });
    return how;
  }

  const Declaration& d_;
  KernelFrame& frame_;
  const Face& face_;
  const DeclaredKey key_;
  const Views views_;
  const Buffer main_;
  DerivedNest derived_;
  DeclaredNest nest_;
};

ScheduleNest author_gradient(const Declaration& d, KernelFrame& frame, const Face& face) {
  Gradient(d, frame, face).write();
  return {};
}

using Author = ScheduleNest (*)(const Declaration&, KernelFrame&, const Face&);

class DeclaredOp final : public Op {
 public:
  DeclaredOp(const Declaration& d, Face face, Author author, bool gradient)
      : Op(face.schema,
           {{.name = "direct",
             .author = [&d, face, author](KernelFrame& frame, const ir::Target&) { return author(d, frame, face); }}}),
        d_(d),
        face_(std::move(face)),
        gradient_(gradient) {}

 private:
  Plan plan(const Request& request) const override {
    if (request.accumulate && !gradient_)
      refuse(schema(), ErrorCode::unsupported, "accumulate; its outputs are no gradients");
    return plan_declared(d_, schema(), face_.inputs, face_.outputs, request);
  }

  // Of an operand of indices along the reduced dim.
  Error explain(const Request& request, const Plan& plan, int64_t position,
                const std::function<int64_t(int, int64_t)>& values) const override {
    int input = 0;
    while (face_.inputs[static_cast<size_t>(input)].operand->name != d_.indices) ++input;
    const int main = main_input(d_, face_.inputs, key_of<DeclaredKey>(plan).attributes);
    return index_error(schema(), input, fmt::format("[{}]", position), values(input, position),
                       request.input(main).dims[1], Negative::refused);
  }

  const Declaration& d_;
  const Face face_;
  const bool gradient_;
};

}  // namespace

DeclaredOps::DeclaredOps(Declaration declaration)
    : declaration_(std::move(declaration)),
      forward_(std::make_unique<DeclaredOp>(declaration_, forward_face(declaration_), author_forward, false)),
      gradient_(std::make_unique<DeclaredOp>(declaration_, gradient_face(declaration_), author_gradient, true)) {}

}  // namespace gradloom
