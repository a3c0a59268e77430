// Handles, and the steps that change a loop's kind but not its range.
#include "gradloom/schedule.h"

#include <algorithm>

#include "ir/analysis/races.h"
#include "ir/analysis/verify_gpu.h"
#include "ir/analysis/widenable.h"
#include "ir/reduction.h"
#include "ir/rewrite.h"
#include "ir/schedule/site.h"

namespace gradloom::ir {
namespace {

Stmt with_kind(const For& loop, ForKind kind) { return for_loop(loop.var, loop.begin, loop.extent, kind, loop.body); }

// The number of statements after all unroll loops are unrolled, saturating at a limit.
int64_t unrolled_size(const Stmt& s) {
  int64_t size = 1;
  const auto add = [&](const Stmt& part, int64_t times) {
    if (part) size = std::min<int64_t>(size + unrolled_size(part) * times, max_stmt_nodes + 1);
  };
  if (const For* n = s.as<For>()) add(n->body, n->kind == ForKind::unroll ? as_int(n->extent).value_or(1) : 1);
  if (const Block* n = s.as<Block>())
    for (const Stmt& part : n->stmts) add(part, 1);
  if (const Let* n = s.as<Let>()) add(n->body, 1);
  if (const If* n = s.as<If>()) add(n->then_case, 1), add(n->else_case, 1);
  if (const Alloc* n = s.as<Alloc>()) add(n->body, 1);
  if (const Check* n = s.as<Check>()) add(n->body, 1);
  return size;
}

// Whether all that the loop does is to add floats to one element, one after the other, each of a few operations. (Of
// more, vectors do the operations together.)
bool only_sums_in_order(const For& loop) {
  constexpr int few = 4;
  int operations = 0;
  bool others = false;
  walk(
      loop.body,
      [&](const Stmt& s) {
        const Accumulate* n = s.as<Accumulate>();
        others |= !s.as<Block>() && !(n && rounds(n->op) && is_float(n->buffer->dtype) && !n->atomic &&
                                      std::none_of(n->index.begin(), n->index.end(),
                                                   [&](const Expr& i) { return mentions(i, loop.var.id); }));
      },
      [&](const Expr& e) {
        operations += is_float(e.dtype()) && (e.as<Unary>() || e.as<Binary>() || e.as<Fma>() || e.as<Select>());
      });
  return !others && operations <= few;
}

int64_t constant_extent(const char* step, const For& loop, int64_t lowest) {
  const std::optional<int64_t> n = as_int(loop.extent);
  if (!n) refuse(step, loop.var.name, "its extent is not a constant");
  if (*n < lowest || *n > 64)
    refuse(step, loop.var.name, "the extent must be " + std::to_string(lowest) + " to 64, got " + std::to_string(*n));
  return *n;
}

}  // namespace

Schedule::Schedule(Kernel kernel, Determinism level) : kernel_(std::move(kernel)), level_(level) {}

void Schedule::put(const char* step, const Site& site, const Stmt& to, const std::string& line) {
  Kernel changed = replace(kernel_, site, to);
  if (!part_of_step_) require_proved(step, site, kernel_, changed, to);
  kernel_ = std::move(changed);
  trace_.push_back(line);
}

Schedule::Attempt Schedule::attempt(const std::function<void(Schedule&)>& steps) {
  Schedule trial = *this;
  try {
    steps(trial);
  } catch (const ScheduleRefusal& refused) {
    return {refused.what()};
  }
  *this = std::move(trial);
  return {};
}

std::vector<Schedule::Loop> Schedule::loops() const {
  std::vector<Loop> result;
  for (const For* f : loops_below(kernel_.body)) result.push_back(f->var.id);
  return result;
}

std::vector<Schedule::Loop> Schedule::loops(const std::string& name) const {
  std::vector<Loop> result;
  for (const For* f : loops_below(kernel_.body))
    if (f->var.name == name) result.push_back(f->var.id);
  return result;
}

Schedule::Loop Schedule::loop(const std::string& name) const {
  const std::vector<Loop> named = loops(name);
  if (named.size() == 1) return named[0];
  if (named.size() > 1)
    throw Error(ErrorCode::invalid_argument, "schedule: kernel " + kernel_.name + " has " +
                                                 std::to_string(named.size()) + " loops named " + name + ": use " +
                                                 name + "#0 to " + name + "#" + std::to_string(named.size() - 1));
  if (const std::vector<Loop> of_name = loops(name.substr(0, name.rfind('#'))); of_name.size() > 1)
    for (size_t i = 0; i < of_name.size(); ++i)
      if (name.ends_with("#" + std::to_string(i))) return of_name[i];
  std::string all;
  for (const For* f : loops_below(kernel_.body)) all += " " + f->var.name;
  throw Error(ErrorCode::invalid_argument,
              "schedule: kernel " + kernel_.name + " has no loop " + name + "; its loops are:" + all);
}

std::vector<Schedule::Loop> Schedule::reductions() const {
  std::vector<Loop> result;
  for (const Reduce* r : reductions_below(kernel_.body)) result.push_back(r->ranges[0].var.id);
  return result;
}

Schedule::Loop Schedule::reduction(const std::string& name) const {
  std::string all;
  for (const Loop r : reductions()) {
    if (reduction_name(kernel_, r) == name) return r;
    all += " " + reduction_name(kernel_, r);
  }
  throw Error(ErrorCode::invalid_argument,
              "schedule: kernel " + kernel_.name + " has no reduction " + name + "; its reductions are:" + all);
}

const Reduce& Schedule::get_reduction(Loop reduction) const { return *find_reduction(kernel_, reduction).reduction; }

const For& Schedule::get(Loop loop) const { return get_loop(kernel_, loop); }
Buffer Schedule::buffer(const std::string& name) const { return find_buffer(kernel_, name); }

void Schedule::parallel(Loop id) {
  const Site site = find_loop(kernel_, id);
  const For& loop = *site.loop;
  require_serial("parallel", loop);
  for (const Stmt& s : site.path)
    if (const For* outer = s.as<For>();
        outer && (outer->kind == ForKind::parallel || in_lanes(outer->kind) || on_gpu(outer->kind)))
      refuse("parallel", loop.var.name,
             "it is inside the " + std::string(to_string(outer->kind)) + " loop " + outer->var.name);
  for (const For* inner : loops_below(loop.body))
    if (inner->kind == ForKind::parallel || on_gpu(inner->kind))
      refuse("parallel", loop.var.name,
             "it holds the " + std::string(to_string(inner->kind)) + " loop " + inner->var.name);
  if (const std::string conflict = loop_carried_conflict(loop, site.scope); !conflict.empty())
    refuse("parallel", loop.var.name, conflict);
  const std::string line = "parallel " + handle_name(kernel_, id);
  kernel_ = replace(kernel_, site, with_kind(loop, ForKind::parallel));
  trace_.push_back(line);
}

void Schedule::serial(Loop id) {
  const Site site = find_loop(kernel_, id);
  const For& loop = *site.loop;
  if (loop.kind != ForKind::parallel)
    refuse("serial", loop.var.name, "it is " + with_article(loop.kind) + " loop, not a parallel one");
  const std::string line = "serial " + handle_name(kernel_, id);
  kernel_ = replace(kernel_, site, with_kind(loop, ForKind::serial));
  trace_.push_back(line);
}

void Schedule::bind(Loop id, ForKind kind) {
  const Site site = find_loop(kernel_, id);
  const For& loop = *site.loop;
  require_serial("bind", loop);
  if (!on_gpu(kind))
    wrong_argument(
        "bind", loop.var.name,
        std::string("a loop is bound to grid, thread, warp, lane, cooperative, fragment or matrix_unit, got ") +
            to_string(kind));
  for (const Stmt& s : site.path)
    if (const For* outer = s.as<For>(); outer && in_lanes(outer->kind) && (any_order(kind) || in_lanes(kind)))
      refuse("bind", loop.var.name,
             "it is inside the " + std::string(to_string(outer->kind)) + " loop " + outer->var.name);
  if (const std::string mismatch = gpu_binding_error(site.path, loop, kind); !mismatch.empty())
    refuse("bind", loop.var.name, mismatch);
  if (kind == ForKind::lane) {
    const std::optional<int64_t> n = as_int(loop.extent);
    if (!n || *n < 2 || *n > warp_lanes)
      refuse("bind", loop.var.name, "lanes have a constant extent of 2 to " + std::to_string(warp_lanes));
    if (const std::string why = not_widenable(loop); !why.empty()) refuse("bind", loop.var.name, why);
  }
  const std::string conflict = kind == ForKind::lane ? lane_order_conflict(loop, site.scope)
                               : any_order(kind)     ? loop_carried_conflict(loop, site.scope)
                                                     : "";
  if (!conflict.empty()) refuse("bind", loop.var.name, conflict);
  const std::string line = "bind " + handle_name(kernel_, id) + " " + to_string(kind);
  kernel_ = replace(kernel_, site, with_kind(loop, kind));
  trace_.push_back(line);
}

void Schedule::unroll(Loop id) {
  const Site site = find_loop(kernel_, id);
  const For& loop = *site.loop;
  require_serial("unroll", loop);
  constant_extent("unroll", loop, 0);
  Kernel changed = replace(kernel_, site, with_kind(loop, ForKind::unroll));
  if (unrolled_size(changed.body) > max_stmt_nodes)
    refuse("unroll", loop.var.name,
           "with the unrolled loops around and in it, it would be more than " + std::to_string(max_stmt_nodes) +
               " statements");
  const std::string line = part_of_step_ ? std::string() : "unroll " + handle_name(kernel_, id);
  kernel_ = std::move(changed);
  trace_.push_back(line);
}

void Schedule::vectorize(Loop id) {
  const Site site = find_loop(kernel_, id);
  const For& loop = *site.loop;
  require_serial("vectorize", loop);
  constant_extent("vectorize", loop, 2);
  for (const Stmt& s : site.path)
    if (const For* outer = s.as<For>(); outer && in_lanes(outer->kind))
      refuse("vectorize", loop.var.name,
             "it is inside the " + std::string(to_string(outer->kind)) + " loop " + outer->var.name);
  if (const std::string why = not_widenable(loop); !why.empty()) refuse("vectorize", loop.var.name, why);
  if (const std::string conflict = lane_order_conflict(loop, site.scope); !conflict.empty())
    refuse("vectorize", loop.var.name, conflict);
  if (only_sums_in_order(loop))
    refuse("vectorize", loop.var.name,
           "it only adds to one element, in order, which vectors do no faster: declare the sum's order to be a tree");
  const std::string line = part_of_step_ ? std::string() : "vectorize " + handle_name(kernel_, id);
  kernel_ = replace(kernel_, site, with_kind(loop, ForKind::vector));
  trace_.push_back(line);
}

}  // namespace gradloom::ir
