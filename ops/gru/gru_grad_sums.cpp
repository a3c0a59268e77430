#include "ops/gru/gru_grad_sums.h"

#include "ops/patterns/integer_math.h"
#include "ops/patterns/unrolled_sum.h"
#include "ops/registry.h"

namespace gradloom {

GradSums::GradSums(KernelFrame& frame, const GruWay& way, const ir::Target& target)
    : GruNest(frame, way, target, gru_grad_op().schema().inputs), linear_(options.linear_before_reset) {
  const char* names[] = {"dX", "dW", "dR", "dB", "dH0"};
  int v = 0;
  for (const Buffer& buffer : in) v += buffer ? 1 : 0;
  for (int o = 0; o < 5; ++o)
    if (options.wants(o)) out_[o] = frame.view(v++, names[o], options.accumulate);
  recompute_ = options.clip != 0;
  for (int d = 0; d < options.directions; ++d)
    recompute_ = recompute_ || derivative_needs_input(options.gate[d]) || derivative_needs_input(options.hidden[d]);
}

void GradSums::sum_all_rows() {
  if (out_[out_dx]) input_gradient();
  if (out_[out_dw]) input_weights();
  if (out_[out_dr]) recurrent_weights();
  if (out_[out_db]) biases_gradient();
}

// One product per direction, serially: the second adds to the first.
void GradSums::input_gradient() {
  const Buffer partial = options.directions == 2 ? scratch("dx", {rows, inputs}) : Buffer();
  for (int d = 0; d < options.directions; ++d) {
    const bool last = d + 1 == options.directions;
    const Buffer& dx = out_[out_dx];
    Matmul p{.prefix = "dx" + std::to_string(d), .m = dx->dims[0], .n = dx->dims[1], .k = column(3, 0), .sum = sum};
    p.a = [&](Expr m, Expr k) { return ir::load(d_preactivation_, {d, m, k}); };
    p.b = [&](Expr k, Expr n) { return ir::load(in[gru_w], {d, k, n}); };
    if (d > 0) p.first = [&](Expr m, Expr n) { return ir::load(partial, {m, n}); };
    p.store = [&](Expr m, Expr n, Expr total) {
      if (!last) return b.store(partial, {m, n}, total);
      add_to(out_dx, {m, n}, live_ ? ir::select(ir::load(live_, {m}), total, number(0)) : total);
    };
    multiply(p);
  }
}

void GradSums::input_weights() {
  b.loop("d", 0, options.directions, [&](Expr d) {
    Matmul p{.prefix = "dw", .m = column(3, 0), .n = out_[out_dw]->dims[2], .k = rows, .sum = sum};
    p.a = [&](Expr m, Expr k) { return ir::load(d_preactivation_, {d, k, m}); };
    p.b = [&](Expr k, Expr n) { return ir::load(x_, {k, n}); };
    p.store = [&](Expr m, Expr n, Expr total) { add_to(out_dw, {d, m, n}, total); };
    multiply(p);
  });
}

void GradSums::recurrent_weights() {
  const auto gates = [&](const std::string& prefix, const Expr& first, const Expr& count, const Expr& source) {
    b.loop("d", 0, options.directions, [&](Expr d) {
      Matmul p{.prefix = prefix, .m = column(count, 0), .n = hidden, .k = rows, .sum = sum};
      const auto change = [&](const Expr& m) {
        return in_one() ? ir::index_add(m, ir::index_mul(ir::floor_div(m, column(2, 0)), hidden)) : column(first, m);
      };
      p.a = [&](Expr m, Expr k) { return ir::load(recurrent_, {d, k, change(m)}); };
      p.b = [&](Expr k, Expr n) { return ir::load(before_, {source, d, k, n}); };
      p.store = [&](Expr m, Expr n, Expr total) { add_to(out_dr, {d, column(first, m), n}, total); };
      multiply(p);
    });
  };
  if (linear_) return gates("dr", 0, 3, 0);
  // For any shape, both are one product's code.
  if (!way_.in_blocks && !ir::as_int(hidden)) {
    b.loop("part", 0, 2, [&](const Expr& part) { gates("dr", part * 2, Expr(2) - part, part); });
    return;
  }
  gates("dr", 0, 2, 0);
  gates("dr_candidate", 2, 1, 1);
}

// In-order sums over rows, unrolled by four, a range of columns at a time.
void GradSums::biases_gradient() {
  if (way_.in_blocks) return biases_by_column();
  for (int d = 0; d < options.directions; ++d) {
    add_rows(d, d_preactivation_, 0, 3, 0);
    if (linear_) add_rows(d, recurrent_, 2, 1, 3);
  }
}

// The same sums, a column at a time, with many loads of rows in flight. Where the order is free, ranges of rows are
// summed first.
void GradSums::biases_by_column() {
  constexpr int64_t in_flight = 32, stretch = 128;
  const Buffer totals = scratch("totals", {options.directions, slots(), hidden});
  const Expr stretches = way_.in_order ? Expr() : ir::index_div(ir::index_add(rows, stretch - 1), stretch);
  const Buffer partial =
      way_.in_order ? Buffer() : scratch("stretch_totals", {options.directions, stretches, slots(), hidden});
  const auto summed = [&](const Expr& first, const Expr& count, const std::function<Expr(const Expr& row)>& value) {
    return author_unrolled_sum(b, sum, "row", first, count, in_flight, value);
  };
  const auto sums_of = [&](const Buffer& from, int first_gate, int gates, int first_slot) {
    b.loop("d", 0, options.directions, [&](Expr d) {
      const auto columns =
          [&](const std::function<void(const Expr& slot, const Expr& column_of_gate, const Expr& j)>& body) {
            b.loop("gate", 0, gates, [&](Expr g) {
              each_column(
                  [&](Expr j) { body(ir::index_add(g, first_slot), column(ir::index_add(g, first_gate), j), j); });
            });
          };
      const auto change = [&](const Expr& c) { return [&, c](const Expr& row) { return value(from, {d, row, c}); }; };
      if (way_.in_order)
        return columns([&](const Expr& slot, const Expr& c, const Expr& j) {
          b.store(totals, {d, slot, j}, summed(0, rows, change(c)));
        });
      b.loop("stretch", 0, stretches, [&](Expr s) {
        const Expr first = ir::index_mul(s, stretch), count = ir::index_min(stretch, ir::index_sub(rows, first));
        columns([&](const Expr& slot, const Expr& c, const Expr& j) {
          b.store(partial, {d, s, slot, j}, summed(first, count, change(c)));
        });
      });
    });
  };
  sums_of(d_preactivation_, 0, in_one() ? 4 : 3, 0);
  if (linear_ && !in_one()) sums_of(recurrent_, 2, 1, 3);
  if (!way_.in_order)
    b.loop("d", 0, options.directions, [&](Expr d) {
      b.loop("slot", 0, slots(), [&](Expr slot) {
        each_column([&](Expr j) {
          b.store(totals, {d, slot, j}, summed(0, stretches, [&](const Expr& s) {
                    return ir::load(partial, {d, s, slot, j});
                  }));
        });
      });
    });
  b.loop("d", 0, options.directions, [&](Expr d) {
    b.loop("part", 0, 6, [&](Expr part) {
      // The inverse of parts_of.
      const Expr slot =
          b.let("slot", part - ir::select(part < 3, Expr(0), linear_ ? 3 - ir::floor_div(part, 5) : Expr(3)));
      each_column([&](Expr j) { add_to(out_db, {d, part, j}, ir::load(totals, {d, slot, j})); });
    });
  });
}

// The sums of `gates` gates from `gate` on, which are dB's slots from `slot` on.
void GradSums::add_rows(int d, const Buffer& from, int gate, int gates, int slot) {
  constexpr int64_t together = 4, most = 2048;  // rows unrolled; columns whose sums stay in L1
  const Expr columns = column(gates, 0), whole = ir::index_div(rows, together);
  const auto known = ir::as_int(columns);
  const int64_t stretch =
      known ? std::clamp<int64_t>(ceil_div(*known, threads), 1, most) : std::max<int64_t>(most / threads, 64);
  const Buffer totals = b.alloc("totals", sum, {columns}, {.exclusive = true});  // each range of columns has its own
  shared_loop("stretch", ir::index_div(ir::index_add(columns, stretch - 1), stretch), [&](Expr s) {
    const auto columns_of = [&](const std::function<void(Expr)>& body) {
      const Expr first = ir::index_mul(s, stretch);
      element_loop("j", ir::index_min(stretch, ir::index_sub(columns, first)),
                   [&](Expr j) { body(ir::index_add(first, j)); });
    };
    const auto add = [&](const Expr& row, int64_t count) {
      columns_of([&](Expr c) {
        Expr total = ir::load(totals, {c});
        for (int64_t r = 0; r < count; ++r)
          total = total + ir::load(from, {d, ir::index_add(row, r), ir::index_add(column(gate, 0), c)});
        b.store(totals, {c}, total);
      });
    };
    columns_of([&](Expr c) { b.store(totals, {c}, number(0)); });
    b.loop("row", 0, whole, [&](Expr group) { add(ir::index_mul(group, together), together); });
    b.loop("row", ir::index_mul(whole, together), ir::index_mod(rows, together), [&](Expr row) { add(row, 1); });
  });
  for (int g = 0; g < gates; ++g)
    for (const int part : parts_of(slot + g))
      each_column([&](Expr j) { add_to(out_db, {d, part, j}, ir::load(totals, {column(g, j)})); });
}

// The parts of dB (Wbz, Wbr, Wbh, Rbz, Rbr, Rbh) that equal a slot's sum.
std::vector<int> GradSums::parts_of(int slot) const {
  if (slot < 2) return {slot, 3 + slot};
  if (slot == 3) return {5};
  return linear_ ? std::vector<int>{2} : std::vector<int>{2, 5};
}

}  // namespace gradloom
