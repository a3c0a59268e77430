#include "ir/differentiate/products.h"

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "ir/analysis/ranges.h"
#include "ir/differentiate/reverse.h"
#include "ir/index_math.h"
#include "ir/reduction.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

bool multiplies(const Stmt& s, const Buffer& p) {
  const Accumulate* n = s.as<Accumulate>();
  return n && n->op == AccumulateOp::mul && n->buffer.same_as(p);
}

bool has_product(const Stmt& s, const Buffer& p) {
  return any_of(s, [&](const Stmt& x) { return multiplies(x, p); });
}

class Recurrences : public Rewriter {
 public:
  Recurrences(const Kernel& kernel, std::vector<Buffer> products) : known_(kernel), products_(std::move(products)) {
    for (const Scalar& s : kernel.scalars) scalars_.insert(s.var.id);
  }
  std::unordered_set<int64_t> written;  // the products that became recurrences

 private:
  using Rewriter::rewrite;
  bool becomes_recurrence(const Buffer& b) const {
    return std::any_of(products_.begin(), products_.end(), [&](const Buffer& p) { return p.same_as(b); });
  }
  // As the product's value is one of a gradient, its loops' order is none of it.
  Stmt rewrite(const Reduce& n, const Stmt& self) override {
    return n.op == AccumulateOp::mul && becomes_recurrence(n.buffer) ? (*this)(in_loops(n)) : self;
  }
  Stmt rewrite(const Block& n, const Stmt& self) override {
    std::vector<Stmt> stmts;
    for (const Stmt& s : n.stmts) {
      stmts.push_back(s);
      for (const Buffer& p : products_)
        if (has_product(s, p)) join(stmts, p);
    }
    bool changed = stmts.size() != n.stmts.size();
    for (size_t i = 0; i < stmts.size(); ++i) {
      const Stmt now = (*this)(stmts[i]);
      changed |= i < n.stmts.size() && !now.same_as(n.stmts[i]);
      stmts[i] = now;
    }
    return changed ? block(std::move(stmts)) : self;
  }

  // The last statement has p's product; where a store to p's one element comes before it, they become a recurrence.
  void join(std::vector<Stmt>& stmts, const Buffer& p) {
    const Stmt loops = stmts.back();
    size_t after = stmts.size() - 1;
    while (after > 0 && !touches(stmts[after - 1], p)) --after;
    const Store* start = after > 0 ? stmts[after - 1].as<Store>() : nullptr;
    if (!start || start->guard || !is_one_element(loops, *start)) return;
    // Its value is read where the loops begin.
    if (after + 1 != stmts.size() && has_load(start->value)) return;
    const Stmt chained = chain(loops, p, start->value, [&](const Expr& v) { return store(p, start->index, v); });
    if (!chained) return;
    written.insert(p->id);
    stmts.back() = chained;
    stmts.erase(stmts.begin() + static_cast<std::ptrdiff_t>(after) - 1);
  }
  static bool touches(const Stmt& s, const Buffer& p) {
    return writes(s, p) || any_of(s, [&](const Expr& e) { return loads(e, p); });
  }
  static bool loads(const Expr& e, const Buffer& p) {
    const Load* n = e.as<Load>();
    return n && n->buffer.same_as(p);
  }
  // Whether all that s does to the buffer is to multiply the element, in one statement.
  static bool is_one_element(const Stmt& s, const Store& start) {
    const Buffer& p = start.buffer;
    int products = 0;
    bool only = std::none_of(start.index.begin(), start.index.end(), has_load);
    walk(
        s,
        [&](const Stmt& x) {
          if (!multiplies(x, p)) {
            only &= !((x.as<Store>() || x.as<Accumulate>() || x.as<Reduce>()) && writes(x, p));
            return;
          }
          const Accumulate& n = *x.as<Accumulate>();
          ++products;
          only &= std::equal(n.index.begin(), n.index.end(), start.index.begin(), equal);
        },
        [&](const Expr& e) { only &= !loads(e, p); });
    return only && products == 1;
  }

  using Into = std::function<Stmt(const Expr& value)>;
  // s with p's product multiplied onto `from` and stored where `to` says; absent where a loop has no dim.
  Stmt chain(const Stmt& s, const Buffer& p, const Expr& from, const Into& to) {
    if (const Accumulate* n = s.as<Accumulate>()) {
      const Stmt product = to(from * n->value);
      return n->guard ? if_then(n->guard, product, to(from)) : product;
    }
    if (const Block* n = s.as<Block>()) {
      std::vector<Stmt> stmts;
      for (const Stmt& part : n->stmts) stmts.push_back(has_product(part, p) ? chain(part, p, from, to) : part);
      const bool all = std::all_of(stmts.begin(), stmts.end(), [](const Stmt& part) { return bool(part); });
      return all ? block(std::move(stmts)) : Stmt();
    }
    const auto below = [&](const Stmt& body, auto&& around) {
      const Stmt chained = chain(body, p, from, to);
      return chained ? around(chained) : Stmt();
    };
    if (const Let* n = s.as<Let>())
      return below(n->body, [&](const Stmt& body) { return let(n->var, n->value, body); });
    if (const Alloc* n = s.as<Alloc>()) return below(n->body, [&](const Stmt& body) { return alloc(n->buffer, body); });
    if (const Check* n = s.as<Check>())
      return below(n->body, [&](const Stmt& body) { return check(n->condition, n->position, n->argument, body); });
    if (const If* n = s.as<If>()) {
      const bool then = has_product(n->then_case, p);
      const Stmt other = then ? n->else_case : n->then_case;
      const Stmt kept = block({other ? other : block({}), to(from)});
      return below(then ? n->then_case : n->else_case, [&](const Stmt& body) {
        return then ? if_then(n->condition, body, kept) : if_then(n->condition, kept, body);
      });
    }
    const For* n = s.as<For>();
    return n ? loop(*n, p, from, to) : Stmt();
  }
  Stmt loop(const For& n, const Buffer& p, const Expr& from, const Into& to) {
    const bool sized = !any_of(
        n.extent, [&](const Expr& e) { return e.as<Load>() || (e.as<Var>() && !scalars_.contains(e.as<Var>()->id)); });
    if (!sized) return {};
    const Expr count = known_.of(n.extent).min.value_or(-1) >= 0 ? n.extent : index_max(n.extent, 0);
    const Buffer t =
        make_buffer({.name = p->name + "_" + n.var.name, .dtype = p->dtype, .dims = {index_add(count, 1)}});
    const Expr k = index_sub(var(n.var), n.begin);
    const Stmt body = chain(n.body, p, load(t, {k}), [&](const Expr& v) { return store(t, {index_add(k, 1)}, v); });
    if (!body) return {};
    const Stmt filled = for_loop(n.var, n.begin, n.extent, n.kind, body);
    // What a failed check leaves out is not read unwritten.
    const bool checks = any_of(body, [](const Stmt& x) { return x.as<Check>() != nullptr; });
    return alloc(t, block({checks ? filled_with_zeros(t) : Stmt(), store(t, {0}, from), filled, to(load(t, {count}))}));
  }

  const Ranges known_;
  const std::vector<Buffer> products_;
  std::unordered_set<int64_t> scalars_;
};

bool is_product(const Stmt& s) {
  const Accumulate* n = s.as<Accumulate>();
  const Reduce* r = s.as<Reduce>();
  return (n && n->op == AccumulateOp::mul) || (r && r->op == AccumulateOp::mul);
}

[[noreturn]] void refuse(const Forward& forward, const Event& product) {
  std::string loop;
  for (const Place* around : path(product.place))
    if (const For* f = around->around.stmt.as<For>()) loop = f->var.name;
  const std::string& p = product.buffer->name;
  forward.refuse(
      "buffer " + p + " is a product, of which each factor's gradient needs the others: multiply one element" +
      " by one statement, in loops of known extents right after its first value is stored" +
      (loop.empty()
           ? ""
           : ", or give it a dim for " + loop + ": " + p + "[" + loop + " + 1] = " + p + "[" + loop + "] * ..."));
}

}  // namespace

Kernel products_as_recurrences(const Kernel& kernel, const Derivation& how) {
  if (!any_of(kernel.body, [](const Stmt& s) { return is_product(s); })) return kernel;
  const Forward forward(kernel, how);
  std::vector<const Event*> all;
  std::unordered_map<int64_t, int> statements;
  std::vector<Buffer> products;
  for (const Event& e : forward.events())
    if (e.kind == Event::accumulate && is_product(e.stmt) && forward.is_active(e.buffer))
      all.push_back(&e), ++statements[e.buffer->id];
  for (const Event* e : all) statements.at(e->buffer->id) > 1 ? refuse(forward, *e) : products.push_back(e->buffer);
  if (all.empty()) return kernel;
  Recurrences recurrences(kernel, std::move(products));
  Kernel result = recurrences(kernel);
  for (const Event* e : all)
    if (!recurrences.written.contains(e->buffer->id)) refuse(forward, *e);
  return result;
}

}  // namespace gradloom::ir
