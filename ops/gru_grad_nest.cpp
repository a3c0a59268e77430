// The nest of GRUGrad. With g the gradient that reaches the state after a step, ^ a gate's activation input, and f', g' from the saved gates:
//
//   dz^ = g (h' - c) f'(z)      dc^ = g (1 - z) g'(c)
//   dr^ = (dc^ Rh) h' f'(r)     or, linear before reset, dc^ (h' Rh' + Rbh) f'(r)
//   g of the step before = g z + dz^ Rz + dr^ Rr + (dc^ Rh) r        (linear before reset: (dc^ r) Rh)
//
// Only that runs step by step. dz^, dr^, dc^ and, linear before reset, dc^ r are kept for all rows (position and batch), and everything else is a product
// or a sum over all rows at once: dX = [dz^ dr^ dc^] W; dW = [dz^ dr^ dc^]' X; dR likewise with h' or r h'; dB sums the rows in order.
#include "ops/gru_grad.h"
#include "ops/registry.h"

namespace gradloom {
namespace {

class GradNest : GruNest {
 public:
  GradNest(KernelFrame& frame, const ir::Target& target) : GruNest(frame, target, gru_grad_op().schema().inputs), linear_(options.linear_before_reset) {
    const char* names[] = {"dX", "dW", "dR", "dB", "dH0"};
    int v = 0;
    for (const Buffer& buffer : in) v += buffer ? 1 : 0;
    for (int o = 0; o < 5; ++o)
      if (options.wants(o)) out_[o] = frame.view(v++, names[o], options.accumulate);
    slots_ = linear_ ? 4 : 3;
    recompute_ = options.clip != 0;
    for (int d = 0; d < options.directions; ++d)
      recompute_ = recompute_ || derivative_needs_input(options.gate[d]) || derivative_needs_input(options.hidden[d]);
  }

  void write() {
    start(in[gru_hall]);
    if (recompute_ || linear_) add_biases();
    if (recompute_ || out_[out_dw]) x_ = rows_of_x(true);
    previous_states();
    if (recompute_) products_ = input_products(x_);
    if (recompute_ || linear_) recurrent_products();
    changes_ = b.alloc("changes", factor(), {options.directions, rows, column(slots_, 0)}, {.exclusive = true});
    for (int d = 0; d < options.directions; ++d) each_chunk([&](const Chunk& chunk) { run(d, chunk); });
    if (out_[out_dx]) input_gradient();
    if (out_[out_dw]) input_weights();
    if (out_[out_dr]) recurrent_weights();
    if (out_[out_db]) biases_gradient();
  }

 private:
  Expr gate(const Place& at, int d, int g, const Expr& j) const { return value(in[gru_zrh], {at.p, d, at.n, g, j}); }

  void add_to(int o, const Index& index, const Expr& total) {
    b.store(out_[o], index, ir::cast(dtype, options.accumulate ? value(out_[o], index) + total : total));
  }

  // before_[0, d, row] = h', before_[1, d, row] = r h' (only where the reset comes before the product); 0 beyond a sequence's end.
  void previous_states() {
    // r h' has more bits than a factor: where it gives an activation's input again, it keeps them.
    before_ = b.alloc("before", !linear_ && recompute_ ? sum : factor(), {linear_ ? 1 : 2, options.directions, rows, hidden});
    const Chunk all{0, batch, batch};
    for (int d = 0; d < options.directions; ++d)
      b.loop("s", 0, steps, [&](Expr step) {
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
              [&] { copy(at, [&](const Expr& j) {
                      return in[gru_h0] ? value(in[gru_h0], {d, at.n, j}) : number(0);
                    }); });
        };
        each_batch(d, all, step, live, [&](const Place& at) {
          each_column([&](Expr j) {
            keep_before(0, d, at, j, number(0));
            if (!linear_) keep_before(1, d, at, j, number(0));
          });
        });
      });
  }

  void keep_before(int source, int d, const Place& at, const Expr& j, const Expr& h) { b.store(before_, {source, d, at.row, j}, ir::cast(before_->dtype, h)); }

  // What the state adds to the gates' inputs, without biases: only the candidate's part unless inputs are computed again.
  void recurrent_products() {
    state_products_ = scratch("h_products", {options.directions, rows, column(recompute_ ? 3 : 1, 0)});
    const auto product = [&](const char* prefix, int source, int first_gate, int gates) {
      b.loop("d", 0, options.directions, [&](Expr d) {
        Matmul p{.prefix = prefix, .m = rows, .n = column(gates, 0), .k = hidden, .sum = sum};
        p.a = [&](Expr m, Expr k) { return ir::load(before_, {source, d, m, k}); };
        p.b = [&](Expr k, Expr n) { return ir::load(in[gru_r], {d, column(first_gate, n), k}); };
        p.store = [&](Expr m, Expr n, Expr total) { b.store(state_products_, {d, m, recompute_ ? column(first_gate, n) : n}, total); };
        multiply(p);
      });
    };
    if (!recompute_) return product("hr", 0, 2, 1);
    if (linear_) return product("hr", 0, 0, 3);
    product("hr", 0, 0, 2);
    product("rhr", 1, 2, 1);
  }

  Expr state_product(const Place& at, int d, int g, const Expr& j) const { return ir::load(state_products_, {d, at.row, recompute_ ? column(g, j) : j}); }

  // The input of gate g as GRUTraining computed it.
  Expr input_of(const Place& at, int d, int g, const Expr& r, const Expr& j) {
    const Expr part = input_part(products_, d, g, at.row, j), state = state_product(at, d, g, j);
    return b.let("input", g == 2 && linear_ ? candidate_input(part, r, state, d, j) : part + state);
  }

  // `change` times the activation's derivative at gate g of value y; nothing passes where its input was clipped.
  Expr through(const Place& at, int d, int g, const Expr& change, const Expr& y, const Expr& r, const Expr& j) {
    const Activation& f = g == 2 ? options.hidden[d] : options.gate[d];
    if (!recompute_) return change * derivative(b, f, y, {});
    const Expr input = input_of(at, d, g, r, j);
    const Expr passed = b.let("passed", change * derivative(b, f, y, b.let("kept", clipped(input))));
    if (options.clip == 0) return passed;
    return ir::select(ir::unary(ir::UnaryOp::abs, input) > number(options.clip), number(0), passed);
  }

  // All steps of one direction, last first, for a part of the batch.
  void run(int d, const Chunk& chunk) {
    gradient_ = scratch("g", {chunk.capacity, hidden});
    step_ = b.alloc("step", sum, {chunk.capacity, column(3, 0)}, {.exclusive = true});
    // Rows whose sequence has ended keep their gradient, so a product is added apart.
    if (!linear_ || lens_) product_ = scratch("product", {chunk.capacity, hidden});
    each_batch(chunk, [&](Expr i, Expr n) {
      each_column([&](Expr j) { b.store(gradient_, {i, j}, in[gru_dhfinal] ? value(in[gru_dhfinal], {d, n, j}) : number(0)); });
    });
    b.loop("t", 0, steps, [&](Expr t) {
      const Expr step = ir::index_sub(ir::index_sub(steps, 1), t);
      const std::string direction = std::to_string(d);
      if (linear_) {
        each_batch(
            d, chunk, step, [&](const Place& at) { change_linear(d, at); }, [&](const Place& at) { pad(d, at); });
        add_product("step" + direction, d, chunk, step, 0, 3);
      } else {
        each_batch(
            d, chunk, step, [&](const Place& at) { change_update_and_candidate(d, at); }, [&](const Place& at) { pad(d, at); });
        product("candidate" + direction, d, chunk, 2, 1, product_, {});
        each_batch(
            d, chunk, step, [&](const Place& at) { change_reset(d, at); }, [](const Place&) {});
        add_product("step" + direction, d, chunk, step, 0, 2);
      }
    });
    if (!out_[out_dh0]) return;
    each_batch(chunk, [&](Expr i, Expr n) { each_column([&](Expr j) { add_to(out_dh0, {d, n, j}, ir::load(gradient_, {i, j})); }); });
  }

  // to[i] = first + the step's changes of `count` gates times their rows of R.
  void product(const std::string& prefix, int d, const Chunk& chunk, int gate, int count, const Buffer& to, const Buffer& first) {
    Matmul p{.prefix = prefix, .m = chunk.count, .n = hidden, .k = column(count, 0), .sum = sum};
    p.a = [&](Expr m, Expr k) { return ir::load(step_, {m, column(gate, k)}); };
    p.b = [&](Expr k, Expr n) { return ir::load(in[gru_r], {d, column(gate, k), n}); };
    if (first) p.first = [&](Expr m, Expr n) { return ir::load(first, {m, n}); };
    p.store = [&](Expr m, Expr n, Expr total) { b.store(to, {m, n}, total); };
    multiply(p);
  }

  void add_product(const std::string& prefix, int d, const Chunk& chunk, const Expr& step, int gate, int count) {
    if (!lens_) return product(prefix, d, chunk, gate, count, gradient_, gradient_);
    product(prefix, d, chunk, gate, count, product_, gradient_);
    each_batch(
        d, chunk, step, [&](const Place& at) { each_column([&](Expr j) {
                                                 b.store(gradient_, {at.i, j}, ir::load(product_, {at.i, j}));
                                               }); },
        [](const Place&) {});
  }

  void keep(const Place& at, int d, int slot, const Expr& j, const Expr& change) { b.store(changes_, {d, at.row, column(slot, j)}, ir::cast(changes_->dtype, change)); }
  void use(const Place& at, int slot, const Expr& j, const Expr& change) { b.store(step_, {at.i, column(slot, j)}, change); }

  // The gradient that reaches the state after this step.
  Expr arriving(int d, const Place& at, const Expr& j) {
    const Expr g = ir::load(gradient_, {at.i, j});
    return b.let("arriving", in[gru_dhall] ? g + value(in[gru_dhall], {at.p, d, at.n, j}) : g);
  }

  struct Gates {
    Expr g, z, r, c, h;  // arriving, the gates, the state before
    Expr dz, dc;
  };
  Gates changes(int d, const Place& at, const Expr& j) {
    Gates s;
    s.g = arriving(d, at, j);
    s.z = b.let("z", gate(at, d, 0, j));
    s.r = b.let("r", gate(at, d, 1, j));
    s.c = b.let("c", gate(at, d, 2, j));
    s.h = b.let("h", value(before_, {0, d, at.row, j}));
    s.dz = b.let("dz", through(at, d, 0, s.g * (s.h - s.c), s.z, s.r, j));
    s.dc = b.let("dc", through(at, d, 2, s.g * (number(1) - s.z), s.c, s.r, j));
    return s;
  }

  void change_linear(int d, const Place& at) {
    each_column([&](Expr j) {
      const Gates s = changes(d, at, j);
      const Expr recurrent = state_product(at, d, 2, j);
      const Expr reset = bias_ ? recurrent + recurrent_bias(d, j) : recurrent;
      const Expr dr = b.let("dr", through(at, d, 1, s.dc * reset, s.r, s.r, j)), dcr = b.let("dcr", s.dc * s.r);
      const Expr kept[] = {s.dz, dr, s.dc, dcr};
      for (int slot = 0; slot < 4; ++slot) keep(at, d, slot, j, kept[slot]);
      use(at, 0, j, s.dz);
      use(at, 1, j, dr);
      use(at, 2, j, dcr);
      b.store(gradient_, {at.i, j}, s.g * s.z);
    });
  }

  void change_update_and_candidate(int d, const Place& at) {
    each_column([&](Expr j) {
      const Gates s = changes(d, at, j);
      keep(at, d, 0, j, s.dz);
      keep(at, d, 2, j, s.dc);
      use(at, 0, j, s.dz);
      use(at, 2, j, s.dc);
      b.store(gradient_, {at.i, j}, s.g * s.z);
    });
  }

  void change_reset(int d, const Place& at) {
    each_column([&](Expr j) {
      const Expr r = b.let("r", gate(at, d, 1, j)), through_candidate = b.let("through", ir::load(product_, {at.i, j}));
      const Expr h = value(before_, {0, d, at.row, j});
      const Expr dr = b.let("dr", through(at, d, 1, through_candidate * h, r, r, j));
      keep(at, d, 1, j, dr);
      use(at, 1, j, dr);
      b.store(gradient_, {at.i, j}, ir::fma(through_candidate, r, ir::load(gradient_, {at.i, j})));
    });
  }

  void pad(int d, const Place& at) {
    each_column([&](Expr j) {
      for (int slot = 0; slot < slots_; ++slot) keep(at, d, slot, j, number(0));
      for (int slot = 0; slot < 3; ++slot) use(at, slot, j, number(0));
    });
  }

  // dX: the directions one after the other.
  void input_gradient() {
    const Buffer partial = options.directions == 2 ? scratch("dx", {rows, inputs}) : Buffer();
    for (int d = 0; d < options.directions; ++d) {
      const bool last = d + 1 == options.directions;
      Matmul p{.prefix = "dx" + std::to_string(d), .m = rows, .n = inputs, .k = column(3, 0), .sum = sum};
      p.a = [&](Expr m, Expr k) { return ir::load(changes_, {d, m, k}); };
      p.b = [&](Expr k, Expr n) { return ir::load(in[gru_w], {d, k, n}); };
      if (d > 0) p.first = [&](Expr m, Expr n) { return ir::load(partial, {m, n}); };
      p.store = [&](Expr m, Expr n, Expr total) {
        if (!last) return b.store(partial, {m, n}, total);
        add_to(out_dx, {m, n}, live_ ? ir::select(ir::load(live_, {m}), total, number(0)) : total);
      };
      multiply(p);
    }
  }

  void input_weights() {
    b.loop("d", 0, options.directions, [&](Expr d) {
      Matmul p{.prefix = "dw", .m = column(3, 0), .n = inputs, .k = rows, .sum = sum};
      p.a = [&](Expr m, Expr k) { return ir::load(changes_, {d, k, m}); };
      p.b = [&](Expr k, Expr n) { return ir::load(x_, {k, n}); };
      p.store = [&](Expr m, Expr n, Expr total) { add_to(out_dw, {d, m, n}, total); };
      multiply(p);
    });
  }

  void recurrent_weights() {
    b.loop("d", 0, options.directions, [&](Expr d) {
      b.loop("gate", 0, 3, [&](Expr g) {
        const Expr is_candidate = b.let("is_candidate", ir::floor_div(g, 2));
        const Expr slot = b.let("slot", linear_ ? g + is_candidate : g), source = linear_ ? Expr(0) : is_candidate;
        Matmul p{.prefix = "dr", .m = hidden, .n = hidden, .k = rows, .sum = sum};
        p.a = [&](Expr m, Expr k) { return ir::load(changes_, {d, k, column(slot, m)}); };
        p.b = [&](Expr k, Expr n) { return ir::load(before_, {source, d, k, n}); };
        p.store = [&](Expr m, Expr n, Expr total) { add_to(out_dr, {d, column(g, m), n}, total); };
        multiply(p);
      });
    });
  }

  // Rows in order, a stretch of columns at a time.
  void biases_gradient() {
    if (target_.gpu) return biases_by_column();
    constexpr int64_t stretch = 512;
    const auto known = ir::as_int(hidden);
    for (int d = 0; d < options.directions; ++d)
      for (int slot = 0; slot < slots_; ++slot) {
        if (known && *known <= stretch)
          add_rows(d, slot, 0, hidden, hidden);
        else
          b.loop("stretch", 0, ir::index_div(ir::index_add(hidden, stretch - 1), stretch), [&](Expr s) {
            const Expr first = ir::index_mul(s, stretch);
            add_rows(d, slot, first, ir::index_min(stretch, ir::index_sub(hidden, first)), stretch);
          });
      }
  }

  // The same sums, a column at a time, with many rows on their way.
  void biases_by_column() {
    constexpr int64_t in_flight = 32;
    const Buffer totals = scratch("totals", {options.directions, slots_, hidden});
    b.loop("d", 0, options.directions, [&](Expr d) {
      b.loop("slot", 0, slots_, [&](Expr slot) {
        each_column([&](Expr j) {
          const Buffer total = b.alloc("total", sum, {1}, {}, ir::Space::registers);
          const auto change = [&](const Expr& row) { return b.let("change", value(changes_, {d, row, column(slot, j)})); };
          b.store(total, {0}, number(0));
          const Expr whole = ir::index_div(rows, in_flight);
          b.loop("row", 0, whole, [&](Expr g) {
            std::vector<Expr> values;
            for (int64_t k = 0; k < in_flight; ++k) values.push_back(change(g * in_flight + k));
            for (const Expr& v : values) b.accumulate(total, {0}, v);
          });
          b.loop("row", ir::index_mul(whole, in_flight), ir::index_mod(rows, in_flight), [&](Expr row) { b.accumulate(total, {0}, change(row)); });
          b.store(totals, {d, slot, j}, ir::load(total, {0}));
        });
      });
    });
    for (int d = 0; d < options.directions; ++d)
      for (int slot = 0; slot < slots_; ++slot)
        for (const int part : parts_of(slot)) each_column([&](Expr j) { add_to(out_db, {d, part, j}, ir::load(totals, {d, slot, j})); });
  }

  void add_rows(int d, int slot, const Expr& first, const Expr& width, const Expr& capacity) {
    const auto at = [&](const Expr& j) { return ir::index_add(first, j); };
    const Buffer total = scratch("total", {capacity});
    b.loop("j", 0, width, [&](Expr j) { b.store(total, {j}, number(0)); });
    b.loop("row", 0, rows, [&](Expr row) {
      b.loop("j", 0, width, [&](Expr j) { b.accumulate(total, {j}, value(changes_, {d, row, column(slot, at(j))})); });
    });
    for (const int part : parts_of(slot)) b.loop("j", 0, width, [&](Expr j) { add_to(out_db, {d, part, at(j)}, ir::load(total, {j})); });
  }

  // Which of dB's six parts a slot's sum is: Wbz, Wbr, Wbh, Rbz, Rbr, Rbh.
  std::vector<int> parts_of(int slot) const {
    if (slot < 2) return {slot, 3 + slot};
    if (slot == 3) return {5};
    return linear_ ? std::vector<int>{2} : std::vector<int>{2, 5};
  }

  const bool linear_;
  bool recompute_;  // the inputs of activations
  int slots_;
  Buffer out_[5];
  Buffer x_, before_, products_, state_products_;
  Buffer changes_;                    // [D, row, slot * H + j]: dz^, dr^, dc^ and, linear before reset, dc^ r
  Buffer gradient_, step_, product_;  // of the current chunk: g; the changes that meet R; a product that is not yet part of g
};

}  // namespace

void author_gru_grad(KernelFrame& frame, const ir::Target& target) { GradNest(frame, target).write(); }

}  // namespace gradloom
