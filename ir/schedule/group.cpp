// The step group: a stable counting sort of a scatter's iterations by destination, then each destination's in order.
#include <algorithm>

#include "gradloom/schedule.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/schedule/grouping.h"

namespace gradloom::ir {
namespace {

class Group : public Grouping {
 public:
  Group(const Kernel& kernel, const Site& site, const Buffer& buffer)
      : Grouping("group", site, buffer), n_(most_iterations(kernel, site)), counter_(counter_type(n_, site.scope)) {
    const std::string& name = buffer->name;
    first_ = table(name + "_first", folded(index_add(rows_, 2)), n_);
    order_ = table(name + "_order", n_, folded(index_sub(n_, 1)));
    require_small(buffer);
  }

  // The iterations of each destination.
  Stmt rows(Schedule::Groups& handles) const {
    const Nest nest = over_destinations(
        [&](const Expr& key) {
          return Segment{i64(load(first_, {key})), i64(load(first_, {index_add(key, 1)}))};
        },
        [&](const Expr& place) { return i64(load(order_, {place})); });
    handles.rows = nest.rows, handles.group = nest.group;
    return nest.stmt;
  }

  // The tables, filled, around a statement that uses them. The histogram is two places off: its running sum puts the
  // start of row j in first[j + 1], and placing advances that to the start of row j + 1.
  Stmt sorted_around(const Stmt& use, Schedule::Groups& handles) const {
    const std::string& name = loop_.var.name;
    const Var z = make_var(name + "_z"), n = make_var(name + "_n"), s = make_var(name + "_s"),
              p = make_var(name + "_p");
    handles.clear = z.id, handles.count = n.id, handles.starts = s.id, handles.place = p.id;
    const Stmt clear = for_loop(z, 0, index_add(rows_, 2), ForKind::serial, store(first_, {var(z)}, number(0)));
    const Stmt count = each(n, [&](const std::vector<Expr>& at) {
      return accumulate(first_, {index_add(key(at), 2)}, AccumulateOp::add, number(1));
    });
    const Buffer running = make_buffer(
        {.name = name + "_sum", .dtype = counter_, .dims = {1}, .role = Role::temp, .space = Space::registers});
    const std::vector<Expr> next{index_add(var(s), 2)};
    const Stmt starts =
        alloc(running, block({store(running, {0}, number(0)),
                              for_loop(s, 0, rows_, ForKind::serial,
                                       block({accumulate(running, {0}, AccumulateOp::add, load(first_, next)),
                                              store(first_, next, load(running, {0}))}))}));
    const Stmt place = each(p, [&](const std::vector<Expr>& at) {
      const Var slot = make_var(name + "_slot", {counter_, 1});
      const std::vector<Expr> row{index_add(key(at), 1)};
      return let(slot, load(first_, row),
                 block({store(order_, {i64(var(slot))}, number(index_sub(var(p), bounds_.begin))),
                        store(first_, row, var(slot) + number(1))}));
    });
    handles.all = make_var(name + "_all");
    const Stmt placed = let(handles.all, i64(load(first_, {rows_})), use);
    return bounds_.wrap(alloc(first_, alloc(order_, block({clear, count, starts, place, placed}))));
  }

 private:
  Expr number(const Expr& e) const { return counter_ == DType::i64 ? e : cast(counter_, e); }
  Expr number(int value) const { return constant_int(counter_, value); }

  Buffer table(const std::string& name, const Expr& length, const Expr& most) const {
    return make_buffer(
        {.name = name, .dtype = counter_, .dims = {length}, .role = Role::temp, .facts = {.min = 0, .max = most}});
  }
  void require_small(const Buffer& buffer) const {
    const std::optional<int64_t> rows = as_int(rows_), n = as_int(n_);
    const __int128 bytes = (__int128{rows.value_or(0)} + n.value_or(0)) * size_of(counter_);
    if (bytes > Schedule::max_table_bytes)
      refuse("group", loop_.var.name,
             "its tables of the destinations in " + buffer->name + " would take " +
                 std::to_string(static_cast<int64_t>(bytes / 1'000'000'000)) + " GB");
  }

  // A loop over all iterations that have a destination.
  Stmt each(const Var& v, const std::function<Stmt(const std::vector<Expr>&)>& body) const {
    return for_loop(v, bounds_.begin, folded(bounds_.extent), ForKind::serial,
                    substitute(scatter_.around(body), {{loop_.var.id, var(v)}}));
  }

  const Expr n_;  // at least as many iterations
  const DType counter_;
  Buffer first_, order_;
};

}  // namespace

Schedule::Groups Schedule::group(Loop id, const Buffer& buffer) {
  const Site site = find_loop(kernel_, id);
  const std::string line = "group " + handle_name(kernel_, id) + " " + handle_name(kernel_, buffer);
  const Group group(kernel_, site, buffer);
  Groups handles;
  const Stmt rows = group.rows(handles);
  Grouped sorted =
      grouped(kernel_, site, group, rows, [&](const Stmt& use) { return group.sorted_around(use, handles); });
  if (!part_of_step_) require_proved("group", sorted.around, kernel_, sorted.kernel, sorted.to);
  kernel_ = std::move(sorted.kernel);
  trace_.push_back(line);
  return handles;
}

}  // namespace gradloom::ir
