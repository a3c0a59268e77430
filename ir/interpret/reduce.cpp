// Execution of reductions in the interpreter: as declared, with an implementation of its own, so that what lowering
// makes of them is compared with another program.
#include <algorithm>
#include <array>

#include "ir/interpret/code.h"
#include "ir/reduction.h"
#include "ir/scalar_math.h"

namespace gradloom::ir::interp {
namespace {

struct ReduceCode final : StmtCode {
  struct Range {
    ExprPtr begin, extent;
    size_t slot;
  };
  struct Definition {
    ExprPtr value;
    size_t slot;
  };

  // All totals, before the first is written.
  void run(std::span<Frame* const> frames) override {
    std::vector<uint64_t> totals(frames.size());
    std::vector<int64_t> places(frames.size() * access.rank());
    for (size_t i = 0; i < frames.size(); ++i) {
      access.scalar(*frames[i], places.data() + i * access.rank());
      totals[i] = start;
      if (order.kind == SumOrder::tree)
        totals[i] = tree(*frames[i], 0);
      else
        in_loops(*frames[i], 0, totals[i]);
    }
    for (size_t i = 0; i < frames.size(); ++i)
      frames[i]->arrays[access.array]->store(places.data() + i * access.rank(), totals[i]);
  }

  uint64_t combined(uint64_t a, uint64_t b) const {
    const BinaryOp how = op == AccumulateOp::min   ? BinaryOp::min
                         : op == AccumulateOp::max ? BinaryOp::max
                         : op == AccumulateOp::mul ? BinaryOp::mul
                                                   : BinaryOp::add;
    return eval_binary(how, dtype, a, b);
  }
  // The term at the variables' values, folded into the partial.
  void fold(Frame& frame, uint64_t& partial) const {
    if (guard && !guard->scalar(frame)) return;
    for (const Definition& d : lets) frame.vars[d.slot] = d.value->scalar(frame);
    const uint64_t v = value->scalar(frame);
    partial = factor ? eval_fma(dtype, v, factor->scalar(frame), partial) : combined(partial, v);
  }

  void in_loops(Frame& frame, size_t d, uint64_t& total) const {
    if (d == ranges.size()) return fold(frame, total);
    const uint64_t first = ranges[d].begin->scalar(frame);
    const int64_t count = static_cast<int64_t>(ranges[d].extent->scalar(frame));
    const bool chunks = order.kind == SumOrder::chunks && d == 0;
    uint64_t chunk = start;
    for (int64_t k = 0; k < count; ++k) {
      frame.vars[ranges[d].slot] = first + static_cast<uint64_t>(k);
      in_loops(frame, d + 1, chunks ? chunk : total);
      if (!chunks || (k + 1 < count && (k + 1) % order.block != 0)) continue;
      total = combined(total, chunk);
      chunk = start;
    }
  }

  // The total of variable d and those inside it.
  uint64_t tree(Frame& frame, size_t d) const {
    const bool innermost = d + 1 == ranges.size();
    const uint64_t first = ranges[d].begin->scalar(frame);
    const int64_t count = static_cast<int64_t>(ranges[d].extent->scalar(frame));
    const int64_t block = innermost ? order.block : sum_partials;
    uint64_t total = start, part = start;
    for (int64_t from = 0; from < count; from += block) {
      std::array<uint64_t, sum_partials> p;
      p.fill(start);
      for (int64_t k = from; k < count && k - from < block; ++k) {
        frame.vars[ranges[d].slot] = first + static_cast<uint64_t>(k);
        uint64_t& partial = p[static_cast<size_t>((k - from) % sum_partials)];
        if (innermost)
          fold(frame, partial);
        else
          partial = tree(frame, d + 1);
      }
      for (size_t h = p.size() / 2; h > 0; h /= 2)
        for (size_t l = 0; l < h; ++l) p[l] = combined(p[l], p[l + h]);
      part = combined(part, p[0]);
      const bool ends = innermost && (from / block + 1) % sum_part_blocks == 0;
      if (!ends) continue;
      total = combined(total, part);
      part = start;
    }
    return combined(total, part);
  }

  Access access;
  AccumulateOp op;
  DType dtype;
  SumOrder order;
  uint64_t start;
  std::vector<Range> ranges;
  std::vector<Definition> lets;
  ExprPtr value, factor, guard;
};

}  // namespace

StmtPtr Translator::make(const Reduce& n) {
  auto code = std::make_unique<ReduceCode>();
  code->access = access(n.buffer, n.index, 1);
  code->op = n.op, code->dtype = n.buffer->dtype, code->order = n.order;
  code->start = identity(n.op, n.buffer->dtype).as<Const>()->bits;
  std::vector<std::unique_ptr<Scope<std::unordered_map<int64_t, Binding>>>> scopes;
  const auto bind = [&](const Var& v) {
    scopes.push_back(std::make_unique<Scope<std::unordered_map<int64_t, Binding>>>(vars_, v.id));
    return declare(v);
  };
  for (const Reduce::Range& r : n.ranges) {
    ExprPtr begin = expr(r.begin), extent = expr(r.extent);
    code->ranges.push_back({std::move(begin), std::move(extent), bind(r.var)});
  }
  if (n.guard) code->guard = expr(n.guard);
  for (const Reduce::Definition& d : n.lets) {
    ExprPtr value = expr(d.value);
    code->lets.push_back({std::move(value), bind(d.var)});
  }
  code->value = expr(n.value);
  if (n.factor) code->factor = expr(n.factor);
  while (!scopes.empty()) scopes.pop_back();  // the last bound first
  return code;
}

}  // namespace gradloom::ir::interp
