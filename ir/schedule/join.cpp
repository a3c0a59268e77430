// The step join: loop fusion of two loops of one body, with what stands between them.
#include <algorithm>
#include <unordered_set>

#include "gradloom/schedule.h"
#include "ir/analysis/races.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/schedule/site.h"
#include "ir/wrappers.h"

namespace gradloom::ir {
namespace {

// The buffers that a statement, or an expression, reads and writes.
class Effects {
 public:
  void add(const Expr& e) {
    walk(e, [&](const Expr& x) { add_load(x); });
  }
  void add(const Stmt& s) {
    walk(
        s,
        [&](const Stmt& x) {
          if (const Store* n = x.as<Store>()) written_.emplace(n->buffer->id, n->buffer);
          if (const Accumulate* n = x.as<Accumulate>()) written_.emplace(n->buffer->id, n->buffer);
          if (const Reduce* n = x.as<Reduce>()) written_.emplace(n->buffer->id, n->buffer);
        },
        [&](const Expr& x) { add_load(x); });
  }
  // A buffer that one of both writes and the other touches.
  Buffer shared_with(const Effects& other) const {
    for (const auto& [id, buffer] : written_)
      if (other.written_.contains(id) || other.read_.contains(id)) return buffer;
    for (const auto& [id, buffer] : other.written_)
      if (read_.contains(id)) return buffer;
    return {};
  }

 private:
  void add_load(const Expr& x) {
    if (const Load* l = x.as<Load>()) read_.insert(l->buffer->id);
  }
  std::unordered_map<int64_t, Buffer> written_;
  std::unordered_set<int64_t> read_;
};

// Puts the one loop in the place of the second; lets and allocs between the block that holds both and the first loop
// then cover what follows up to the second, too. Or in the place of the first, if only allocs are around the second:
// they then begin there.
class Fuse {
 public:
  Fuse(const Site& first, const Site& second) : first_(first), second_(second) {
    size_t common = 0;
    while (common < first.path.size() && common < second.path.size() && first.path[common].same_as(second.path[common]))
      ++common;
    level_ = common;
    if (common == 0 || common == first.path.size() || common == second.path.size() || !block_at(common - 1) ||
        place(first_, common - 1) >= place(second_, common - 1) || !only_declares(first_) || !only_declares(second_))
      refuse("join", first.loop->var.name, "loop " + second.loop->var.name + " does not follow it in the same body");
  }

  // The site of the block that holds both.
  Site around() const {
    Site site = first_;
    site.path.resize(level_);
    return site;
  }

  // The loops as one, in the place of the second where the first may move there, else in that of the first.
  Stmt operator()(const Stmt& loop) {
    try {
      return at_second(loop);
    } catch (const ScheduleRefusal&) {
      if (std::any_of(second_.path.begin() + at(level_), second_.path.end(),
                      [](const Stmt& s) { return !!s.as<Let>(); }))
        throw;
      try {
        return at_first(loop);
      } catch (const ScheduleRefusal&) {
      }
      throw;
    }
  }

 private:
  Stmt at_second(const Stmt& loop) {
    moved_ = Effects();
    moved_.add(first_.stmt());
    const std::vector<Stmt>& stmts = block_at(level_ - 1)->stmts;
    const size_t from = place(first_, level_ - 1), to = place(second_, level_ - 1);
    std::vector<Stmt> following(stmts.begin() + at(from + 1), stmts.begin() + at(to));
    for (const Stmt& s : following) pass(s);
    for (size_t level = level_; level + 1 < second_.path.size(); ++level)
      for (const Expr& e : own_exprs(second_.path[level])) pass(e);
    following.push_back(with(second_, level_, loop, [&](const std::vector<Stmt>& all, size_t here) {
      for (size_t i = 0; i < here; ++i) pass(all[i]);
    }));
    std::vector<Stmt> result(stmts.begin(), stmts.begin() + at(from));
    result.push_back(without_first(level_, std::move(following)));
    result.insert(result.end(), stmts.begin() + at(to + 1), stmts.end());
    return block(std::move(result));
  }

  // What the second needs of the statements between them goes before the first.
  Stmt at_first(const Stmt& loop) {
    moved_ = Effects();
    moved_.add(second_.stmt());
    const std::vector<Stmt>& stmts = block_at(level_ - 1)->stmts;
    const size_t from = place(first_, level_ - 1), to = place(second_, level_ - 1);
    std::vector<Stmt> between(stmts.begin() + at(from + 1), stmts.begin() + at(to)), after;
    std::vector<Buffer> allocated;
    for (size_t level = level_; level + 1 < second_.path.size(); ++level) {
      if (const Alloc* n = second_.path[level].as<Alloc>()) {
        for (const Expr& e : own_exprs(second_.path[level])) pass(e);
        allocated.push_back(n->buffer);
      }
      const Block* n = second_.path[level].as<Block>();
      if (!n) continue;
      const size_t here = place(second_, level);
      between.insert(between.end(), n->stmts.begin(), n->stmts.begin() + at(here));
      after.insert(after.begin(), n->stmts.begin() + at(here + 1), n->stmts.end());
    }
    after.insert(after.end(), stmts.begin() + at(to + 1), stmts.end());
    std::vector<Stmt> needed, kept;
    for (size_t i = between.size(); i-- > 0;) {
      Effects effects;
      effects.add(between[i]);
      const bool moves = static_cast<bool>(moved_.shared_with(effects));
      if (moves) moved_.add(between[i]);
      (moves ? needed : kept).insert((moves ? needed : kept).begin(), between[i]);
    }
    Effects first, before;
    first.add(first_.stmt());
    for (const Stmt& s : needed) before.add(s);
    if (first.shared_with(before)) refuse("join", first_.loop->var.name, "what stands between both uses both");
    needed.push_back(loop);
    std::vector<Stmt> following{with(first_, level_, block(needed), [&](const std::vector<Stmt>& all, size_t here) {
      for (size_t i = here + 1; i < all.size(); ++i) pass(all[i]);
    })};
    following.insert(following.end(), kept.begin(), kept.end());
    following.insert(following.end(), after.begin(), after.end());
    Stmt rest = block(std::move(following));
    for (size_t i = allocated.size(); i-- > 0;) rest = alloc(allocated[i], rest);
    std::vector<Stmt> result(stmts.begin(), stmts.begin() + at(from));
    result.push_back(rest);
    return block(std::move(result));
  }

  static std::ptrdiff_t at(size_t i) { return static_cast<std::ptrdiff_t>(i); }
  const Block* block_at(size_t level) const { return first_.path[level].as<Block>(); }
  // Which statement of the block at this level the path goes on with.
  static size_t place(const Site& site, size_t level) {
    const std::vector<Stmt>& stmts = site.path[level].as<Block>()->stmts;
    const auto same = [&](const Stmt& s) { return s.same_as(site.path[level + 1]); };
    return static_cast<size_t>(std::find_if(stmts.begin(), stmts.end(), same) - stmts.begin());
  }
  bool only_declares(const Site& site) const {
    return std::all_of(site.path.begin() + at(level_), site.path.end() - 1,
                       [](const Stmt& s) { return s.as<Let>() || s.as<Alloc>() || s.as<Block>(); });
  }

  template <class Part>
  void pass(const Part& part) const {
    Effects effects;
    effects.add(part);
    if (const Buffer b = moved_.shared_with(effects))
      refuse("join", first_.loop->var.name,
             "between it and loop " + second_.loop->var.name + " something touches buffer " + b->name);
  }

  // The site's statement with another loop; `each` is called for the blocks around it.
  template <class Each>
  Stmt with(const Site& site, size_t level, const Stmt& loop, const Each& each) const {
    const Stmt& s = site.path[level];
    if (level + 1 == site.path.size()) return loop;
    if (!s.as<Block>()) return with_body(s, with(site, level + 1, loop, each));
    std::vector<Stmt> stmts = s.as<Block>()->stmts;
    const size_t here = place(site, level);
    each(stmts, here);
    stmts[here] = with(site, level + 1, loop, each);
    return block(std::move(stmts));
  }

  Stmt without_first(size_t level, std::vector<Stmt> following) const {
    const Stmt& s = first_.path[level];
    if (level + 1 == first_.path.size()) return block(std::move(following));
    if (!s.as<Block>()) return with_body(s, without_first(level + 1, std::move(following)));
    const std::vector<Stmt>& stmts = s.as<Block>()->stmts;
    const size_t here = place(first_, level);
    for (size_t i = here + 1; i < stmts.size(); ++i) pass(stmts[i]);
    following.insert(following.begin(), stmts.begin() + at(here + 1), stmts.end());
    std::vector<Stmt> result(stmts.begin(), stmts.begin() + at(here));
    result.push_back(without_first(level + 1, std::move(following)));
    return block(std::move(result));
  }

  const Site &first_, &second_;
  size_t level_ = 0;  // of the first statement that is on one path only
  Effects moved_;
};

size_t statements(const Stmt& s) {
  const Block* b = s.as<Block>();
  return b ? b->stmts.size() : s ? 1 : 0;
}

}  // namespace

Schedule::Loop Schedule::join(Loop first_id, Loop second_id) {
  const Site site = find_loop(kernel_, first_id), later = find_loop(kernel_, second_id);
  const For &first = *site.loop, &second = *later.loop;
  require_serial("join", first);
  require_serial("join", second);
  Fuse fuse(site, later);
  Ranges scope = later.scope;  // and what the first loop's lets are
  for (const Stmt& s : site.path)
    if (const Let* l = s.as<Let>(); l && !scope.let_value(l->var.id)) scope.enter(*l);
  const auto same = [&](const Expr& a, const Expr& b) {
    return equal(a, b) || (!has_load(a) && !has_load(b) && scope.proves(a == b) == true);
  };
  if (!same(first.begin, second.begin) || !same(first.extent, second.extent))
    refuse("join", first.var.name, "its bounds are not proved to be those of loop " + second.var.name);
  if (may_clobber(site.stmt(), second.begin) || may_clobber(site.stmt(), second.extent))
    refuse("join", first.var.name, "the bounds of loop " + second.var.name + " are read from memory that it writes");
  const Stmt both = for_loop(first.var, first.begin, first.extent, first.kind,
                             block({first.body, substitute(second.body, {{second_id, var(first.var)}})}));
  if (const std::string conflict = fusion_conflict(*both.as<For>(), statements(first.body), scope); !conflict.empty())
    refuse("join", first.var.name, "loop " + second.var.name + " " + conflict);
  const std::string line = "join " + handle_name(kernel_, first_id) + " " + handle_name(kernel_, second_id);
  put("join", fuse.around(), fuse(both), line);
  return first_id;
}

}  // namespace gradloom::ir
