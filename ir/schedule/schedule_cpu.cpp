#include "ir/schedule/schedule_cpu.h"

#include <algorithm>

#include "ir/rewrite.h"
#include "ir/schedule/nest_shape.h"
#include "ir/schedule/schedule_reductions.h"

namespace gradloom::ir {
namespace {

constexpr int64_t shared_elements = 64 << 10;  // fewer are done before other threads are awake
constexpr int64_t task_elements = 16 << 10, task_columns = 1 << 10, task_rows = 64;
constexpr int64_t small_body = 4;  // statements of which several vectors at a time are worth their code
constexpr int copies_of_small_body = 4;

class General {
 public:
  General(Schedule& schedule, const Target& target) : s_(schedule), target_(target) {}

  // Schedules the loop and all in it. `shared`: a loop around it is parallel.
  void nest(Loop loop, bool shared) {
    const std::vector<Loop> loops = perfect_nest(s_, loop);
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
    bool vectors = false;
    for (const Loop part : parts) vectors |= to_lanes(part, rows);
    if (vectors || leaf) return;
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
    std::vector<Loop> all{loops.back()};
    for (const For* f : loops_below(s_.get(loops.back()).body)) all.push_back(f->var.id);
    for (const Loop loop : all) {
      if (holds_loop(s_.get(loop).body)) continue;
      const StepsAlong steps = steps_along(s_, loop);
      if (suits_lanes(steps)) return false;
      sums |= steps.summed > 0;
      if (steps.scattered > 0) return false;
    }
    return sums;
  }

  bool worth_sharing(const std::vector<Loop>& loops) const {
    if (target_.threads < 2) return false;
    std::vector<Loop> all = loops;
    for (const For* f : loops_below(s_.get(loops.back()).body)) all.push_back(f->var.id);
    return extent_of(s_, all).value_or(shared_elements) >= shared_elements;
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

  // Where what is contiguous along one loop is far apart along another, as in a transposition: the loop along which
  // memory is written becomes lanes, a few lines at a time, so that the lines that are read stay in the nearest cache.
  bool transposed(const std::vector<Loop>& loops, bool sharing) {
    const Loop written =
        most_contiguous(loops, [](const StepsAlong& steps) { return steps.contiguous > 0 && !steps.waits(); });
    const auto read = std::find_if(loops.begin(), loops.end(),
                                   [&](Loop l) { return l != written && steps_along(s_, l).contiguous > 0; });
    const int lanes = target_.lanes(widest(s_.get(loops.back()).body));
    if (!written || read == loops.end() || lanes < 2) return false;
    return static_cast<bool>(s_.attempt([&](Schedule& trial) {
      const size_t at = place(loops, written), outside = std::min(at, place(loops, *read));
      for (size_t i = at; i-- > outside;) trial.reorder(loops[i], written);
      const Schedule::Split cut = trial.split(written, int64_t{2} * lanes);
      require_left(trial, cut.outer);
      for (const Loop part : {cut.inner, cut.tail}) {
        if (!part) continue;
        const std::vector<Loop> nest = perfect_nest(trial, part);
        for (size_t i = 1; i < nest.size(); ++i) trial.reorder(part, nest[i]);
        trial.vectorize(part, lanes, part == cut.inner ? 2 : 1);
      }
      std::vector<Loop> around(loops.begin(), loops.begin() + static_cast<std::ptrdiff_t>(outside));
      around.push_back(cut.outer);
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

  // The loop as vectors: innermost of its nest, or with the loops in it where they are sums.
  bool to_lanes(Loop loop, bool rows) {
    std::vector<Loop> within = rows ? std::vector<Loop>{loop} : perfect_nest(s_, loop);
    within.erase(within.begin());
    const For& n = s_.get(loop);
    const std::optional<Vectors> vectors = fitting_vectors(n.extent, widest(n.body), copies_for(n.body), target_);
    return vectors && s_.attempt([&](Schedule& trial) {
      for (const Loop inner : within) trial.reorder(loop, inner);
      trial.vectorize(loop, vectors->lanes, vectors->copies);
    });
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
};

}  // namespace

void schedule_cpu(Schedule& schedule, const Target& target) {
  std::vector<Loop> own = schedule.loops();
  const std::vector<Loop> tiles = schedule_reductions_cpu(schedule, target);
  own.insert(own.end(), tiles.begin(), tiles.end());
  for (const Loop loop : outermost_loops(schedule.kernel().body))
    if (std::find(own.begin(), own.end(), loop) != own.end()) General(schedule, target).nest(loop, false);
}

}  // namespace gradloom::ir
