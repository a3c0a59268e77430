// The step overlap: software pipelining of the two stages of a loop's iterations, with a buffer of their own each.
#include <algorithm>

#include "gradloom/schedule.h"
#include "ir/analysis/races.h"
#include "ir/index_math.h"
#include "ir/redirect.h"
#include "ir/rewrite.h"
#include "ir/schedule/site.h"
#include "ir/wrappers.h"

namespace gradloom::ir {
namespace {

constexpr const char* step = "overlap";
constexpr int64_t most_parts = 64, most_extent = int64_t{1} << 31;

// A constant stored to every element of a buffer, by loops around one store; absent where it is not that.
Expr fills(const Stmt& s, const Buffer& buffer) {
  const std::vector<BufferAccess> all = accesses(s, buffer);
  if (std::count_if(all.begin(), all.end(), [](const BufferAccess& a) { return a.writes; }) != 1) return {};
  const auto writes_it = [&](const Stmt& x) { return writes(x, buffer); };
  std::vector<const For*> loops;
  Stmt inner = s;
  for (;;) {
    if (const For* f = inner.as<For>()) {
      loops.push_back(f), inner = f->body;
    } else if (const Block* b = inner.as<Block>()) {
      inner = *std::find_if(b->stmts.begin(), b->stmts.end(), writes_it);
    } else if (inner.as<Let>() || inner.as<Alloc>()) {
      inner = body_of(inner);
    } else {
      break;
    }
  }
  const Store* st = inner.as<Store>();
  const std::vector<Expr> origin(buffer->dims.size(), Expr(0));
  return st && !st->guard && st->value.as<Const>() && covers_region(loops, st->index, origin, buffer->dims) ? st->value
                                                                                                            : Expr();
}

// alloc b { fill b; for s { for first { .. b .. } for second { .. b .., and fills it again } } }
class Overlap {
 public:
  Overlap(const Kernel& kernel, const Site& site, int64_t first, int64_t second, int64_t parts)
      : site_(site), loop_(*site.loop), parts_(parts), bounds_(read_once(loop_, site.scope)) {
    require_serial(step, loop_);
    require_expanded(step, loop_);
    Stmt inside = loop_.body;
    for (; inside.as<Let>(); inside = body_of(inside)) {
      const Let& l = *inside.as<Let>();
      if (has_load(l.value)) fail("the let " + l.var.name + " reads memory");
      lets_[l.var.id] = substitute(l.value, lets_);
    }
    if (const Alloc* a = inside.as<Alloc>()) fail("it allocates buffer " + a->buffer->name);
    const Block* two = inside.as<Block>();
    if (!two || two->stmts.size() != 2) fail("its body is not two loops, one after the other");
    first_ = stage(two->stmts[0], first), second_ = stage(two->stmts[1], second);
    for (const Buffer& b : buffers_of(kernel))
      if (shares(b)) share(b);
    if (parts_ > 1) require_any_order();
  }

  // What nest() takes the place of.
  Site place() const {
    Site place = site_;
    if (own_) place.path.resize(place.path.size() - 2);
    return place;
  }

  Stmt nest(Schedule::Overlapped& handles) const {
    const Var round = make_var(loop_.var.name + "_t"), part = make_var(loop_.var.name + "_n");
    const Var &k = first_.loop->var, &i = second_.loop->var;
    handles = {round.id, part.id, k.id, i.id};
    const int64_t length = (second_.extent + parts_ - 1) / parts_, steps = std::min(first_.extent, length);
    std::vector<Stmt> rows;  // one of each part
    for (int64_t d = 0; d < parts_ && d * length < second_.extent; ++d) {
      Expr there = (var(round) > d) & (var(round) <= index_add(bounds_.extent, d));
      if ((d + 1) * length > second_.extent) there = there & (var(i) < second_.extent - d * length);
      const Stmt row = substitute(second_.loop->body, {{i.id, index_add(var(i), second_.begin + d * length)}});
      const Stmt one = if_then(there, iteration(second_, row, index_sub(var(round), d + 1)));
      rows.push_back(d == 0 ? one : refresh(one));
    }
    const Stmt sums = piece(k, first_.begin, first_.extent, part, steps, first_.loop->body);
    const Stmt both = block({if_then(var(round) < bounds_.extent, iteration(first_, sums, var(round))),
                             piece(i, 0, length, part, steps, block(std::move(rows)))});
    const Stmt all = bounds_.wrap(for_loop(round, 0, index_add(bounds_.extent, parts_), ForKind::serial,
                                           for_loop(part, 0, steps, ForKind::serial, both)));
    if (!own_) return all;
    std::vector<Stmt> stmts;
    for (const Stmt& s : around_->stmts)
      stmts.push_back(s.same_as(site_.stmt()) ? all : s.same_as(fill_) ? filled() : s);
    return alloc(own_, block(std::move(stmts)));
  }

 private:
  struct Stage {
    Stmt all;
    std::vector<Stmt> conditions;  // around its loop
    const For* loop = nullptr;
    int64_t begin = 0, extent = 0;
  };
  [[noreturn]] void fail(const std::string& why) const { refuse(step, loop_.var.name, why); }

  static std::optional<int64_t> known(const Expr& e) {
    const Linear l = linear(e);
    return l.exact && l.terms.empty() ? std::optional(l.constant) : std::nullopt;
  }
  Stage stage(const Stmt& s, int64_t id) const {
    Stage stage{.all = s};
    Stmt inside = s;
    for (; inside.as<If>() && is_wrapper(inside); inside = body_of(inside)) {
      if (has_load(inside.as<If>()->condition)) fail("a condition in its body reads memory");
      stage.conditions.push_back(inside);
    }
    stage.loop = inside.as<For>();
    if (!stage.loop || stage.loop->var.id != id) fail("its body is not the two loops, one after the other");
    require_serial(step, *stage.loop);
    const std::optional<int64_t> begin = known(stage.loop->begin), extent = known(stage.loop->extent);
    if (!begin || !extent) fail("the bounds of loop " + stage.loop->var.name + " are not constants");
    if (*extent < 1) fail("loop " + stage.loop->var.name + " has no iteration");
    if (std::max(*extent, std::abs(*begin)) > most_extent) fail("loop " + stage.loop->var.name + " is too long");
    stage.begin = *begin, stage.extent = *extent;
    return stage;
  }

  bool shares(const Buffer& b) const {
    return !accesses(first_.all, b).empty() && !accesses(second_.all, b).empty() && writes(loop_.body, b);
  }

  // Each iteration begins with the buffer as it was filled: it may have a copy for itself.
  void share(const Buffer& b) {
    const std::vector<Stmt>& path = site_.path;
    const Alloc* a = path.size() < 3 ? nullptr : path[path.size() - 3].as<Alloc>();
    if (own_ || !a || !a->buffer.same_as(b)) fail("both loops in it use buffer " + b->name);
    around_ = path[path.size() - 2].as<Block>();
    Expr value;
    bool before = true;
    for (const Stmt& s : around_->stmts) {
      if (s.same_as(site_.stmt())) {
        before = false;
        continue;
      }
      if (accesses(s, b).empty()) continue;
      if (before && !fill_) value = fills(s, b);
      if (!before || fill_ || !value)
        fail("buffer " + b->name + " is not filled with a constant before it, or used again");
      fill_ = s;
    }
    if (!fill_) fail("buffer " + b->name + " is not filled with a constant before it, or used again");
    const Expr again = second_.conditions.empty() ? fills(second_.all, b) : Expr();
    if (!again || !equal(again, value))
      fail("loop " + second_.loop->var.name + " does not leave buffer " + b->name + " as it was filled before");
    if (b->space != Space::global || !b->strides.empty())
      fail("buffer " + b->name + " is in another space, or has strides");
    BufferNode node = *b;
    node.id = 0;
    node.dims.insert(node.dims.begin(), parts_ + 1);
    node.facts.nondecreasing = node.facts.injective = node.facts.exclusive = false;
    own_ = make_buffer(std::move(node)), shared_ = b;
  }

  void require_any_order() const {
    Stmt body = substitute(second_.all, lets_);
    if (shared_) body = alloc(shared_, body);
    const Stmt alone = for_loop(loop_.var, loop_.begin, loop_.extent, loop_.kind, body);
    if (const std::string conflict = loop_carried_conflict(*alone.as<For>(), site_.scope); !conflict.empty())
      fail("in several parts: " + conflict);
  }

  Stmt to_own(const Stmt& s, const Expr& slot) const {
    const auto in_slot = [&](std::vector<Expr> index) {
      index.insert(index.begin(), slot);
      return index;
    };
    return shared_ ? redirect(s, shared_, {own_, in_slot}) : s;
  }
  Stmt filled() const {
    const Var slot = make_var(shared_->name + "_c");
    return for_loop(slot, 0, parts_ + 1, ForKind::serial, to_own(fill_, var(slot)));
  }
  // A stage, or part of it, of the iteration of this number.
  Stmt iteration(const Stage& of, const Stmt& part, const Expr& number) const {
    const Var slot = make_var(loop_.var.name + "_slot");
    Stmt s = substitute(to_own(wrapped(of.conditions, part), var(slot)), lets_);
    s = substitute(s, {{loop_.var.id, index_add(bounds_.begin, number)}});
    return shared_ ? let(slot, index_mod(number, parts_ + 1), s) : s;
  }
  // The iterations of a loop in the `number`-th of `steps` pieces, whose lengths differ by at most one.
  static Stmt piece(const Var& v, int64_t begin, int64_t extent, const Var& number, int64_t steps, const Stmt& body) {
    if (extent % steps == 0)
      return for_loop(v, index_add(index_mul(var(number), extent / steps), begin), extent / steps, ForKind::serial,
                      body);
    const auto cut = [&](const Expr& n) { return index_div(index_mul(n, extent), steps); };
    const Var from = make_var(v.name + "_b");
    return let(from, cut(var(number)),
               for_loop(v, index_add(var(from), begin), index_sub(cut(index_add(var(number), 1)), var(from)),
                        ForKind::serial, body));
  }

  const Site& site_;
  const For& loop_;
  const int64_t parts_;
  const Bounds bounds_;
  Substitution lets_;
  Stage first_, second_;
  Buffer shared_, own_;
  const Block* around_ = nullptr;
  Stmt fill_;
};

}  // namespace

// Legal because no memory but the buffer is written in one stage and used in the other, each iteration's copy of the
// buffer begins as the buffer does, and is used again only when all of that iteration's parts are done.
Schedule::Overlapped Schedule::overlap(Loop id, Loop first, Loop second, int64_t parts) {
  const Site site = find_loop(kernel_, id);
  if (parts < 1 || parts > most_parts)
    wrong_argument(step, site.loop->var.name,
                   "the number of parts must be 1 to " + std::to_string(most_parts) + ", got " + std::to_string(parts));
  get_loop(kernel_, first), get_loop(kernel_, second);
  const Overlap overlap(kernel_, site, first, second, parts);
  const std::string line = std::string(step) + " " + handle_name(kernel_, id) + " " + handle_name(kernel_, first) +
                           " " + handle_name(kernel_, second) + " " + std::to_string(parts);
  Overlapped handles;
  const Stmt to = overlap.nest(handles);
  put(step, overlap.place(), to, line);
  return handles;
}

}  // namespace gradloom::ir
