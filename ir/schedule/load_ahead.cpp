// The step load_ahead: what threads load from memory in an iteration of a loop is loaded, to registers, an iteration
// earlier, so that the load is in flight during the rest of that one.
#include <algorithm>

#include "gradloom/schedule.h"
#include "ir/analysis/loop_bounds.h"
#include "ir/analysis/verify_gpu.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/schedule/site.h"
#include "ir/wrappers.h"

namespace gradloom::ir {
namespace {

constexpr const char* step = "load_ahead";
constexpr int64_t most_bytes = 512;  // of a thread's registers

// for k { for t thread { loops, lets, conditions, .. } .. }
class Ahead {
 public:
  Ahead(const For& loop, const For& threads) : loop_(loop), threads_(threads) {}
  struct Early {
    Expr load;
    Buffer own;
    std::vector<Expr> index;
  };

  // What is loaded early, in the conditions and lets that need nothing from memory.
  // `certain`: the statement is reached where those are met.
  Stmt loads(const Stmt& s, Ranges known, std::vector<const For*> around, bool certain = true) {
    if (const Block* b = s.as<Block>()) {
      std::vector<Stmt> stmts;
      for (const Stmt& part : b->stmts) stmts.push_back(loads(part, known, around, certain));
      return block(std::move(stmts));
    }
    std::vector<Stmt> found;
    for (const Expr& e : exprs_of(s)) take(e, known, around, certain, found);
    if (const For* f = s.as<For>()) {
      if (!is_const(f->begin, 0) || !as_int(f->extent)) return block(std::move(found));
      around.push_back(f);
      known.enter(*f);
      found.push_back(for_loop(f->var, f->begin, f->extent, f->kind, loads(f->body, known, around, certain)));
    } else if (const Let* l = s.as<Let>()) {
      const bool early = !has_load(l->value) && !unknown(l->value);
      if (early)
        known.enter(*l);
      else
        unknown_.push_back(l->var.id);
      const Stmt body = loads(l->body, known, around, certain);
      found.push_back(early && mentions(body, l->var.id) ? let(l->var, l->value, body) : body);
    } else if (const If* i = s.as<If>(); i && !has_load(i->condition) && !unknown(i->condition)) {
      Ranges inside = known;
      inside.assume(i->condition);
      const Stmt body = loads(i->then_case, inside, around, certain);
      if (!empty(body)) found.push_back(if_then(i->condition, body));
    } else if (is_wrapper(s) && !s.as<Alloc>()) {
      // A check, or a condition on what is loaded: without it.
      found.push_back(loads(body_of(s), known, around, false));
    }
    std::erase_if(found, empty);
    return block(std::move(found));
  }

  std::vector<Early> early;

 private:
  static bool empty(const Stmt& s) {
    const Block* b = s.as<Block>();
    const For* f = s.as<For>();
    return !s || (b && std::all_of(b->stmts.begin(), b->stmts.end(), empty)) || (f && empty(f->body));
  }
  bool unknown(const Expr& e) const {
    return std::any_of(unknown_.begin(), unknown_.end(), [&](int64_t v) { return mentions(e, v); });
  }
  // Whether no divisor is 0, and no other one or shift count is variable.
  static bool defined(const Expr& e, const Ranges& known) {
    return !any_of(e, [&](const Expr& x) {
      const Binary* b = x.as<Binary>();
      if (!b || !has_variable_divisor(x) || as_int(b->b)) return false;
      const bool division = b->op == BinaryOp::floor_div || b->op == BinaryOp::floor_mod;
      return !division ? b->op != BinaryOp::add && b->op != BinaryOp::sub && b->op != BinaryOp::mul
                       : known.of(b->b).min.value_or(0) < 1;
    });
  }
  static std::vector<Expr> exprs_of(const Stmt& s) {
    if (is_wrapper(s)) return own_exprs(s);
    std::vector<Expr> list;
    const auto add = [&](const auto& n) {
      list = n.index;
      list.push_back(n.value);
      if (n.guard) list.push_back(n.guard);
    };
    if (const Store* n = s.as<Store>()) add(*n);
    if (const Accumulate* n = s.as<Accumulate>()) {
      add(*n);
      if (n->factor) list.push_back(n->factor);
    }
    return list;
  }
  void take(const Expr& e, const Ranges& known, const std::vector<const For*>& around, bool certain,
            std::vector<Stmt>& found) {
    ir::walk(e, [&](const Expr& x) {
      const Load* l = x.as<Load>();
      if (!l || l->guard || x.lanes() > 1 || writes(loop_.body, l->buffer)) return;
      if (l->buffer->role != Role::in && l->buffer->role != Role::inout) return;
      int times = 0;  // that of one place is not what stands under other conditions
      ir::walk(
          threads_.body, [](const Stmt&) {}, [&](const Expr& o) { times += equal(o, x); });
      if (times != 1) return;
      Expr exists;
      for (size_t d = 0; d < l->index.size(); ++d) {
        const Expr &i = l->index[d], &dim = l->buffer->dims[d];
        if (has_load(i) || unknown(i) || !defined(i, known)) return;
        if (certain) continue;
        if (known.proves(0 <= i) != true) exists = both(exists, 0 <= i);
        if (known.proves(i < dim) != true) exists = both(exists, i < dim);
      }
      std::vector<Expr> dims{threads_.extent}, at{var(threads_.var)};
      __int128 own = size_of(x.dtype());
      for (const For* f : around) {
        dims.push_back(f->extent), at.push_back(var(f->var));
        own *= std::min<int64_t>(std::max<int64_t>(*as_int(f->extent), 0), most_bytes + 1);
        if (own > most_bytes) return;
      }
      bytes_ += static_cast<int64_t>(own);
      if (bytes_ > most_bytes) return;
      early.push_back({x,
                       make_buffer({.name = l->buffer->name + "_ahead",
                                    .dtype = x.dtype(),
                                    .dims = dims,
                                    .role = Role::temp,
                                    .space = Space::per_thread,
                                    .alignment = 64}),
                       at});
      found.push_back(store(early.back().own, at, load(l->buffer, l->index, exists)));
    });
  }

  const For& loop_;
  const For& threads_;
  int64_t bytes_ = 0;
  std::vector<int64_t> unknown_;  // lets that need what is loaded
};

// Loads taken from where they were put.
struct FromRegisters : Rewriter {
  using Rewriter::rewrite;
  explicit FromRegisters(const std::vector<Ahead::Early>& e) : early(e) {}
  Expr rewrite(const Load& n, const Expr& self) override {
    for (const Ahead::Early& e : early)
      if (equal(e.load, self)) return load(e.own, e.index);
    return Rewriter::rewrite(n, self);
  }
  const std::vector<Ahead::Early>& early;
};

}  // namespace

// Legal because what is loaded early is not written by the loop, and where it might not exist, behind its bounds.
void Schedule::load_ahead(Loop id, Loop threads_id) {
  const Site site = find_loop(kernel_, id);
  const For& loop = *site.loop;
  const std::string& name = loop.var.name;
  require_serial(step, loop);
  const For& threads = get_loop(kernel_, threads_id);
  std::vector<Stmt> tables;  // allocations around all of it
  Stmt inside = loop.body;
  for (; inside.as<Alloc>(); inside = body_of(inside)) tables.push_back(inside);
  const Block* body = inside.as<Block>();
  const Stmt first = body && !body->stmts.empty() ? body->stmts.front() : inside;
  if (!first.as<For>() || first.as<For>()->var.id != threads_id)
    refuse(step, name, "its body does not begin with loop " + threads.var.name);
  if (threads.kind != ForKind::thread || !is_const(threads.begin, 0) || as_int(threads.extent).value_or(0) < 2 ||
      as_int(threads.extent).value_or(most_block_threads + 1) > most_block_threads)
    refuse(step, name, "loop " + threads.var.name + " is not over a constant number of threads, 2 or more");
  const std::string line = std::string(step) + " " + handle_name(kernel_, id) + " " + handle_name(kernel_, threads_id);
  const auto varies = [&](const Expr& e) { return e && mentions(e, loop.var.id); };
  for (const Stmt& table : tables) {
    const Buffer& b = table.as<Alloc>()->buffer;
    if (std::any_of(b->dims.begin(), b->dims.end(), varies) || varies(b->facts.min) || varies(b->facts.max))
      refuse(step, name, "buffer " + b->name + " depends on it");
  }
  Ranges known = site.inside();
  known.enter(threads);
  Ahead ahead(loop, threads);
  const Stmt loads = ahead.loads(threads.body, known, {});
  if (ahead.early.empty())
    refuse(step, name,
           "loop " + threads.var.name + " loads nothing from memory that can be loaded an iteration earlier");

  const Bounds bounds = read_once(loop, site.scope);
  const Expr next = index_add(bounds.begin, var(loop.var)), now = index_sub(next, 1);
  const auto at = [&](const Expr& iteration, const Stmt& s) { return substitute(s, {{id, iteration}}); };
  const Expr begun = var(loop.var) > 0;
  const Stmt uses = if_then(begun, at(now, FromRegisters(ahead.early)(Stmt(threads.body))));
  const Stmt fetch = if_then(var(loop.var) < bounds.extent, refresh(at(next, loads)));
  std::vector<Stmt> stmts{for_loop(threads.var, 0, threads.extent, ForKind::thread, block({uses, fetch}))};
  if (body && body->stmts.size() > 1)
    stmts.push_back(if_then(begun, at(now, block({body->stmts.begin() + 1, body->stmts.end()}))));
  Stmt all =
      for_loop(loop.var, 0, index_add(bounds.extent, 1), ForKind::serial, wrapped(tables, block(std::move(stmts))));
  for (size_t i = ahead.early.size(); i-- > 0;) all = alloc(ahead.early[i].own, all);
  put(step, site, bounds.wrap(all), line);
}

}  // namespace gradloom::ir
