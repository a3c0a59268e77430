// GRUTraining (ORT, com.microsoft): the GRU's states, and the gates that GRUGrad reads.
#include "ops/gru.h"
#include "ops/registry.h"

namespace gradloom {
namespace {

constexpr int out_hall = 0, out_hfinal = 1, out_zrh = 2;

OpSchema make_schema() {
  OpSchema s;
  s.name = "GRUTraining";
  s.doc = "The states of a gated recurrent unit at all steps, with its gates kept for GRUGrad.";
  s.inputs = gru_inputs(gru_dtypes());
  s.outputs = {{.name = "HAll", .dtypes = gru_dtypes(), .doc = "[S, D, N, H]: the state after each step; 0 beyond a sequence's end"},
               {.name = "HFinal", .optional = true, .dtypes = gru_dtypes(), .doc = "[D, N, H]: the state after the last step; initial_h where there is none"},
               {.name = "ZRH", .dtypes = gru_dtypes(), .doc = "[S, D, N, 3H]: the gates z, r, h after their activations; 0 beyond a sequence's end"}};
  s.attributes = gru_attributes();
  return s;
}

class GruTraining final : public GruOp {
 public:
  const OpSchema& schema() const override {
    static const OpSchema s = make_schema();
    return s;
  }

  Plan check(const Request& request) const override {
    check_schema(schema(), request);
    if (request.accumulate) refuse(schema(), ErrorCode::unsupported, "accumulate; its outputs are no gradients");
    GruSizes sizes;
    GruOptions options = check_gru(schema(), request, sizes);
    Plan plan{.determinism = request.determinism};
    const DType dtype = request.input(gru_x).dtype;
    add_gru_views(request, static_cast<int>(schema().inputs.size()), options, plan);
    add_gru_output(plan, options, out_hall, dtype, {sizes.steps, sizes.directions, sizes.batch, sizes.hidden});
    add_gru_output(plan, options, out_hfinal, dtype, {sizes.directions, sizes.batch, sizes.hidden});
    add_gru_output(plan, options, out_zrh, dtype, {sizes.steps, sizes.directions, sizes.batch, 3 * sizes.hidden});
    split_gates(plan.views.back(), 3);
    options.write(plan);
    return plan;
  }

  void author(KernelFrame& frame, const std::string& strategy, const ir::Target& target) const override { author_gru_training(frame, gru_target(strategy, target)); }
};

class TrainingNest : GruNest {
 public:
  TrainingNest(KernelFrame& frame, const ir::Target& target) : GruNest(frame, target, gru_training_op().schema().inputs) {
    int v = static_cast<int>(frame.plan().views.size()) - (options.wants(out_hfinal) ? 3 : 2);
    all_ = frame.view(v++, "HAll");
    if (options.wants(out_hfinal)) final_ = frame.view(v++, "HFinal");
    gates_ = frame.view(v, "ZRH");
  }

  void write() {
    start(all_);
    add_biases();
    products_ = input_products(rows_of_x(false));
    for (int d = 0; d < options.directions; ++d) each_chunk([&](const Chunk& chunk) { run(d, chunk); });
  }

 private:
  // All steps of one direction for a part of the batch.
  void run(int d, const Chunk& chunk) {
    state_ = scratch("h", {chunk.capacity, hidden});
    recurrent_ = scratch("hr", {chunk.capacity, ir::index_mul(3, hidden)});
    if (!options.linear_before_reset) {
      update_ = scratch("z", {chunk.capacity, hidden});
      reset_state_ = scratch("rh", {chunk.capacity, hidden});
    }
    each_batch(chunk, [&](Expr i, Expr n) { each_column([&](Expr j) { b.store(state_, {i, j}, in[gru_h0] ? value(in[gru_h0], {d, n, j}) : number(0)); }); });
    b.loop("t", 0, steps, [&](Expr step) {
      const std::string direction = std::to_string(d);
      if (options.linear_before_reset) {
        recurrent("step" + direction, d, chunk, state_, 0, 3);
        each_batch(
            d, chunk, step, [&](const Place& at) { linear_before_reset(d, at); }, [&](const Place& at) { pad(d, at); });
      } else {
        recurrent("step" + direction, d, chunk, state_, 0, 2);
        each_batch(
            d, chunk, step, [&](const Place& at) { update_and_reset(d, at); }, [&](const Place& at) { pad(d, at); });
        recurrent("candidate" + direction, d, chunk, reset_state_, 2, 1);
        each_batch(
            d, chunk, step, [&](const Place& at) { candidate(d, at); }, [](const Place&) {});
      }
    });
    if (!final_) return;
    each_batch(chunk, [&](Expr i, Expr n) { each_column([&](Expr j) { b.store(final_, {d, n, j}, ir::cast(dtype, ir::load(state_, {i, j}))); }); });
  }

  // hr[:, gates] = from R[d, gates]' for `count` gates.
  void recurrent(const std::string& prefix, int d, const Chunk& chunk, const Buffer& from, int gate, int count) {
    Matmul product{.prefix = prefix, .m = chunk.count, .n = ir::index_mul(count, hidden), .k = hidden, .sum = sum};
    product.a = [&](Expr m, Expr k) { return ir::load(from, {m, k}); };
    product.b = [&](Expr k, Expr n) { return ir::load(in[gru_r], {d, column(gate, n), k}); };
    product.store = [&](Expr m, Expr n, Expr total) { b.store(recurrent_, {m, column(gate, n)}, total); };
    multiply(product);
  }

  // Gate z (0) or r (1), as it is saved.
  Expr gate(int d, int g, const Place& at, const Expr& j) {
    const Expr input = b.let("input", clipped(input_part(products_, d, g, at.row, j) + ir::load(recurrent_, {at.i, column(g, j)})));
    const Expr saved = b.let(g == 0 ? "z" : "r", stored(activate(b, options.gate[d], input)));
    b.store(gates_, {at.p, d, at.n, g, j}, ir::cast(dtype, saved));
    return saved;
  }

  void step_to(int d, const Place& at, const Expr& j, const Expr& z, const Expr& candidate_in) {
    const Expr input = b.let("input", clipped(candidate_in));
    const Expr c = b.let("c", stored(activate(b, options.hidden[d], input)));
    b.store(gates_, {at.p, d, at.n, 2, j}, ir::cast(dtype, c));
    const Expr h = b.let("h", stored(ir::fma(z, ir::load(state_, {at.i, j}), (number(1) - z) * c)));
    b.store(state_, {at.i, j}, h);
    b.store(all_, {at.p, d, at.n, j}, ir::cast(dtype, h));
  }

  void linear_before_reset(int d, const Place& at) {
    each_column([&](Expr j) {
      const Expr z = gate(d, 0, at, j), r = gate(d, 1, at, j);
      step_to(d, at, j, z, candidate_input(input_part(products_, d, 2, at.row, j), r, ir::load(recurrent_, {at.i, column(2, j)}), d, j));
    });
  }

  void update_and_reset(int d, const Place& at) {
    each_column([&](Expr j) {
      b.store(update_, {at.i, j}, gate(d, 0, at, j));
      b.store(reset_state_, {at.i, j}, gate(d, 1, at, j) * ir::load(state_, {at.i, j}));
    });
  }

  void candidate(int d, const Place& at) {
    each_column([&](Expr j) {
      step_to(d, at, j, ir::load(update_, {at.i, j}), input_part(products_, d, 2, at.row, j) + ir::load(recurrent_, {at.i, column(2, j)}));
    });
  }

  void pad(int d, const Place& at) {
    each_column([&](Expr j) {
      const Expr zero = ir::zero({dtype, 1});
      b.store(all_, {at.p, d, at.n, j}, zero);
      for (int g = 0; g < 3; ++g) b.store(gates_, {at.p, d, at.n, g, j}, zero);
      if (reset_state_) b.store(reset_state_, {at.i, j}, number(0));
    });
  }

  Buffer all_, final_, gates_;                       // outputs
  Buffer products_;                                  // x W' of all rows
  Buffer state_, recurrent_, update_, reset_state_;  // of the current chunk
};

}  // namespace

void author_gru_training(KernelFrame& frame, const ir::Target& target) { TrainingNest(frame, target).write(); }

const Op& gru_training_op() {
  static const GruTraining op;
  return op;
}

}  // namespace gradloom
