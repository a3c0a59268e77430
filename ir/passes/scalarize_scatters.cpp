// Scalarizes scatter-updates lane by lane, with indices and values reloaded as scalars: extracting them from vector
// registers is slower.
//
//   let raw = indices[ramp]                                 if all_lanes(raw >= 0 & raw < n) {
//   let j = select(raw < 0, raw + n, raw)                     acc[indices[i]] += dY[i]
//   check j >= 0 & j < n { acc[j] += dY[ramp] }     ->        acc[indices[i + 1]] += dY[i + 1] ...
//                                                           } else { the check as it was }
//
// Requires: statements are widened. Gives: the same stage. Breaks: nothing: lanes are added in order before and after.
#include <algorithm>
#include <unordered_map>

#include "ir/index_math.h"
#include "ir/passes/passes.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

class SplitUpdates : public Rewriter {
 public:
  explicit SplitUpdates(bool fast_scatter) : fast_scatter_(fast_scatter) {}
  using Rewriter::rewrite;

  Stmt rewrite(const Let& n, const Stmt& self) override {
    if (n.value.lanes() > 1) lets_[n.var.id] = {n.value, loads(n.value)};
    return Rewriter::rewrite(n, self);
  }

  Stmt rewrite(const Check& n, const Stmt& self) override {
    const auto* update = n.body.as<Accumulate>();
    const int lanes = n.condition.lanes();
    if (lanes == 1 || !update || update->guard || update->factor || update->atomic || update->value.lanes() != lanes)
      return Rewriter::rewrite(n, self);
    if (fast_scatter_ && std::any_of(update->index.begin(), update->index.end(), steps)) return self;
    Substitution in_range;  // the value of an index when it is in range before any wrapping
    std::vector<Expr> index;
    for (const Expr& i : update->index) index.push_back(unwrapped(i, n.condition, in_range));
    if (std::none_of(index.begin(), index.end(), [&](const Expr& i) { return loads(i); })) return self;

    const bool reload = lane(update->value, 0) && update->value.as<Load>();  // a conversion is cheaper as a vector
    const Var values = make_var(update->buffer->name + "_values", update->value.type());
    std::vector<Stmt> updates;
    for (int l = 0; l < lanes; ++l) {
      std::vector<Expr> place;
      for (const Expr& i : index) {
        place.push_back(lane(i, l));
        if (!place.back()) return self;
      }
      updates.push_back(accumulate(update->buffer, std::move(place), update->op,
                                   reload ? lane(update->value, l) : extract(var(values), l)));
    }
    const Stmt all = block(std::move(updates));
    return if_then(all_lanes(substitute(n.condition, in_range)), reload ? all : let(values, update->value, all), self);
  }

 private:
  static bool steps(const Expr& e) {
    const auto* ramp = e.as<Ramp>();
    return ramp && as_int(ramp->stride).value_or(0) != 0;
  }

  bool loads(const Expr& e) const {
    return any_of(e, [&](const Expr& x) {
      const auto* v = x.as<Var>();
      const auto let = v ? lets_.find(v->id) : lets_.end();
      return x.as<Load>() || (let != lets_.end() && let->second.loads);
    });
  }

  // Whether a conjunction has v >= 0 among its terms.
  static bool asks_nonnegative(const Expr& condition, int64_t v) {
    const auto* n = condition.as<Binary>();
    if (!n) return false;
    if (n->op == BinaryOp::bit_and) return asks_nonnegative(n->a, v) || asks_nonnegative(n->b, v);
    const auto* a = n->a.as<Var>();
    const auto* zero = n->op == BinaryOp::ge ? n->b.as<Broadcast>() : nullptr;
    return a && a->id == v && zero && as_int(zero->value) == 0;
  }

  // `e` with its wrapped variables, select(x < 0, x + n, x), replaced by their x, where the condition, after the same
  // replacement, checks that x is nonnegative.
  Expr unwrapped(const Expr& e, const Expr& condition, Substitution& in_range) const {
    walk(e, [&](const Expr& x) {
      const auto* v = x.as<Var>();
      const auto let = v ? lets_.find(v->id) : lets_.end();
      const auto* wrapped = let == lets_.end() ? nullptr : let->second.value.as<Select>();
      const auto* negative = wrapped ? wrapped->condition.as<Binary>() : nullptr;
      const auto* zero = negative && negative->op == BinaryOp::lt ? negative->b.as<Broadcast>() : nullptr;
      if (zero && as_int(zero->value) == 0 && equal(negative->a, wrapped->b) && asks_nonnegative(condition, v->id))
        in_range.emplace(v->id, wrapped->b);
    });
    return substitute(e, in_range);
  }

  // A scalar; absent where it reads memory that earlier lanes may have changed.
  static Expr unchanged(const Expr& e) {
    const bool changes =
        any_of(e, [](const Expr& x) { return x.as<Load>() && x.as<Load>()->buffer->role != Role::in; });
    return changes ? Expr() : e;
  }

  // One lane, computed separately; absent where that would repeat work (`of_load`: an index that is itself loaded) or
  // read memory that may have changed since.
  Expr lane(const Expr& e, int l, bool of_load = false) const {
    if (e.lanes() == 1) return unchanged(e);
    if (const auto* n = e.as<Broadcast>()) return unchanged(n->value);
    if (const auto* n = e.as<Ramp>())
      return unchanged(n->base) && unchanged(n->stride) ? index_add(n->base, index_mul(n->stride, Expr(l))) : Expr();
    if (const auto* n = e.as<Var>()) {
      const auto let = lets_.find(n->id);
      return let == lets_.end() ? Expr() : lane(let->second.value, l, of_load);
    }
    if (const auto* n = e.as<Cast>()) {
      const Expr value = is_float(n->value.dtype()) || is_float(e.dtype()) ? Expr() : lane(n->value, l, of_load);
      return value ? cast(e.dtype(), value) : Expr();
    }
    if (const auto* n = e.as<Load>()) {
      if (n->guard || n->buffer->role != Role::in || of_load) return {};
      std::vector<Expr> index;
      for (const Expr& i : n->index) {
        index.push_back(lane(i, l, true));
        if (!index.back()) return {};
      }
      return load(n->buffer, std::move(index));
    }
    return {};
  }

  struct VectorLet {
    Expr value;
    bool loads;  // it, or a variable it mentions, loads from memory
  };
  const bool fast_scatter_;
  std::unordered_map<int64_t, VectorLet> lets_;  // in scope
};

}  // namespace

Kernel scalarize_scatters(const Kernel& kernel, bool fast_scatter) { return SplitUpdates(fast_scatter)(kernel); }

}  // namespace gradloom::ir
