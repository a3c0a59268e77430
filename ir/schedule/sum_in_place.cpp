// The step sum_in_place: sums that are added up where they are stored in the end.
#include <algorithm>

#include "gradloom/schedule.h"
#include "ir/redirect.h"
#include "ir/rewrite.h"
#include "ir/schedule/site.h"

namespace gradloom::ir {
namespace {

// A loop nest that stores each element of the sums, or adds it, to an element of its own of another buffer.
struct WriteOut {
  Buffer to;
  std::vector<Expr> index;                     // in `to`
  std::vector<std::pair<int64_t, size_t>> at;  // a loop's variable, and the dim of the sums that it is the index of
  bool adds = false;
};

Expr without_bitcasts(Expr e) {
  while (const Bitcast* b = e.as<Bitcast>()) e = b->value;
  return e;
}

// Whether a value is the sum of both elements; where the total is 0 it may be the old one.
bool is_sum(const Expr& value, const Expr& old, const Expr& total) {
  const Expr e = without_bitcasts(value);
  if (const Binary* sum = e.as<Binary>(); sum && sum->op == BinaryOp::add)
    return (equal(sum->a, old) && equal(sum->b, total)) || (equal(sum->a, total) && equal(sum->b, old));
  const Select* s = e.as<Select>();
  const Binary* test = s ? s->condition.as<Binary>() : nullptr;
  return test && test->op == BinaryOp::eq && equal(test->a, total) && equal(test->b, zero(total.type())) &&
         equal(without_bitcasts(s->a), old) && is_sum(s->b, old, total);
}

std::optional<WriteOut> write_out(const Stmt& nest, const Buffer& sums) {
  std::vector<const For*> loops;
  Stmt inner = nest;
  for (; inner.as<For>(); inner = inner.as<For>()->body) loops.push_back(inner.as<For>());
  const Store* st = inner.as<Store>();
  const std::vector<BufferAccess> reads = accesses(inner, sums);
  if (!st || st->guard || st->buffer.same_as(sums) || st->buffer->dtype != sums->dtype || reads.empty()) return {};
  const std::vector<Expr>& own = reads[0].index;
  if (!covers_region(loops, own, std::vector<Expr>(own.size(), Expr(0)), sums->dims)) return {};
  WriteOut out{.to = st->buffer, .index = st->index};
  for (const For* f : loops) {
    const auto is = [&](const Expr& i) { return i.as<Var>() && i.as<Var>()->id == f->var.id; };
    const auto mentioned = [&](const Expr& i) { return mentions(i, f->var.id); };
    const auto dim = std::find_if(own.begin(), own.end(), is);
    if (dim == own.end() || std::count_if(st->index.begin(), st->index.end(), mentioned) != 1 ||
        std::none_of(st->index.begin(), st->index.end(), is))
      return {};
    out.at.push_back({f->var.id, static_cast<size_t>(dim - own.begin())});
  }
  const Expr total = load(sums, own), old = load(st->buffer, st->index);
  out.adds = !equal(st->value, total);
  if (out.adds && !is_sum(st->value, old, total)) return {};
  return out;
}

bool fills_with_zeros(const Stmt& s, const Buffer& sums) {
  std::vector<const For*> loops;
  Stmt inner = s;
  for (; inner.as<For>(); inner = inner.as<For>()->body) loops.push_back(inner.as<For>());
  const Store* st = inner.as<Store>();
  return st && !st->guard && st->buffer.same_as(sums) && equal(st->value, zero(st->value.type())) &&
         covers_region(loops, st->index, std::vector<Expr>(sums->dims.size(), Expr(0)), sums->dims);
}

}  // namespace

void Schedule::sum_in_place(Loop id, const Buffer& sums) {
  Site site = find_loop(kernel_, id);
  const std::string line = "sum_in_place " + handle_name(kernel_, id) + " " + handle_name(kernel_, sums);
  const std::string name = site.name(), of = "buffer " + sums->name;
  const auto fail = [&](const std::string& why) { refuse("sum_in_place", name, why); };
  const auto declares = [&](const Stmt& s) { return s.as<Alloc>() && s.as<Alloc>()->buffer.same_as(sums); };
  const size_t around =
      static_cast<size_t>(std::find_if(site.path.begin(), site.path.end(), declares) - site.path.begin());
  const auto uses = [&](const Stmt& s) { return !accesses(s, sums).empty(); };
  const Block* body = around + 3 == site.path.size() ? site.path[around + 1].as<Block>() : nullptr;
  if (!body) fail("it does not stand in the body in which " + of + " is allocated");
  const auto here =
      std::find_if(body->stmts.begin(), body->stmts.end(), [&](const Stmt& s) { return s.same_as(site.stmt()); });
  if (std::any_of(here + 1, body->stmts.end(), uses)) fail(of + " is used after it");
  const std::optional<WriteOut> out = write_out(site.stmt(), sums);
  if (!out)
    fail("it does not just store, or add, each element of " + of + " to one of its own of another buffer of its type");

  std::vector<Stmt> stmts(body->stmts.begin(), here);
  const auto first = std::find_if(stmts.begin(), stmts.end(), uses);
  if (first == stmts.end() || !fills_with_zeros(*first, sums)) fail(of + " is not filled with zeros first");
  for (const Stmt& s : stmts) {
    if (!accesses(s, out->to).empty()) fail("buffer " + out->to->name + " is used before it");
    if (s.same_as(*first)) continue;
    for (const BufferAccess& a : accesses(s, sums)) {
      const Accumulate* update = a.stmt.as<Accumulate>();
      if (!a.writes || !update || !update->buffer.same_as(sums)) fail(of + " is not only added to");
      if (out->adds && update->op != AccumulateOp::add && update->op != AccumulateOp::fma)
        fail(of + " is not only added to");
    }
  }
  if (out->adds && is_float(sums->dtype) && level_ != Determinism::relaxed)
    fail("it would round sums of " + std::string(to_string(sums->dtype)) + " in another order; the kernel's level is " +
         level_name(level_));

  if (out->adds) stmts.erase(first);
  stmts.insert(stmts.end(), here + 1, body->stmts.end());
  const auto place = [&](const std::vector<Expr>& index) {
    Substitution at;
    for (const auto& [var, dim] : out->at) at[var] = index[dim];
    std::vector<Expr> to;
    for (const Expr& i : out->index) to.push_back(substitute(i, at));
    return to;
  };
  const Stmt in_place = redirect(block(std::move(stmts)), sums, {out->to, place});
  site.path.resize(around + 1);
  put("sum_in_place", site, in_place, line);
}

}  // namespace gradloom::ir
