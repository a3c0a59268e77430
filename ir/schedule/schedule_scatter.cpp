#include "ir/schedule/schedule_scatter.h"

#include <algorithm>

#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/schedule/nest_shape.h"
#include "ir/schedule/scatter.h"
#include "ir/wrappers.h"

namespace gradloom::ir {
namespace {

// A loop around one accumulate whose destination is read from memory.
struct Found {
  Loop loop = 0;
  std::vector<Loop> inner;  // loops around the accumulate in it, outermost first
  Buffer buffer;
};

std::optional<Found> find_scatter(const Schedule& s, Loop loop) {
  Found found{loop};
  std::vector<const Let*> lets;
  Stmt body = s.get(loop).body;
  for (; is_wrapper(body) && !body.as<Alloc>(); body = body_of(body)) {
    if (const For* f = body.as<For>()) found.inner.push_back(f->var.id);
    if (const Let* l = body.as<Let>()) lets.push_back(l);
  }
  const Accumulate* update = body.as<Accumulate>();
  if (!update) return std::nullopt;
  found.buffer = update->buffer;
  std::vector<int64_t> read;  // lets that depend on memory
  const auto from_memory = [&](const Expr& e) {
    return any_of(e, [&](const Expr& x) {
      const Var* v = x.as<Var>();
      const Load* l = x.as<Load>();  // what is in order needs no sorting
      return (l && !l->buffer->facts.nondecreasing) || (v && std::find(read.begin(), read.end(), v->id) != read.end());
    });
  };
  for (const Let* l : lets)
    if (from_memory(l->value)) read.push_back(l->var.id);
  const std::vector<Expr>& index = update->index;
  return std::any_of(index.begin(), index.end(), from_memory) ? std::optional(found) : std::nullopt;
}

std::optional<int64_t> product(const std::vector<Expr>& extents) {
  int64_t all = 1;
  for (const Expr& e : extents) {
    const std::optional<int64_t> n = as_int(e);
    if (!n || *n < 0 || __builtin_mul_overflow(all, *n, &all)) return std::nullopt;
  }
  return all;
}

// Joins the loop with those before and after it that have its bounds and touch the buffer. Returns the one loop.
Loop with_neighbours(Schedule& s, Loop loop, const Buffer& buffer) {
  Loop joined = loop;
  const std::vector<Loop> all = s.loops();
  const size_t own = static_cast<size_t>(std::find(all.begin(), all.end(), loop) - all.begin());
  const auto touches = [&](Loop other) { return !accesses(s.get(other).body, buffer).empty(); };
  for (size_t i = own; i-- > 0;)
    if (touches(all[i]) && equal(s.get(all[i]).extent, s.get(joined).extent) &&
        s.attempt([&](Schedule& trial) { trial.join(all[i], joined); }))
      joined = all[i];
  for (size_t i = own + 1; i < all.size(); ++i) {
    const std::vector<Loop> left = s.loops();
    if (std::find(left.begin(), left.end(), all[i]) == left.end() || !touches(all[i])) continue;
    if (equal(s.get(all[i]).extent, s.get(joined).extent))
      s.attempt([&](Schedule& trial) { trial.join(joined, all[i]); });
  }
  return joined;
}

class Scatters {
 public:
  Scatters(Schedule& schedule, const Target& target) : s_(schedule), target_(target) {}

  std::vector<Loop> all() {
    std::vector<Loop> seen;  // in a scatter that was found
    for (const Loop loop : s_.loops()) {
      const std::vector<Loop> left = s_.loops();  // the steps for one scatter may consume the loops of another
      const auto among = [&](const std::vector<Loop>& loops) {
        return std::find(loops.begin(), loops.end(), loop) != loops.end();
      };
      if (!among(left) || among(seen)) continue;
      const std::optional<Found> found = find_scatter(s_, loop);
      if (!found) continue;
      seen.insert(seen.end(), found->inner.begin(), found->inner.end());
      schedule(*found);
    }
    return std::move(done_);
  }

 private:
  void schedule(const Found& found) {
    const Buffer& buffer = found.buffer;
    const std::optional<int64_t> elements = product(buffer->dims);
    if (!elements || *elements * size_of(buffer->dtype) <= target_.l2_bytes || repeats_little(found)) return;
    if (!found.inner.empty()) in_strips(found, buffer);
  }
  // Whether so few elements are added to that filling and storing strips costs more.
  bool repeats_little(const Found& found) const {
    std::vector<Loop> loops = found.inner;
    loops.push_back(found.loop);
    const std::optional<int64_t> updates = extent_of(s_, loops), elements = product(found.buffer->dims);
    return updates && *updates < *elements / 8;
  }
  // Written once and read later at best: past the caches. Of outputs: memory of the kernel's own is read soon, and may
  // have become the strip.
  void stream(Schedule& s, const Buffer& buffer) const {
    if (buffer->role == Role::temp) return;
    const int64_t bytes = product(buffer->dims).value_or(0) * size_of(buffer->dtype);
    if (target_.streaming_stores && bytes > 4 * target_.l2_bytes) s.attempt([&](Schedule& t) { t.streaming(buffer); });
  }
  static void vectorize(Schedule& s, Loop loop, int64_t most) {
    const std::optional<int64_t> extent = as_int(s.get(loop).extent);
    int64_t lanes = most;
    while (extent && lanes > *extent) lanes /= 2;
    if (lanes >= 2) s.vectorize(loop, static_cast<int>(lanes));
  }

  // Strips of neighbouring columns, each in a cache.
  void in_strips(const Found& found, const Buffer& buffer) {
    const Loop column = found.inner.back();
    const int bytes = size_of(buffer->dtype);
    const std::optional<int64_t> columns = as_int(s_.get(column).extent), elements = product(buffer->dims);
    if (found.inner.size() != 1 || !columns || *columns == 0) return;
    const int64_t height = *elements / *columns * bytes, line = line_bytes / bytes;
    int64_t width = 32;
    while (width > line && (height * width > 2 * target_.l2_bytes || *columns < target_.threads * width)) width /= 2;
    if (height * width > 4 * target_.l2_bytes || *columns % width != 0) return;
    s_.attempt([&](Schedule& t) {
      t.reorder(found.loop, column);
      const Schedule::Split cut = t.split(column, width);
      t.reorder(cut.inner, found.loop);
      split_neighbours(t, cut.outer, *columns, width, buffer);
      const Loop joined = with_neighbours(t, cut.outer, buffer);
      std::vector<Expr> begin(buffer->dims.size(), Expr(0)), extent = buffer->dims;
      const size_t d = column_dim(t, joined, buffer);
      begin[d] = index_mul(var(t.get(joined).var), width), extent[d] = width;
      t.stage(joined, buffer, begin, extent);
      stream(t, buffer);
      const std::vector<const For*> below = loops_below(t.get(joined).body);
      std::vector<Loop> lanes;
      for (const For* f : below)
        if (is_const(f->extent, width) && f->kind == ForKind::serial) lanes.push_back(f->var.id);
      for (const Loop l : lanes) t.attempt([&](Schedule& u) { vectorize(u, l, std::min(8, target_.lanes(bytes))); });
      prefetch_inputs(t, found.loop);
      if (target_.threads > 1) t.parallel(joined);
      done_.push_back(joined);
    });
  }
  // Of rows that a strip reads a piece of: few of them, which would else share the sets of the L1 cache.
  static void prefetch_inputs(Schedule& t, Loop rows) {
    constexpr int64_t rows_ahead = 4;
    const std::vector<Buffer> buffers = t.kernel().buffers;  // a step replaces the kernel
    for (const Buffer& b : buffers)
      if (b->role == Role::in && !accesses(t.get(rows).body, b).empty())
        t.attempt([&](Schedule& u) { u.prefetch(rows, b, rows_ahead, 1); });
  }
  // Loops over the same columns that touch the buffer become outermost, and strips too.
  void split_neighbours(Schedule& t, Loop strips, int64_t columns, int64_t width, const Buffer& buffer) const {
    for (const Loop loop : t.loops()) {
      const std::vector<Loop> left = t.loops();
      if (loop == strips || std::find(left.begin(), left.end(), loop) == left.end()) continue;
      const std::vector<Loop> nest = perfect_nest(t, loop);
      if (nest.size() != 2 || !is_const(t.get(nest[1]).extent, columns)) continue;
      if (accesses(t.get(loop).body, buffer).empty()) continue;
      t.attempt([&](Schedule& u) {
        u.reorder(nest[0], nest[1]);
        const Schedule::Split cut = u.split(nest[1], width);
        u.reorder(cut.inner, nest[0]);
      });
    }
  }
  // The dim of the buffer along which the strip's loop moves.
  static size_t column_dim(const Schedule& t, Loop strips, const Buffer& buffer) {
    const Accumulate* update = find_update(t.get(strips).body, buffer);
    for (size_t d = 0; d < update->index.size(); ++d)
      if (mentions(update->index[d], strips)) return d;
    throw ScheduleRefusal("the scatter's columns are no dim of its buffer");
  }

  static const Accumulate* find_update(const Stmt& body, const Buffer& buffer) {
    const Accumulate* found = nullptr;
    walk(body, [&](const Stmt& s) {
      if (const Accumulate* a = s.as<Accumulate>(); a && a->buffer.same_as(buffer)) found = a;
    });
    if (!found) throw ScheduleRefusal("nothing accumulates into the buffer");
    return found;
  }
  Schedule& s_;
  const Target& target_;
  std::vector<Loop> done_;
};

}  // namespace

std::vector<Loop> schedule_scatters(Schedule& schedule, const Target& target) {
  return Scatters(schedule, target).all();
}

}  // namespace gradloom::ir
