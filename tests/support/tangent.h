#pragma once
// A second opinion on gradients: the forward mode, by rules of its own that share nothing with ir/differentiate. Also
// kernels of any floats as kernels of f64, in which rounding does not hide an error.
#include <functional>
#include <set>
#include <string>
#include <unordered_map>

#include "gradloom/builder.h"
#include "ir/reduction.h"
#include "ir/rewrite.h"

namespace gradloom::ir::testing {

struct Widen : Rewriter {
  using Rewriter::rewrite;
  static DType wide(DType t) { return is_float(t) ? DType::f64 : t; }
  Buffer buffer(const Buffer& b) override {
    auto [slot, fresh] = buffers.try_emplace(b->id);
    if (fresh) {
      BufferNode node = *b;
      node.dtype = wide(b->dtype);
      if (is_float(b->dtype)) node.facts.min = node.facts.max = {};
      slot->second = make_buffer(std::move(node));
    }
    return slot->second;
  }
  Expr rewrite(const Const& n, const Expr& self) override {
    if (!is_float(self.dtype())) return self;
    return constant(DType::f64, double_from_bits(self.dtype(), n.bits));
  }
  Expr rewrite(const Var& n, const Expr& self) override {
    if (!is_float(n.type.dtype)) return self;
    return var({n.id, n.name, {DType::f64, 1}});
  }
  Expr rewrite(const Cast& n, const Expr& self) override { return cast(wide(self.dtype()), (*this)(n.value)); }
  Stmt rewrite(const Let& n, const Stmt&) override {
    const Expr value = (*this)(n.value);
    return let({n.var.id, n.var.name, value.type()}, value, (*this)(n.body));
  }
  std::unordered_map<int64_t, Buffer> buffers;
};

// Reductions become loops: the order of a sum is none of its derivative.
inline Kernel widened(const Kernel& given) {
  struct InLoops : Rewriter {
    using Rewriter::rewrite;
    Stmt rewrite(const Reduce& n, const Stmt&) override { return in_loops(n); }
  };
  const Kernel kernel = InLoops()(given);
  Widen widen;
  Kernel result = kernel;
  for (Buffer& b : result.buffers) b = widen.buffer(b);
  result.body = widen(kernel.body);
  return result;
}

// The nest of f64 that computes the outputs and their tangents t_y from the tangents t_x of these inputs.
class Tangent {
 public:
  explicit Tangent(std::set<std::string> of) : of_(std::move(of)) {}

  Kernel operator()(const Kernel& forward) {
    Kernel result = forward;
    result.name += "_tangent";
    for (const Buffer& b : forward.buffers)
      if (is_float(b->dtype) && (b->role == Role::out || of_.contains(b->name))) result.buffers.push_back(own(b));
    result.body = stmt(forward.body);
    return result;
  }

 private:
  Buffer own(const Buffer& b) {
    BufferNode node = *b;
    node.id = 0, node.name = "t_" + b->name;
    return buffers_[b->id] = make_buffer(std::move(node));
  }
  static Expr sum(const Expr& a, const Expr& b) { return a && b ? a + b : a ? a : b; }
  static Expr times(const Expr& tangent, const std::function<Expr()>& factor) {
    return tangent ? tangent * factor() : Expr();
  }
  static Expr or_zero(const Expr& tangent) { return tangent ? tangent : constant(DType::f64, 0); }
  static Expr number(double value) { return constant(DType::f64, value); }

  // Absent: zero.
  Expr of(const Expr& e) {
    if (!is_float(e.dtype())) return {};
    if (const Load* n = e.as<Load>()) {
      const auto found = buffers_.find(n->buffer->id);
      const Expr other = n->guard ? of(n->otherwise) : Expr();
      if (found == buffers_.end()) return other ? select(n->guard, number(0), other) : Expr();
      return n->guard ? load(found->second, n->index, n->guard, or_zero(other)) : load(found->second, n->index);
    }
    if (const Var* n = e.as<Var>()) {
      const auto found = lets_.find(n->id);
      return found == lets_.end() ? Expr() : found->second;
    }
    if (const Cast* n = e.as<Cast>()) return of(n->value);
    if (const Select* n = e.as<Select>()) {
      const Expr a = of(n->a), b = of(n->b);
      return a || b ? select(n->condition, or_zero(a), or_zero(b)) : Expr();
    }
    if (const Fma* n = e.as<Fma>())
      return sum(sum(times(of(n->a), [&] { return n->b; }), times(of(n->b), [&] { return n->a; })), of(n->c));
    if (const Unary* n = e.as<Unary>()) return of(*n, e);
    if (const Binary* n = e.as<Binary>()) return of(*n, e);
    if (const Math* n = e.as<Math>()) return times(of(n->a), [&] { return slope(*n, e); });
    return {};
  }
  Expr of(const Unary& n, const Expr& e) {
    const Expr t = of(n.a);
    if (!t) return {};
    if (n.op == UnaryOp::neg) return number(0) - t;
    if (n.op == UnaryOp::sqrt) return t * (number(0.5) / e);
    if (n.op == UnaryOp::abs) return select(n.a < 0, number(0) - t, t);
    return {};  // steps
  }
  Expr of(const Binary& n, const Expr& e) {
    const Expr a = of(n.a), b = of(n.b);
    if (!a && !b) return {};
    switch (n.op) {
      case BinaryOp::add:
        return sum(a, b);
      case BinaryOp::sub:
        return b ? or_zero(a) - b : a;
      case BinaryOp::mul:
        return sum(times(a, [&] { return n.b; }), times(b, [&] { return n.a; }));
      case BinaryOp::div:
        return (or_zero(a) - (b ? e * b : number(0))) / n.b;
      case BinaryOp::min:
        return select(n.a < n.b, or_zero(a), or_zero(b));
      case BinaryOp::max:
        return select(n.a > n.b, or_zero(a), or_zero(b));
      default:
        return {};
    }
  }
  static Expr square(const Expr& e) { return e * e; }
  static Expr slope(const Math& n, const Expr& y) {
    switch (n.op) {
      case MathOp::exp:
        return y;
      case MathOp::expm1:
        return math(MathOp::exp, n.a);
      case MathOp::log:
        return number(1) / n.a;
      case MathOp::log1p:
        return number(1) / (number(1) + n.a);
      case MathOp::tanh: {
        const Expr e = math(MathOp::exp, n.a), inverse = math(MathOp::exp, number(0) - n.a);
        return number(4) / ((e + inverse) * (e + inverse));
      }
      case MathOp::logistic: {
        const Expr e = math(MathOp::exp, number(0) - unary(UnaryOp::abs, n.a));
        return e / ((number(1) + e) * (number(1) + e));
      }
      case MathOp::softplus:
        return number(1) / (number(1) + math(MathOp::exp, number(0) - n.a));
      case MathOp::erf:
        return number(1.1283791670955126) / math(MathOp::exp, n.a * n.a);
      case MathOp::sin:
        return number(1) - number(2) * square(math(MathOp::sin, n.a * number(0.5)));
      case MathOp::cos:
        return number(-2) * math(MathOp::sin, n.a * number(0.5)) * math(MathOp::cos, n.a * number(0.5));
      case MathOp::pow:  // of no 0 where the exponent is below 1
        if (n.exponent == 0) return number(0);
        return select(n.a == number(0), number(n.exponent == 1), number(n.exponent) * (y / n.a));
    }
    return {};
  }

  Stmt stmt(const Stmt& s) {
    if (!s) return s;
    if (const Block* n = s.as<Block>()) {
      std::vector<Stmt> parts;
      for (const Stmt& part : n->stmts) parts.push_back(stmt(part));
      return block(std::move(parts));
    }
    if (const For* n = s.as<For>()) return for_loop(n->var, n->begin, n->extent, n->kind, stmt(n->body));
    if (const If* n = s.as<If>()) return if_then(n->condition, stmt(n->then_case), stmt(n->else_case));
    if (const Check* n = s.as<Check>()) return check(n->condition, n->position, n->argument, stmt(n->body));
    if (const Alloc* n = s.as<Alloc>()) {
      if (!is_float(n->buffer->dtype)) return alloc(n->buffer, stmt(n->body));
      const Buffer t = own(n->buffer);
      return alloc(n->buffer, alloc(t, stmt(n->body)));
    }
    if (const Let* n = s.as<Let>()) {
      const Expr t = of(n->value);
      if (!t) return let(n->var, n->value, stmt(n->body));
      const Var v = make_var("t_" + n->var.name, {DType::f64, 1});
      lets_[n->var.id] = var(v);
      return let(v, t, let(n->var, n->value, stmt(n->body)));
    }
    if (const Store* n = s.as<Store>(); n && is_float(n->buffer->dtype))
      return block({store(buffers_.at(n->buffer->id), n->index, or_zero(of(n->value)), n->guard), s});
    if (const Accumulate* n = s.as<Accumulate>(); n && is_float(n->buffer->dtype)) return accumulated(*n, s);
    return s;
  }
  Stmt accumulated(const Accumulate& n, const Stmt& s) {
    const Buffer& t = buffers_.at(n.buffer->id);
    if (n.op == AccumulateOp::min || n.op == AccumulateOp::max) {
      const Expr old = load(n.buffer, n.index), better = n.op == AccumulateOp::max ? n.value > old : n.value < old;
      const Stmt stored = if_then(better, store(t, n.index, or_zero(of(n.value))));
      return block({n.guard ? if_then(n.guard, stored) : stored, s});
    }
    if (n.op == AccumulateOp::mul) {
      const Expr product = load(t, n.index) * n.value, own = of(n.value);
      const Expr tangent = own ? product + load(n.buffer, n.index) * own : product;
      return block({store(t, n.index, tangent, n.guard), s});
    }
    const Expr value = n.op == AccumulateOp::fma ? n.value * n.factor : n.value;
    return block({accumulate(t, n.index, AccumulateOp::add, or_zero(of(value)), {}, n.guard), s});
  }

  const std::set<std::string> of_;
  std::unordered_map<int64_t, Buffer> buffers_;  // tangents, by the buffer that they are of
  std::unordered_map<int64_t, Expr> lets_;
};

}  // namespace gradloom::ir::testing
