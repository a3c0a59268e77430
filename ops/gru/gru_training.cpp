// GRUTraining (ORT, com.microsoft): the GRU's states, and the gates that GRUGrad reads.
#include "ops/gru/gru.h"
#include "ops/registry.h"
#include "support/lasting.h"

namespace gradloom {
namespace {

constexpr int out_hall = 0, out_hfinal = 1, out_zrh = 2;

OpSchema make_schema() {
  OpSchema s;
  s.name = "GRUTraining";
  s.doc = "The states of a gated recurrent unit at all steps, with its gates kept for GRUGrad.";
  s.inputs = gru_inputs(dtypes_where(is_float));
  s.outputs = {{.name = "HAll",
                .dtypes = dtypes_where(is_float),
                .doc = "[S, D, N, H]: the state after each step; 0 beyond a sequence's end",
                .type = "T"},
               {.name = "HFinal",
                .optional = true,
                .dtypes = dtypes_where(is_float),
                .doc = "[D, N, H]: the state after the last step; initial_h where there is none",
                .type = "T"},
               {.name = "ZRH",
                .dtypes = dtypes_where(is_float),
                .doc = "[S, D, N, 3H]: the gates z, r, h after their activations; 0 beyond a sequence's end",
                .type = "T"}};
  s.attributes = gru_attributes();
  return s;
}

class GruTraining final : public GruOp {
 public:
  GruTraining() : GruOp(make_schema(), author_gru_training) {}

 private:
  Plan plan(const Request& request) const override {
    if (request.accumulate) refuse(schema(), ErrorCode::unsupported, "accumulate; its outputs are no gradients");
    GruSizes sizes;
    GruOptions options = check_gru(schema(), request, sizes);
    Plan plan;
    const DType dtype = request.input(gru_x).dtype;
    const GruSizes loops = looped_sizes(sizes, request, options, out_hfinal);
    const auto states = [](const GruSizes& z, int64_t gates) -> Dims {
      return {z.steps, z.directions, z.batch, gates * z.hidden};
    };
    const auto last = [](const GruSizes& z) -> Dims { return {z.directions, z.batch, z.hidden}; };
    add_gru_views(request, static_cast<int>(schema().inputs.size()), loops, options, plan);
    add_gru_output(plan, options, out_hall, dtype, states(sizes, 1), states(loops, 1));
    add_gru_output(plan, options, out_hfinal, dtype, last(sizes), last(loops));
    add_gru_output(plan, options, out_zrh, dtype, states(sizes, 3), states(loops, 3));
    split_gates(plan.views.back(), 3);
    finish_gru_plan(plan, options);
    return plan;
  }
};

class TrainingNest : GruNest {
 public:
  TrainingNest(KernelFrame& frame, const GruWay& way, const ir::Target& target)
      : GruNest(frame, way, target, gru_training_op().schema().inputs) {
    int v = static_cast<int>(frame.plan().views.size()) - (options.wants(out_hfinal) ? 3 : 2);
    all_ = frame.view(v++, "HAll");
    if (options.wants(out_hfinal)) final_ = frame.view(v++, "HFinal");
    gates_ = frame.view(v, "ZRH");
  }

  void write() {
    start(all_);
    add_biases();
    products_ = input_products(rows_of_x(false));
    for (int d = 0; d < options.directions; ++d)
      way_.in_blocks ? run_in_blocks(d) : each_chunk([&](const Chunk& chunk) { return run(d, chunk); });
  }
  using GruNest::schedule;

 private:
  // All steps of one direction for a part of the batch.
  Steps run(int d, const Chunk& chunk) {
    state_ = scratch("h", {chunk.capacity, hidden});
    recurrent_ = scratch("hr", {chunk.capacity, ir::index_mul(3, hidden)});
    if (!options.linear_before_reset) {
      update_ = scratch("z", {chunk.capacity, hidden});
      reset_state_ = scratch("rh", {chunk.capacity, hidden});
    }
    first_state(d, chunk);
    const auto columns = [&](const auto& body) {
      return [&, body](const Place& at) { each_column([&](Expr j) { body(at, j); }); };
    };
    const auto from = [&](const Place& at, int first_gate, int gates, const Expr& j) {
      From f{.before = ir::load(state_, before(at.i, j))};
      for (int g = first_gate; g < first_gate + gates; ++g) {
        f.inputs.push_back(input_part(products_, d, g, at.row, j));
        f.recurrent.push_back(ir::load(recurrent_, {at.i, column(g, j)}));
      }
      if (bias_ && options.linear_before_reset) f.recurrent.back() = f.recurrent.back() + recurrent_bias(d, j);
      return f;
    };
    const Visit padded = columns([&](const Place& at, const Expr& j) { pad(d, at, j); });
    Steps result;
    result.loop = b.loop("t", 0, steps, [&](Expr step) {
      const std::string direction = std::to_string(d);
      const int gates = options.linear_before_reset ? 3 : 2;
      result.products.push_back(recurrent("step" + direction, d, chunk, state_, 0, gates));
      if (options.linear_before_reset) {
        each_batch(d, chunk, step,
                   columns([&](const Place& at, const Expr& j) { linear_before_reset(d, at, j, from(at, 0, 3, j)); }),
                   padded);
      } else {
        each_batch(d, chunk, step,
                   columns([&](const Place& at, const Expr& j) { update_and_reset(d, at, j, from(at, 0, 2, j)); }),
                   padded);
        result.products.push_back(recurrent("candidate" + direction, d, chunk, reset_state_, 2, 1));
        const Visit live = columns([&](const Place& at, const Expr& j) {
          candidate(d, at, j, from(at, 2, 1, j), ir::load(update_, {at.i, j}));
        });
        each_batch(d, chunk, step, live, [](const Place&) {});
      }
    });
    last_state(d, chunk);
    return result;
  }

  // The same on a GPU: the element-wise part of a step is the product's epilogue, run by the thread that has a column's
  // sums.
  void run_in_blocks(int d) {
    state_ = scratch("h", {2, batch, hidden});
    if (!options.linear_before_reset) {
      update_ = scratch("z", {batch, hidden});
      reset_state_ = scratch("rh", {batch, hidden});
    }
    const Chunk all{0, batch, batch};
    read_slot_ = 0;
    first_state(d, all);
    const bool linear = options.linear_before_reset;
    const int gates = linear ? 3 : 2;
    RecurrentMatmul product = recurrent_in_blocks("step", d, 0, gates),
                    candidates = recurrent_in_blocks("candidate", d, 2, 1);
    const ir::Loop launch = b.loop("launch", 0, 1, [&](Expr) {
      product.load_resident_b();
      if (!linear) candidates.load_resident_b();
      b.loop("t", 0, steps, [&](Expr step) {
        read_slot_ = ir::index_mod(step, 2);
        const auto keep_state = [&](const Place& at, const Expr& j, const Expr& state) {
          b.store(state_, after(at.i, j), state);
        };
        // The operands of From other than the product's sums, loaded as they are: arithmetic on them here would wait
        // for the loads and stall the product.
        const auto beside = [&](int first_gate, int count, const Expr& i, const Expr& j) {
          std::vector<Expr> values{ir::load(state_, before(i, j))};
          for (int g = first_gate; g < first_gate + count; ++g)
            values.push_back(ir::load(products_, {d, place_of(d, i, step).row, column(g, j)}));
          if (!bias_) return values;
          for (int g = first_gate; g < first_gate + count; ++g) values.push_back(value(bias_, {d, g, j}));
          if (linear) values.push_back(recurrent_bias(d, j));
          return values;
        };
        const auto from = [&](int count, const std::vector<Expr>& values) {
          From f{.before = values[count], .recurrent = {values.begin(), values.begin() + count}};
          const Expr *products = &values[count + 1], *biases = products + count;
          for (int g = 0; g < count; ++g) f.inputs.push_back(bias_ ? products[g] + biases[g] : products[g]);
          if (bias_ && linear) f.recurrent.back() = f.recurrent.back() + biases[count];
          return f;
        };
        product.multiply(
            [&](Expr m, Expr k) { return ir::load(state_, before(m, k)); }, {},
            [&](Expr i, Expr j, const std::vector<Expr>& values) {
              const From f = from(gates, values);
              at_batch(
                  d, i, i, step,
                  [&](const Place& at) { linear ? linear_before_reset(d, at, j, f) : update_and_reset(d, at, j, f); },
                  [&](const Place& at) {
                    pad(d, at, j);
                    linear ? keep_state(at, j, f.before) : b.store(update_, {at.i, j}, number(0));
                  });
            },
            [&](Expr i, Expr j) { return beside(0, gates, i, j); });
        if (linear) return;
        candidates.multiply(
            [&](Expr m, Expr k) {
              return ir::load(reset_state_, {m, k});
            },
            {},
            [&](Expr i, Expr j, const std::vector<Expr>& values) {
              const From f = from(1, values);
              const Visit live = [&](const Place& at) { candidate(d, at, j, f, values.back()); };
              at_batch(d, i, i, step, live, [&](const Place& at) { keep_state(at, j, f.before); });
            },
            [&](Expr i, Expr j) {
              std::vector<Expr> values = beside(2, 1, i, j);
              values.push_back(ir::load(update_, {i, j}));
              return values;
            });
      });
    });
    all_steps_.push_back({.loop = launch, .in_blocks = {product.loops(), candidates.loops()}});
    read_slot_ = ir::index_mod(steps, 2);
    last_state(d, all);
  }

  // The product with R[d, gates]' for `count` gates, of the same columns of each.
  RecurrentMatmul recurrent_in_blocks(const char* prefix, int d, int first_gate, int count) {
    Matmul p{.prefix = prefix + std::to_string(d), .m = batch, .n = hidden, .k = hidden, .sum = sum};
    p.b = [this, d, first_gate](Expr k, Expr n) { return ir::load(in[gru_r], {d, column(first_gate, n), k}); };
    return RecurrentMatmul(b, p, target_, {.shared_bytes = target_.shared_bytes * count / 3, .in_order = way_.in_order},
                           count);
  }

  // The state before and after a step. In blocks it is double buffered: while one step's is read by all, the next one's
  // is written.
  Index before(const Expr& i, const Expr& j) const { return way_.in_blocks ? Index{read_slot_, i, j} : Index{i, j}; }
  Index after(const Expr& i, const Expr& j) const {
    return way_.in_blocks ? Index{ir::index_sub(1, read_slot_), i, j} : Index{i, j};
  }

  void first_state(int d, const Chunk& chunk) {
    each_batch(chunk, [&](Expr i, Expr n) {
      each_column([&](Expr j) {
        b.store(state_, before(i, j), in[gru_h0] ? value(in[gru_h0], {d, n, j}) : number(0));
      });
    });
  }
  void last_state(int d, const Chunk& chunk) {
    if (!final_) return;
    each_batch(chunk, [&](Expr i, Expr n) {
      each_column([&](Expr j) { b.store(final_, {d, n, j}, ir::cast(dtype, ir::load(state_, before(i, j)))); });
    });
  }

  // hr[:, gates] = from R[d, gates]' for `count` gates.
  ir::Loop recurrent(const std::string& prefix, int d, const Chunk& chunk, const Buffer& from, int gate, int count) {
    Matmul product{.prefix = prefix, .m = chunk.count, .n = ir::index_mul(count, hidden), .k = hidden, .sum = sum};
    product.a = [&](Expr m, Expr k) { return ir::load(from, {m, k}); };
    product.b = [&](Expr k, Expr n) { return ir::load(in[gru_r], {d, column(gate, n), k}); };
    product.store = [&](Expr m, Expr n, Expr total) { b.store(recurrent_, {m, column(gate, n)}, total); };
    return author_matmul(b, product);
  }

  // The operands of a state's element j: its previous value, and per gate the input and the recurrent contribution to
  // the gate's input, each with its biases.
  struct From {
    Expr before;
    std::vector<Expr> inputs, recurrent;
  };

  // Gate z (0) or r (1), rounded as it is saved.
  Expr gate(int d, int g, const Place& at, const Expr& j, const From& from) {
    const Expr input = b.let("input", clipped(from.inputs[g] + from.recurrent[g]));
    const Expr saved = b.let(g == 0 ? "z" : "r", stored(activate(b, options.gate[d], input)));
    b.store(gates_, {at.p, d, at.n, g, j}, ir::cast(dtype, saved));
    return saved;
  }

  void step_to(int d, const Place& at, const Expr& j, const Expr& z, const Expr& candidate_in, const Expr& before) {
    const Expr input = b.let("input", clipped(candidate_in));
    const Expr c = b.let("c", stored(activate(b, options.hidden[d], input)));
    b.store(gates_, {at.p, d, at.n, 2, j}, ir::cast(dtype, c));
    const Expr h = b.let("h", stored(ir::fma(z, before, (number(1) - z) * c)));
    b.store(state_, after(at.i, j), h);
    b.store(all_, {at.p, d, at.n, j}, ir::cast(dtype, h));
  }

  void linear_before_reset(int d, const Place& at, const Expr& j, const From& from) {
    const Expr z = gate(d, 0, at, j, from), r = gate(d, 1, at, j, from);
    step_to(d, at, j, z, ir::fma(r, from.recurrent[2], from.inputs[2]), from.before);
  }

  void update_and_reset(int d, const Place& at, const Expr& j, const From& from) {
    b.store(update_, {at.i, j}, gate(d, 0, at, j, from));
    b.store(reset_state_, {at.i, j}, gate(d, 1, at, j, from) * from.before);
  }

  // `from`: of the candidate alone.
  void candidate(int d, const Place& at, const Expr& j, const From& from, const Expr& z) {
    step_to(d, at, j, z, from.inputs[0] + from.recurrent[0], from.before);
  }

  void pad(int d, const Place& at, const Expr& j) {
    const Expr zero = ir::zero({dtype, 1});
    b.store(all_, {at.p, d, at.n, j}, zero);
    for (int g = 0; g < 3; ++g) b.store(gates_, {at.p, d, at.n, g, j}, zero);
    if (reset_state_) b.store(reset_state_, {at.i, j}, number(0));
  }

  Buffer all_, final_, gates_;                       // outputs
  Buffer products_;                                  // x W' of all rows
  Expr read_slot_;                                   // in blocks: the buffer of state_ that is read
  Buffer state_, recurrent_, update_, reset_state_;  // of the current chunk
};

}  // namespace

ScheduleNest author_gru_training(KernelFrame& frame, const GruWay& way, const ir::Target& target) {
  return author_nest(std::make_shared<TrainingNest>(frame, way, target));
}

const Op& gru_training_op() {
  static constinit Lasting<const GruTraining> op;
  return *op;
}

}  // namespace gradloom
