#include "ir/differentiate/accesses.h"

#include <algorithm>

#include "ir/children.h"
#include "ir/rewrite.h"

namespace gradloom::ir {

bool Accesses::uses(const Stmt& s, int64_t id, Way way) {
  if (!s) return false;
  const Uses& all = of(s);
  return std::binary_search(all.begin(), all.end(), Use{id, way});
}

std::vector<int64_t> Accesses::written(const Stmt& s) {
  std::vector<int64_t> ids;
  for (const Use& use : s ? of(s) : Uses())
    if (use.way == written_to) ids.push_back(use.id);
  return ids;
}

const Accesses::Uses& Accesses::of(const Stmt& s) {
  if (const auto found = known_.find(s.get()); found != known_.end()) return found->second.uses;
  Uses uses = found_in(s);
  return known_.emplace(s.get(), Known{s, std::move(uses)}).first->second.uses;
}

Accesses::Uses Accesses::found_in(const Stmt& s) {
  Uses uses;
  struct Visit {
    Accesses& self;
    Uses& uses;
    void operator()(const Expr& e) const {
      if (!e) return;
      walk(e, [&](const Expr& x) {
        if (const Load* n = x.as<Load>()) uses.push_back({n->buffer->id, read});
        if (const Var* n = x.as<Var>()) uses.push_back({n->id, variable});
      });
    }
    void operator()(const Stmt& part) const {
      if (!part) return;
      const Uses& below = self.of(part);
      const auto middle = uses.insert(uses.end(), below.begin(), below.end());
      if (middle - uses.begin() > 16) return;  // a long list is sorted at the end
      std::sort(uses.begin(), middle);
      std::inplace_merge(uses.begin(), middle, uses.end());
    }
  };
  std::visit(Children{[visit = Visit{*this, uses}](const auto& part) { visit(part); }}, s.node().value);
  if (const Store* n = s.as<Store>()) uses.push_back({n->buffer->id, written_to});
  if (const Accumulate* n = s.as<Accumulate>()) uses.push_back({n->buffer->id, written_to});
  if (const Reduce* n = s.as<Reduce>()) uses.push_back({n->buffer->id, written_to});
  if (!std::is_sorted(uses.begin(), uses.end())) std::sort(uses.begin(), uses.end());
  uses.erase(std::unique(uses.begin(), uses.end()), uses.end());
  const auto bound = [&](int64_t id, bool is_buffer) {
    std::erase_if(uses, [&](const Use& use) { return use.id == id && (use.way == variable) != is_buffer; });
  };
  if (const For* n = s.as<For>()) bound(n->var.id, false);
  if (const Let* n = s.as<Let>()) bound(n->var.id, false);
  if (const Alloc* n = s.as<Alloc>()) bound(n->buffer->id, true);
  if (const Reduce* n = s.as<Reduce>()) {
    for (const Reduce::Range& r : n->ranges) bound(r.var.id, false);
    for (const Reduce::Definition& d : n->lets) bound(d.var.id, false);
  }
  return uses;
}

}  // namespace gradloom::ir
