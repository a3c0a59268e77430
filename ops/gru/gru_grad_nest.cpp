// The nest of GRUGrad. With g the gradient of the state after a step, ^ a gate's activation input (preactivation), and
// f', g' from the saved gates:
//
//   dz^ = g (h' - c) f'(z)      dc^ = g (1 - z) g'(c)
//   dr^ = (dc^ Rh) h' f'(r)     or, linear before reset, dc^ (h' Rh' + Rbh) f'(r)
//   g of the step before = g z + dz^ Rz + dr^ Rr + (dc^ Rh) r        (linear before reset: (dc^ r) Rh)
//
// Only this recurrence runs step by step. [dz^ dr^ dc^], which multiplies W, and, linear before reset, [dz^ dr^ dc^ r],
// which multiplies R, are stored for all rows (position and batch), and everything else is a product or a sum over all
// rows at once: dX = [dz^ dr^ dc^] W; dW = [dz^ dr^ dc^]' X; dR likewise with h' or r h'; dB sums the rows, in order
// unless the strategy leaves the order free.
//
// In names and comments, a gate's change is the gradient of its preactivation.
#include "ops/gru/gru_grad.h"
#include "ops/gru/gru_grad_sums.h"

namespace gradloom {
namespace {

class GradNest : GradSums {
 public:
  GradNest(KernelFrame& frame, const GruWay& way, const ir::Target& target) : GradSums(frame, way, target) {}

  void write() {
    start(in[gru_hall]);
    if (recompute_ || linear_) add_biases();
    if (recompute_ || out_[out_dw]) x_ = rows_of_x(true);
    previous_states();
    if (recompute_) products_ = input_products(x_);
    if (recompute_ || linear_) recurrent_products();
    const auto all_rows = [&](const char* name, int gates) {
      return b.alloc(name, factor(), {options.directions, rows, column(gates, 0)}, {.exclusive = true});
    };
    d_preactivation_ = all_rows("changes", in_one() ? 4 : 3);
    recurrent_ = linear_ && !in_one() ? all_rows("recurrent", 3) : d_preactivation_;
    for (int d = 0; d < options.directions; ++d)
      way_.in_blocks ? run_in_blocks(d) : each_chunk([&](const Chunk& chunk) { return run(d, chunk); });
    sum_all_rows();
  }
  void schedule(ir::Schedule& s) const {
    schedule_sums(s);
    GruNest::schedule(s);
  }

 private:
  Expr gate(const Place& at, int d, int g, const Expr& j) const { return value(in[gru_zrh], {at.p, d, at.n, g, j}); }

  // before_[0, d, row] = h', before_[1, d, row] = r h' (only where the reset comes before the product); 0 beyond a
  // sequence's end.
  void previous_states() {
    // r h' is not representable in factor(): stored in the accumulator's dtype where activation inputs are recomputed
    // from it.
    before_ =
        b.alloc("before", !linear_ && recompute_ ? sum : factor(), {linear_ ? 1 : 2, options.directions, rows, hidden},
                {.exclusive = true});  // a row per step and batch
    const Chunk all{0, batch, batch};
    for (int d = 0; d < options.directions; ++d)
      shared_loop("s", steps, [&](Expr step) {
        const auto copy = [&](const Place& at, const std::function<Expr(const Expr&)>& state) {
          each_column([&](Expr j) {
            const Expr h = b.let("h", state(j));
            keep_before(0, d, at, j, h);
            if (!linear_) keep_before(1, d, at, j, gate(at, d, 1, j) * h);
          });
        };
        const Visit live = [&](const Place& at) {
          const Expr p = options.reversed(d) ? ir::index_add(at.p, 1) : ir::index_sub(at.p, 1);
          b.if_then(
              step > 0, [&] { copy(at, [&](const Expr& j) {
                                return value(in[gru_hall], {p, d, at.n, j});
                              }); },
              [&] {
                copy(at, [&](const Expr& j) { return in[gru_h0] ? value(in[gru_h0], {d, at.n, j}) : number(0); });
              });
        };
        each_batch(d, all, step, live, [&](const Place& at) {
          each_column([&](Expr j) {
            keep_before(0, d, at, j, number(0));
            if (!linear_) keep_before(1, d, at, j, number(0));
          });
        });
      });
  }

  void keep_before(int source, int d, const Place& at, const Expr& j, const Expr& h) {
    b.store(before_, {source, d, at.row, j}, ir::cast(before_->dtype, h));
  }

  // The recurrent contribution to the gates' inputs, without biases: only the candidate's unless inputs are recomputed.
  void recurrent_products() {
    state_products_ = scratch("h_products", {options.directions, rows, column(recompute_ ? 3 : 1, 0)});
    const auto product = [&](const char* prefix, int source, int first_gate, int gates) {
      b.loop("d", 0, options.directions, [&](Expr d) {
        Matmul p{.prefix = prefix, .m = rows, .n = column(gates, 0), .k = hidden, .sum = sum};
        p.a = [&](Expr m, Expr k) { return ir::load(before_, {source, d, m, k}); };
        p.b = [&](Expr k, Expr n) { return ir::load(in[gru_r], {d, column(first_gate, n), k}); };
        p.store = [&](Expr m, Expr n, Expr total) {
          b.store(state_products_, {d, m, recompute_ ? column(first_gate, n) : n}, total);
        };
        multiply(p);
      });
    };
    if (!recompute_) return product("hr", 0, 2, 1);
    if (linear_) return product("hr", 0, 0, 3);
    product("hr", 0, 0, 2);
    product("rhr", 1, 2, 1);
  }

  Expr state_product(const Place& at, int d, int g, const Expr& j) const {
    return ir::load(state_products_, {d, at.row, recompute_ ? column(g, j) : j});
  }

  // Recomputes the activation input of gate g as GRUTraining computes it.
  Expr input_of(const Place& at, int d, int g, const Expr& r, const Expr& j) {
    const Expr part = input_part(products_, d, g, at.row, j), state = state_product(at, d, g, j);
    return b.let("input", g == 2 && linear_ ? candidate_input(part, r, state, d, j) : part + state);
  }

  // Backpropagates `change` through gate g's activation, whose output is y; 0 where its input was clipped.
  Expr through(const Place& at, int d, int g, const Expr& change, const Expr& y, const Expr& r, const Expr& j) {
    const Activation& f = g == 2 ? options.hidden[d] : options.gate[d];
    if (!recompute_) return change * derivative(b, f, y, {});
    const Expr input = input_of(at, d, g, r, j);
    const Expr passed = b.let("passed", change * derivative(b, f, y, b.let("kept", clipped(input))));
    if (options.clip == 0) return passed;
    return ir::select(ir::unary(ir::UnaryOp::abs, input) > number(options.clip), number(0), passed);
  }

  // All steps of one direction, last first, for a part of the batch.
  Steps run(int d, const Chunk& chunk) {
    gradient_ = scratch("g", {chunk.capacity, hidden});
    // With per-sequence lengths, the sequences of a step are at different positions.
    if (lens_) step_ = b.alloc("step", sum, {chunk.capacity, column(3, 0)}, {.exclusive = true});
    // Rows whose sequence has ended keep their gradient, so the product goes to a buffer of its own.
    if (!linear_ || lens_) product_ = scratch("product", {chunk.capacity, hidden});
    each_batch(chunk, [&](Expr i, Expr n) {
      each_column([&](Expr j) {
        b.store(gradient_, {i, j}, in[gru_dhfinal] ? value(in[gru_dhfinal], {d, n, j}) : number(0));
      });
    });
    Steps result;
    result.loop = b.loop("t", 0, steps, [&](Expr t) {
      const Expr step = ir::index_sub(ir::index_sub(steps, 1), t);
      const std::string direction = std::to_string(d);
      if (linear_) {
        each_change(d, chunk, step, [&](const Place& at, const Expr& j) {
          change_linear(d, at, j, ir::load(gradient_, {at.i, j}), operands(d, at, j));
        });
        result.products = {add_product("step" + direction, d, chunk, step, 0, 3)};
      } else {
        each_change(d, chunk, step, [&](const Place& at, const Expr& j) {
          change_update_and_candidate(d, at, j, ir::load(gradient_, {at.i, j}), operands(d, at, j));
        });
        const ir::Loop candidate = product("candidate" + direction, d, chunk, step, 2, 1, product_, {});
        each_batch(
            d, chunk, step,
            [&](const Place& at) {
              each_column([&](Expr j) { change_reset(d, at, j, ir::load(product_, {at.i, j})); });
            },
            [](const Place&) {});
        result.products = {add_product("step" + direction, d, chunk, step, 0, 2), candidate};
      }
    });
    first_state_gradient(d, chunk);
    return result;
  }

  void first_state_gradient(int d, const Chunk& chunk) {
    if (!out_[out_dh0]) return;
    each_batch(chunk, [&](Expr i, Expr n) {
      each_column([&](Expr j) { add_to(out_dh0, {d, n, j}, ir::load(gradient_, {i, j})); });
    });
  }

  void each_change(int d, const Chunk& chunk, const Expr& step,
                   const std::function<void(const Place&, const Expr& j)>& change) {
    each_batch(
        d, chunk, step, [&](const Place& at) { each_column([&](Expr j) { change(at, j); }); },
        [&](const Place& at) { each_column([&](Expr j) { pad(d, at, j); }); });
  }

  // The same on a GPU: the element-wise part of a step is the product's epilogue, run by the threads that have the
  // sums, and produces the next product's operand. That is double buffered: while one step's is read, the next one's is
  // written.
  void run_in_blocks(int d) {
    gradient_ = scratch("g", {batch, hidden});
    step_ = b.alloc("step", sum, {2, batch, column(3, 0)}, {.exclusive = true});
    const Expr last = ir::index_sub(steps, 1);
    b.loop("i", 0, batch, [&](Expr i) {
      each_column([&](Expr j) {
        const Expr g = b.let("g", in[gru_dhfinal] ? value(in[gru_dhfinal], {d, i, j}) : number(0));
        write_slot_ = 0;
        b.if_then(
            steps > 0, [&] { change_in_blocks(d, i, last, j, g); },
            [&] {
              b.store(gradient_, {i, j}, g);
            });
      });
    });
    const std::string direction = std::to_string(d);
    const auto product = [&](const char* prefix, int first_gate, int gates) {
      Matmul p{.prefix = prefix + direction, .m = batch, .n = hidden, .k = column(gates, 0), .sum = sum};
      p.b = [this, d, first_gate](Expr k, Expr n) { return ir::load(in[gru_r], {d, column(first_gate, k), n}); };
      return RecurrentMatmul(b, p, target_,
                             {.shared_bytes = target_.shared_bytes / (linear_ ? 1 : 2), .in_order = way_.in_order});
    };
    RecurrentMatmul add = product("step", 0, linear_ ? 3 : 2), candidate = product("candidate", 2, 1);
    const ir::Loop launch = b.loop("launch", 0, 1, [&](Expr) {
      add.load_resident_b();
      if (!linear_) candidate.load_resident_b();
      b.loop("t", 0, steps, [&](Expr t) {
        const Expr step = ir::index_sub(last, t), turn = ir::index_mod(t, 2), next = ir::index_sub(1, turn);
        write_slot_ = turn;
        if (!linear_) {
          const auto operand = [&](Expr m, Expr k) { return ir::load(step_, {turn, m, column(2, k)}); };
          candidate.multiply(operand, {}, [&](Expr i, Expr j, Expr total) {
            const Visit reset = [&](const Place& at) { change_reset(d, at, j, total); };
            at_batch(d, i, i, step, reset, [](const Place&) {});
          });
        }
        const Expr before = ir::index_sub(step, 1);
        add.multiply(
            [&](Expr m, Expr k) {
              return ir::load(step_, {turn, m, k});
            },
            [&](Expr i, Expr j) {
              return ir::load(gradient_, {i, j});
            },
            [&](Expr i, Expr j, const std::vector<Expr>& values) {
              // Rows whose sequence has ended keep their gradient.
              const Expr g =
                  b.let("g", lens_ ? ir::select(step < ir::load(lens_, {i}), values[0], ir::load(gradient_, {i, j}))
                                   : values[0]);
              write_slot_ = next;
              b.if_then(
                  step > 0,
                  [&] {
                    change_in_blocks(d, i, before, j, g, {values.begin() + 1, values.end()});
                  },
                  [&] {
                    b.store(gradient_, {i, j}, g);
                  });
            },
            // Operands of the preceding step, which the epilogue computes; clamped to the first step.
            [&](Expr i, Expr j) { return operands(d, place_of(d, i, ir::index_max(before, 0)), j); });
      });
    });
    all_steps_.push_back({.loop = launch, .in_blocks = {add.loops(), candidate.loops()}});
    first_state_gradient(d, {0, batch, batch});
  }

  // The changes of a state's element at a step, from the gradient of that state.
  void change_in_blocks(int d, const Expr& i, const Expr& step, const Expr& j, const Expr& g,
                        const std::vector<Expr>& read = {}) {
    at_batch(
        d, i, i, step,
        [&](const Place& at) {
          const std::vector<Expr> all = read.empty() ? operands(d, at, j) : read;
          linear_ ? change_linear(d, at, j, g, all) : change_update_and_candidate(d, at, j, g, all);
        },
        [&](const Place& at) {
          pad(d, at, j);
          b.store(gradient_, {i, j}, g);
        });
  }

  // to[i] = first + the step's changes of `count` gates times their rows of R.
  ir::Loop product(const std::string& prefix, int d, const Chunk& chunk, const Expr& step, int gate, int count,
                   const Buffer& to, const Buffer& first) {
    const Expr p0 = position(d, step);
    Matmul p{.prefix = prefix, .m = chunk.count, .n = hidden, .k = column(count, 0), .sum = sum};
    p.a = [&](Expr m, Expr k) {
      if (lens_) return ir::load(step_, {m, column(gate, k)});
      return ir::load(recurrent_, {d, row_of(p0, ir::index_add(chunk.first, m)), column(gate, k)});
    };
    p.b = [&](Expr k, Expr n) { return ir::load(in[gru_r], {d, column(gate, k), n}); };
    if (first) p.first = [&](Expr m, Expr n) { return ir::load(first, {m, n}); };
    p.store = [&](Expr m, Expr n, Expr total) { b.store(to, {m, n}, total); };
    return author_matmul(b, p);
  }

  ir::Loop add_product(const std::string& prefix, int d, const Chunk& chunk, const Expr& step, int gate, int count) {
    if (!lens_) return product(prefix, d, chunk, step, gate, count, gradient_, gradient_);
    const ir::Loop loop = product(prefix, d, chunk, step, gate, count, product_, gradient_);
    each_batch(
        d, chunk, step,
        [&](const Place& at) {
          each_column([&](Expr j) { b.store(gradient_, {at.i, j}, ir::load(product_, {at.i, j})); });
        },
        [](const Place&) {});
    return loop;
  }

  // Stores the change of gate g as it multiplies W (`change`) and R (`recurrent`). The per-step products use it
  // unrounded.
  void keep(const Place& at, int d, int g, const Expr& j, const Expr& change, const Expr& recurrent) {
    b.store(d_preactivation_, {d, at.row, column(g, j)}, ir::cast(d_preactivation_->dtype, change));
    if (linear_ && (g == 2 || !in_one()))
      b.store(recurrent_, {d, at.row, column(in_one() ? 3 : g, j)}, ir::cast(recurrent_->dtype, recurrent));
    if (step_)
      b.store(step_, way_.in_blocks ? Index{write_slot_, at.i, column(g, j)} : Index{at.i, column(g, j)}, recurrent);
  }
  void keep(const Place& at, int d, int g, const Expr& j, const Expr& change) { keep(at, d, g, j, change, change); }

  // The values loaded for an element's changes at a step, without those that recompute activation inputs: the gates,
  // the previous state, dHAll where it is given, and, linear before reset, h' Rh' and its bias.
  std::vector<Expr> operands(int d, const Place& at, const Expr& j) const {
    std::vector<Expr> all;
    for (int g = 0; g < 3; ++g) all.push_back(gate(at, d, g, j));
    all.push_back(value(before_, {0, d, at.row, j}));
    if (in[gru_dhall]) all.push_back(value(in[gru_dhall], {at.p, d, at.n, j}));
    if (linear_) all.push_back(state_product(at, d, 2, j));
    if (linear_ && bias_) all.push_back(recurrent_bias(d, j));
    return all;
  }

  struct Gates {
    Expr g, z, r, c, h, reset;  // incoming gradient, the gates, the previous state, the reset gate's factor
    Expr dz, dc;
  };
  // `g`: the gradient of the state without dHAll's contribution.
  Gates changes(int d, const Place& at, const Expr& j, const Expr& g, const std::vector<Expr>& operands) {
    Gates s;
    size_t next = 0;
    s.z = b.let("z", operands[next++]);
    s.r = b.let("r", operands[next++]);
    s.c = b.let("c", operands[next++]);
    s.h = b.let("h", operands[next++]);
    s.g = b.let("arriving", in[gru_dhall] ? g + operands[next++] : g);
    if (linear_) s.reset = bias_ ? operands[next] + operands[next + 1] : operands[next];
    s.dz = b.let("dz", through(at, d, 0, s.g * (s.h - s.c), s.z, s.r, j));
    s.dc = b.let("dc", through(at, d, 2, s.g * (number(1) - s.z), s.c, s.r, j));
    return s;
  }

  // The changes of a state's element j.
  void change_linear(int d, const Place& at, const Expr& j, const Expr& g, const std::vector<Expr>& operands) {
    const Gates s = changes(d, at, j, g, operands);
    const Expr dr = b.let("dr", through(at, d, 1, s.dc * s.reset, s.r, s.r, j)), dcr = b.let("dcr", s.dc * s.r);
    keep(at, d, 0, j, s.dz);
    keep(at, d, 1, j, dr);
    keep(at, d, 2, j, s.dc, dcr);
    b.store(gradient_, {at.i, j}, s.g * s.z);
  }

  void change_update_and_candidate(int d, const Place& at, const Expr& j, const Expr& g,
                                   const std::vector<Expr>& operands) {
    const Gates s = changes(d, at, j, g, operands);
    keep(at, d, 0, j, s.dz);
    keep(at, d, 2, j, s.dc);
    b.store(gradient_, {at.i, j}, s.g * s.z);
  }

  // `total`: dc^ Rh.
  void change_reset(int d, const Place& at, const Expr& j, const Expr& total) {
    const Expr r = b.let("r", gate(at, d, 1, j)), through_candidate = b.let("through", total);
    const Expr h = value(before_, {0, d, at.row, j});
    const Expr dr = b.let("dr", through(at, d, 1, through_candidate * h, r, r, j));
    keep(at, d, 1, j, dr);
    b.store(gradient_, {at.i, j}, ir::fma(through_candidate, r, ir::load(gradient_, {at.i, j})));
  }

  void pad(int d, const Place& at, const Expr& j) {
    for (int g = 0; g < 3; ++g) keep(at, d, g, j, number(0));
  }

  Buffer products_, state_products_;
  Expr write_slot_;                   // in blocks: the buffer of step_ that is written
  Buffer gradient_, step_, product_;  // of the current chunk: g; with lengths or in blocks, a step's part of
                                      // recurrent_; a product that is not yet part of g
};

}  // namespace

ScheduleNest author_gru_grad(KernelFrame& frame, const GruWay& way, const ir::Target& target) {
  return author_nest(std::make_shared<GradNest>(frame, way, target));
}

}  // namespace gradloom
