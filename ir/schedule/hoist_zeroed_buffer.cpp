// The step hoist_zeroed_buffer: hoists the allocation of sums that every iteration starts at zero.
#include <algorithm>

#include "gradloom/schedule.h"
#include "ir/index_math.h"
#include "ir/redirect.h"
#include "ir/rewrite.h"
#include "ir/schedule/site.h"

namespace gradloom::ir {
namespace {

class Carry {
 public:
  // `around`: the variables bound outside the loop.
  Carry(const For& loop, const Buffer& buffer, std::vector<Var> around)
      : loop_(loop), buffer_(buffer), around_(std::move(around)), origin_(buffer->dims.size(), Expr(0)) {}

  // The loop's body without the allocation and the zero-fill, which goes to `zeros`.
  Stmt body(const Stmt& s) {
    if (const Alloc* a = s.as<Alloc>())
      return a->buffer.same_as(buffer_) ? uses(a->body) : alloc(a->buffer, body(a->body));
    if (const Let* l = s.as<Let>()) return let(l->var, l->value, body(l->body));
    if (const If* i = s.as<If>(); i && !i->else_case) return if_then(i->condition, body(i->then_case));
    refuse("hoist_zeroed_buffer", loop_.var.name,
           "an iteration does more than to allocate buffer " + buffer_->name + " and use it");
  }
  Stmt zeros;

 private:
  Stmt uses(const Stmt& s) {
    const Block* block_of = s.as<Block>();
    std::vector<Stmt> stmts = block_of ? block_of->stmts : std::vector<Stmt>{s};
    const auto touches = [&](const Stmt& x) { return !accesses(x, buffer_).empty(); };
    const auto first = std::find_if(stmts.begin(), stmts.end(), touches);
    const auto last = std::find_if(stmts.rbegin(), stmts.rend(), touches);
    if (first == stmts.end() || !zeroes(*first))
      refuse("hoist_zeroed_buffer", loop_.var.name, "buffer " + buffer_->name + " is not filled with zeros first");
    if (!closed_zeros(*first))
      refuse("hoist_zeroed_buffer", loop_.var.name, "where buffer " + buffer_->name + " is zeroed depends on it");
    zeros = *first;
    *last = emptied(*last, {});
    stmts.erase(first);
    return block(std::move(stmts));
  }

  bool zeroes(const Stmt& s) const {
    std::vector<const For*> loops;
    Stmt inner = s;
    while (const For* f = inner.as<For>()) loops.push_back(f), inner = f->body;
    const Store* st = inner.as<Store>();
    return st && !st->guard && st->buffer.same_as(buffer_) && equal(st->value, zero(st->value.type())) &&
           covers_region(loops, st->index, origin_, buffer_->dims);
  }

  bool closed_zeros(const Stmt& s) const {
    std::vector<Var> bound = around_;
    Stmt inner = s;
    while (const For* f = inner.as<For>()) {
      if (!uses_only(f->begin, bound) || !uses_only(f->extent, bound)) return false;
      bound.push_back(f->var), inner = f->body;
    }
    const std::vector<Expr>& index = inner.as<Store>()->index;
    return std::all_of(index.begin(), index.end(), [&](const Expr& i) { return uses_only(i, bound); });
  }

  // Matches loops that read all of the buffer, each element once, and adds the store of zero after each read.
  Stmt emptied(const Stmt& s, std::vector<const For*> loops) const {
    if (const For* f = s.as<For>(); f && f->kind == ForKind::serial) {
      loops.push_back(f);
      return for_loop(f->var, f->begin, f->extent, f->kind, emptied(f->body, std::move(loops)));
    }
    const std::vector<BufferAccess> reads = accesses(s, buffer_);
    const bool each_once = std::all_of(reads.begin(), reads.end(), [&](const BufferAccess& a) {
      return !a.writes && covers_region(loops, a.index, origin_, buffer_->dims) &&
             std::equal(a.index.begin(), a.index.end(), reads[0].index.begin(),
                        [](const Expr& x, const Expr& y) { return equal(x, y); });
    });
    const bool once =
        !reads.empty() && each_once && !holds_loop(s) && std::all_of(loops.begin(), loops.end(), [&](const For* f) {
          return is_const(f->extent, 1) || std::any_of(reads[0].index.begin(), reads[0].index.end(),
                                                       [&](const Expr& i) { return mentions(i, f->var.id); });
        });
    const bool bound_inside = any_of(s, [&](const Stmt& x) {  // some variable that the index mentions
      const Let* l = x.as<Let>();
      return l && std::any_of(reads.begin(), reads.end(), [&](const BufferAccess& a) {
               return std::any_of(a.index.begin(), a.index.end(),
                                  [&](const Expr& i) { return mentions(i, l->var.id); });
             });
    });
    if (!once || bound_inside)
      refuse("hoist_zeroed_buffer", loop_.var.name, "buffer " + buffer_->name + " is not read last, each element once");
    return block({s, store(buffer_, reads[0].index, zero({buffer_->dtype, 1}))});
  }

  const For& loop_;
  const Buffer& buffer_;
  const std::vector<Var> around_;
  const std::vector<Expr> origin_;
};

}  // namespace

void Schedule::hoist_zeroed_buffer(Loop id, const Buffer& buffer) {
  const Site site = find_loop(kernel_, id);
  const For& loop = *site.loop;
  require_serial("hoist_zeroed_buffer", loop);
  require_expanded("hoist_zeroed_buffer", loop);
  const std::string line = "hoist_zeroed_buffer " + handle_name(kernel_, id) + " " + handle_name(kernel_, buffer);
  const std::vector<Var> around = visible(kernel_, site, false);
  for (const Expr& dim : buffer->dims) {
    if (!uses_only(dim, around))
      refuse("hoist_zeroed_buffer", loop.var.name, "the dims of buffer " + buffer->name + " depend on it");
    // Guards around the allocation, or a loop that does not run, no longer protect it.
    if (site.scope.of(dim).min.value_or(-1) < 0)
      refuse("hoist_zeroed_buffer", loop.var.name, "a dim of buffer " + buffer->name + " may be negative");
  }
  Carry carry(loop, buffer, around);
  const Stmt body = carry.body(loop.body);
  Stmt carried = block({carry.zeros, for_loop(loop.var, loop.begin, loop.extent, loop.kind, body)});
  Buffer declared = with_closed_facts(buffer, around);
  if (declared->facts.exclusive) {  // of one iteration's buffer, by the author's word
    BufferNode shared = *declared;
    shared.id = 0;
    shared.facts.exclusive = false;
    declared = make_buffer(std::move(shared));
  }
  if (!declared.same_as(buffer)) carried = redirect(carried, buffer, {declared});
  put("hoist_zeroed_buffer", site, alloc(declared, carried), line);
}

}  // namespace gradloom::ir
