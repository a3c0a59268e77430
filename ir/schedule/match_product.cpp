// Recognises matrix products.
#include <algorithm>

#include "ir/analysis/races.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/schedule/tile_product.h"

namespace gradloom::ir {
namespace {

struct GuardLoads : Rewriter {
  explicit GuardLoads(const std::vector<EdgeGuard>& e) : edges(e) {}
  using Rewriter::rewrite;
  Expr rewrite(const Load& n, const Expr& self) override {
    Expr guard;
    for (const EdgeGuard& edge : edges)
      if (std::any_of(n.index.begin(), n.index.end(), [&](const Expr& i) { return mentions(i, edge.var.id); }))
        guard = both(guard, var(edge.var) < edge.end);
    if (!guard) return Rewriter::rewrite(n, self);
    bool changed = false;  // the index may itself contain loads, and so may the value of a masked load
    return load(n.buffer, list(n.index, changed), both(guard, (*this)(n.guard)),
                n.guard ? (*this)(n.otherwise) : zero(self.type()));
  }
  const std::vector<EdgeGuard>& edges;
};

using Fail = std::function<void(const std::string& why)>;

std::string no_sum(const Product& p) {
  return "loop " + p.n->var.name + " holds no sum, its first value, a loop over k and what becomes of it";
}
std::string not_products(const Product& p) {
  return "the second statement is not a loop that only adds products to " + p.sum->name;
}

// alloc sum { sum = first; for k { sum ... } rest }
const Accumulate* match_own_sum(const Alloc& own, Product& p, const Fail& fail) {
  const Block* body = own.body.as<Block>();
  if (!body || body->stmts.size() < 3 || !own.buffer->dims.empty())
    fail(no_sum(p));
  p.sum = own.buffer;
  const Store* first = body->stmts[0].as<Store>();
  if (!first || !first->buffer.same_as(p.sum) || first->guard) fail("the first statement does not set " + p.sum->name);
  p.first = first->value;
  p.k = body->stmts[1].as<For>();
  const Accumulate* added = p.k ? p.k->body.as<Accumulate>() : nullptr;
  if (!added || !added->buffer.same_as(p.sum)) fail(not_products(p));
  p.rest = block({body->stmts.begin() + 2, body->stmts.end()});
  return added;
}

// [c[i, j] = first;] for k { c[i, j] ... } rest
const Accumulate* match_element(const Stmt& body, Product& p, const Fail& fail) {
  const Block* all = body.as<Block>();
  std::vector<Stmt> stmts = all ? all->stmts : std::vector<Stmt>{body};
  const Store* first = stmts.empty() ? nullptr : stmts[0].as<Store>();
  const size_t at = first ? 1 : 0;
  p.k = at < stmts.size() ? stmts[at].as<For>() : nullptr;
  const Accumulate* added = p.k ? p.k->body.as<Accumulate>() : nullptr;
  if (!added) fail(no_sum(p));
  const Buffer& c = added->buffer;
  for (const Expr& i : added->index)
    if (mentions(i, p.k->var.id) || has_load(i)) fail("what is added to is not one element of " + c->name);
  if (first && (!first->buffer.same_as(c) || first->guard ||
                !std::equal(first->index.begin(), first->index.end(), added->index.begin(), added->index.end(),
                            [](const Expr& x, const Expr& y) { return equal(x, y); })))
    fail("the first statement does not set the element of " + c->name + " that is added to");
  p.sum = make_buffer(
      {.name = c->name + "_sum", .dtype = c->dtype, .dims = {}, .role = Role::temp, .space = Space::registers});
  p.first = first ? first->value : load(c, added->index);
  std::vector<Stmt> rest(stmts.begin() + static_cast<std::ptrdiff_t>(at) + 1, stmts.end());
  rest.insert(rest.begin(), store(c, added->index, load(p.sum, {})));
  p.rest = block(std::move(rest));
  return added;
}

}  // namespace

Product match_product(const Site& site, const std::string& step) {
  const For& m = *site.loop;
  const auto fail = [&](const std::string& why) { refuse(step, m.var.name, why); };
  Product p;
  p.m = &m;
  p.n = m.body.as<For>();
  if (!p.n) fail("its body is not just the loop over columns");
  require_serial(step, m);
  require_serial(step, *p.n);
  const Accumulate* step_k = nullptr;
  if (const Alloc* own = p.n->body.as<Alloc>())
    step_k = match_own_sum(*own, p, fail);
  else
    step_k = match_element(p.n->body, p, fail);
  require_serial(step, *p.k);
  const Binary* product = step_k->op == AccumulateOp::add ? step_k->value.as<Binary>() : nullptr;
  if (product && product->op != BinaryOp::mul) product = nullptr;
  if ((!product && step_k->op != AccumulateOp::fma) || step_k->guard || step_k->atomic) fail(not_products(p));
  p.fused = !product;
  const Expr value = product ? product->a : step_k->value, factor = product ? product->b : step_k->factor;

  const int64_t rows = m.var.id, columns = p.n->var.id, depth = p.k->var.id;
  p.a_first = !mentions(value, columns) && !mentions(factor, rows);
  p.a = p.a_first ? value : factor;
  p.b = p.a_first ? factor : value;
  if (mentions(p.a, columns) || mentions(p.b, rows))
    fail("a factor depends on both " + m.var.name + " and " + p.n->var.name);
  for (const For* inner : {p.n, p.k})
    for (const Expr* bound : {&inner->begin, &inner->extent})
      if (mentions(*bound, rows) || mentions(*bound, columns) || may_clobber(m.body, *bound))
        fail("the bounds of loop " + inner->var.name + " change while it runs");
  for (const Expr* operand : {&p.a, &p.b}) {
    if (reads(*operand, p.sum)) fail("a factor reads the sum");
    if (may_clobber(p.rest, *operand)) fail("a factor reads what the nest writes");
  }
  if (reads(p.first, p.sum)) fail("the sum's first value reads it");
  if (mentions(p.first, depth)) fail("the first value depends on k");
  for (const BufferAccess& a : accesses(p.rest, p.sum))
    if (a.writes) fail("the sum is written after its loop");
  const Store* store = p.rest.as<Store>();
  const Load* stored = store ? store->value.as<Load>() : nullptr;
  if (stored && stored->buffer.same_as(p.sum) && !stored->guard && !store->guard && !store->streaming &&
      store->buffer->dtype == p.sum->dtype)
    p.plain = store;
  return p;
}

void require_independent(const Product& p, const Site& site, const std::string& step) {
  // Elements must be independent: rows of one another for any columns, and the columns of one row.
  for (const std::string& conflict :
       {loop_carried_conflict(*p.m, site.scope), loop_carried_conflict(*p.n, site.inside())})
    if (!conflict.empty()) refuse(step, p.m->var.name, conflict);
}

Expr guard_loads(const Expr& e, const std::vector<EdgeGuard>& edges) {
  return edges.empty() ? e : GuardLoads(edges)(e);
}

int64_t step_of(const Expr& e, int64_t var_id) {
  int64_t result = 0;
  walk(e, [&](const Expr& x) {
    const Load* l = x.as<Load>();
    if (!l || result == 1) return;
    Linear place;
    Expr dense = 1;
    bool known = true, depends = false;
    for (size_t d = l->index.size(); d-- > 0;) {
      const Linear i = linear(l->index[d]);
      for (const auto& [term, coefficient] : i.terms) {
        if (!mentions(term, var_id)) continue;
        depends = true;
        const Expr stride = l->buffer->strides.empty() ? dense : l->buffer->strides[d];
        const std::optional<int64_t> s = as_int(stride);
        if (!s || !term.as<Var>())
          known = false;
        else
          place.add(term, coefficient * *s);
      }
      if (l->buffer->strides.empty()) {
        const std::optional<int64_t> a = as_int(dense), b = as_int(l->buffer->dims[d]);
        dense = a && b ? Expr(*a * *b) : dense * l->buffer->dims[d];
      }
    }
    if (!depends) return;
    result = known && place.terms.size() == 1 && place.terms[0].second == 1 ? 1 : -1;
  });
  return result;
}

}  // namespace gradloom::ir
