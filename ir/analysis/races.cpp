#include "ir/analysis/races.h"

#include <algorithm>
#include <numeric>

#include "ir/analysis/access.h"

namespace gradloom::ir {
namespace {

using TermPtr = std::shared_ptr<const IndexTerm>;

// Dependence test: whether two accesses in distinct iterations never touch the same element. Assumes that their indices
// are equal in every dim and derives equalities of terms, until the loop's variable would have to be equal in both
// iterations: a contradiction.
class DependenceTest {
 public:
  DependenceTest(int64_t loop_var) : loop_(loop_var) {}

  bool independent(const std::vector<IndexForm>& a, const std::vector<IndexForm>& b) {
    for (size_t d = 0; d < a.size(); ++d) equations_.emplace_back(a[d], b[d]);
    for (int round = 0; round < 12 && !contradiction_; ++round) {
      progress_ = false;
      for (size_t i = 0; i < equations_.size() && !contradiction_; ++i) {
        const auto equation = equations_[i];
        follow(equation.first, equation.second);
      }
      if (!progress_) break;
    }
    return contradiction_;
  }

 private:
  // coefficient * x, or coefficient * (x - x') for a pair of the same term in both iterations.
  struct Item {
    TermPtr a, b;  // of the first and of the second iteration; b absent: not a pair (or no x')
    int64_t coefficient;
    bool pair;
    bool low_known = true, high_known = true;
    Wide low = 0, high = 0;
  };

  static bool same(const TermPtr& x, const TermPtr& y) { return x->expr && y->expr && equal(x->expr, y->expr); }
  bool known(const TermPtr& t) const {
    return !t->varies || std::any_of(learned_.begin(), learned_.end(), [&](const TermPtr& k) { return same(k, t); });
  }

  static void bound(Item& item) {
    constexpr Wide far = Wide{1} << 120;  // so that sums of items stay within Wide
    const Range& r = item.a->range;
    const Interval all = limits(DType::i64);
    const auto values = [&](const Range& x) { return Interval{x.min.value_or(all.low), x.max.value_or(all.high)}; };
    const Interval difference = item.pair ? add(values(r), negate(values(item.b->range))) : values(r);
    const Interval scaled = multiply(difference, {item.coefficient, item.coefficient});
    if (scaled.empty()) return;  // empty: [0, 0] is a safe bound
    item.low_known = scaled.low > -far, item.high_known = scaled.high < far;
    item.low = item.low_known ? scaled.low : 0, item.high = item.high_known ? scaled.high : 0;
  }

  // The difference of both sides as items; terms known to be equal in both iterations cancel.
  std::vector<Item> difference(const IndexForm& a, const IndexForm& b) const {
    std::vector<Item> items;
    auto add = [&](TermPtr x, TermPtr y, int64_t coefficient, bool pair) {
      if (coefficient == 0) return;
      Item item{std::move(x), std::move(y), coefficient, pair};
      bound(item);
      items.push_back(std::move(item));
    };
    std::vector<bool> used(b.terms.size());
    for (const auto& [x, p] : a.terms) {
      int64_t q = 0;
      TermPtr y;
      for (size_t j = 0; j < b.terms.size(); ++j)
        if (same(x, b.terms[j].first)) q = b.terms[j].second, y = b.terms[j].first, used[j] = true;
      if (known(x))
        add(x, nullptr, p - q, false);
      else if (y && p == q)
        add(x, y, p, true);
      else {
        add(x, nullptr, p, false);
        if (y) add(y, nullptr, -q, false);
      }
    }
    for (size_t j = 0; j < b.terms.size(); ++j)
      if (!used[j]) add(b.terms[j].first, nullptr, -b.terms[j].second, false);
    return items;
  }

  void follow(const IndexForm& a, const IndexForm& b) {
    std::vector<Item> items = difference(a, b);
    const Wide apart = Wide{a.constant} - b.constant;
    if (apart < -2 * Wide{IndexForm::largest} || apart > 2 * Wide{IndexForm::largest}) return;
    const int64_t constant = static_cast<int64_t>(apart);
    int64_t divisor = 0;
    for (const Item& item : items) divisor = std::gcd(divisor, item.coefficient);
    if (divisor == 0 ? constant != 0 : constant % divisor != 0) {
      contradiction_ = true;
      return;
    }
    bool again = true;
    while (again && !contradiction_) {
      again = false;
      Wide low = constant, high = constant;
      int low_unknown = 0, high_unknown = 0;
      for (const Item& item : items) {
        low += item.low, high += item.high;
        low_unknown += !item.low_known, high_unknown += !item.high_known;
      }
      if ((low_unknown == 0 && low > 0) || (high_unknown == 0 && high < 0)) {
        contradiction_ = true;
        return;
      }
      for (size_t i = 0; i < items.size(); ++i) {
        const Item& item = items[i];
        if (!item.pair) continue;
        // GCD test: the other items sum to a multiple of `rest`, and this item is smaller in magnitude: it is 0.
        int64_t rest = constant;
        for (size_t j = 0; j < items.size(); ++j)
          if (j != i) rest = std::gcd(rest, items[j].coefficient);
        if (item.low_known && item.high_known && rest != 0 && item.low > -Wide{rest} && item.high < Wide{rest}) {
          const Item found = item;
          items.erase(items.begin() + static_cast<std::ptrdiff_t>(i));
          learn(found.a, found.b);
          again = true;
          break;
        }
        if (low_unknown > !item.low_known || high_unknown > !item.high_known) continue;
        // This item is a multiple of its coefficient, and the other items sum to less in magnitude: both are 0.
        const Wide size = item.coefficient < 0 ? -Wide{item.coefficient} : Wide{item.coefficient};
        const Wide rest_low = low - (item.low_known ? item.low : 0),
                   rest_high = high - (item.high_known ? item.high : 0);
        if (rest_low <= -size || rest_high >= size) continue;
        const Item found = item;
        items.erase(items.begin() + static_cast<std::ptrdiff_t>(i));
        learn(found.a, found.b);
        again = true;
        break;
      }
    }
    // x = y' for different terms with the same kind of ownership (offsets or injective).
    if (!contradiction_ && items.size() == 2 && constant == 0 && !items[0].pair && !items[1].pair &&
        items[0].coefficient == -items[1].coefficient)
      consequences(items[0].a, items[1].a);
  }

  void learn(const TermPtr& x, const TermPtr& y) {
    if (const Var* v = x->expr.as<Var>(); v && v->id == loop_) {
      contradiction_ = true;
      return;
    }
    learned_.push_back(x);
    progress_ = true;
    consequences(x, y);
    if (!x->divisor) return;
    for (const TermPtr& other : learned_)
      if (other->divisor && equal(other->divisor, x->divisor) && other->is_mod != x->is_mod &&
          equal(other->expr.as<Binary>()->a, x->expr.as<Binary>()->a))
        equate(x->dividend, y->dividend);
  }

  // Consequences of x in the first iteration being equal to y in the second.
  void consequences(const TermPtr& x, const TermPtr& y) {
    if (x->offsets && y->offsets && x->offsets.same_as(y->offsets)) equate(x->segment, y->segment);
    if (x->injective && y->injective && x->injective.same_as(y->injective))
      for (size_t d = 0; d < x->elements.size(); ++d) equate(x->elements[d], y->elements[d]);
  }

  void equate(const IndexForm& a, const IndexForm& b) {
    if (equations_.size() >= 64) return;
    equations_.emplace_back(a, b);
    progress_ = true;
  }

  int64_t loop_;
  std::vector<std::pair<IndexForm, IndexForm>> equations_;
  std::vector<TermPtr> learned_;
  bool contradiction_ = false, progress_ = false;
};

const char* verb(const Access& a) {
  switch (a.kind) {
    case Access::load:
      return "load from";
    case Access::store:
      return "store to";
    case Access::accumulate:
      return "accumulate into";
  }
  return "?";
}

struct Conflict {
  Access a, b;
};

// The first pair of accesses that must be independent and is not proved to be.
template <class MayConflict>
std::optional<Conflict> first_pair(const For& loop, const Ranges& scope, bool trust, MayConflict&& may_conflict) {
  const Range extent = scope.of(loop.extent);
  if (scope.never() || (extent.max && *extent.max <= 1)) return {};
  const std::vector<Access> all = accesses(loop, scope);
  // By the author's word, of iterations of one loop. It speaks of writes: what one lane writes another may read in the
  // next statement.
  const auto apart = [&](const Access& a, const Access& b) {
    return trust && a.buffer->facts.exclusive && (loop.kind != ForKind::lane || (a.writes() && b.writes()));
  };
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t j = i; j < all.size(); ++j) {
      const Access &a = all[i], &b = all[j];
      if (!a.buffer.same_as(b.buffer) || (!a.writes() && !b.writes()) || apart(a, b) || may_conflict(a, b)) continue;
      // Guards admit a single iteration, the same for both accesses.
      if (a.iterations.single() && b.iterations.single() && *a.iterations.min == *b.iterations.min) continue;
      if (DependenceTest(loop.var.id).independent(a.index, b.index)) continue;
      const auto plain = [](const Access& x) -> const std::vector<IndexForm>& {
        return x.plain.empty() ? x.index : x.plain;
      };
      if ((!a.plain.empty() || !b.plain.empty()) && DependenceTest(loop.var.id).independent(plain(a), plain(b)))
        continue;
      return Conflict{a, b};
    }
  return {};
}

template <class MayConflict>
std::string first_conflict(const For& loop, const Ranges& scope, MayConflict&& may_conflict) {
  const std::optional<Conflict> found = first_pair(loop, scope, true, may_conflict);
  if (!found) return {};
  std::string message = "two iterations of loop " + loop.var.name + " may " + verb(found->a);
  if (found->a.kind != found->b.kind) message += std::string(" and ") + verb(found->b);
  return message + " the same element of " + found->a.buffer->name;
}

}  // namespace

std::string loop_carried_conflict(const For& loop, const Ranges& scope) {
  return first_conflict(loop, scope, [&](const Access& a, const Access& b) {
    return (a.atomic && b.atomic && a.op == b.op) || (&a == &b && a.ordered && loop.kind == ForKind::lane);
  });
}

std::string lane_order_conflict(const For& loop, const Ranges& scope) {
  // A single write executes lane after lane, in order, unless an inner loop repeats it for all lanes.
  return first_conflict(loop, scope, [](const Access& a, const Access& b) { return &a == &b && !a.inner_loop; });
}

std::string fusion_conflict(const For& loop, size_t count, const Ranges& scope) {
  const std::optional<Conflict> found = first_pair(
      loop, scope, false, [&](const Access& a, const Access& b) { return (a.part < count) == (b.part < count); });
  if (!found) return {};
  const Access& first = found->a.part < count ? found->a : found->b;
  return "touches elements of " + first.buffer->name + " that another iteration of " + loop.var.name +
         (first.writes() ? " fills" : " reads");
}

}  // namespace gradloom::ir
