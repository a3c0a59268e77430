#include "ir/schedule/schedule_cpu.h"

#include <algorithm>

#include "ir/rewrite.h"
#include "ir/schedule/memory_hints.h"
#include "ir/schedule/nest_shape.h"
#include "ir/schedule/schedule_product.h"
#include "ir/schedule/schedule_reductions.h"
#include "ir/schedule/schedule_scatter.h"

namespace gradloom::ir {
namespace {

constexpr int64_t shared_elements = 64 << 10;  // fewer are done before other threads are awake
constexpr int64_t task_elements = 16 << 10, task_columns = 1 << 10, task_rows = 64;
constexpr int64_t small_body = 4;  // statements of which several vectors at a time are worth their code
constexpr int copies_of_small_body = 4;
constexpr int64_t rows_together = 8;          // sums whose latencies hide one another
constexpr int64_t fewest_products = 4 << 10;  // of a product that is worth tiles

class General {
 public:
  General(Schedule& schedule, const Target& target, const MemoryHints& hints)
      : s_(schedule), target_(target), hints_(hints) {}

  // Schedules the loop and all in it. `shared`: a loop around it is parallel.
  void nest(Loop loop, bool shared) {
    const std::vector<Loop> loops = perfect_nest(s_, loop);
    if (product(loops, shared)) return;
    const Stmt body = s_.get(loops.back()).body;
    const bool leaf = !holds_loop(body);
    const bool sharing = !shared && worth_sharing(loops);
    Loop lanes = leaf ? most_contiguous(loops, suits_lanes) : 0;
    const bool rows = !lanes && waits_for_sums(loops);
    if (rows) lanes = most_contiguous(loops, [](const StepsAlong& steps) { return !steps.waits(); });
    if (leaf && !lanes && transposed(loops, sharing)) return;
    std::vector<Loop> parts;  // those of `lanes`, where it is shared
    if (sharing) shared = share(loops, lanes, rows, parts);
    if (parts.empty() && lanes) parts = {lanes};
    bool done = false;
    for (const Loop part : parts)
      done |= (rows && (sums_in_lanes(part) || sums_together(part))) || to_lanes(part, rows);
    if (done || leaf) return;
    for (const Loop inner : outermost_loops(body)) nest(inner, shared);
  }

 private:
  // Whether neighbouring iterations mostly access neighbouring memory, and none waits for another.
  static bool suits_lanes(const StepsAlong& steps) { return steps.score() > 0 && !steps.waits(); }
  // The innermost of those with most contiguous accesses among these; 0: none of them.
  Loop most_contiguous(const std::vector<Loop>& loops, const std::function<bool(const StepsAlong&)>& among) const {
    Loop best = 0;
    int most = 0;
    for (size_t i = loops.size(); i-- > 0;)
      if (const StepsAlong steps = steps_along(s_, loops[i]); among(steps) && (!best || steps.score() > most))
        best = loops[i], most = steps.score();
    return best;
  }
  // Whether the innermost loops are sums in order, and no loop suits vectors.
  bool waits_for_sums(const std::vector<Loop>& loops) const {
    bool sums = false;
    for (const Loop loop : all_below(loops)) {
      if (holds_loop(s_.get(loop).body)) continue;
      const StepsAlong steps = steps_along(s_, loop);
      if (suits_lanes(steps)) return false;
      sums |= steps.summed > 0;
      if (steps.scattered > 0) return false;
    }
    return sums;
  }
  // The last of the loops, and those in it.
  std::vector<Loop> all_below(const std::vector<Loop>& loops) const {
    std::vector<Loop> all{loops.back()};
    for (const For* f : loops_below(s_.get(loops.back()).body)) all.push_back(f->var.id);
    return all;
  }

  bool worth_sharing(const std::vector<Loop>& loops) const {
    if (target_.threads < 2) return false;
    std::vector<Loop> all = loops;
    for (const For* f : loops_below(s_.get(loops.back()).body)) all.push_back(f->var.id);
    return extent_of(s_, all).value_or(shared_elements) >= shared_elements;
  }

  // A matrix product, in a nest or alone, in tiles. Of a nest, the outermost loop goes to threads where it has enough
  // iterations for them, else the product's rows or columns do.
  bool product(const std::vector<Loop>& loops, bool shared) {
    if (loops.size() < 2) return false;
    const auto much = [&](const std::vector<Loop>& some) {
      return extent_of(s_, some).value_or(fewest_products) >= fewest_products;
    };
    std::vector<Loop> all = loops;
    for (const For* f : loops_below(s_.get(loops.back()).body)) all.push_back(f->var.id);
    for (size_t at = 0; at + 1 < loops.size(); ++at) {
      if (!much({all.begin() + static_cast<std::ptrdiff_t>(at), all.end()})) return false;
      const bool outer =
          !shared && at > 0 && worth_sharing(loops) && extent_of(s_, {loops[0]}).value_or(0) >= target_.threads;
      const auto done = s_.attempt([&](Schedule& trial) {
        schedule_product(trial, loops[at], target_, {.parallel = !shared && !outer});
        if (outer) trial.parallel(loops[0]);
      });
      if (done) return true;
    }
    return false;
  }

  // Makes a loop parallel, moved outermost; the one that is to become lanes only where no other can be, in pieces:
  // `parts` are then what is to become lanes.
  bool share(const std::vector<Loop>& loops, Loop lanes, bool rows, std::vector<Loop>& parts) {
    for (size_t i = 0; i < loops.size(); ++i) {
      const Loop loop = loops[i];
      if (loop == lanes || !is_parallel(s_, loop)) continue;
      const auto moved = s_.attempt([&](Schedule& trial) {
        for (size_t k = i; k-- > 0;) trial.reorder(loops[k], loop);
        trial.parallel(loop);
      });
      if (moved) return true;
    }
    if (!lanes || !is_parallel(s_, lanes)) return false;
    const int64_t piece = rows ? task_rows : loops.size() > 1 ? task_columns : task_elements;
    Schedule::Split cut;
    const auto done = s_.attempt([&](Schedule& trial) {
      for (size_t i = place(loops, lanes); i-- > 0;) trial.reorder(loops[i], lanes);
      cut = trial.split(lanes, piece);
      require_left(trial, cut.outer);
      trial.parallel(cut.outer);
    });
    if (!done) return false;
    parts = {cut.inner};
    if (cut.tail) parts.push_back(cut.tail);
    return true;
  }

  // Where what is contiguous along one loop is far apart along another, as in a transposition: square tiles of one
  // vector of each, the loop along which memory is written in lanes, so that lowering transposes them in registers.
  // Neighbouring tiles go on along what is read, which the hardware fetches ahead; whole lines are written.
  bool transposed(const std::vector<Loop>& loops, bool sharing) {
    const Loop written =
        most_contiguous(loops, [](const StepsAlong& steps) { return steps.contiguous > 0 && !steps.waits(); });
    const auto read = std::find_if(loops.begin(), loops.end(),
                                   [&](Loop l) { return l != written && steps_along(s_, l).contiguous > 0; });
    const int lanes = std::min(target_.lanes(widest(s_.get(loops.back()).body)), 16);
    if (!written || read == loops.end() || lanes < 2) return false;
    return static_cast<bool>(s_.attempt([&](Schedule& trial) {
      const Loop across = *read;
      std::vector<Loop> order = loops;
      const auto outwards = [&](Loop loop, size_t to) {
        for (size_t i = place(order, loop); i-- > to;) {
          trial.reorder(order[i], loop);
          std::swap(order[i], order[i + 1]);
        }
      };
      if (place(order, across) < place(order, written)) outwards(written, place(order, across));
      const auto inwards = [&](Loop loop) {
        const std::vector<Loop> nest = perfect_nest(trial, loop);
        for (size_t i = 1; i < nest.size(); ++i) trial.reorder(loop, nest[i]);
      };
      const Schedule::Split columns = trial.split(written, lanes);
      require_left(trial, columns.outer);
      inwards(columns.inner);
      if (columns.tail) {
        inwards(columns.tail);
        trial.vectorize(columns.tail, lanes);
      }
      const Schedule::Split rows = trial.split(across, lanes);
      require_left(trial, rows.outer);
      if (rows.tail) trial.vectorize(perfect_nest(trial, rows.tail).back());
      trial.vectorize(columns.inner);
      trial.unroll(rows.inner);
      std::vector<Loop> around(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(place(order, written)));
      around.push_back(columns.outer);
      const auto shared = std::find_if(around.begin(), around.end(), [&](Loop l) { return is_parallel(trial, l); });
      if (sharing && shared != around.end()) trial.parallel(*shared);
    }));
  }
  static size_t place(const std::vector<Loop>& loops, Loop loop) {
    return static_cast<size_t>(std::find(loops.begin(), loops.end(), loop) - loops.begin());
  }
  // Of a split by more than the extent only the tail is left.
  static void require_left(const Schedule& s, Loop loop) {
    if (place(s.loops(), loop) == s.loops().size()) throw ScheduleRefusal("it is shorter than a piece");
  }

  // Sums in order of rows that memory is contiguous along, a row a lane: lowering transposes square tiles of terms in
  // registers.
  bool sums_in_lanes(Loop loop) {
    const int lanes = std::min(target_.lanes(widest(s_.get(loop).body)), 16);
    if (lanes < 4 || steps_along(s_, loop).others == 0) return false;
    Loop rest = 0;
    const auto done = s_.attempt([&](Schedule& trial) {
      const Schedule::Split cut = trial.split(loop, lanes);
      require_left(trial, cut.outer);
      rest = cut.tail;
      std::vector<Loop> parts{cut.inner};
      trial.attempt([&](Schedule& inner) { parts = inner.distribute(cut.inner); });
      for (const Loop part : parts) {
        const std::vector<Loop> nest = perfect_nest(trial, part);
        const Loop terms = nest.back();
        if (holds_loop(trial.get(terms).body)) throw ScheduleRefusal("the rows do not come innermost");
        for (size_t i = 1; i < nest.size(); ++i) trial.reorder(part, nest[i]);
        if (terms == part) {
          trial.vectorize(part);
          continue;
        }
        const StepsAlong steps = steps_along(trial, terms);
        if (steps.contiguous == 0 || steps.others > 0) throw ScheduleRefusal("its terms are no neighbours");
        const Schedule::Split tile = trial.split(terms, lanes);
        require_left(trial, tile.outer);
        if (tile.tail) trial.vectorize(perfect_nest(trial, tile.tail).back());
        trial.unroll(tile.inner);
        trial.vectorize(part);
      }
    });
    if (done && rest) sums_together(rest);
    return static_cast<bool>(done);
  }

  // Sums in order of other rows: a few rows advance together, each sum in a register.
  bool sums_together(Loop loop) {
    if (steps_along(s_, loop).others == 0) return false;
    return static_cast<bool>(s_.attempt([&](Schedule& trial) {
      const Schedule::Split cut = trial.split(loop, rows_together);
      require_left(trial, cut.outer);
      std::vector<Loop> parts{cut.inner};
      trial.attempt([&](Schedule& inner) { parts = inner.distribute(cut.inner); });
      for (const Loop part : parts) {
        const std::vector<Loop> nest = perfect_nest(trial, part);
        if (holds_loop(trial.get(nest.back()).body)) throw ScheduleRefusal("the rows do not come innermost");
        for (size_t i = 1; i < nest.size(); ++i) trial.reorder(part, nest[i]);
        trial.unroll(part);
      }
    }));
  }

  // The loop as vectors: innermost of its nest, or with the loops in it where they are sums. Lines of a large output
  // that do not begin where cache lines do are cut there first.
  bool to_lanes(Loop loop, bool rows) {
    const For& n = s_.get(loop);
    const Vectors most = vectors_for(n.body);
    const std::optional<Vectors> vectors = fitting_vectors(n.extent, most.lanes, most.copies);
    if (!vectors) return false;
    const auto widen = [&](Schedule& trial, Loop part, const Vectors& v) {
      if (!rows) {
        const std::vector<Loop> nest = perfect_nest(trial, part);
        for (size_t i = 1; i < nest.size(); ++i) trial.reorder(part, nest[i]);
      }
      trial.vectorize(part, v.lanes, v.copies);
    };
    const auto aligned = [&](Schedule& trial) {
      const std::vector<Loop> nest = perfect_nest(trial, loop);
      for (size_t i = 1; i < nest.size(); ++i) trial.reorder(loop, nest[i]);
      const std::pair<Loop, Loop> parts = hints_.at_lines(trial, loop);
      widen(trial, parts.first, {vectors->lanes, 1});
      widen(trial, parts.second, *vectors);
    };
    if (!rows && hints_.streams() && s_.attempt(aligned)) return true;
    return static_cast<bool>(s_.attempt([&](Schedule& trial) { widen(trial, loop, *vectors); }));
  }
  // Elementary functions are long chains of operations that wait for one another: of as many vectors as the registers
  // hold, the operations alternate.
  Vectors vectors_for(const Stmt& body) const {
    const int one = target_.lanes(widest(body));
    int bytes = 0;  // of the widest value that one is computed of
    walk(body, {}, [&](const Expr& e) {
      if (e.as<Math>()) bytes = std::max(bytes, size_of(e.type().dtype));
    });
    if (bytes == 0 || holds_loop(body)) return {one, copies_for(body)};
    const int vectors = target_.vector_bytes < 64 ? 2 : 4;  // of 16 registers and of 32
    return {std::max(one, vectors * target_.lanes(bytes)), 1};
  }
  // Bytes of the widest element that is written.
  static int widest(const Stmt& body) {
    int bytes = 1;
    walk(body, [&](const Stmt& s) {
      if (const Store* n = s.as<Store>()) bytes = std::max(bytes, size_of(n->buffer->dtype));
      if (const Accumulate* n = s.as<Accumulate>()) bytes = std::max(bytes, size_of(n->buffer->dtype));
    });
    return bytes;
  }
  static int copies_for(const Stmt& body) {
    int64_t statements = 0;
    bool loops = false;
    walk(body, [&](const Stmt& s) {
      ++statements;
      loops |= s.as<For>() != nullptr;
    });
    return loops || statements > small_body ? 1 : copies_of_small_body;
  }

  Schedule& s_;
  const Target& target_;
  const MemoryHints& hints_;
};

}  // namespace

Scheduled schedule_cpu(const Kernel& kernel, const Target& target) {
  Schedule whole(kernel);
  const std::vector<Loop> done = schedule_scatters(whole, target);
  std::vector<Loop> open = whole.loops();
  const std::vector<Loop> tiles = schedule_reductions_cpu(whole, target);
  open.insert(open.end(), tiles.begin(), tiles.end());
  const auto contains = [](const std::vector<Loop>& loops, Loop l) {
    return std::find(loops.begin(), loops.end(), l) != loops.end();
  };
  const MemoryHints hints(whole.kernel(), target);
  Scheduled nests = each_nest(whole.kernel(), [&](Schedule& nest, Loop loop) {
    if (contains(done, loop) || !contains(open, loop)) return;
    General(nest, target, hints).nest(loop, false);
    hints.fetch(nest);
  });
  hints.stream(nests);
  nests.trace.insert(nests.trace.begin(), whole.trace().begin(), whole.trace().end());
  return nests;
}

}  // namespace gradloom::ir
