// The step group_named: a scatter's iterations by destination, in tables of the destinations that are named alone.
#include <algorithm>
#include <bit>
#include <optional>

#include "gradloom/builder.h"
#include "gradloom/schedule.h"
#include "ir/bits_dtype.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/schedule/grouping.h"
#include "ir/schedule/named_sums.h"

namespace gradloom::ir {
namespace {

Expr shr(Expr a, Expr count) { return binary(BinaryOp::shr, std::move(a), std::move(count)); }

// Group g has the destination keys[g] and the iterations order[first[g]] to order[first[g + 1] - 1], ascending.
class NamedGroup : public Grouping {
 public:
  NamedGroup(const Kernel& kernel, const Site& site, const Buffer& buffer, Schedule::NamedBy by)
      : Grouping("group_named", site, buffer),
        name_(loop_.var.name),
        n_(most_iterations(kernel, site)),
        most_(folded(index_min(n_, rows_))),
        counter_(counter_type(n_, site.scope)),
        key_(counter_type(rows_, site.scope)) {
    if (buffer->role == Role::temp) sums_.emplace(step_, kernel, site, buffer, scatter_.destination);
    key_bits_ = std::bit_width(
        static_cast<uint64_t>(std::max<int64_t>(site.scope.of(rows_).max.value_or(max_elements), 2) - 1));
    if (by == Schedule::NamedBy::lending) find_lender(site, buffer);
    const auto table = [&](const char* what, DType dtype, std::vector<Expr> dims, const Expr& largest) {
      return make_buffer({.name = buffer->name + what,
                          .dtype = dtype,
                          .dims = std::move(dims),
                          .role = Role::temp,
                          .facts = {.min = 0, .max = largest}});
    };
    const Expr last = folded(index_sub(n_, 1));
    first_ = table("_first", counter_, {folded(index_add(most_, 2))}, n_);
    order_ = table("_order", counter_, lender_ ? std::vector<Expr>{n_} : std::vector<Expr>{2, n_}, last);
    count_ = table("_count", counter_, {1}, n_);
    BufferNode keys = *table("_keys", key_, {most_}, folded(index_sub(rows_, 1)));
    keys.facts.injective = true;
    keys_ = make_buffer(std::move(keys));
  }

  // Where the groups go: in the loop's place, or in that of the sums' alloc.
  Site site(const Site& loop) const { return sums_ ? sums_->around() : loop; }

  Stmt rows(Schedule::NamedGroups& handles) {
    const Var t = make_var(name_ + "_r"), k = make_var(name_), g = make_var(name_ + "_g"),
              begin = make_var(name_ + "_b"), end = make_var(name_ + "_e"), row = make_var(name_ + "_row");
    named_ = make_var(name_ + "_named");
    std::vector<Expr> at = unflattened(var(row));
    std::vector<std::pair<Var, Expr>> lets{{row, i64(load(keys_, {var(t)}))}};
    for (Expr& a : at)
      if (!a.as<Var>()) lets.push_back({make_var(name_ + "_j"), a}), a = var(lets.back().first);
    lets.push_back({begin, i64(load(first_, {var(t)}))});
    lets.push_back({end, i64(load(first_, {index_add(var(t), 1)}))});
    Substitution known{{loop_.var.id, var(k)}};
    for (size_t d = 0; d < at.size(); ++d) known[scatter_.destination[d].at.id] = at[d];
    const Expr number = load(order_, lender_ ? std::vector<Expr>{var(g)} : std::vector<Expr>{0, var(g)});
    Stmt nest = for_loop(g, var(begin), var(end) - var(begin), ForKind::serial,
                         let(k, index_add(bounds_.begin, i64(number)), substitute(update(), known)));
    if (sums_) nest = sums_->of(at, nest);
    for (size_t i = lets.size(); i-- > 0;) nest = let(lets[i].first, lets[i].second, nest);
    handles = {.named = t.id, .group = g.id};
    return for_loop(t, 0, most_, ForKind::serial, if_then(var(t) < var(named_), nest));
  }

  Stmt grouped_around(const Stmt& use, Schedule::NamedGroups& handles) const {
    KernelBuilder b("group");
    b.store(count_, {0}, 0);
    const Expr named = lender_ ? lend(b) : sort(b), all = b.let(name_ + "_all", i64(load(first_, {named})));
    handles.count = *named.as<Var>(), handles.all = *all.as<Var>();
    b.append(substitute(use, {{named_.id, named}}));
    Stmt result = b.build().body;
    for (const Buffer& table : {count_, keys_, order_, first_}) result = alloc(table, result);
    return bounds_.wrap(result);
  }

 private:
  Expr number(const Expr& e) const { return counter_ == DType::i64 ? e : cast(counter_, e); }
  Expr one() const { return constant_int(counter_, 1); }
  Expr zero() const { return constant_int(counter_, 0); }
  Expr key_of(const std::vector<Expr>& at) const { return key_ == DType::i64 ? key(at) : cast(key_, key(at)); }
  Expr iterations() const { return folded(bounds_.extent); }

  std::vector<Expr> unflattened(Expr row) const {
    std::vector<Expr> at(scatter_.destination.size());
    for (size_t d = at.size(); d-- > 1;) {
      const Expr& extent = scatter_.destination[d].extent;
      const Expr divisor = as_int(extent) ? extent : max(extent, 1);  // proved nonzero
      at[d] = floor_mod(row, divisor);
      row = floor_div(row, divisor);
    }
    at[0] = row;
    return at;
  }
  // What `body` makes of iteration number i, counted from 0, where that has a destination.
  using Body = std::function<Stmt(const std::vector<Expr>& at)>;
  Stmt iteration(const Expr& i, const Body& body) const {
    return substitute(scatter_.around(body), {{loop_.var.id, index_add(bounds_.begin, i)}});
  }

  void find_lender(const Site& site, const Buffer& buffer) {
    const Store* stored = sums_ ? sums_->stored() : nullptr;
    lender_ = stored ? stored->buffer : buffer;
    const auto fail = [&](const std::string& why) { refuse(step_, name_, why); };
    if (lender_->role != Role::inout) fail("buffer " + lender_->name + " cannot lend its elements: it is no inout");
    element_.assign(lender_->dims.size(), Expr(0));
    std::vector<bool> chosen(element_.size());
    lent_at_.resize(scatter_.destination.size());
    for (size_t d = 0; d < lent_at_.size(); ++d) {
      lent_at_[d] = scatter_.destination[d].dim;
      if (stored) {
        const std::vector<Expr>& index = stored->index;
        const auto place = std::find_if(index.begin(), index.end(), [&](const Expr& e) {
          return e.as<Var>() && e.as<Var>()->id == sums_->stored_at()[d].id;
        });
        if (place == index.end()) fail("buffer " + lender_->name + " has no element of its own for each destination");
        lent_at_[d] = static_cast<size_t>(place - index.begin());
      }
      chosen[lent_at_[d]] = true;
    }
    for (size_t d = 0; d < element_.size(); ++d)
      if (!chosen[d] && site.scope.proves(0 < lender_->dims[d]) != true)
        fail("buffer " + lender_->name + " is not proved to have an element for each destination");
    const int size = size_of(lender_->dtype);
    const std::optional<int64_t> n = site.scope.of(n_).max;
    if (lender_->dtype == DType::boolean || (size < 8 && (!n || *n > int64_t{1} << 8 * size)))
      fail("an element of buffer " + lender_->name + " cannot hold the number of an iteration");
    if (any_of(site.stmt(), [&](const Expr& e) { return e.as<Load>() && e.as<Load>()->buffer.same_as(lender_); }))
      fail("it reads buffer " + lender_->name);
  }
  std::vector<Expr> lent(const std::vector<Expr>& at) const {
    std::vector<Expr> index = element_;
    for (size_t d = 0; d < at.size(); ++d) index[lent_at_[d]] = at[d];
    return index;
  }

  // Each destination that is named lends an element to the number of the first iteration that names it, so that the
  // others find it there. From the last iteration to the first: what the element holds is saved, and the number left
  // there; the last one has saved the element itself. Groups are in the order of their first iterations.
  Expr lend(KernelBuilder& b) const {
    const DType bits = bits_dtype(lender_->dtype);
    const auto held = [&](const std::vector<Expr>& at) { return bitcast(bits, load(lender_, lent(at))); };
    const Buffer saved = b.alloc(name_ + "_saved", bits, {n_}),
                 group_of = b.alloc(name_ + "_group", counter_, {n_}, {.min = 0, .max = folded(index_sub(n_, 1))});
    b.loop(name_ + "_save", 0, iterations(), [&](const Expr& i) {
      const Expr k = b.let(name_, iterations() - 1 - i);
      b.append(iteration(k, [&](const std::vector<Expr>& at) {
        return block(
            {ir::store(saved, {k}, held(at)), ir::store(lender_, lent(at), bitcast(lender_->dtype, cast(bits, k)))});
      }));
    });
    for (const int64_t i : {0, 1}) b.store(first_, {i}, 0);
    b.loop(name_ + "_count", 0, iterations(), [&](const Expr& k) {
      b.append(iteration(k, [&](const std::vector<Expr>& at) {
        const Var slot = make_var(name_ + "_slot"), fresh = make_var(name_ + "_g"), g = make_var(name_ + "_g");
        const Stmt begun =
            let(fresh, i64(load(count_, {0})),
                block({ir::store(group_of, {k}, number(var(fresh))), ir::store(keys_, {var(fresh)}, key_of(at)),
                       ir::store(first_, {var(fresh) + 2}, zero()), ir::store(count_, {0}, number(var(fresh) + 1))}));
        const Stmt counted =
            let(g, i64(load(group_of, {var(slot)})),
                block({ir::store(group_of, {k}, number(var(g))), ir::store(saved, {var(g)}, load(saved, {k})),
                       accumulate(first_, {var(g) + 2}, AccumulateOp::add, one())}));
        return let(slot, cast(DType::i64, held(at)), block({if_then(var(slot) == k, begun), counted}));
      }));
    });
    const Expr named = name_groups(b);
    // The histogram is two places off: placing advances the start of group g in first[g + 1] to that of g + 1.
    const Buffer running = b.alloc(name_ + "_sum", counter_, {1}, {}, Space::registers);
    b.store(running, {0}, 0);
    b.loop(name_ + "_starts", 0, named, [&](const Expr& g) {
      const Expr row = b.let(name_ + "_row", i64(load(keys_, {g})));
      b.store(lender_, lent(unflattened(row)), bitcast(lender_->dtype, load(saved, {g})));
      b.accumulate(running, {0}, load(first_, {g + 2}));
      b.store(first_, {g + 2}, load(running, {0}));
    });
    b.loop(name_ + "_place", 0, iterations(), [&](const Expr& k) {
      b.append(iteration(k, [&](const std::vector<Expr>&) {
        const Var g = make_var(name_ + "_g"), slot = make_var(name_ + "_slot", {counter_, 1});
        return let(g, i64(load(group_of, {k})),
                   let(slot, load(first_, {var(g) + 1}),
                       block({ir::store(order_, {i64(var(slot))}, number(k)),
                              ir::store(first_, {var(g) + 1}, var(slot) + one())})));
      }));
    });
    return named;
  }

  // A stable sort of keys and iterations, some bits of the keys at a time, from side 0 to side 1 and back.
  Expr sort(KernelBuilder& b) const {
    const bool constant = as_int(rows_).has_value();
    const int pairs = (key_bits_ + (constant ? 21 : 15)) / (constant ? 22 : 16),
              digit_bits = constant ? (key_bits_ + 2 * pairs - 1) / (2 * pairs) : 8;
    const Buffer keys = b.alloc(name_ + "_sorted", key_, {2, n_}, {.min = 0, .max = folded(index_sub(rows_, 1))});
    b.loop(name_ + "_take", 0, iterations(), [&](const Expr& k) {
      b.append(iteration(k, [&](const std::vector<Expr>& at) {
        const Var slot = make_var(name_ + "_slot", {counter_, 1});
        return let(
            slot, load(count_, {0}),
            block({ir::store(keys, {0, i64(var(slot))}, key_of(at)), ir::store(order_, {0, i64(var(slot))}, number(k)),
                   ir::store(count_, {0}, var(slot) + one())}));
      }));
    });
    const Expr live = b.let(name_ + "_live", i64(load(count_, {0})));
    b.loop(name_ + "_pair", 0, pairs, [&](const Expr& pair) {
      const Expr low = b.let(name_ + "_low", pair * (2 * digit_bits));
      b.guarded(constant ? Expr() : shr(rows_ - 1, low) > 0, [&] {
        for (const int side : {0, 1}) sort_by_digit(b, keys, side, live, low + side * digit_bits, digit_bits);
      });
    });
    b.store(count_, {0}, 0);
    b.loop(name_ + "_mark", 0, live, [&](const Expr& i) {
      const Expr own = b.let(name_ + "_key", load(keys, {0, i}));
      const Expr before = load(keys, {0, i - 1}, i > 0, constant_int(key_, -1));
      b.if_then(own != before, [&] {
        const Expr g = b.let(name_ + "_g", i64(load(count_, {0})));
        b.store(keys_, {g}, own);
        b.store(first_, {g}, number(i));
        b.store(count_, {0}, number(g + 1));
      });
    });
    const Expr named = name_groups(b);
    b.store(first_, {named}, number(live));
    return named;
  }
  void sort_by_digit(KernelBuilder& b, const Buffer& keys, int from, const Expr& live, const Expr& low,
                     int digit_bits) const {
    const int64_t values = int64_t{1} << digit_bits;
    const Buffer next = b.alloc(name_ + "_next", counter_, {values + 1});
    const auto digit = [&](const Expr& key) { return shr(i64(key), low) & Expr(values - 1); };
    b.loop(name_ + "_z", 0, values + 1, [&](const Expr& z) { b.store(next, {z}, 0); });
    b.loop(name_ + "_n", 0, live, [&](const Expr& i) {
      b.accumulate(next, {digit(load(keys, {from, i})) + 1}, one());
    });
    b.loop(name_ + "_s", 0, values, [&](const Expr& s) { b.accumulate(next, {s + 1}, load(next, {s})); });
    b.loop(name_ + "_p", 0, live, [&](const Expr& i) {
      const Expr own = b.let(name_ + "_key", load(keys, {from, i})), value = b.let(name_ + "_digit", digit(own)),
                 slot = b.let(name_ + "_slot", load(next, {value}));
      b.store(keys, {1 - from, i64(slot)}, own);
      b.store(order_, {1 - from, i64(slot)}, load(order_, {from, i}));
      b.store(next, {value}, slot + one());
    });
  }

  Expr name_groups(KernelBuilder& b) const { return b.let(name_ + "_named", i64(load(count_, {0}))); }

  const std::string name_;
  const Expr n_, most_;        // at least as many iterations, and as many groups
  const DType counter_, key_;  // of numbers of iterations and of destinations
  int key_bits_ = 0;           // of destinations
  std::optional<NamedSums> sums_;
  Buffer lender_;                // absent: sorted
  std::vector<Expr> element_;    // index into it, but for the destination,
  std::vector<size_t> lent_at_;  // whose dims are these there
  Buffer keys_, first_, order_, count_;
  Var named_;  // stands for how many groups there are
};

}  // namespace

Schedule::NamedGroups Schedule::group_named(Loop id, const Buffer& buffer, NamedBy by) {
  const Site site = find_loop(kernel_, id);
  const std::string line = "group_named " + handle_name(kernel_, id) + " " + handle_name(kernel_, buffer) +
                           (by == NamedBy::lending ? " lending" : " sorting");
  NamedGroup group(kernel_, site, buffer, by);
  NamedGroups handles;
  const Stmt rows = group.rows(handles);
  Grouped named = grouped(kernel_, group.site(site), group, rows,
                          [&](const Stmt& use) { return group.grouped_around(use, handles); });
  if (!part_of_step_) require_proved("group_named", named.around, kernel_, named.kernel, named.to);
  kernel_ = std::move(named.kernel);
  trace_.push_back(line);
  return handles;
}

}  // namespace gradloom::ir
