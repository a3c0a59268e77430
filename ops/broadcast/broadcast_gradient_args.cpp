// BroadcastGradientArgs (ORT, com.microsoft): which axes the gradient of a broadcast operand is summed over.
#include <fmt/format.h>

#include "gradloom/plan_key.h"
#include "ops/registry.h"
#include "support/lasting.h"

namespace gradloom {
namespace {

using ir::Expr;

constexpr int in_a = 0, in_b = 1;
constexpr int out_counts = 2;  // internal: how many axes a and b have

OpSchema make_schema() {
  OpSchema s;
  s.name = "BroadcastGradientArgs";
  s.on_host = true;
  s.doc = "The axes over which the gradients of two broadcast operands are summed, last axis first; none: no sum.";
  s.inputs = {{.name = "a_shape", .dtypes = {DType::i64}, .doc = "rank 1: the shape of operand a"},
              {.name = "b_shape", .dtypes = {DType::i64}, .doc = "rank 1: the shape of operand b"}};
  s.outputs = {
      {.name = "a_axes",
       .optional = true,
       .dtypes = {DType::i64},
       .doc = "rank 1: axes of the broadcast shape that a's gradient is summed over",
       .found_size = true},
      {.name = "b_axes", .optional = true, .dtypes = {DType::i64}, .doc = "the same for b", .found_size = true}};
  return s;
}

// The plan's views: a_shape, b_shape, the requested ones of a_axes and b_axes, counts. The key: which are requested.
struct Wanted {
  bool axes[2] = {false, false};
  template <class Key, class Visit>
  static void fields(Key& key, Visit&& visit) {
    visit(key.axes);
  }
};

class Nest {
 public:
  explicit Nest(KernelFrame& frame)
      : b_(frame.builder), a_(frame.view(0, "a_shape")), b_shape_(frame.view(1, "b_shape")) {
    int v = 2;
    const char* names[] = {"a_axes", "b_axes"};
    const Wanted wanted = key_of<Wanted>(frame.plan());
    for (int o = 0; o < 2; ++o)
      if (wanted.axes[o]) axes_[o] = frame.view(v++, names[o]);
    counts_ = frame.view(v, "counts");
  }

  void write() {
    const Expr rank = ir::max(a_->dims[0], b_shape_->dims[0]);
    const ir::Buffer n = b_.alloc("n", DType::i64, {2});
    for (int o = 0; o < 2; ++o) b_.store(n, {o}, 0);
    b_.loop("t", 0, rank, [&](Expr t) { axis(rank - 1 - t, a_->dims[0] - 1 - t, b_shape_->dims[0] - 1 - t, n); });
    for (int o = 0; o < 2; ++o) b_.store(counts_, {o}, ir::load(n, {o}));
  }

 private:
  // Axis k of the broadcast shape; ia and ib are negative where an operand lacks it.
  void axis(Expr k, Expr ia, Expr ib, const ir::Buffer& n) {
    const Expr a = b_.let("a", ir::load(a_, {ia}, ia >= 0, 1)), b = b_.let("b", ir::load(b_shape_, {ib}, ib >= 0, 1));
    const Expr no_a = ia < 0, no_b = ib < 0, differ = a != b;
    const auto either = [](Expr x, Expr y) { return ir::binary(ir::BinaryOp::bit_or, std::move(x), std::move(y)); };
    const Expr sum_a = either(no_a, differ & (a == 1) & ir::unary(ir::UnaryOp::bit_not, no_b));
    const Expr sum_b = either(no_b, differ & (b == 1) & ir::unary(ir::UnaryOp::bit_not, no_a));
    b_.check(either(either(sum_a, sum_b), a == b), k, "a_shape", [&] {
      append(0, sum_a, k, n);
      append(1, sum_b, k, n);
    });
  }

  void append(int o, const Expr& wanted, const Expr& k, const ir::Buffer& n) {
    if (!axes_[o]) return;
    b_.if_then(wanted, [&] {
      const Expr at = b_.let("at", ir::load(n, {o}));
      b_.store(axes_[o], {at}, k);
      b_.store(n, {o}, at + 1);
    });
  }

  ir::KernelBuilder& b_;
  ir::Buffer a_, b_shape_, axes_[2], counts_;
};

class BroadcastGradientArgs final : public Op {
 public:
  BroadcastGradientArgs() : Op(make_schema(), {{.name = "direct", .author = author}}) {}

  Error explain(const Request& request, const Plan&, int64_t position,
                const std::function<int64_t(int, int64_t)>& values) const override {
    std::string shapes[2];
    int64_t dim[2] = {0, 0}, ranks[2] = {request.input(in_a).dims[0], request.input(in_b).dims[0]};
    const int64_t rank = std::max(ranks[0], ranks[1]);
    for (int i = 0; i < 2; ++i) {
      for (int64_t d = 0; d < ranks[i]; ++d) shapes[i] += (d == 0 ? "" : ",") + std::to_string(values(i, d));
      const int64_t at = position - (rank - ranks[i]);
      if (at >= 0 && at < ranks[i]) dim[i] = values(i, at);
    }
    return Error(
        ErrorCode::invalid_argument,
        fmt::format(
            "BroadcastGradientArgs: input 0 (a_shape) [{}] and input 1 (b_shape) [{}] do not broadcast: at axis "
            "{} {} meets {}; the dims must be equal or one of them 1",
            shapes[0], shapes[1], position, dim[0], dim[1]));
  }

  Dims found_dims(const Plan&, int output, std::span<void* const> outputs) const override {
    return {static_cast<const int64_t*>(outputs[out_counts])[output]};
  }

 private:
  // A few numbers: on a CPU the nest stays serial.
  static ScheduleNest author(KernelFrame& frame, const ir::Target& target) {
    Nest(frame).write();
    if (target.gpu) return {};
    return [](ir::Schedule&) {};
  }

  Plan plan(const Request& request) const override {
    if (request.accumulate) refuse(schema(), ErrorCode::unsupported, "accumulate; axes cannot be added to");
    Plan plan;
    int64_t rank = 0;
    for (int i = 0; i < 2; ++i) {
      const Operand& operand = request.input(i);
      if (operand.dims.size() != 1)
        refuse(schema(), ErrorCode::invalid_argument,
               fmt::format("{} has rank {} (shape {}); it must have rank 1", describe_input(schema(), i),
                           operand.dims.size(), to_string(operand.dims)));
      rank = std::max(rank, operand.dims[0]);
      plan.views.push_back({.index = i, .dtype = DType::i64, .dims = operand.dims, .strides = operand.strides});
    }
    Wanted asked;
    for (int o = 0; o < 2; ++o) {
      const bool wanted = request.outputs_wanted >> o & 1;
      plan.outputs.push_back({.wanted = wanted, .dtype = DType::i64, .dims = {rank}});
      asked.axes[o] = wanted;
      if (wanted)
        plan.views.push_back({.output = true, .index = o, .dtype = DType::i64, .dims = {rank}, .strides = {1}});
    }
    plan.outputs.push_back({.dtype = DType::i64, .dims = {2}, .internal = true});
    plan.views.push_back({.output = true, .index = out_counts, .dtype = DType::i64, .dims = {2}, .strides = {1}});
    plan.bytes_read = 16 * rank;
    plan.bytes_written = 16 * rank + 16;
    set_key(plan, asked);
    return plan;
  }
};

}  // namespace

const Op& broadcast_gradient_args_op() {
  static constinit Lasting<const BroadcastGradientArgs> op;
  return *op;
}

}  // namespace gradloom
