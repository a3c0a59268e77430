#include "ir/schedule/nest_shape.h"

#include <algorithm>
#include <unordered_set>

#include "ir/analysis/linear.h"
#include "ir/analysis/races.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/schedule/site.h"

namespace gradloom::ir {
namespace {

void add_outermost(const Stmt& s, std::vector<Loop>& loops) {
  if (!s) return;
  if (const For* n = s.as<For>()) return loops.push_back(n->var.id);
  if (const Block* n = s.as<Block>())
    for (const Stmt& part : n->stmts) add_outermost(part, loops);
  if (const Let* n = s.as<Let>()) add_outermost(n->body, loops);
  if (const If* n = s.as<If>()) add_outermost(n->then_case, loops), add_outermost(n->else_case, loops);
  if (const Alloc* n = s.as<Alloc>()) add_outermost(n->body, loops);
  if (const Check* n = s.as<Check>()) add_outermost(n->body, loops);
}

}  // namespace

std::vector<Loop> outermost_loops(const Stmt& s) {
  std::vector<Loop> loops;
  add_outermost(s, loops);
  return loops;
}

std::vector<Loop> perfect_nest(const Schedule& s, Loop loop) {
  std::vector<Loop> loops{loop};
  while (const For* inner = s.get(loops.back()).body.as<For>()) {
    if (inner->kind != ForKind::serial) break;
    const bool depends = std::any_of(loops.begin(), loops.end(),
                                     [&](Loop l) { return mentions(inner->begin, l) || mentions(inner->extent, l); });
    if (depends) break;
    loops.push_back(inner->var.id);
  }
  return loops;
}

bool is_parallel(const Schedule& s, Loop loop) {
  const Site site = find_loop(s.kernel(), loop);
  return site.loop->kind == ForKind::serial && loop_carried_conflict(*site.loop, site.scope).empty();
}

std::optional<int64_t> known(const Expr& e) {
  const Linear sum = linear(e);
  return sum.terms.empty() && sum.exact ? std::optional<int64_t>(sum.constant) : std::nullopt;
}

std::optional<int64_t> extent_of(const Schedule& s, const std::vector<Loop>& loops) {
  int64_t product = 1;
  for (const Loop loop : loops) {
    const std::optional<int64_t> n = known(s.get(loop).extent);
    if (!n || (*n > 0 && product > (int64_t{1} << 40) / *n)) return std::nullopt;
    product *= std::max<int64_t>(*n, 0);
  }
  return product;
}

Expr element_offset(const Buffer& buffer, const std::vector<Expr>& index) {
  Expr sum = 0, dense = 1;
  for (size_t d = index.size(); d-- > 0;) {
    sum = index_add(sum, index_mul(index[d], buffer->strides.empty() ? dense : buffer->strides[d]));
    if (buffer->strides.empty()) dense = to_expr(linear(index_mul(dense, buffer->dims[d])));
  }
  return sum;
}

StepsAlong steps_along(const Schedule& s, Loop loop) {
  constexpr int64_t few = 4;
  const For& n = s.get(loop);
  StepsAlong steps;
  std::unordered_set<int64_t> varying, own;  // lets that depend on the loop; buffers of each iteration
  const auto varies = [&](const Expr& e) {
    return any_of(e, [&](const Expr& x) {
      const Var* v = x.as<Var>();
      return v && (v->id == loop || varying.contains(v->id));
    });
  };
  const auto look = [&](const Buffer& b, const std::vector<Expr>& index, bool writes) {
    if (b->role == Role::temp && b->space != Space::global) return;
    bool moves = false, neighbour = true;
    for (size_t d = 0; d < index.size(); ++d) {
      const int64_t c = linear(index[d]).coefficient(var(n.var));
      if (c == 0 && !varies(index[d])) continue;
      const std::optional<int64_t> stride =
          b->strides.empty() ? std::optional<int64_t>(d + 1 == index.size() ? 1 : 2) : as_int(b->strides[d]);
      if (c == 0 || c < -few || c > few || !stride || (*stride != 1 && *stride != -1)) {
        ++steps.others;
        steps.scattered += writes;
        return;
      }
      moves = true;
      neighbour &= c == 1 || c == -1;
    }
    steps.contiguous += moves && neighbour;
  };
  walk(
      n.body,
      [&](const Stmt& x) {
        if (const Let* l = x.as<Let>(); l && varies(l->value)) varying.insert(l->var.id);
        if (const Alloc* a = x.as<Alloc>()) own.insert(a->buffer->id);
        if (const Store* a = x.as<Store>(); a && !own.contains(a->buffer->id)) look(a->buffer, a->index, true);
        const Accumulate* a = x.as<Accumulate>();
        if (!a || own.contains(a->buffer->id)) return;
        look(a->buffer, a->index, true);
        steps.summed += std::none_of(a->index.begin(), a->index.end(), varies);
      },
      [&](const Expr& e) {
        if (const Load* l = e.as<Load>(); l && !own.contains(l->buffer->id)) look(l->buffer, l->index, false);
      });
  return steps;
}

std::optional<Vectors> fitting_vectors(const Expr& extent, int lanes, int copies) {
  lanes = std::min(lanes, 64);
  if (const std::optional<int64_t> n = known(extent)) {
    if (*n < 2) return std::nullopt;
    while (lanes > *n) lanes /= 2;
    while (copies > 1 && int64_t{lanes} * copies > *n) copies /= 2;
  }
  if (lanes < 2) return std::nullopt;
  return Vectors{lanes, copies};
}

}  // namespace gradloom::ir
