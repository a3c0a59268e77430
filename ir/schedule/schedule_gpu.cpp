#include "ir/schedule/schedule_gpu.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "ir/analysis/races.h"
#include "ir/analysis/verify_gpu.h"
#include "ir/rewrite.h"
#include "ir/schedule/nest_shape.h"
#include "ir/schedule/schedule_reductions.h"
#include "ir/schedule/site.h"

namespace gradloom::ir {
namespace {

using Loop = Schedule::Loop;

constexpr int64_t vector_bytes = 16;
// Per multiprocessor: with fewer threads than that, an iteration is better mapped to a block than to a thread.
constexpr int64_t few_threads = 64;
// Too few iterations to be worth a launch in every iteration of a host loop.
constexpr int64_t short_nest = 32;
constexpr int64_t short_loop = 16;  // iterations that all threads of a block may well execute redundantly

class General {
 public:
  General(Schedule& schedule, const Target& target) : s_(schedule), target_(target) {}

  // True when the loop, or some loop below it, was bound.
  bool host(Loop loop, bool repeated) {
    const For& now = s_.get(loop);
    if (now.kind != ForKind::serial) return on_gpu(now.kind);
    if (!host_bounds(loop) || runs_nothing(loop)) return false;
    const std::vector<const For*> below = loops_below(now.body);
    if (std::any_of(below.begin(), below.end(), [](const For* f) { return on_gpu(f->kind); })) {  // bound by the op
      for (const Loop inner : outermost_loops(now.body)) host(inner, true);
      return true;
    }
    if (repeated && extent_of(s_, nest(loop)).value_or(short_nest) < short_nest) return false;
    loop = outward(loop);
    if (std::vector<Loop> loops = parallel_nest(loop); !loops.empty()) {
      if (blocks_of_loops(loops)) return true;
      // As many loops as can be proved parallel once they are fused.
      for (; !loops.empty(); loops.pop_back())
        if (s_.attempt([&](Schedule& s) { threads(s, loops); })) return true;
      return false;
    }
    bool any = false;
    for (const Loop inner : outermost_loops(s_.get(loop).body)) any |= host(inner, true);
    return any;
  }

 private:
  // The bounds must be evaluable on the host.
  bool host_bounds(Loop loop) const {
    const Site site = find_loop(s_.kernel(), loop);
    std::unordered_set<int64_t> in_memory;
    const auto needs_memory = [&](const Expr& e) {
      return any_of(e, [&](const Expr& x) {
        const Var* v = x.as<Var>();
        return x.as<Load>() || (v && in_memory.contains(v->id));
      });
    };
    for (const Stmt& s : site.path)
      if (const Let* l = s.as<Let>(); l && needs_memory(l->value)) in_memory.insert(l->var.id);
    return !needs_memory(site.loop->begin) && !needs_memory(site.loop->extent);
  }

  // A nest without iterations needs no launch, and fusing its loops would remove it.
  bool runs_nothing(Loop loop) const {
    const std::vector<Loop> loops = nest(loop);
    return std::any_of(loops.begin(), loops.end(), [&](Loop l) { return as_int(s_.get(l).extent).value_or(1) <= 0; });
  }

  // Of the perfect nest, the loops whose bounds the host can evaluate.
  std::vector<Loop> nest(Loop loop) const {
    std::vector<Loop> loops = perfect_nest(s_, loop);
    for (size_t i = 1; i < loops.size(); ++i)
      if (!host_bounds(loops[i])) loops.resize(i);
    return loops;
  }
  std::vector<Loop> parallel_nest(Loop loop) const {
    std::vector<Loop> loops = nest(loop);
    size_t n = 0;
    while (n < loops.size() && is_parallel(s_, loops[n])) ++n;
    loops.resize(n);
    return loops;
  }

  // Moves parallel loops out of an enclosing non-parallel loop, so that they are one launch. Returns the outermost loop
  // afterwards.
  Loop outward(Loop loop) {
    std::vector<Loop> loops = nest(loop);
    size_t parallel = 0;  // number of leading parallel loops
    while (parallel < loops.size() && is_parallel(s_, loops[parallel])) ++parallel;
    for (size_t i = parallel + 1; i < loops.size(); ++i) {
      if (!is_parallel(s_, loops[i])) continue;
      const Schedule::Attempt moved = s_.attempt([&](Schedule& s) {
        for (size_t k = i; k-- > parallel;) s.reorder(loops[k], loops[i]);
      });
      if (!moved) break;
      std::rotate(loops.begin() + static_cast<std::ptrdiff_t>(parallel), loops.begin() + static_cast<std::ptrdiff_t>(i),
                  loops.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      ++parallel;
    }
    return loops.front();
  }

  // The loop with most contiguous accesses goes innermost.
  static void coalesce(Schedule& s, std::vector<Loop>& loops) {
    size_t best = loops.size() - 1;
    for (size_t i = loops.size(); i-- > 0;)
      if (steps_along(s, loops[i]).contiguous > steps_along(s, loops[best]).contiguous) best = i;
    for (size_t i = best; i + 1 < loops.size(); ++i) {
      s.reorder(loops[i], loops[i + 1]);
      std::swap(loops[i], loops[i + 1]);
    }
  }

  // 16 bytes per thread, where the innermost loop is contiguous, a multiple of the vector and has nothing nested in it.
  // With few iterations, more threads hide more latency than vectors save, and a body of several lanes takes that many
  // times as long to compile.
  void vectors(Schedule& s, std::vector<Loop>& loops) const {
    constexpr int64_t few = 256;  // per multiprocessor
    if (const std::optional<int64_t> total = extent_of(s, loops); total && *total < few * target_.multiprocessors)
      return;
    const For& loop = s.get(loops.back());
    int64_t bytes = 0;
    walk(loop.body, [&](const Stmt& x) {
      if (const Store* n = x.as<Store>()) bytes = std::max<int64_t>(bytes, size_of(n->buffer->dtype));
    });
    const bool plain = !any_of(loop.body, [](const Stmt& x) {
      return x.as<For>() || x.as<Alloc>() || x.as<Check>() || x.as<Accumulate>();
    }) && !any_of(loop.body, [](const Expr& e) { return e.lanes() > 1; });
    if (!plain || bytes == 0 || bytes > vector_bytes / 2) return;
    const int64_t lanes = vector_bytes / bytes;
    const std::optional<int64_t> extent = as_int(loop.extent);
    if (!extent || *extent < lanes || *extent % lanes != 0 || steps_along(s, loops.back()).contiguous == 0) return;
    s.attempt([&](Schedule& trial) {
      const Schedule::Split cut = trial.split(loops.back(), lanes);
      trial.vectorize(cut.inner);
      loops.back() = cut.outer;
    });
  }

  int64_t threads_for(const std::optional<int64_t>& total) const {
    int64_t threads = std::min<int64_t>(target_.block_threads, most_block_threads);
    while (total && threads > warp_lanes && *total / threads < target_.multiprocessors) threads /= 2;
    return threads;
  }

  void threads(Schedule& s, std::vector<Loop> loops) const {
    coalesce(s, loops);
    vectors(s, loops);
    std::optional<int64_t> total = 1;
    for (const Loop loop : loops) {
      const std::optional<int64_t> n = as_int(s.get(loop).extent);
      total = total && n && *n < (int64_t{1} << 30) ? std::optional(std::min<int64_t>(*total * *n, int64_t{1} << 30))
                                                    : std::nullopt;
    }
    Loop one = loops[0];
    for (size_t i = 1; i < loops.size(); ++i) one = s.fuse(one, loops[i]);
    const Schedule::Split cut = s.split_guarded(one, threads_for(total));
    s.bind(cut.outer, ForKind::grid);
    s.bind(cut.inner, ForKind::thread);
  }

  // Few iterations with loops of their own: one block per iteration.
  bool blocks_of_loops(const std::vector<Loop>& loops) {
    const std::optional<int64_t> total = extent_of(s_, loops);
    if (!total || *total >= few_threads * target_.multiprocessors) return false;
    const Schedule::Attempt done = s_.attempt([&](Schedule& s) {
      Loop one = loops[0];
      for (size_t i = 1; i < loops.size(); ++i) one = s.fuse(one, loops[i]);
      s.bind(one, ForKind::grid);
      if (!block(s, s.get(one).body)) throw ScheduleRefusal("a long loop would be repeated by all threads of a block");
    });
    return static_cast<bool>(done);
  }

  // Maps loops of a block to threads where proved parallel. False when a long loop would be executed redundantly by all
  // threads.
  bool block(Schedule& s, const Stmt& body) const {
    bool any = false;
    for (const Loop loop : outermost_loops(body)) {
      const For& n = s.get(loop);
      if (is_parallel(s, loop) && as_int(n.extent).value_or(short_loop + 1) > short_loop && as_int(n.extent)) {
        s.bind(loop, ForKind::thread);
        any = true;
        continue;
      }
      const std::vector<Loop> below = outermost_loops(n.body);
      if (!below.empty() && block(s, n.body)) {
        any = true;
        continue;
      }
      if (!below.empty() || as_int(n.extent).value_or(short_loop + 1) > short_loop) return false;
    }
    return any;
  }

  Schedule& s_;
  const Target& target_;
};

}  // namespace

void schedule_gpu(Schedule& schedule, const Target& target) {
  // Parallel loops target CPU cores: here they are rescheduled, and proved again.
  for (const Loop loop : schedule.loops())
    if (schedule.get(loop).kind == ForKind::parallel) schedule.serial(loop);
  const std::vector<Loop> own = schedule_reductions_gpu(schedule);
  for (const Loop loop : outermost_loops(schedule.kernel().body)) General(schedule, target).host(loop, false);
  unroll_left(schedule, own);
}

void unroll_left(Schedule& schedule, const std::vector<Loop>& own) {
  for (const Loop loop : schedule.loops())
    if (std::count(own.begin(), own.end(), loop) && schedule.get(loop).kind == ForKind::serial) schedule.unroll(loop);
}

bool schedule_gpu(Schedule& schedule, Loop loop, const Target& target) {
  return General(schedule, target).host(loop, false);
}

}  // namespace gradloom::ir
