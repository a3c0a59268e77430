#include "ops/patterns/derived_nest.h"

#include <algorithm>
#include <unordered_set>

#include "ir/differentiate/adjoint_last.h"
#include "ir/index_math.h"
#include "ir/redirect.h"

namespace gradloom {
namespace {

using ir::Buffer;
using ir::Expr;

// Adds what is stored, in the accumulation dtype, to what was there.
class AddToOld : public ir::Rewriter {
 public:
  AddToOld(std::vector<Buffer> outputs, DerivedNest::Added added)
      : outputs_(std::move(outputs)), added_(std::move(added)) {}

 private:
  using ir::Rewriter::rewrite;
  bool is_output(const Buffer& b) const {
    return std::any_of(outputs_.begin(), outputs_.end(), [&](const Buffer& o) { return o.same_as(b); });
  }
  Expr sum(const Buffer& to, const std::vector<Expr>& index, const Expr& value) const {
    const DType wide = accumulator_of(to->dtype);
    const ir::Cast* rounded = value.as<ir::Cast>();
    const Expr exact = rounded && rounded->value.dtype() == wide ? rounded->value : ir::cast(wide, value);
    return added_(ir::load(to, index), exact);
  }
  static bool is_zero(const Expr& e) { return ir::equal(e, ir::zero(e.type())); }
  ir::Stmt rewrite(const ir::Store& n, const ir::Stmt& self) override {
    if (!is_output(n.buffer)) return self;
    const Expr value = sum(n.buffer, n.index, n.value);
    const bool adds = ir::any_of(value, [&](const Expr& e) {
      const ir::Load* l = e.as<ir::Load>();
      return l && l->buffer.same_as(n.buffer);
    });
    if (!adds) return ir::store(n.buffer, n.index, value, n.guard);
    // No element is written that nothing is added to: -0 stays -0.
    Expr part = n.value;
    while (const ir::Cast* c = part.as<ir::Cast>()) part = c->value;
    if (is_zero(part)) return ir::block({});
    const ir::Load* load = part.as<ir::Load>();
    const Expr has_part = load && load->guard && is_zero(load->otherwise) ? load->guard : Expr();
    return ir::store(n.buffer, n.index, value, ir::both(n.guard, has_part));
  }
  ir::Stmt rewrite(const ir::Reduce& n, const ir::Stmt& self) override {
    if (!is_output(n.buffer)) return self;
    const Buffer total =
        ir::make_buffer({.name = "total", .dtype = n.buffer->dtype, .dims = {1}, .space = ir::Space::registers});
    ir::Reduce to_total = n;
    to_total.buffer = total, to_total.index = {0};
    const Expr added = sum(n.buffer, n.index, ir::load(total, {0}));
    return ir::alloc(total, ir::block({ir::reduce(std::move(to_total)), ir::store(n.buffer, n.index, added)}));
  }
  const std::vector<Buffer> outputs_;
  const DerivedNest::Added added_;
};

// Elements that are moved, as those of another dtype.
class Retype : public ir::Rewriter {
 public:
  explicit Retype(const ir::Redirections& buffers) : buffers_(buffers) {}

 private:
  using ir::Rewriter::rewrite;
  Buffer buffer(const Buffer& b) override {
    const auto found = buffers_.find(b->id);
    return found == buffers_.end() ? b : found->second.to;
  }
  Expr rewrite(const ir::Const&, const Expr& self) override {
    return is_float(self.dtype()) ? ir::zero({buffers_.begin()->second.to->dtype, 1}) : self;
  }
  const ir::Redirections& buffers_;
};

}  // namespace

Expr sum_of(const Expr& element, const Expr& total) {
  return ir::cast(element.dtype(), ir::cast(total.dtype(), element) + total);
}

Expr total_of(const Expr& element, const Expr& total) {
  const ir::Cast* widened = total.as<ir::Cast>();
  return widened && widened->value.dtype() == element.dtype() ? widened->value : ir::cast(element.dtype(), total);
}

Expr DerivedNest::dim(const Expr& extent) {
  if (!ir::is_const(extent, 1)) return extent;
  const ir::Var one = ir::make_var("one");
  ones_[one.id] = extent;
  return ir::var(one);
}

std::vector<Expr> DerivedNest::dims(const std::vector<Expr>& extents) {
  std::vector<Expr> result;
  for (const Expr& e : extents) result.push_back(dim(e));
  return result;
}

void DerivedNest::scalar(const Expr& variable, const Expr& min, const Expr& max) {
  if (const ir::Var* v = variable.as<ir::Var>()) scalars_.push_back({*v, min, max});
}

ir::Stmt DerivedNest::gradient(const ir::Derivation& how, const Views& views, const Added& added) {
  ir::Kernel nest = forward.build();
  std::unordered_set<int64_t> known;
  for (const ir::Scalar& s : scalars_) known.insert(s.var.id);
  for (const Buffer& b : nest.buffers)
    for (const Expr& d : b->dims)
      ir::walk(d, [&](const Expr& e) {
        if (const ir::Var* v = e.as<ir::Var>(); v && known.insert(v->id).second)
          nest.scalars.push_back({*v, least_, most_});
      });
  nest.scalars.insert(nest.scalars.end(), scalars_.begin(), scalars_.end());  // their ranges may mention dims
  const ir::Kernel gradient = ir::differentiate(nest, how);
  ir::Redirections to;
  std::vector<Buffer> outputs, adjoints;
  bool moved = false;
  for (const Buffer& b : gradient.buffers) {
    const auto view = views.find(b->name);
    if (view == views.end()) throw Error(ErrorCode::internal, nest.name + ": its gradient has a parameter " + b->name);
    to[b->id] = {.to = view->second};
    moved |= b->dtype != view->second->dtype;
    if (b->role == ir::Role::out) outputs.push_back(view->second);
    if (b->role == ir::Role::in && b->name.starts_with("d_")) adjoints.push_back(b);
  }
  const ir::Stmt derived = ir::adjoint_last(gradient.body, adjoints);
  const ir::Stmt body = ir::substitute(moved ? Retype(to)(derived) : ir::redirect(derived, to), ones_);
  return added ? AddToOld(std::move(outputs), added)(body) : body;
}

}  // namespace gradloom
