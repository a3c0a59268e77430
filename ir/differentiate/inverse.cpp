#include "ir/differentiate/inverse.h"

#include <algorithm>
#include <limits>

#include "ir/analysis/linear.h"
#include "ir/index_math.h"

namespace gradloom::ir {
namespace {

// Index arithmetic with divisions resolved, modulo 2^64: what floor_div and floor_mod make of multiples of the divisor,
// of remainders that are known to be in range, and of remainders of remainders.
class Quotients {
 public:
  explicit Quotients(const Ranges& scope) : scope_(scope) {}

  bool proves(const Expr& condition) const {
    const Binary* n = condition.as<Binary>();
    if (!n || !is_int(n->a.dtype())) return scope_.proves(condition).value_or(false);
    const Linear a = resolved(n->a), b = resolved(n->b);
    if (n->op == BinaryOp::eq && same(a, b)) return true;
    return scope_.proves(condition).value_or(false) ||
           scope_.proves(binary(n->op, to_expr(a), to_expr(b))).value_or(false);
  }

 private:
  Linear resolved(const Expr& e) const {
    const Linear l = scope_.expand(e);
    Linear out;
    out.constant = l.constant;
    for (const auto& [term, coefficient] : l.terms) {
      const Binary* n = term.as<Binary>();
      if (n && n->op == BinaryOp::floor_div && is_exact(*n, coefficient))
        out.add(resolved(n->a), coefficient / *as_int(n->b));
      else if (n && (n->op == BinaryOp::floor_div || n->op == BinaryOp::floor_mod))
        out.add(division(*n, term), coefficient);
      else
        out.add(term, coefficient);
    }
    return out;
  }
  // Whether coefficient * floor_div(a, s) is coefficient / s * a: s divides both.
  bool is_exact(const Binary& n, int64_t coefficient) const {
    const std::optional<int64_t> s = as_int(n.b);
    return s && *s > 0 && coefficient % *s == 0 && is_multiple(n.a, n.b);
  }
  bool is_multiple(const Expr& a, const Expr& s) const { return scope_.proves(floor_mod(a, s) == 0).value_or(false); }

  Linear division(const Binary& n, const Expr& self) const {
    const Linear a = without_inner_mods(resolved(n.a), n.b);
    if (!scope_.fits(a)) return single_term(self);
    const std::optional<int64_t> s = as_int(n.b);
    if (!s || *s < 1) {
      const Expr value = to_expr(a);
      const bool inside = scope_.proves(value >= 0).value_or(false) && scope_.proves(value < n.b).value_or(false);
      return n.op == BinaryOp::floor_mod && inside ? a : single_term(self);
    }
    Linear whole, rest;  // a = s * whole + rest
    rest.constant = (a.constant % *s + *s) % *s;
    whole.constant = (a.constant - rest.constant) / *s;
    for (const auto& [term, c] : a.terms)
      if (c % *s == 0)
        whole.add(term, c / *s);
      else
        rest.add(term, c);
    if (scope_.within(rest, 0, *s - 1)) return n.op == BinaryOp::floor_div ? whole : rest;
    return n.op == BinaryOp::floor_mod && is_multiple(n.a, n.b) ? Linear() : single_term(self);
  }

  // In a dividend of n, floor_mod(x, n) counts as x.
  Linear without_inner_mods(const Linear& l, const Expr& divisor) const {
    Linear out;
    out.constant = l.constant;
    for (const auto& [term, coefficient] : l.terms) {
      const Binary* n = term.as<Binary>();
      if (n && n->op == BinaryOp::floor_mod && equal(n->b, divisor))
        out.add(resolved(n->a), coefficient);
      else
        out.add(term, coefficient);
    }
    return scope_.fits(l) && scope_.fits(out) ? out : l;
  }

  const Ranges& scope_;
};

class Solver {
 public:
  Solver(const std::vector<const For*>& loops, const std::vector<Expr>& index, const std::vector<Expr>& at,
         const Ranges& known)
      : loops_(loops), index_(index), at_(at), known_(known), inside_(known) {
    for (const For* f : loops) inside_.enter(*f);
    for (const For* f : loops)
      if (std::any_of(index.begin(), index.end(), [&](const Expr& i) { return mentions(i, f->var.id); }))
        unsolved_.push_back(f);
  }

  std::optional<Inverse> run() {
    used_.resize(index_.size());
    while (std::find(used_.begin(), used_.end(), false) != used_.end()) {
      bool progress = false;
      for (size_t d = 0; d < index_.size(); ++d)
        if (!used_[d] && solve(d)) used_[d] = progress = true;
      if (failed_) return std::nullopt;
      if (!progress && !sum_over_shortest()) return std::nullopt;
    }
    for (const For* f : loops_)
      if (!result_.values.contains(f->var.id)) result_.summed.push_back(f);
    if (!certified()) return std::nullopt;
    drop_proved_guards();
    return std::move(result_);
  }

 private:
  const For* unsolved(const Expr& term) const {
    for (const For* f : unsolved_)
      if (mentions(term, f->var.id)) return f;
    return nullptr;
  }
  Expr solved(const Expr& e) const { return substitute(e, result_.values); }
  void set(const For& f, const Expr& value) {
    result_.values[f.var.id] = value;
    result_.guards.push_back(value >= f.begin);
    result_.guards.push_back(value < index_add(f.begin, f.extent));
    unsolved_.erase(std::find(unsolved_.begin(), unsolved_.end(), &f));
  }

  // at = constant + known terms + terms of unsolved variables: whether that determines the variables.
  bool solve(size_t d) {
    Linear rest = inside_.expand(index_[d]);
    if (!rest.exact) return failed_ = true;
    std::vector<std::pair<Expr, int64_t>> open;
    Linear closed;
    closed.constant = rest.constant;
    for (const auto& [term, coefficient] : rest.terms)
      if (unsolved(term))
        open.emplace_back(term, coefficient);
      else
        closed.add(term, coefficient);
    const Expr left = to_expr(minus(linear(at_[d]), linear(solved(to_expr(closed)))));
    if (open.empty()) {
      // An equation that only picks iterations out of a sum: each element would look at all of them.
      for (const int64_t id : summed_) failed_ |= mentions(left, id);
      if (!is_const(left, 0)) result_.guards.push_back(left == 0);
      return true;
    }
    if (open.size() == 1) return open[0].first.as<Var>() ? solve_variable(open[0], left) : solve_mod(open[0], left);
    if (open.size() == 2) return solve_digits(open[0], open[1], left) || solve_digits(open[1], open[0], left);
    return false;
  }

  using Term = std::pair<Expr, int64_t>;
  // left = coefficient * v.
  bool solve_variable(const Term& term, const Expr& left) {
    const int64_t coefficient = term.second;
    if (coefficient == std::numeric_limits<int64_t>::min()) return failed_ = true;
    const Expr positive = coefficient < 0 ? to_expr(scaled(linear(left), -1)) : left;
    const int64_t size = coefficient < 0 ? -coefficient : coefficient;
    if (size != 1) result_.guards.push_back(floor_mod(positive, Expr(size)) == 0);
    set(*unsolved(term.first), index_div(positive, size));
    return true;
  }

  // left = floor_mod(v + rest, n).
  bool solve_mod(const Term& term, const Expr& left) {
    const Binary* mod = term.first.as<Binary>();
    if (!mod || mod->op != BinaryOp::floor_mod || term.second != 1 || unsolved(mod->b)) return false;
    Linear dividend = inside_.expand(mod->a);
    const For* f = unsolved(mod->a);
    if (!dividend.exact || dividend.coefficient(var(f->var)) != 1) return false;
    dividend.add(var(f->var), -1);
    const Expr others = to_expr(dividend);
    if (unsolved(others) && unsolved(others) != f) return false;
    if (mentions(others, f->var.id)) return false;
    const Expr n = solved(mod->b);
    result_.guards.push_back(left >= 0);
    result_.guards.push_back(left < n);
    set(*f, index_add(f->begin, floor_mod(index_sub(index_sub(left, solved(others)), f->begin), n)));
    return true;
  }

  // left = s * o + r with 0 <= r < s.
  bool solve_digits(const Term& high, const Term& low, const Expr& left) {
    if (!high.first.as<Var>() || !low.first.as<Var>() || low.second != 1 || high.second < 2) return false;
    const Range r = inside_.of(low.first);
    if (!r.min || !r.max || *r.min < 0 || *r.max >= high.second) return false;
    const For *o = unsolved(high.first), *digit = unsolved(low.first);
    set(*o, index_div(left, high.second));
    set(*digit, index_mod(left, high.second));
    return true;
  }

  // The shortest loop of a dim that is not determined stays a loop.
  bool sum_over_shortest() {
    const For* shortest = nullptr;
    int64_t least = 0;
    for (size_t d = 0; d < index_.size(); ++d) {
      if (used_[d]) continue;
      for (const For* f : unsolved_) {
        if (!mentions(index_[d], f->var.id)) continue;
        const int64_t extent = known_.of(f->extent).max.value_or(std::numeric_limits<int64_t>::max());
        if (!shortest || extent <= least) shortest = f, least = extent;
      }
    }
    if (!shortest) return false;
    unsolved_.erase(std::find(unsolved_.begin(), unsolved_.end(), shortest));
    summed_.push_back(shortest->var.id);
    return true;
  }

  // Each iteration's element leads back to it, and each element that the guards admit to itself.
  bool certified() const {
    Substitution elements;
    for (size_t d = 0; d < index_.size(); ++d)
      if (const Var* v = at_[d].as<Var>()) elements[v->id] = index_[d];
    for (const auto& [id, value] : result_.values) {
      const auto loop = std::find_if(loops_.begin(), loops_.end(), [&](const For* f) { return f->var.id == id; });
      if (!proves(inside_, substitute(value, elements) == var((*loop)->var))) return false;
    }
    for (const Expr& guard : result_.guards)
      if (!proves(inside_, substitute(guard, elements))) return false;
    Ranges outside = outside_of_loops();
    for (const Expr& guard : result_.guards) outside.assume(guard);
    for (size_t d = 0; d < index_.size(); ++d)
      if (!proves(outside, solved(index_[d]) == at_[d])) return false;
    return true;
  }
  Ranges outside_of_loops() const {
    Ranges outside = known_;
    for (const For* f : result_.summed) outside.enter(*f);
    return outside;
  }
  void drop_proved_guards() {
    Ranges outside = outside_of_loops();
    std::vector<Expr> left;
    for (const Expr& guard : result_.guards) {
      if (proves(outside, guard)) continue;
      outside.assume(guard);
      left.push_back(guard);
    }
    result_.guards = std::move(left);
  }

  const std::vector<const For*>& loops_;
  const std::vector<Expr>&index_, &at_;
  const Ranges& known_;
  Ranges inside_;
  std::vector<const For*> unsolved_;
  std::vector<int64_t> summed_;  // variables of an index that stay loops
  std::vector<bool> used_;
  Inverse result_;
  bool failed_ = false;
};

}  // namespace

bool proves(const Ranges& scope, const Expr& condition) {
  const Binary* n = condition.as<Binary>();
  if (n && n->op == BinaryOp::bit_and) return proves(scope, n->a) && proves(scope, n->b);
  return Quotients(scope).proves(condition);
}

std::optional<Inverse> invert(const std::vector<const For*>& loops, const std::vector<Expr>& index,
                              const std::vector<Expr>& at, const Ranges& known) {
  return Solver(loops, index, at, known).run();
}

}  // namespace gradloom::ir
