// The step separate_long: destinations with long groups get a loop of their own.
#include <algorithm>

#include "gradloom/builder.h"
#include "gradloom/schedule.h"
#include "ir/analysis/races.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/schedule/site.h"
#include "ir/wrappers.h"

namespace gradloom::ir {
namespace {

// A group's bounds: lets, those at the top of the loop's body where they are there, and what is in them.
struct GroupBounds {
  std::vector<Stmt> lets;
  Expr begin, end;
  Buffer first, last;
  Stmt body;
};

// The buffer of which the value is element `row`, as i64; absent: of none.
Buffer table_at(const Expr& value, const Var& row) {
  const Cast* c = value.as<Cast>();
  const Load* l = c ? c->value.as<Load>() : value.as<Load>();
  if (!l || l->guard || l->index.size() != 1 || !l->index[0].as<Var>() || l->index[0].as<Var>()->id != row.id)
    return {};
  return l->buffer;
}

GroupBounds bounds_of(const For& rows, const For& group) {
  GroupBounds found;
  const Expr length = group.extent;
  const Binary* clamped = length.as<Binary>();
  const Binary* difference =
      clamped && clamped->op == BinaryOp::max && is_const(clamped->b, 0) ? clamped->a.as<Binary>() : clamped;
  if (!difference || difference->op != BinaryOp::sub || !equal(difference->b, group.begin)) return {};
  found.begin = difference->b, found.end = difference->a, found.body = rows.body;
  walk(rows.body, [&](const Stmt& x) {
    const Let* l = x.as<Let>();
    for (const auto& [bound, table] : {std::pair{&found.begin, &found.first}, {&found.end, &found.last}})
      if (const Var* v = bound->as<Var>(); l && v && v->id == l->var.id) *table = table_at(l->value, rows.var);
  });
  if (!found.first || !found.last) return {};
  const auto known = [&](const Expr& bound) {
    return std::any_of(found.lets.begin(), found.lets.end(),
                       [&](const Stmt& s) { return s.as<Let>()->var.id == bound.as<Var>()->id; });
  };
  for (; found.body.as<Let>() && !(known(found.begin) && known(found.end)); found.body = body_of(found.body))
    found.lets.push_back(found.body);
  if (known(found.begin) && known(found.end)) return found;
  found.lets.clear(), found.body = rows.body;
  for (Expr* bound : {&found.begin, &found.end}) {
    const Var own = make_var(bound->as<Var>()->name);
    const Buffer& table = bound == &found.begin ? found.first : found.last;
    found.lets.push_back(let(own, cast(DType::i64, load(table, {var(rows.var)})), block({})));
    *bound = var(own);
  }
  return found;
}

}  // namespace

Schedule::LongGroups Schedule::separate_long(Loop rows_id, Loop group_id, int64_t longest) {
  const char* step = "separate_long";
  const Site site = find_loop(kernel_, rows_id);
  const For& rows = *site.loop;
  const std::string& name = rows.var.name;
  require_serial(step, rows);
  if (longest < 1 || longest > (1 << 30))
    wrong_argument(step, name, "the longest group is 1 to 2^30 long, got " + std::to_string(longest));
  const std::vector<const For*> below = loops_below(rows.body);
  const auto group = std::find_if(below.begin(), below.end(), [&](const For* f) { return f->var.id == group_id; });
  if (group == below.end()) wrong_argument(step, name, "loop " + get(group_id).var.name + " is not in it");
  const GroupBounds bounds = bounds_of(rows, **group);
  const auto made = std::find_if(sorted_.begin(), sorted_.end(), [&](const SortedTables& t) {
    return bounds.first && bounds.last && t.first.same_as(bounds.first) && t.last.same_as(bounds.last);
  });
  if (made == sorted_.end())
    refuse(step, name, "no lets in its body are bounds of " + (*group)->var.name + ", from the tables of group_sorted");
  if (!is_const(rows.begin, 0) || !equal(rows.extent, bounds.first->dims[0]))
    refuse(step, name, "it is not over all destinations");
  if (const std::string conflict = loop_carried_conflict(rows, site.scope); !conflict.empty())
    refuse(step, name, conflict);
  const std::string line = std::string(step) + " " + handle_name(kernel_, rows_id) + " " +
                           handle_name(kernel_, group_id) + " " + std::to_string(longest);

  // Groups are disjoint, so that at most one that is longer than `longest` begins in each aligned range of so many
  // keys: a range is the slot of its group. So the table is `exclusive`. An only row has slot 0.
  const int64_t slots = is_const(rows.extent, 1) ? 1 : (made->count + longest - 1) / longest;
  const Buffer table =
      make_buffer({.name = name + "_long",
                   .dtype = DType::i64,
                   .dims = {slots},
                   .role = Role::temp,
                   .alignment = 64,
                   .facts = {.min = -slots, .max = index_sub(rows.extent, 1), .injective = true, .exclusive = true}});
  LongGroups handles;
  KernelBuilder b("long");
  handles.none = b.loop(name + "_none", 0, slots, [&](Expr i) { b.store(table, {i}, Expr(-1) - i); });
  handles.find = b.loop(name + "_find", 0, rows.extent, [&](Expr r) {
    const auto bound = [&](const char* what, const Buffer& from) {
      return b.let(what, cast(DType::i64, load(from, {r})));
    };
    const Expr begin = bound("begin", bounds.first), end = bound("end", bounds.last);
    b.if_then(end - begin > longest, [&] { b.store(table, {index_min(index_div(begin, longest), slots - 1)}, r); });
  });
  const Stmt found = b.build().body;

  const Var slot = make_var(name + "_slot"), row = make_var(name);
  const Stmt own = refresh(substitute(rows.body, {{rows_id, var(row)}}));
  const Stmt each =
      for_loop(slot, 0, slots, ForKind::serial, let(row, load(table, {var(slot)}), if_then(var(row) >= 0, own)));
  const Stmt others = for_loop(rows.var, rows.begin, rows.extent, ForKind::serial,
                               wrapped(bounds.lets, if_then(bounds.end - bounds.begin <= longest, bounds.body)));
  handles.slots = slot.id;
  handles.group = loops_below(own)[static_cast<size_t>(group - below.begin())]->var.id;

  // The table, before the outermost loop for which both of the groups' tables are made.
  const Kernel inner = replace(kernel_, site, block({others, each}));
  const Site moved = find_loop(inner, rows_id);
  size_t at = 0;
  for (size_t i = 0; i < moved.path.size(); ++i)
    if (const Alloc* a = moved.path[i].as<Alloc>();
        a && (a->buffer.same_as(bounds.first) || a->buffer.same_as(bounds.last)))
      at = i + 1;
  while (!moved.path[at].as<For>()) ++at;
  const bool alone = moved.path[at].same_as(moved.stmt());
  Site around = alone ? site : find_loop(inner, moved.path[at].as<For>()->var.id);
  const Stmt to = alloc(table, block({found, alone ? block({others, each}) : around.stmt()}));
  Kernel changed = replace(alone ? kernel_ : inner, around, to);
  if (!part_of_step_) require_proved(step, around, kernel_, changed, to);
  kernel_ = std::move(changed);
  trace_.push_back(line);
  return handles;
}

}  // namespace gradloom::ir
