#include "tests/support/random_program_stmt.h"

#include "ir/rewrite.h"

namespace gradloom::ir::testing {

RandomProgram ProgramStmt::build() {
  declare();
  budget_ = scope_.shape.statements;
  while (budget_ > 0) statement(0);
  RandomProgram result;
  for (const Array& array : scope_.parameters) parameters_.contents(array, result);
  for (const ScalarValue& scalar : scope_.scalars) result.scalars.push_back(scalar.slot);
  result.kernel = scope_.builder.build();
  return result;
}

void ProgramStmt::declare() {
  for (int k = pick(3); k >= 0; --k) parameters_.scalar();
  for (int k = 1 + pick(2); k >= 0; --k) parameters_.dimension();
  for (int k = 1 + pick(3); k > 0; --k) parameters_.input();
  for (int k = pick(2); k >= 0; --k) scope_.readable.push_back(parameters_.parameter(number(), Role::inout));
  for (int k = pick(2); k >= 0; --k) {
    const Array array = parameters_.parameter(element(), Role::out);
    if (chance(60)) fill(array), scope_.readable.push_back(array);
    scope_.writable.push_back(array);
  }
  for (const Array& array : scope_.readable)
    if (array.writable) scope_.writable.push_back(array);
}

// Values that a body defines go out of scope with it.
void ProgramStmt::scoped(const std::function<void()>& body) {
  const size_t values = scope_.values.size(), inside = scope_.within.size(), readable = scope_.readable.size(),
               writable = scope_.writable.size(), positive = scope_.positive.size();
  ++nesting_;
  body();
  --nesting_;
  scope_.values.resize(values), scope_.within.resize(inside), scope_.readable.resize(readable),
      scope_.writable.resize(writable), scope_.positive.resize(positive);
}
void ProgramStmt::body() {
  for (int k = 1 + pick(3); k > 0 && budget_ > 0; --k) statement(nesting_);
}

void ProgramStmt::statement(int depth) {
  --budget_;
  const int what = pick(100);
  if (depth < 4 && what < 22) return loop();
  if (depth < 5 && what < 32) return branch();
  if (depth < 5 && what < 38) return contradiction();
  if (depth < 5 && what < 44) return checked();
  if (what < 58) return value_let();
  if (depth < 3 && what < 63) return local();
  if (what < 64) return chain();
  if (what < 66 && scope_.shape.vectors) return evaluated();
  if (what < 72) return reduce_somewhere();
  if (what < 82) return accumulate_somewhere();
  store_somewhere();
}

void ProgramStmt::value_let() {
  const int lanes = scope_.shape.vectors && chance(20) ? draw_.vector_lanes() : 1;
  if (chance(30)) {
    const Within& dim = any(scope_.dims);
    if (dim.size > 0) {
      const Expr v = scope_.builder.let(scope_.name("at"), draw_.within(dim.size, dim.e, lanes));
      scope_.values.push_back(v);
      if (!scope_.dead) scope_.within.push_back({v, dim.size});
      return;
    }
  }
  scope_.values.push_back(
      scope_.builder.let(scope_.name("v"), draw_.value(chance(60) ? DType::i64 : element(), lanes, 3)));
}

// Lets that each use the previous one.
void ProgramStmt::chain() {
  int length = scope_.shape.statements >= 100 && chance(50) ? 150 : 3 + pick(12);
  Expr e = draw_.value(DType::i64, 1, 1);
  const Expr other = draw_.pure();
  for (; length > 0; --length)
    e = scope_.builder.let(scope_.name("c"),
                           chance(50) ? min(e, other + pick(5)) : floor_mod(e, 5 + pick(9)) + pick(3));
  scope_.values.push_back(e);
}

void ProgramStmt::evaluated() {
  const Array& array = any(scope_.readable);
  std::vector<Expr> index;
  for (size_t d = 0; d < array.dims.size(); ++d) index.push_back(draw_.value(DType::i64, 1, 1));
  if (chance(70)) return scope_.builder.prefetch(array.buffer, index, 1 + pick(3));
  const Expr some = draw_.condition(draw_.vector_lanes(), 1);
  scope_.builder.append(evaluate(chance(50) ? all_lanes(some) : any_lane(some)));
}

ProgramStmt::Extent ProgramStmt::extent() {
  const int64_t most = scope_.iterations > 200 ? 3 : scope_.iterations > 40 ? 6 : 12;
  if (scope_.dead && chance(30)) return {draw_.pure(), most};
  const int64_t few = 1 + pick(static_cast<int>(most));
  switch (pick(12)) {
    case 0:
      return {Expr(-int64_t{pick(20)} * pick(20)), 0};
    case 1:
      return {min(draw_.pure(), few), few};
    case 2:
      return {floor_mod(draw_.value(DType::i64, 1, 1), few), few};
    case 3: {
      const Expr e = draw_.pure();
      return {(e + few) - e, few};
    }
    case 4:
      for (const ScalarValue& s : scope_.scalars)
        if (s.e.dtype() == DType::i64 && chance(60)) return {s.e - wrapped_add(s.slot, -few), few};
      [[fallthrough]];
    case 5:
      for (const ScalarValue& s : scope_.scalars)
        if (s.e.dtype() == DType::i64 && s.slot <= most && chance(60)) return {s.e, std::max<int64_t>(s.slot, 0)};
      [[fallthrough]];
    case 6:
    case 7: {
      const Within& dim = any(scope_.dims);
      if (dim.size <= most) return {dim.e, dim.size};
      [[fallthrough]];
    }
    case 8:
      if (most >= 6 && chance(30)) return {Expr(int64_t{16} << pick(2)), 32};
      [[fallthrough]];
    default:
      return {Expr(few), few};
  }
}

void ProgramStmt::loop() {
  const Extent count = extent();
  const Expr begin = chance(50) ? Expr(0) : chance(60) ? draw_.pure() : chance(50) ? Expr(edge()) : Expr(small());
  const int64_t before = scope_.iterations;
  scope_.iterations *= std::max<int64_t>(count.most, 1);
  scope_.builder.loop(scope_.name("i"), begin, count.e, [&](Expr i) {
    scoped([&] {
      scope_.values.push_back(i);
      scope_.within.push_back({is_const(begin, 0) ? i : i - begin, std::max<int64_t>(count.most, 1)});
      body();
    });
  });
  scope_.iterations = before;
}

void ProgramStmt::branch() {
  const auto inner = [&] { scoped([&] { body(); }); };
  const int what = pick(10);
  if (what < 3) {  // an index that its guard proves in range
    const Within& dim = any(scope_.dims);
    const Expr e = scope_.builder.let(scope_.name("e"), draw_.value(DType::i64, 1, 2));
    scope_.builder.if_then(draw_.in_range(e, dim.e), [&] {
      scoped([&] {
        scope_.within.push_back({e, dim.size});
        body();
      });
    });
    return;
  }
  if (what < 5) {  // a divisor that its guard proves nonzero
    const Expr e = draw_.pure();
    scope_.builder.if_then(chance(50) ? e > Expr(int64_t{pick(3)}) : e >= Expr(int64_t{1 + pick(3)}), [&] {
      scoped([&] {
        scope_.positive.push_back(e);
        body();
      });
    });
    return;
  }
  const Expr c = draw_.condition(1, 2);
  if (chance(35)) return scope_.builder.if_then(c, inner, inner);
  scope_.builder.if_then(c, inner);
}

// Mutually exclusive guards, so that their body never runs.
void ProgramStmt::contradiction() {
  const Expr e = draw_.pure();
  const int64_t at = chance(50) ? edge() : small();
  const bool was = scope_.dead;
  const auto inner = [&] {
    scope_.dead = true;
    scoped([&] { body(); });
    scope_.dead = was;
  };
  switch (pick(5)) {
    case 0:
      return scope_.builder.if_then(constant_bits(DType::boolean, 0), inner);
    case 1:
      return scope_.builder.if_then((e > Expr(at)) & (e < Expr(at)), inner);
    case 2:
      return scope_.builder.if_then(e == Expr(at), [&] { scope_.builder.if_then(e != Expr(at), inner); });
    case 3:
      return scope_.builder.if_then(e < e, inner);
    default:
      return scope_.builder.if_then(e > Expr(at), [&] { scope_.builder.if_then(e <= Expr(at), inner); });
  }
}

void ProgramStmt::checked() {
  const Expr position = chance(50) ? draw_.value(DType::i64, 1, 1) : chance(50) ? Expr(edge()) : Expr(small());
  const std::string argument = chance(80) ? "indices" : "x";
  if (chance(50)) {
    const Within& dim = any(scope_.dims);
    const Expr e = scope_.builder.let(
        scope_.name("e"), chance(50) ? draw_.value(DType::i64, 1, 2) : draw_.pure() * Expr(int64_t{1 + pick(9)}));
    return scope_.builder.check(draw_.in_range(e, dim.e), position, argument, [&] {
      scoped([&] {
        scope_.within.push_back({e, dim.size});
        store_somewhere();
        body();
      });
    });
  }
  const int lanes = scope_.shape.vectors && chance(20) ? draw_.vector_lanes() : 1;
  scope_.builder.append(check(draw_.condition(lanes, 1),
                              lanes > 1 && chance(50) ? draw_.value(DType::i64, lanes, 1) : position, argument,
                              statements([&] { body(); })));
}
// The statements that `body` appends, as a separate statement.
Stmt ProgramStmt::statements(const std::function<void()>& body) {
  KernelBuilder outer = std::move(scope_.builder);
  scope_.builder = KernelBuilder("part");
  scoped(body);
  Stmt stmt = scope_.builder.build().body;
  scope_.builder = std::move(outer);
  return stmt;
}

void ProgramStmt::local() {
  Array array;
  const bool registers = chance(30);
  const int rank = 1 + pick(2);
  for (int d = 0; d < rank; ++d) {
    const Within dim = registers || chance(50) ? Within{Expr(int64_t{1 + pick(5)}), 0} : any(scope_.dims);
    array.dims.push_back(dim.e), array.sizes.push_back(as_int(dim.e).value_or(dim.size));
  }
  int64_t elements = 1;
  for (int64_t size : array.sizes) elements *= size;
  if (elements * scope_.iterations > 2000) return store_somewhere();
  Facts facts;
  const DType t = chance(25) ? DType::i64 : element();
  if (t == DType::i64 && chance(50)) {
    array.values = Array::Values::within, array.low = 0, array.high = pick(5);
    facts.min = 0, facts.max = array.high;
  }
  array.buffer =
      scope_.builder.alloc(scope_.name("t"), t, array.dims, facts, registers ? Space::registers : Space::global);
  array.writable = array.values == Array::Values::any;
  fill(array);
  scope_.readable.push_back(array);
  if (array.writable) scope_.writable.push_back(array);
}
void ProgramStmt::fill(const Array& array) {
  const std::function<void(size_t, std::vector<Expr>)> dim = [&](size_t d, std::vector<Expr> at) {
    if (d == array.dims.size()) {
      const DType t = array.buffer->dtype;
      Expr e = draw_.value(t, 1, 2);
      if (array.values == Array::Values::within) e = min(max(e, array.low), array.high);
      return scope_.builder.store(array.buffer, at, e);
    }
    scope_.builder.loop(scope_.name("f"), 0, array.dims[d], [&](Expr i) {
      scoped([&] {
        scope_.values.push_back(i), scope_.within.push_back({i, array.sizes[d]});
        at.push_back(i);
        dim(d + 1, at);
      });
    });
  };
  const int64_t before = scope_.iterations;
  for (int64_t size : array.sizes) scope_.iterations *= std::max<int64_t>(size, 1);
  dim(0, {});
  scope_.iterations = before;
}

std::optional<ProgramStmt::Place> ProgramStmt::place(bool accumulates) {
  std::vector<Array> fitting;
  for (const Array& array : scope_.writable) {
    const DType t = array.buffer->dtype;
    bool readable = false;
    for (const Array& r : scope_.readable) readable |= r.buffer.same_as(array.buffer);
    if (!accumulates || (readable && t != DType::boolean && !is_storage_float(t))) fitting.push_back(array);
  }
  if (fitting.empty()) return std::nullopt;
  Place at{any(fitting), {}, {}, scope_.shape.vectors && chance(20) ? draw_.vector_lanes() : 1};
  if (at.array.empty() && at.array.dims.empty()) return std::nullopt;
  const bool guarded = at.array.empty() || chance(25);
  for (size_t d = 0; d < at.array.dims.size(); ++d) {
    const int lanes = at.lanes > 1 && chance(70) ? at.lanes : 1;
    if (!guarded || (!at.array.empty() && chance(40))) {
      at.index.push_back(draw_.within(at.array.sizes[d], at.array.dims[d], lanes));
      continue;
    }
    const Expr e = draw_.value(DType::i64, lanes, 1), ok = draw_.in_range(e, at.array.dims[d]);
    at.guard = at.guard ? at.guard & ok : ok;
    at.index.push_back(e);
  }
  if (at.array.empty()) {
    const Expr off = constant_bits(DType::boolean, 0);
    at.guard = at.guard ? at.guard & off : off;
  } else if (guarded && (!at.guard || chance(20))) {
    const Expr more = draw_.condition(chance(50) ? at.lanes : 1, 1);
    at.guard = at.guard ? at.guard & more : more;
  }
  return at;
}
void ProgramStmt::store_somewhere() {
  const std::optional<Place> at = place(false);
  if (!at) return;
  const Expr e = draw_.value(at->array.buffer->dtype, chance(60) ? at->lanes : 1, 3);
  scope_.builder.append(store(at->array.buffer, at->index, e, at->guard, scope_.shape.vectors && chance(10)));
}
void ProgramStmt::accumulate_somewhere() {
  const std::optional<Place> at = place(true);
  if (!at) return store_somewhere();
  const DType t = at->array.buffer->dtype;
  static const std::vector<AccumulateOp> ops{AccumulateOp::add, AccumulateOp::add, AccumulateOp::min, AccumulateOp::max,
                                             AccumulateOp::mul};
  const auto e = [&] { return draw_.value(t, chance(60) ? at->lanes : 1, 2); };
  const bool fused = (t == DType::f32 || t == DType::f64) && chance(40);
  const Expr a = e();
  const Expr factor = fused ? draw_.value(t, 1, 1) : Expr();
  // On floats the order would matter; a GPU supports atomics on 32 and 64 bits only.
  const bool atomic = is_int(t) && size_of(t) >= 4 && chance(15);
  const AccumulateOp op = fused ? AccumulateOp::fma : atomic ? AccumulateOp::add : any(ops);
  scope_.builder.append(accumulate(at->array.buffer, at->index, op, a, factor, at->guard, atomic));
}

// Over one or two variables, in any order, of terms with a guard and lets.
void ProgramStmt::reduce_somewhere() {
  const std::optional<Place> at = place(true);
  if (!at || at->lanes > 1) return store_somewhere();
  const DType t = at->array.buffer->dtype;
  static const std::vector<AccumulateOp> ops{AccumulateOp::add, AccumulateOp::min, AccumulateOp::max,
                                             AccumulateOp::mul};
  static const std::vector<SumOrder> orders{SumOrder::in_loops(), SumOrder::in_tree(16), SumOrder::in_tree(48)};
  Reduce n{.buffer = at->array.buffer, .index = at->index, .op = any(ops), .order = any(orders)};
  if ((t == DType::f32 || t == DType::f64) && chance(30)) n.op = AccumulateOp::fma;
  const int64_t before = scope_.iterations;
  scoped([&] {
    for (int k = pick(2); k >= 0; --k) {
      const Extent count = extent();
      const Expr begin = chance(60) ? Expr(0) : chance(60) ? draw_.pure() : Expr(edge());
      scope_.iterations *= std::max<int64_t>(count.most, 1);
      n.ranges.push_back({make_var(scope_.name("r")), begin, count.e});
      const Expr v = var(n.ranges.back().var);
      scope_.values.push_back(v);
      scope_.within.push_back({is_const(begin, 0) ? v : v - begin, std::max<int64_t>(count.most, 1)});
    }
    if (chance(30)) n.guard = draw_.condition(1, 1);
    if (chance(30)) {
      const Expr value = draw_.value(chance(60) ? DType::i64 : t, 1, 2);
      n.lets.push_back({make_var(scope_.name("v"), value.type()), value});
      scope_.values.push_back(var(n.lets.back().var));
    }
    n.value = draw_.value(t, 1, 2);
    if (n.op == AccumulateOp::fma) n.factor = draw_.value(t, 1, 1);
  });
  scope_.iterations = before;
  const Stmt all = reduce(n);
  bool own = false;
  walk(all, {}, [&](const Expr& e) { own |= e.as<Load>() && e.as<Load>()->buffer.same_as(n.buffer); });
  if (own) return store_somewhere();
  scope_.builder.append(at->guard ? if_then(at->guard, all) : all);
}

}  // namespace gradloom::ir::testing
