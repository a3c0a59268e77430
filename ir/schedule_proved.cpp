// What an earlier step proved must stay proved: by the verifier's own questions, asked of the loops that a step can have changed.
#include <algorithm>
#include <unordered_set>

#include "ir/races.h"
#include "ir/rewrite.h"
#include "ir/schedule_site.h"
#include "ir/verify.h"

namespace gradloom::ir {
namespace {

// Whether a divisor or a shift count is there that only its surroundings prove.
bool has_variable_divisor(const Stmt& s) {
  bool found = false;
  walk(
      s, [](const Stmt&) {},
      [&](const Expr& e) {
        const Binary* b = e.as<Binary>();
        if (b && (b->op == BinaryOp::floor_div || b->op == BinaryOp::floor_mod || b->op == BinaryOp::shl || b->op == BinaryOp::shr)) found |= !b->b.as<Const>();
      });
  return found;
}

}  // namespace

std::string not_widenable(const For& loop) {
  std::unordered_set<int64_t> varying{loop.var.id}, own_buffers;
  const auto varies = [&](const Expr& e) {
    bool found = false;
    walk(e, [&](const Expr& x) {
      if (const Var* v = x.as<Var>()) found |= varying.contains(v->id);
      if (const Load* l = x.as<Load>()) found |= own_buffers.contains(l->buffer->id);
    });
    return found;
  };
  std::string why;
  walk(
      loop.body,
      [&](const Stmt& s) {
        if (const Let* n = s.as<Let>(); n && varies(n->value)) varying.insert(n->var.id);
        if (const Alloc* n = s.as<Alloc>()) {
          own_buffers.insert(n->buffer->id);
          if (std::any_of(n->buffer->dims.begin(), n->buffer->dims.end(), varies)) why = "the dims of buffer " + n->buffer->name + " depend on it";
        }
        if (const For* n = s.as<For>()) {
          if (in_lanes(n->kind) || any_order(n->kind)) why = "it holds the " + std::string(to_string(n->kind)) + " loop " + n->var.name;
          if (varies(n->begin) || varies(n->extent)) why = "the bounds of its inner loop " + n->var.name + " depend on it";
        }
      },
      [&](const Expr& e) {
        if (e.lanes() > 1) why = "its body holds vectors already";
      });
  return why;
}

void require_proved(const std::string& step, const Site& site, const Kernel& before, const Kernel& changed, const Stmt& to) {
  const auto refuse_unproved = [&](const std::string& why) {
    verify(before, Stage::scheduled);  // what was wrong before the step is no refusal of it
    refuse(step, site.loop->var.name, why);
  };
  const auto prove = [&](const For& old) {
    if (!any_order(old.kind) && !in_lanes(old.kind)) return;
    const bool parallel = any_order(old.kind);
    const Site again = find_loop(changed, old.var.id);
    std::string why = parallel ? parallel_clash(*again.loop, again.scope) : vector_clash(*again.loop, again.scope);
    if (why.empty() && !parallel) why = not_widenable(*again.loop);
    if (!why.empty()) refuse_unproved(std::string("the ") + to_string(old.kind) + " loop " + old.var.name + " would not be proved any more: " + why);
  };
  for (const Stmt& s : site.path)
    if (const For* around = s.as<For>(); around && around != site.loop) prove(*around);
  for (const For* below : loops_below(to)) prove(*below);
  if (!has_variable_divisor(to)) return;
  try {
    verify(changed, Stage::scheduled);
  } catch (const Error& error) {
    refuse_unproved(error.what());
  }
}

}  // namespace gradloom::ir
