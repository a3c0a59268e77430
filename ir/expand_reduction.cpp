#include "ir/expand_reduction.h"

#include <algorithm>

#include "ir/index_math.h"
#include "ir/reduction.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

constexpr int64_t partials = sum_partials, quarter = partials / 4;
constexpr int most_term_nodes = 1000;  // of terms that are written sixteen times in one expression

bool has_variable_divisor(const Reduce& n) {
  const auto in = [](const Expr& e) { return e && ir::has_variable_divisor(e); };
  return in(n.value) || in(n.factor) || in(n.guard) ||
         std::any_of(n.lets.begin(), n.lets.end(), [&](const Reduce::Definition& d) { return in(d.value); });
}

// The load that e is, but for casts; nullptr: it is anything else. A guard of its own would not guard its index: that
// reads no memory.
const Load* only_load(const Expr& e) {
  if (const Cast* n = e.as<Cast>()) return only_load(n->value);
  const Load* n = e.as<Load>();
  return n && !n->guard && std::none_of(n->index.begin(), n->index.end(), has_load) ? n : nullptr;
}
// Such an expression, 0 where the condition does not hold.
Expr only_where(const Expr& e, const Expr& condition) {
  if (const Cast* n = e.as<Cast>()) return cast(e.dtype(), only_where(n->value, condition));
  const Load& n = *e.as<Load>();
  return load(n.buffer, n.index, condition, zero({n.buffer->dtype, 1}));
}

}  // namespace

ReductionNest::ReductionNest(KernelBuilder& builder, const Reduce& reduction, std::optional<ReductionTile> tile,
                             ReductionForm form, ReductionLoops& loops)
    : b_(builder),
      reduction_(reduction),
      tile_(std::move(tile)),
      form_(std::move(form)),
      clamped_(has_variable_divisor(reduction)),
      loops_(loops),
      dtype_(reduction.buffer->dtype),
      kept_(tile_ ? tile_->kept : Expr(1)) {}

void ReductionNest::write() {
  const Into out = destination();
  if (reduction_.order.kind == SumOrder::tree) return total(0, out);
  begin_total(out);
  reduction_.order.kind == SumOrder::chunks ? in_chunks(out) : in_order(0, out);
}

Expr ReductionNest::start() const { return identity(reduction_.op, dtype_); }

Expr ReductionNest::combined(Expr a, Expr b) const {
  if (reduction_.op == AccumulateOp::min) return min(std::move(a), std::move(b));
  if (reduction_.op == AccumulateOp::max) return max(std::move(a), std::move(b));
  if (reduction_.op == AccumulateOp::mul) return std::move(a) * std::move(b);
  return std::move(a) + std::move(b);
}

Expr ReductionNest::halved(std::vector<Expr> p) const {
  for (size_t h = p.size() / 2; h > 0; h /= 2)
    for (size_t l = 0; l < h; ++l) p[l] = combined(p[l], p[l + h]);
  return p[0];
}

void ReductionNest::combine(const Into& out, const Expr& column, const Expr& value) {
  const AccumulateOp op = reduction_.op == AccumulateOp::fma ? AccumulateOp::add : reduction_.op;
  b_.accumulate(out.buffer, out.place(column), value, op);
}

void ReductionNest::begin_total(const Into& out) {
  each_column(loops_.stored, "identity", [&](const Expr& c) { b_.store(out.buffer, out.place(c), start()); });
}

void ReductionNest::each_column(std::vector<Loop>& loops, const std::string& name,
                                const std::function<void(const Expr&)>& body) {
  if (!tile_) return body(0);
  loops.push_back(b_.loop(name, 0, tile_->width, [&](Expr c) { body(c); }));
}

// e at the entered variables and a column.
Expr ReductionNest::at(const Expr& e, const Expr& column) const {
  Substitution values = values_;
  if (tile_) values[tile_->column.id] = column;
  return substitute(e, values);
}

ReductionNest::Into ReductionNest::destination() const {
  return {reduction_.buffer, [this](const Expr& c) {
            Index index;
            for (const Expr& i : reduction_.index) index.push_back(at(i, c));
            return index;
          }};
}

// Variable d is its i-th value. A divisor or shift count that only its bounds prove needs them where it is used.
void ReductionNest::enter(size_t d, const Expr& i) {
  const Reduce::Range& r = reduction_.ranges[d];
  const Expr inside = clamped_ ? index_max(index_min(i, index_sub(extents_.at(d), 1)), 0) : i;
  values_[r.var.id] = is_const(r.begin, 0) ? inside : at(r.begin, 0) + inside;
}

// Read once; not negative, as quotients and remainders of it are taken.
Expr ReductionNest::extent(size_t d) {
  const Reduce::Range& r = reduction_.ranges[d];
  const auto is_read = [](const Expr& e) { return e.as<Load>() || e.as<Intrinsic>() || e.lanes() > 1; };
  Expr n = at(r.extent, 0);
  if (any_of(n, is_read)) n = b_.let(r.var.name + "_n", n);
  if (!(as_int(n) ? *as_int(n) >= 0 : form_.nonnegative && form_.nonnegative(n))) n = index_max(n, 0);
  return extents_[d] = n;
}

bool ReductionNest::is_large() const { return reduction_.value.node().tree.nodes > most_term_nodes; }

bool ReductionNest::one_part(const Expr& n) const { return as_int(n) && *as_int(n) <= part(); }

// Whether variable d is known to have no short block.
bool ReductionNest::divides(size_t d, int64_t length) const {
  const std::optional<int64_t> n = as_int(extents_.at(d));
  return n && *n % length == 0;
}

// Whether a term can be left out by a guard on its load: adding +0.0 to a partial changes no bit, as no partial of a
// sum is ever -0.0. (One of products may be: a tiny negative product rounds to it.)
bool ReductionNest::plain() const {
  return reduction_.op == AccumulateOp::add && !reduction_.guard && reduction_.lets.empty() &&
         only_load(reduction_.value) != nullptr;
}

Expr ReductionNest::plain_term(const Expr& column, const Expr& inside) const {
  const Expr value = at(reduction_.value, column);
  return inside ? only_where(value, inside) : value;
}

Expr ReductionNest::term(const Expr& column, const Expr& inside) {
  for (const Reduce::Definition& d : reduction_.lets) values_[d.var.id] = b_.let(d.var.name, at(d.value, column));
  const Expr value = at(reduction_.value, column);
  switch (reduction_.op) {
    case AccumulateOp::add:
      return start() + (inside ? only_where(value, inside) : value);
    case AccumulateOp::fma:
      return fma(value, at(reduction_.factor, column), start());
    case AccumulateOp::mul:  // 1 * value is value
    case AccumulateOp::min:
    case AccumulateOp::max:
      return value;
  }
  return value;
}

void ReductionNest::fold(const Buffer& buffer, const Index& index, const Expr& column, const Expr& inside) {
  if (inside && plain()) return b_.accumulate(buffer, index, plain_term(column, inside));
  const auto term = [&] {
    for (const Reduce::Definition& d : reduction_.lets) values_[d.var.id] = b_.let(d.var.name, at(d.value, column));
    b_.accumulate(buffer, index, at(reduction_.value, column), reduction_.op,
                  reduction_.factor ? at(reduction_.factor, column) : Expr());
  };
  b_.guarded(inside, [&] { b_.guarded(reduction_.guard ? at(reduction_.guard, column) : Expr(), term); });
}

void ReductionNest::in_order(size_t d, const Into& out) { in_order(d, 0, extent(d), out); }

// `count` values of variable d, from the `first`.
void ReductionNest::in_order(size_t d, const Expr& first, const Expr& count, const Into& out) {
  const std::string& name = reduction_.ranges[d].var.name;
  const bool innermost = d + 1 == reduction_.ranges.size();
  if (form_.ahead > 1 && innermost && !tile_ && !reduction_.guard && !reduction_.factor)
    return read_ahead(d, first, count, out);
  const Loop loop = b_.loop(name, 0, count, [&](Expr i) {
    enter(d, index_add(first, i));
    if (!innermost) return in_order(d + 1, out);
    each_column(loops_.summed, "column", [&](const Expr& c) { fold(out.buffer, out.place(c), c); });
  });
  if (innermost) loops_.ordered.push_back(loop);
}

// The same, of terms that are values without a guard: `ahead` of them are read, then folded.
void ReductionNest::read_ahead(size_t d, const Expr& first, const Expr& count, const Into& out) {
  const auto term = [&](const Expr& i) {
    enter(d, i);
    for (const Reduce::Definition& l : reduction_.lets) values_[l.var.id] = b_.let(l.var.name, at(l.value, 0));
    return b_.let("value", at(reduction_.value, 0));
  };
  const std::string& name = reduction_.ranges[d].var.name;
  const Expr groups = index_div(count, form_.ahead), whole = as_int(groups) ? groups : b_.let("whole", groups);
  b_.loop(name, 0, whole, [&](Expr group) {
    std::vector<Expr> values;
    for (int64_t k = 0; k < form_.ahead; ++k)
      values.push_back(term(index_add(index_add(first, group * form_.ahead), k)));
    for (const Expr& v : values) combine(out, 0, v);
  });
  const Expr done = index_mul(whole, form_.ahead);
  b_.loop(name, index_add(first, done), index_sub(count, done), [&](Expr i) { combine(out, 0, term(i)); });
}

void ReductionNest::in_chunks(const Into& out) {
  const Expr n = extent(0);
  const int64_t length = reduction_.order.block;
  const Into chunk{b_.alloc("chunk", dtype_, {kept_}), [](const Expr& c) { return Index{c}; }};
  b_.loop("chunks", 0, floor_div(n + (length - 1), length), [&](Expr k) {
    const Expr first = k * length;
    begin_total(chunk);
    in_order(0, first, min(Expr(length), n - first), chunk);
    each_column(loops_.summed, "column", [&](const Expr& c) { combine(out, c, load(chunk.buffer, {c})); });
  });
}

// out = the total of variable d and all inside it.
void ReductionNest::total(size_t d, const Into& out) {
  begin_total(out);
  const Expr n = extent(d);
  if (d + 1 < reduction_.ranges.size()) {
    // One body with a variable extent: a separate remainder would double the code with every variable.
    const Expr count = floor_div(n + (partials - 1), partials);
    b_.loop("block" + std::to_string(d), 0, count,
            [&](Expr k) { outer_block(d, out, k * partials, min(Expr(partials), n - k * partials)); });
    return;
  }
  if (one_part(n)) return blocks(d, 0, n, [&](const Expr& c, const Expr& sum) { combine(out, c, sum); });
  const Into part{b_.alloc("part", dtype_, {kept_}), [](const Expr& c) { return Index{c}; }};
  b_.loop("parts", 0, parts(), [&](Expr k) {
    one_part_total(d, k, part);
    each_column(loops_.summed, "column", [&](const Expr& c) { combine(out, c, load(part.buffer, {c})); });
  });
}

// out = the total of part k of the innermost variable.
void ReductionNest::one_part_total(size_t d, const Expr& k, const Into& out) {
  const Expr first = k * part();
  begin_total(out);
  blocks(d, first, min(Expr(part()), extents_.at(d) - first),
         [&](const Expr& c, const Expr& sum) { combine(out, c, sum); });
}

Expr ReductionNest::parts() {
  const size_t innermost = reduction_.ranges.size() - 1;
  const Expr n = extents_.contains(innermost) ? extents_.at(innermost) : extent(innermost);
  return floor_div(n + (part() - 1), part());
}

void ReductionNest::write_parts(const Buffer& sums) {
  loops_.parts = b_.loop("parts", 0, sums->dims[0], [&](Expr k) {
    one_part_total(0, k, {sums, [&](const Expr& c) { return Index{k, c}; }});
  });
}

void ReductionNest::add_parts(const Buffer& sums, const std::function<Expr(const Expr&)>& place) {
  const Into out = destination();
  begin_total(out);
  b_.loop("add", 0, sums->dims[0], [&](Expr k) {
    each_column(loops_.summed, "column", [&](const Expr& c) { combine(out, c, load(sums, {k, place(c)})); });
  });
}

// All blocks of `count` terms of the innermost variable, from `first`.
void ReductionNest::blocks(size_t d, const Expr& first, const Expr& count, const Put& put) {
  if (!tile_ || reduction_.order.block != partials || reduction_.guard || is_large())
    return strided(d, first, count, put);
  b_.loop("block", 0, floor_div(count, partials), [&](Expr k) { rows(d, first + k * partials, {}, put); });
  if (divides(d, partials)) return;
  const Expr rest = floor_mod(count, partials);
  b_.if_then(rest > 0, [&] {
    if (plain()) return rows(d, first + (count - rest), rest, put);
    strided(d, first + (count - rest), rest, put);
  });
}

// The tree over up to 16 rows, from `first`; all 16 when `extent` is absent. With enough vector registers for a row
// each, all 16 rows are read at once; other cores reach full memory bandwidth with a few streams, and far less with
// sixteen: they read four rows at a time, those that the tree folds first.
void ReductionNest::rows(size_t d, const Expr& first, const Expr& extent, const Put& put) {
  const auto row = [&](const Expr& l, const Expr& c) {
    enter(d, first + l);
    return term(c, extent ? extent > l : Expr());
  };
  if (form_.rows_at_once) {
    each_column(loops_.summed, "element", [&](const Expr& c) {
      std::vector<Expr> p;
      for (int64_t l = 0; l < partials; ++l) p.push_back(row(l, c));
      put(c, halved(std::move(p)));
    });
    return;
  }
  const Buffer quads = b_.alloc("quads", dtype_, {quarter, kept_});
  loops_.quads.push_back(b_.loop("quad", 0, quarter, [&](Expr q) {
    each_column(loops_.summed, "element", [&](const Expr& c) {
      const Expr p0 = row(q, c), p8 = row(q + 8, c), p4 = row(q + 4, c), p12 = row(q + 12, c);
      b_.store(quads, {q, c}, combined(combined(p0, p8), combined(p4, p12)));
    });
  }));
  each_column(loops_.summed, "column", [&](const Expr& c) {
    const auto sum = [&](int64_t q) { return load(quads, {Expr(q), c}); };
    put(c, combined(combined(sum(0), sum(2)), combined(sum(1), sum(3))));
  });
}

// Blocks by 16 interleaved partials, one per lane where vectorised.
void ReductionNest::strided(size_t d, const Expr& from, const Expr& count, const Put& put) {
  const int64_t block = reduction_.order.block;
  const Buffer p =
      tile_ ? b_.alloc("p", dtype_, {partials, kept_}) : b_.alloc("p", dtype_, {partials}, {}, Space::registers);
  const auto place = [&](const Expr& l, const Expr& c) { return tile_ ? Index{l, c} : Index{l}; };
  const auto lanes = [&](const std::string& name, int64_t n, const std::function<void(Expr, Expr)>& body) {
    const Loop loop =
        b_.loop(name, 0, n, [&](Expr l) { each_column(loops_.summed, "column", [&](const Expr& c) { body(l, c); }); });
    if (!tile_) loops_.lanes.push_back(loop);
  };
  const Into sums{p, [&](const Expr& c) { return place(0, c); }};
  const auto finish = [&] {
    for (int64_t h = partials / 2; h > 0; h /= 2)
      lanes("half" + std::to_string(h), h, [&](Expr l, Expr c) {
        combine({p, [&](const Expr& own) { return place(l, own); }}, c, load(p, place(l + h, c)));
      });
    each_column(loops_.summed, "column", [&](const Expr& c) { put(c, load(p, sums.place(c))); });
  };
  const auto clear = [&] { lanes("partial", partials, [&](Expr l, Expr c) { b_.store(p, place(l, c), start()); }); };
  const auto step = [&](const Expr& first, const Expr& end) {
    lanes("partial", partials, [&](Expr l, Expr c) {
      enter(d, first + l);
      fold(p, place(l, c), c, end ? first + l < end : Expr());
    });
  };
  b_.loop("block", 0, floor_div(count, block), [&](Expr k) {
    clear();
    loops_.steps.push_back(
        b_.loop("step", 0, block / partials, [&](Expr s) { step(from + k * block + s * partials, {}); }));
    finish();
  });
  if (divides(d, block)) return;
  const Expr rest = floor_mod(count, block), end = from + count, first = end - rest;
  b_.if_then(rest > 0, [&] {
    clear();
    b_.loop("rest", 0, floor_div(rest, partials), [&](Expr s) { step(first + s * partials, {}); });
    step(first + floor_div(rest, partials) * partials, end);
    finish();
  });
}

// out op= the tree over up to 16 totals of the next variable: `extent` of them.
void ReductionNest::outer_block(size_t d, const Into& out, const Expr& first, const Expr& extent) {
  const std::string number = std::to_string(d);
  const Buffer inner = b_.alloc("inner" + number, dtype_, {partials, kept_});
  const auto of = [&](const Expr& l) { return Into{inner, [l](const Expr& c) { return Index{l, c}; }}; };
  b_.loop("l" + number, 0, extent, [&](Expr l) {
    enter(d, first + l);
    total(d + 1, of(l));
  });
  b_.loop("missing" + number, extent, Expr(partials) - extent, [&](Expr l) { begin_total(of(l)); });
  each_column(loops_.summed, "column", [&](const Expr& c) {
    std::vector<Expr> p;
    for (int64_t l = 0; l < partials; ++l) p.push_back(load(inner, {l, c}));
    combine(out, c, halved(std::move(p)));
  });
}

Stmt expanded(const Reduce& reduction, ReductionForm form, ReductionLoops& loops) {
  KernelBuilder builder("reduction");
  ReductionNest(builder, reduction, {}, std::move(form), loops).write();
  return builder.build().body;
}

}  // namespace gradloom::ir
