#include "gradloom/elementwise.h"

#include "gradloom/merge_dims.h"
#include "gradloom/plan_key.h"
#include "gradloom/schedule_common.h"

namespace gradloom {
namespace {

struct ElementwiseKey {
  bool accumulate = false;
  template <class Key, class Visit>
  static void fields(Key& key, Visit&& visit) {
    visit(key.accumulate);
  }
};

ScheduleNest author(const ElementwiseOp::Element& element, KernelFrame& frame, const ir::Target& target) {
  const Plan& plan = frame.plan();
  ir::KernelBuilder& b = frame.builder;
  const bool accumulate = key_of<ElementwiseKey>(plan).accumulate;
  const int count = plan.views.size() - 1;
  std::vector<ir::Buffer> inputs;
  for (int i = 0; i < count; ++i) inputs.push_back(frame.view(i, "in" + std::to_string(i)));
  const ir::Buffer out = frame.view(count, "out", accumulate);
  const DType wide = accumulator_of(out->dtype);
  const std::vector<ir::Loop> loops = b.loops("i", out->dims, [&](const std::vector<ir::Expr>& at) {
    std::vector<ir::Expr> values;
    for (const ir::Buffer& x : inputs) values.push_back(b.let(x->name + "_i", ir::cast(wide, ir::load(x, at))));
    ir::Expr value = element(b, values);
    if (accumulate) value = ir::cast(wide, ir::load(out, at)) + value;
    b.store(out, at, ir::cast(out->dtype, value));
  });
  if (loops.empty() || target.gpu) return {};
  return [loops, wide, count, &plan, &target](ir::Schedule& s) {
    const bool threads = worth_threads(plan.bytes_read + plan.bytes_written, target);
    ir::Loop outer = loops[0], inner = loops.back(), tail = 0;
    if (threads && loops.size() == 1) {
      const ir::Schedule::Split pieces = s.split(outer, row_piece(plan.views[count].dims[0], target));
      outer = pieces.outer, inner = pieces.inner, tail = pieces.tail;
    }
    vectorize_elements(s, inner, size_of(wide), 4, target);
    if (tail) vectorize_elements(s, tail, size_of(wide), 4, target);
    if (threads) s.parallel(outer);
  };
}

OpSchema checked(OpSchema schema) {
  const bool optional =
      std::any_of(schema.inputs.begin(), schema.inputs.end(), [](const ArgumentSchema& a) { return a.optional; });
  if (schema.inputs.empty() || std::ssize(schema.inputs) > ElementwiseOp::max_inputs || optional ||
      schema.outputs.size() != 1)
    refuse(schema, ErrorCode::invalid_argument,
           "an elementwise op has 1 to " + std::to_string(ElementwiseOp::max_inputs) + " inputs and one output");
  return schema;
}

}  // namespace

ElementwiseOp::ElementwiseOp(OpSchema schema, Element element)
    : Op(checked(std::move(schema)),
         {{.name = "direct", .author = [element = std::move(element)](KernelFrame& frame, const ir::Target& target) {
             return author(element, frame, target);
           }}}) {}

Plan ElementwiseOp::plan(const Request& request) const {
  const Operand& first = request.input(0);
  const int count = static_cast<int>(schema().inputs.size());
  for (int i = 1; i < count; ++i)
    if (request.input(i).dims != first.dims || request.input(i).dtype != first.dtype)
      refuse(schema(), ErrorCode::invalid_argument,
             describe_input(schema(), i) + " is " + to_string(request.input(i).dtype) + " of shape " +
                 to_string(request.input(i).dims) + "; it must be " + to_string(first.dtype) + " of shape " +
                 to_string(first.dims) + " as " + describe_input(schema(), 0));
  LoopDimsOf<max_inputs> dims;
  for (int d = 0; d < first.dims.size(); ++d) {
    LoopDimOf<max_inputs> dim{.full = first.dims[d], .extent = first.dims[d]};
    for (int i = 0; i < count; ++i) dim.strides[static_cast<size_t>(i)] = request.input(i).strides[d];
    dims.push_back(dim);
  }
  const LoopDimsOf<max_inputs> merged = merge_dims(dims);
  Plan plan;
  plan.outputs.push_back({.dtype = first.dtype, .dims = first.dims});
  for (int i = 0; i <= count; ++i) {
    View view{.output = i == count, .index = i % count, .dtype = first.dtype};
    for (const auto& d : merged) {
      view.dims.push_back(d.extent);
      if (i < count) view.strides.push_back(d.strides[static_cast<size_t>(i)]);
    }
    if (view.output) view.strides = dense_strides(view.dims);
    plan.views.push_back(view);
  }
  plan.bytes_written = element_count(first.dims) * size_of(first.dtype);
  plan.bytes_read = (count + request.accumulate) * plan.bytes_written;
  set_key(plan, ElementwiseKey{request.accumulate});
  return plan;
}

}  // namespace gradloom
