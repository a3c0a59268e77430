#include "ir/differentiate/forward.h"

#include <algorithm>

#include "ir/analysis/verify.h"
#include "ir/reduction.h"
#include "ir/rewrite.h"
#include "ir/wrappers.h"

namespace gradloom::ir {

const char* to_string(Tie tie) {
  static constexpr const char* names[] = {"halves", "first", "second", "none"};
  static_assert(std::size(names) == std::size(all_ties));
  return names[static_cast<size_t>(tie)];
}

bool operator==(const Enclosing& a, const Enclosing& b) { return a.stmt.same_as(b.stmt) && a.otherwise == b.otherwise; }

Stmt with_body(const Enclosing& around, const Stmt& body) {
  return around.otherwise ? if_then(around.stmt.as<If>()->condition, block({}), body) : with_body(around.stmt, body);
}

Expr written_value(const Stmt& s) {
  if (const Store* n = s.as<Store>()) return n->value;
  const Accumulate& n = *s.as<Accumulate>();
  return n.op == AccumulateOp::fma ? n.value * n.factor : n.value;
}

namespace {

Kernel reductions_in_loops(const Kernel& kernel, std::unordered_map<const StmtNode*, Stmt>& reductions) {
  struct InLoops : Rewriter {
    explicit InLoops(std::unordered_map<const StmtNode*, Stmt>& all) : known(all) {}
    using Rewriter::rewrite;
    Stmt rewrite(const Reduce& n, const Stmt& self) override {
      const Stmt loops = in_loops(n);
      const std::vector<Stmt>& parts = loops.as<Block>()->stmts;
      known[parts[0].get()] = self;
      known[parts[1].get()] = {};
      return loops;
    }
    std::unordered_map<const StmtNode*, Stmt>& known;
  };
  return InLoops(reductions)(kernel);
}

}  // namespace

Forward::Forward(const Kernel& kernel, const Derivation& how)
    : kernel_(reductions_in_loops(kernel, reductions_)), how_(how) {
  verify(kernel, Stage::authored);
  for (size_t i = 0; i < how.known.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (how.known[i].buffer.same_as(how.known[j].buffer))
        throw Error(ErrorCode::invalid_argument, "differentiate: kernel " + kernel.name + ": buffer " +
                                                     how.known[i].buffer->name + " is known twice");
  require_form();
  if (kernel_.body) collect(kernel_.body);
  for (size_t i = 0; i < events_.size(); ++i) {
    const Event& e = events_[i];
    by_buffer_[e.buffer->id].push_back(i);
    if (!e.writes()) continue;
    Writes& writes = writes_[e.buffer->id];
    ++writes.count;
    if (e.kind == Event::accumulate && !writes.accumulate) writes.accumulate = e.stmt.as<Accumulate>();
  }
  find_active();
  require_no_bits();
}

std::vector<const Event*> Forward::events_of(const Buffer& b) const {
  std::vector<const Event*> own;
  if (const auto found = by_buffer_.find(b->id); found != by_buffer_.end())
    for (const size_t i : found->second) own.push_back(&events_[i]);
  return own;
}

void Forward::refuse(const std::string& why) const {
  throw DerivationRefusal("differentiate: kernel " + kernel_.name + ": " + why);
}

// All parameters of the name, and all buffers of it that are `allocated`.
std::vector<Buffer> Forward::named(const std::string& name, const char* what, bool allocated) const {
  std::vector<Buffer> found;
  for (const Buffer& b : kernel_.buffers)
    if (b->name == name) found.push_back(b);
  if (allocated)
    walk(kernel_.body, [&](const Stmt& s) {
      if (const Alloc* n = s.as<Alloc>(); n && n->buffer->name == name) found.push_back(n->buffer);
    });
  if (found.empty())
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
  walk(kernel_.body, [&](const Stmt& s) {
    if (const Accumulate* n = s.as<Accumulate>(); n && n->atomic)
      refuse("an atomic accumulate into " + n->buffer->name + " has no derivative: write it without");
  });
  const auto invalid = [&](const std::string& what) {
    throw Error(ErrorCode::invalid_argument, "differentiate: kernel " + kernel_.name + ": " + what);
  };
  if (how_.wanted.empty()) invalid("no input is wanted");
  for (const std::string& name : how_.wanted) {
    const Buffer b = named(name, "wanted input", false)[0];
    if (b->role != Role::in) invalid("got wanted " + name + ", which is not an input");
    if (!is_float(b->dtype))
      invalid("got wanted " + name + ", which is " + to_string(b->dtype) + "; only floats have a gradient");
  }
  for (const std::string& name : how_.inactive) named(name, "inactive buffer", true);
  if (how_.kept)
    for (const std::string& name : *how_.kept) named(name, "kept input or output", false);
  if (how_.seeded)
    for (const std::string& name : *how_.seeded)
      if (named(name, "seeded output", false)[0]->role != Role::out)
        invalid("got seeded " + name + ", which is not an output");
  std::unordered_set<std::string> taken;
  for (const Scalar& s : kernel_.scalars) taken.insert(s.var.name);
  for (const Buffer& b : kernel_.buffers) taken.insert(b->name);
  for (const Buffer& b : kernel_.buffers) {
    const bool wanted = std::find(how_.wanted.begin(), how_.wanted.end(), b->name) != how_.wanted.end();
    if (taken.contains("d_" + b->name) && is_float(b->dtype) && (wanted || (b->role == Role::out && is_seeded(b))))
      refuse("the name d_" + b->name + " is taken, which the adjoint of " + b->name + " gets: rename it");
  }
}

bool Forward::is_kept(const Buffer& b) const {
  if (b->role == Role::temp) return false;
  return !how_.kept || std::find(how_.kept->begin(), how_.kept->end(), b->name) != how_.kept->end();
}

bool Forward::is_seeded(const Buffer& b) const {
  return !how_.seeded || std::find(how_.seeded->begin(), how_.seeded->end(), b->name) != how_.seeded->end();
}

const Forward::Writes& Forward::writes_of(const Buffer& b) const {
  static const Writes none;
  const auto found = writes_.find(b->id);
  return found == writes_.end() ? none : found->second;
}

std::vector<const Place*> path(const Place* innermost) {
  std::vector<const Place*> all(depth_of(innermost));
  for (const Place* p = innermost; p; p = p->up) all[p->depth - 1] = p;
  return all;
}

const Forward::Definition* Forward::definition(int64_t var_id) const {
  const auto found = lets_.find(var_id);
  return found == lets_.end() ? nullptr : &found->second;
}

const Expr* Forward::let_value(int64_t var_id) const {
  const Definition* found = definition(var_id);
  return found ? &found->let.as<Let>()->value : nullptr;
}

const Place* Forward::place_of_alloc(const Buffer& b) const { return allocs_.at(b->id); }

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
      events_.push_back({Event::read, n->buffer, n->index, n->guard, place_, current_,
                         carrying.contains(x.get()) && is_float(n->buffer->dtype)});
  });
}

void Forward::collect(const Stmt& s) {
  const auto below = [&](const Stmt& body, bool otherwise = false) {
    if (!body) return;
    const Place* const outer = place_;
    place_ = &places_.emplace_back(Place{{s, otherwise}, outer, depth_of(outer) + 1});
    collect(body);
    place_ = outer;
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
    lets_[n->var.id] = {s, place_, lets_.size()};
    if (n->body) collect(n->body);
  } else if (const Alloc* n = s.as<Alloc>()) {
    allocs_[n->buffer->id] = place_;
    if (n->body) collect(n->body);
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
    events_.push_back({Event::store, n->buffer, n->index, n->guard, place_, s, false});
  } else if (const Accumulate* n = s.as<Accumulate>()) {
    reads(n->index), reads({n->guard});
    collect_reads(n->value, true), collect_reads(n->factor, true);
    events_.push_back({Event::accumulate, n->buffer, n->index, n->guard, place_, s, false});
  }
}

bool Forward::is_active(const Expr& e) const {
  if (const auto found = active_values_.find(e.get()); found != active_values_.end()) return found->second;
  const Load* n = e.as<Load>();
  bool active = n && is_active(n->buffer);
  if (!active) each_operand(e, [&](const Expr& x) { active = active || is_active(x); });
  held_.push_back(e);
  return active_values_[e.get()] = active;
}

bool Forward::is_reached(const Expr& e) const {
  const Load* n = e.as<Load>();
  bool found = n && reached_.contains(n->buffer->id);
  each_operand(e, [&](const Expr& x) { found = found || is_reached(x); });
  return found;
}

// Integers that hold bits of floats that a wanted input reaches: what comes of them as a float again would have a
// derivative.
void Forward::require_no_bits() const {
  std::unordered_set<int64_t> lets, buffers;
  const auto holds_bits = [&](const Expr& e) {
    return any_of(e, [&](const Expr& x) {
      if (const Bitcast* n = x.as<Bitcast>()) return is_float(n->value.dtype()) && is_reached(n->value);
      if (const Var* n = x.as<Var>()) return lets.contains(n->id);
      const Load* n = x.as<Load>();
      return n && buffers.contains(n->buffer->id);
    });
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& [id, definition] : lets_)
      if (const Expr& value = definition.let.as<Let>()->value; !is_float(value.dtype()) && holds_bits(value))
        changed |= lets.insert(id).second;
    for (const Event& e : events_)
      if (e.writes() && !is_float(e.buffer->dtype) && holds_bits(written_value(e.stmt)))
        changed |= buffers.insert(e.buffer->id).second;
  }
  const auto require_none = [&](const Expr& e) {
    walk(e, [&](const Expr& x) {
      const Expr* from = x.as<Bitcast>() ? &x.as<Bitcast>()->value : x.as<Cast>() ? &x.as<Cast>()->value : nullptr;
      if (from && is_float(x.dtype()) && !is_float(from->dtype()) && holds_bits(*from))
        refuse("a bitcast of an active value has no derivative: name its buffer inactive, or write it by arithmetic");
    });
  };
  for (const auto& [id, definition] : lets_) require_none(definition.let.as<Let>()->value);
  for (const Event& e : events_)
    if (e.writes()) require_none(written_value(e.stmt));
}

// Active: reached from a wanted input, and reaching an output.
void Forward::find_active() {
  std::unordered_set<int64_t> never, reached, reaching;
  for (const std::string& name : how_.inactive)
    for (const Buffer& b : named(name, "inactive buffer", true)) never.insert(b->id);
  // The writes of floats, with the floats that the written values read.
  std::vector<std::pair<int64_t, std::vector<int64_t>>> writes;
  for (const Event& e : events_) {
    if (!e.writes() || !is_float(e.buffer->dtype) || never.contains(e.buffer->id)) continue;
    std::vector<int64_t>& from = writes.emplace_back(e.buffer->id, std::vector<int64_t>()).second;
    std::unordered_set<const ExprNode*> seen;
    const std::function<void(const Expr&)> search = [&](const Expr& x) {
      if (!seen.insert(x.get()).second) return;
      if (const Load* n = x.as<Load>(); n && is_float(n->buffer->dtype) && !never.contains(n->buffer->id))
        from.push_back(n->buffer->id);
      each_operand(x, search);
    };
    search(written_value(e.stmt));
  }
  for (const std::string& name : how_.wanted) reached.insert(named(name, "wanted input", false)[0]->id);
  for (const Buffer& b : kernel_.buffers)
    if (b->role == Role::out && is_float(b->dtype) && is_seeded(b) && !never.contains(b->id)) reaching.insert(b->id);
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& [to, from] : writes)
      if (std::any_of(from.begin(), from.end(), [&](int64_t id) { return reached.contains(id); }))
        changed |= reached.insert(to).second;
    for (size_t i = writes.size(); i-- > 0;)  // a chain of values in one round
      if (reaching.contains(writes[i].first))
        for (const int64_t id : writes[i].second) changed |= reaching.insert(id).second;
  }
  reached_ = reached;
  for (const int64_t id : reached)
    if (reaching.contains(id)) active_.insert(id);
}

}  // namespace gradloom::ir
