#include "ops/gru/gru_grad_sums.h"

#include <algorithm>

#include "ir/rewrite.h"
#include "ops/patterns/integer_math.h"
#include "ops/registry.h"

namespace gradloom {
namespace {

// What each iteration of the loop adds several values to, an element of its own, in a register.
void in_register(ir::Schedule& s, ir::Loop loop) {
  const ir::For& columns = s.get(loop);
  ir::Buffer total;
  ir::walk(columns.body, [&](const ir::Stmt& x) {
    if (const ir::Accumulate* a = x.as<ir::Accumulate>()) total = a->buffer;
  });
  s.stage(loop, total, {ir::var(columns.var)}, {1});
}

}  // namespace

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

// Sums over rows: in order, or of a GPU's strategies that leave the order free in chunks.
void GradSums::biases_gradient() {
  constexpr int64_t chunk = 128;
  const Buffer totals = scratch("totals", {options.directions, column(slots(), 0)});
  const ir::SumOrder order = way_.in_order ? ir::SumOrder::in_loops() : ir::SumOrder::in_chunks(chunk);
  const auto sums_of = [&](const Buffer& from, int first_gate, int gates, int first_slot) {
    RowSums sums{.count = column(gates, 0)};
    sums.around = b.loop("d", 0, options.directions, [&](Expr d) {
      sums.columns = b.loop("column", 0, sums.count, [&](Expr c) {
        const Buffer total = b.alloc("total", sum, {1}, {}, ir::Space::registers);
        sums.rows = b.reduce(
            total, {0}, ir::AccumulateOp::add, {{"row", 0, rows}},
            [&](const Index& row) {
              return value(from, {d, row[0], column(first_gate, c)});
            },
            order);
        b.store(totals, {d, column(first_slot, c)}, ir::load(total, {0}));
      });
    });
    row_sums_.push_back(sums);
  };
  sums_of(d_preactivation_, 0, in_one() ? 4 : 3, 0);
  if (linear_ && !in_one()) sums_of(recurrent_, 2, 1, 3);
  b.loop("d", 0, options.directions, [&](Expr d) {
    b.loop("part", 0, 6, [&](Expr part) {
      // Parts Wbz, Wbr, Wbh, Rbz, Rbr, Rbh are slots 0, 1, 2, 0, 1 and, linear before reset, 3, else 2.
      const Expr slot =
          b.let("slot", part - ir::select(part < 3, Expr(0), linear_ ? 3 - ir::floor_div(part, 5) : Expr(3)));
      each_column([&](Expr j) { add_to(out_db, {d, part, j}, ir::load(totals, {d, column(slot, j)})); });
    });
  });
}

// On a GPU a column a thread, with many loads of rows in flight. On a CPU ranges of columns, which threads share, whose
// sums stay in L1, four rows at a time.
void GradSums::schedule_sums(ir::Schedule& s) const {
  constexpr int64_t in_flight = 32, together = 4, most = 2048;
  for (const RowSums& sums : row_sums_) {
    if (target_.gpu) {
      if (way_.in_order) {
        s.expand(sums.rows, in_flight);
        continue;
      }
      const ir::Schedule::Chunks chunks = s.split_chunks(sums.rows, sums.around);
      s.expand(chunks.each, in_flight);
      s.expand(chunks.total, in_flight);
      continue;
    }
    const auto known = ir::as_int(sums.count);
    const int64_t range =
        known ? std::clamp<int64_t>(ceil_div(*known, threads), 1, most) : std::max<int64_t>(most / threads, 64);
    const ir::ReductionLoops loops = s.expand_across(sums.columns, range);
    if (is_shared()) s.parallel(loops.tiles);
    for (size_t i = 0; i < loops.ordered.size(); ++i) {
      const ir::Schedule::Split rows_of = s.split(loops.ordered[i], together);
      if (rows_of.tail) to_vectors(s, ir::loops_below(s.get(rows_of.tail).body)[0]->var.id);
      if (!rows_of.outer) continue;
      s.reorder(rows_of.inner, loops.summed[i]);
      // Of sizes that are not known it is not proved that the totals begin at 0: they are then added to in memory.
      s.attempt([&](ir::Schedule& trial) { in_register(trial, loops.summed[i]); });
      s.unroll(rows_of.inner);
      to_vectors(s, loops.summed[i]);
    }
    // Last: until then they are seen to fill the totals. Of sizes that are not known the threads' parts of the totals
    // are not proved apart by vectors.
    for (const ir::Loop loop : loops.stored) s.attempt([&](ir::Schedule& trial) { to_vectors(trial, loop); });
  }
}

}  // namespace gradloom
