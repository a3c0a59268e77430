#include "ir/differentiate/forward.h"

#include <algorithm>

#include "ir/analysis/verify.h"
#include "ir/rewrite.h"

namespace gradloom::ir {

const char* to_string(Tie tie) {
  static constexpr const char* names[] = {"halves", "first", "second", "none"};
  static_assert(std::size(names) == std::size(all_ties));
  return names[static_cast<size_t>(tie)];
}

bool operator==(const Enclosing& a, const Enclosing& b) { return a.stmt.same_as(b.stmt) && a.otherwise == b.otherwise; }

Expr written_value(const Stmt& s) {
  if (const Store* n = s.as<Store>()) return n->value;
  const Accumulate& n = *s.as<Accumulate>();
  return n.op == AccumulateOp::fma ? n.value * n.factor : n.value;
}

Forward::Forward(const Kernel& kernel, const Derivation& how) : kernel_(kernel), how_(how) {
  verify(kernel, Stage::authored);
  require_form();
  if (kernel.body) collect(kernel.body);
  find_active();
}

void Forward::refuse(const std::string& why) const {
  throw DerivationRefusal("differentiate: kernel " + kernel_.name + ": " + why);
}

Buffer Forward::named(const std::string& name, const char* what) const {
  Buffer found;
  for (const Buffer& b : kernel_.buffers)
    if (b->name == name) found = b;
  walk(kernel_.body, [&](const Stmt& s) {
    if (const Alloc* n = s.as<Alloc>(); n && n->buffer->name == name) found = n->buffer;
  });
  if (!found)
    throw Error(ErrorCode::invalid_argument,
                "differentiate: kernel " + kernel_.name + ": got " + what + " " + name + ", which it does not have");
  return found;
}

void Forward::require_form() const {
  for (const Buffer& b : kernel_.buffers)
    if (b->role == Role::inout)
      refuse("buffer " + b->name +
             " is inout: its first contents would be needed after they are overwritten; make it " +
             "an input and an output");
  walk(
      kernel_.body,
      [&](const Stmt& s) {
        if (s.as<Barrier>()) refuse("a barrier has no derivative");
        if (const Accumulate* n = s.as<Accumulate>(); n && n->atomic)
          refuse("an atomic accumulate into " + n->buffer->name + " has no derivative: write it without");
      },
      [&](const Expr& e) {
        if (e.lanes() > 1) refuse("vectors have no derivative: write the nest with scalars, and schedule its gradient");
      });
  std::unordered_set<std::string> taken;
  for (const Scalar& s : kernel_.scalars) taken.insert(s.var.name);
  for (const Buffer& b : kernel_.buffers) taken.insert(b->name);
  for (const Buffer& b : kernel_.buffers)
    if (taken.contains("d_" + b->name) && is_float(b->dtype))
      refuse("the name d_" + b->name + " is taken, which the adjoint of " + b->name + " gets: rename it");
  if (how_.wanted.empty())
    throw Error(ErrorCode::invalid_argument, "differentiate: kernel " + kernel_.name + ": no input is wanted");
  for (const std::string& name : how_.wanted) {
    const Buffer b = named(name, "wanted input");
    if (b->role != Role::in)
      throw Error(ErrorCode::invalid_argument,
                  "differentiate: kernel " + kernel_.name + ": got wanted " + name + ", which is not an input");
    if (!is_float(b->dtype))
      throw Error(ErrorCode::invalid_argument, "differentiate: kernel " + kernel_.name + ": got wanted " + name +
                                                   ", which is " + to_string(b->dtype) +
                                                   "; only floats have a gradient");
  }
  for (const std::string& name : how_.inactive) named(name, "inactive buffer");
  if (how_.kept)
    for (const std::string& name : *how_.kept)
      if (named(name, "kept buffer")->role == Role::temp)
        throw Error(ErrorCode::invalid_argument, "differentiate: kernel " + kernel_.name + ": got kept " + name +
                                                     ", which is neither an input nor an output");
}

bool Forward::is_kept(const Buffer& b) const {
  if (b->role == Role::temp) return false;
  return !how_.kept || std::find(how_.kept->begin(), how_.kept->end(), b->name) != how_.kept->end();
}

const Expr* Forward::let_value(int64_t var_id) const {
  const auto found = lets_.find(var_id);
  return found == lets_.end() ? nullptr : &found->second;
}

void Forward::each_operand(const Expr& e, const std::function<void(const Expr&)>& visit) const {
  if (!is_float(e.dtype())) return;
  if (const Var* n = e.as<Var>()) {
    if (const Expr* value = let_value(n->id)) visit(*value);
  } else if (const Load* n = e.as<Load>()) {
    if (n->guard) visit(n->otherwise);
  } else if (const Unary* n = e.as<Unary>()) {
    if (n->op == UnaryOp::neg || n->op == UnaryOp::abs || n->op == UnaryOp::sqrt) visit(n->a);
  } else if (const Binary* n = e.as<Binary>()) {
    visit(n->a), visit(n->b);
  } else if (const Fma* n = e.as<Fma>()) {
    visit(n->a), visit(n->b), visit(n->c);
  } else if (const Select* n = e.as<Select>()) {
    visit(n->a), visit(n->b);
  } else if (const Cast* n = e.as<Cast>()) {
    if (is_float(n->value.dtype())) visit(n->value);
  } else if (const Math* n = e.as<Math>()) {
    visit(n->a);
  } else if (const Bitcast* n = e.as<Bitcast>()) {
    // Has no rule, and is refused where bits of an active float reach it, through integers too.
    walk(n->value, [&](const Expr& x) {
      if (is_float(x.dtype()) && (x.as<Load>() || x.as<Var>())) visit(x);
    });
  }
}

void Forward::collect_reads(const Expr& e, bool carries) {
  if (!e) return;
  std::unordered_set<const ExprNode*> carrying;
  const std::function<void(const Expr&)> mark = [&](const Expr& x) {
    if (!carrying.insert(x.get()).second) return;
    if (!x.as<Var>()) each_operand(x, mark);  // a let's reads are events of the let
  };
  if (carries) mark(e);
  walk(e, [&](const Expr& x) {
    const Load* n = x.as<Load>();
    if (n)
      events_.push_back({Event::read, n->buffer, n->index, n->guard, path_, current_,
                         carrying.contains(x.get()) && is_float(n->buffer->dtype)});
  });
}

void Forward::collect(const Stmt& s) {
  const auto below = [&](const Stmt& body, bool otherwise = false) {
    if (!body) return;
    path_.push_back({s, otherwise});
    collect(body);
    path_.pop_back();
  };
  current_ = s;
  const auto reads = [&](const std::vector<Expr>& list) {
    for (const Expr& e : list) collect_reads(e, false);
  };
  if (const Block* n = s.as<Block>()) {
    for (const Stmt& part : n->stmts) collect(part);
  } else if (const For* n = s.as<For>()) {
    reads({n->begin, n->extent});
    below(n->body);
  } else if (const Let* n = s.as<Let>()) {
    collect_reads(n->value, true);
    lets_[n->var.id] = n->value;
    below(n->body);
  } else if (const Alloc* n = s.as<Alloc>()) {
    below(n->body);
  } else if (const If* n = s.as<If>()) {
    reads({n->condition});
    below(n->then_case);
    below(n->else_case, true);
  } else if (const Check* n = s.as<Check>()) {
    reads({n->condition, n->position});
    below(n->body);
  } else if (const Store* n = s.as<Store>()) {
    reads(n->index), reads({n->guard});
    collect_reads(n->value, true);
    events_.push_back({Event::store, n->buffer, n->index, n->guard, path_, s, false});
  } else if (const Accumulate* n = s.as<Accumulate>()) {
    reads(n->index), reads({n->guard});
    collect_reads(n->value, true), collect_reads(n->factor, true);
    events_.push_back({Event::accumulate, n->buffer, n->index, n->guard, path_, s, false});
  }
}

bool Forward::is_active(const Expr& e) const {
  std::unordered_set<const ExprNode*> seen;
  bool found = false;
  const std::function<void(const Expr&)> search = [&](const Expr& x) {
    if (found || !seen.insert(x.get()).second) return;
    const Load* n = x.as<Load>();
    found = n && is_active(n->buffer);
    each_operand(x, search);
  };
  search(e);
  return found;
}

// Active: reached from a wanted input, and reaching an output.
void Forward::find_active() {
  std::unordered_set<int64_t> never, reached, reaching;
  for (const std::string& name : how_.inactive) never.insert(named(name, "inactive buffer")->id);
  const auto loads_of = [&](const Stmt& s, const std::function<void(const Buffer&)>& visit) {
    std::unordered_set<const ExprNode*> seen;
    const std::function<void(const Expr&)> search = [&](const Expr& x) {
      if (!seen.insert(x.get()).second) return;
      if (const Load* n = x.as<Load>(); n && is_float(n->buffer->dtype) && !never.contains(n->buffer->id))
        visit(n->buffer);
      each_operand(x, search);
    };
    search(written_value(s));
  };
  for (const std::string& name : how_.wanted) reached.insert(named(name, "wanted input")->id);
  for (const Buffer& b : kernel_.buffers)
    if (b->role == Role::out && is_float(b->dtype) && !never.contains(b->id)) reaching.insert(b->id);
  for (bool changed = true; changed;) {
    changed = false;
    for (const Event& e : events_) {
      if (!e.writes() || !is_float(e.buffer->dtype) || never.contains(e.buffer->id)) continue;
      loads_of(e.stmt, [&](const Buffer& b) {
        if (reached.contains(b->id)) changed |= reached.insert(e.buffer->id).second;
        if (reaching.contains(e.buffer->id)) changed |= reaching.insert(b->id).second;
      });
    }
  }
  for (const int64_t id : reached)
    if (reaching.contains(id)) active_.insert(id);
}

}  // namespace gradloom::ir
