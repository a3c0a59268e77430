#include "gradloom/builder.h"

#include "gradloom/error.h"
#include "ir/reduction.h"

namespace gradloom::ir {

// The kernel under construction; absent after build().
template <class Scope>
static Scope& innermost(std::vector<Scope>& scopes) {
  if (scopes.empty())
    throw Error(ErrorCode::invalid_argument, "KernelBuilder: the kernel was built already, a builder builds one");
  return scopes.back();
}

KernelBuilder::KernelBuilder(std::string name) {
  kernel_.name = std::move(name);
  scopes_.emplace_back();
}

Expr KernelBuilder::scalar(std::string name, Expr min, Expr max, DType dtype) {
  Var v = make_var(std::move(name), {dtype, 1});
  kernel_.scalars.push_back({v, min, max});
  return var(v);
}

Buffer KernelBuilder::parameter(Buffer buffer) {
  if (!buffer) throw Error(ErrorCode::invalid_argument, "KernelBuilder: a parameter is an absent buffer");
  kernel_.buffers.push_back(buffer);
  return buffer;
}

Buffer KernelBuilder::input(std::string name, DType dtype, std::vector<Expr> dims, std::vector<Expr> strides) {
  return parameter(make_buffer({.name = std::move(name),
                                .dtype = dtype,
                                .dims = std::move(dims),
                                .strides = std::move(strides),
                                .role = Role::in}));
}

Buffer KernelBuilder::output(std::string name, DType dtype, std::vector<Expr> dims, int64_t alignment) {
  return parameter(make_buffer(
      {.name = std::move(name), .dtype = dtype, .dims = std::move(dims), .role = Role::out, .alignment = alignment}));
}

Buffer KernelBuilder::inout(std::string name, DType dtype, std::vector<Expr> dims, int64_t alignment) {
  return parameter(make_buffer(
      {.name = std::move(name), .dtype = dtype, .dims = std::move(dims), .role = Role::inout, .alignment = alignment}));
}

Loop KernelBuilder::loop(std::string name, Expr begin, Expr extent, const std::function<void(Expr)>& body,
                         ForKind kind) {
  Var v = make_var(std::move(name));
  Stmt inner = scoped([&] { body(var(v)); });
  append(for_loop(v, begin, extent, kind, inner));
  return v.id;
}

std::vector<Loop> KernelBuilder::loops(std::string name, const std::vector<Expr>& extents,
                                       const std::function<void(const std::vector<Expr>&)>& body) {
  std::vector<Loop> handles(extents.size());
  std::vector<Expr> index;
  std::function<void()> next = [&] {
    const size_t depth = index.size();
    if (depth == extents.size()) return body(index);
    handles[depth] = loop(name + std::to_string(depth), 0, extents[depth], [&](Expr i) {
      index.push_back(i);
      next();
      index.pop_back();
    });
  };
  next();
  return handles;
}

Expr KernelBuilder::let(std::string name, Expr value) {
  if (!value) throw Error(ErrorCode::invalid_argument, "KernelBuilder: the value of let " + name + " is absent");
  Var v = make_var(std::move(name), value.type());
  wrap([v, value](Stmt body) { return ir::let(v, value, body); });
  return var(v);
}

Buffer KernelBuilder::alloc(std::string name, DType dtype, std::vector<Expr> dims, Facts facts, Space space) {
  Buffer buffer = make_buffer({.name = std::move(name),
                               .dtype = dtype,
                               .dims = std::move(dims),
                               .role = Role::temp,
                               .space = space,
                               .alignment = 64,
                               .facts = std::move(facts)});
  wrap([buffer](Stmt body) { return ir::alloc(buffer, body); });
  return buffer;
}

void KernelBuilder::store(const Buffer& buffer, std::vector<Expr> index, Expr value, Expr guard, bool streaming) {
  append(ir::store(buffer, std::move(index), std::move(value), std::move(guard), streaming));
}

void KernelBuilder::accumulate(const Buffer& buffer, std::vector<Expr> index, Expr value, AccumulateOp op, Expr factor,
                               bool atomic) {
  append(ir::accumulate(buffer, std::move(index), op, std::move(value), std::move(factor), {}, atomic));
}

Loop KernelBuilder::reduce(Reduce node, const std::vector<Bounds>& bounds, const Terms& value, const Terms& factor) {
  std::vector<Expr> at;
  for (const Bounds& b : bounds) {
    node.ranges.push_back({make_var(b.name), b.begin, b.extent});
    at.push_back(var(node.ranges.back().var));
  }
  const Stmt terms = scoped([&] {
    node.value = value(at);
    if (factor) node.factor = factor(at);
  });
  const std::optional<Reduce> whole = with_lets_of(std::move(node), terms);
  if (!whole)
    throw Error(ErrorCode::invalid_argument,
                "KernelBuilder: the terms of a reduction may use lets, but no other statements; one over several "
                "variables is one reduce");
  const Loop handle = whole->ranges.empty() ? 0 : whole->ranges[0].var.id;
  append(ir::reduce(*whole));
  return handle;
}

Loop KernelBuilder::reduce(const Buffer& buffer, std::vector<Expr> index, AccumulateOp op,
                           const std::vector<Bounds>& bounds, const Terms& value, SumOrder order) {
  return reduce({.buffer = buffer, .index = std::move(index), .op = op, .order = order}, bounds, value, {});
}

// The terms' dtype is that of a term at a variable that the reduction does not have.
Expr KernelBuilder::total(AccumulateOp op, Bounds bounds, const Term& value, const Term& factor, SumOrder order) {
  DType dtype{};
  scoped([&] { dtype = dtype_of(value(var(make_var(bounds.name)))); });
  const Buffer all = alloc(bounds.name + "_total", dtype, {1}, {}, Space::registers);
  const auto of_one = [](const Term& term) -> Terms {
    return term ? [term](const std::vector<Expr>& at) { return term(at[0]); } : Terms();
  };
  reduce({.buffer = all, .index = {0}, .op = op, .order = order}, {std::move(bounds)}, of_one(value), of_one(factor));
  return load(all, {0});
}

Expr KernelBuilder::sum(std::string name, Expr begin, Expr extent, const Term& value, SumOrder order) {
  return total(AccumulateOp::add, {std::move(name), std::move(begin), std::move(extent)}, value, {}, order);
}
Expr KernelBuilder::min(std::string name, Expr begin, Expr extent, const Term& value) {
  return total(AccumulateOp::min, {std::move(name), std::move(begin), std::move(extent)}, value, {},
               SumOrder::in_tree());
}
Expr KernelBuilder::max(std::string name, Expr begin, Expr extent, const Term& value) {
  return total(AccumulateOp::max, {std::move(name), std::move(begin), std::move(extent)}, value, {},
               SumOrder::in_tree());
}
Expr KernelBuilder::dot(std::string name, Expr begin, Expr extent, const Term& a, const Term& b, SumOrder order) {
  return total(AccumulateOp::fma, {std::move(name), std::move(begin), std::move(extent)}, a, b, order);
}

void KernelBuilder::if_then(Expr condition, const std::function<void()>& then_case,
                            const std::function<void()>& else_case) {
  Stmt then_stmt = scoped(then_case);
  append(ir::if_then(condition, then_stmt, else_case ? scoped(else_case) : Stmt()));
}

void KernelBuilder::guarded(const Expr& condition, const std::function<void()>& body) {
  condition ? if_then(condition, body) : body();
}

void KernelBuilder::check(Expr condition, Expr position, std::string argument, const std::function<void()>& body) {
  append(ir::check(condition, position, std::move(argument), scoped(body)));
}

void KernelBuilder::prefetch(const Buffer& buffer, std::vector<Expr> index, int level) {
  append(evaluate(ir::prefetch(buffer, std::move(index), level)));
}

void KernelBuilder::append(Stmt stmt) {
  if (stmt) innermost(scopes_).stmts.push_back(std::move(stmt));
}

void KernelBuilder::wrap(std::function<Stmt(Stmt)> wrapper) {
  Scope& scope = innermost(scopes_);
  scope.wrappers.push_back(std::move(wrapper));
  scope.starts.push_back(scope.stmts.size());
}

Stmt KernelBuilder::close() {
  Scope scope = std::move(innermost(scopes_));
  scopes_.pop_back();
  for (size_t i = scope.wrappers.size(); i-- > 0;) {
    std::vector<Stmt> rest(scope.stmts.begin() + scope.starts[i], scope.stmts.end());
    scope.stmts.resize(scope.starts[i]);
    scope.stmts.push_back(scope.wrappers[i](block(std::move(rest))));
  }
  return block(std::move(scope.stmts));
}

Stmt KernelBuilder::scoped(const std::function<void()>& body) {
  scopes_.emplace_back();
  body();
  return close();
}

Kernel KernelBuilder::build() {
  kernel_.body = close();
  return std::move(kernel_);
}

}  // namespace gradloom::ir
