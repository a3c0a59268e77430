#include "ir/analysis/widenable.h"

#include <algorithm>
#include <unordered_set>

#include "ir/rewrite.h"

namespace gradloom::ir {

std::string not_widenable(const For& loop) {
  std::unordered_set<int64_t> varying{loop.var.id}, own_buffers;
  const auto varies = [&](const Expr& e) {
    return any_of(e, [&](const Expr& x) {
      const Var* v = x.as<Var>();
      const Load* l = x.as<Load>();
      return (v && varying.contains(v->id)) || (l && own_buffers.contains(l->buffer->id));
    });
  };
  std::string why;
  walk(
      loop.body,
      [&](const Stmt& s) {
        if (const Let* n = s.as<Let>(); n && varies(n->value)) varying.insert(n->var.id);
        if (const Alloc* n = s.as<Alloc>()) {
          own_buffers.insert(n->buffer->id);
          if (std::any_of(n->buffer->dims.begin(), n->buffer->dims.end(), varies))
            why = "the dims of buffer " + n->buffer->name + " depend on it";
        }
        if (const Reduce* n = s.as<Reduce>())
          for (const Reduce::Range& r : n->ranges)
            if (varies(r.begin) || varies(r.extent))
              why = "the bounds of the reduction over " + r.var.name + " depend on it";
        if (const For* n = s.as<For>()) {
          if (in_lanes(n->kind) || any_order(n->kind))
            why = "it holds the " + std::string(to_string(n->kind)) + " loop " + n->var.name;
          if (varies(n->begin) || varies(n->extent))
            why = "the bounds of its inner loop " + n->var.name + " depend on it";
        }
      },
      [&](const Expr& e) {
        if (e.lanes() > 1) why = "its body holds vectors already";
      });
  return why;
}

}  // namespace gradloom::ir
