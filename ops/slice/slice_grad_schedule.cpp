// The schedule of SliceGrad: rows to threads, elements to vectors, streaming stores when the output does not fit in the
// caches.
#include "gradloom/schedule_common.h"
#include "ir/analysis/ranges.h"
#include "ir/rewrite.h"
#include "ir/schedule/schedule_gpu.h"
#include "ops/slice/slice_grad.h"

namespace gradloom {
namespace {

class SliceSchedule {
 public:
  SliceSchedule(ir::Schedule& schedule, const SliceExtents& extents, const Plan& plan, const ir::Target& target)
      : s_(schedule),
        extents_(extents),
        key_(key_of<SliceKey>(plan)),
        target_(target),
        dx_(plan.views.back()),
        dy_(plan.views[0]),
        bytes_(plan.bytes_read + plan.bytes_written),
        streams_(stream_slice(plan, key_, target)) {}

  void run() {
    if (worth_threads(bytes_, target_)) {
      plan_parallel(s_.kernel().body, bytes_);
      for (const Loop loop : rows_) s_.parallel(loop);
      for (const auto& [loop, chunk] : chunks_) {
        const Loop outer = s_.split(loop, chunk).outer;
        if (outer) s_.parallel(outer);
      }
    }
    for (const Loop loop : innermost_loops(s_))
      if (worth_vectors(loop)) vectorize(loop);
    if (streams_) s_.streaming(s_.kernel().buffers.back());
  }

 private:
  using Loop = ir::Schedule::Loop;

  void vectorize(Loop loop) {
    const bool copied = reads(s_.get(loop).body);
    const int vectors = copies(loop);
    const Loop whole = vectorize_elements(s_, loop, size_of(dx_.dtype), vectors, target_);
    // Where a line of dX takes less than a line of dY, the hardware prefetcher does not run far enough ahead; for plain
    // copies it does.
    constexpr int64_t bytes_ahead = 1024;
    if (copied && streams_ && std::abs(key_.steps.back()) > 1)
      s_.prefetch(whole, s_.kernel().buffers[0], bytes_ahead / (target_.vector_bytes * vectors), 1);
  }

  // Parallelises the outermost loops with a task for every thread; where the outer ones are too short, the inner ones.
  void plan_parallel(const ir::Stmt& stmt, int64_t bytes) {
    if (const ir::Block* block = stmt.as<ir::Block>()) {
      for (const ir::Stmt& s : block->stmts) plan_parallel(s, bytes);
    } else if (const ir::If* phases = stmt.as<ir::If>()) {
      plan_parallel(phases->then_case, bytes);
      plan_parallel(phases->else_case, bytes);
    } else if (const ir::For* loop = stmt.as<ir::For>()) {
      const int64_t extent = extents_.at(loop->var.id), tasks = wanted_tasks(target_);
      if (!ir::holds_loop(loop->body)) {
        const int64_t chunk = row_piece(extent, target_);
        if (bytes >= parallel_bytes && chunk < extent) chunks_.push_back({loop->var.id, chunk});
      } else if (extent >= tasks || bytes / std::max<int64_t>(extent, 1) < parallel_bytes / 2) {
        if (extent > 1) rows_.push_back(loop->var.id);
      } else {
        plan_parallel(loop->body, bytes / std::max<int64_t>(extent, 1));
      }
    }
  }

  // A strided dY needs gathers, and accumulation into a strided window scatters.
  bool worth_vectors(Loop loop) const {
    if (key_.empty) return true;
    if (!stores(s_.get(loop).body)) return false;
    const bool copies_elements = reads(s_.get(loop).body);
    if (!copies_elements) return true;
    const int64_t step = std::abs(key_.steps[key_.steps.size() - 1]), stride = std::abs(dy_.strides.back());
    const bool gathers = stride > 1, scatters = step > 1 && key_.accumulate;
    return !(gathers || scatters) || (target_.hardware_scatter && size_of(dx_.dtype) >= 4);
  }

  static int stores(const ir::Stmt& body) {
    int count = 0;
    ir::walk(body, [&](const ir::Stmt& s) { count += s.as<ir::Store>() ? 1 : 0; });
    return count;
  }

  static bool reads(const ir::Stmt& body) {
    bool found = false;
    ir::walk(
        body, [](const ir::Stmt&) {}, [&](const ir::Expr& e) { found = found || e.as<ir::Load>(); });
    return found;
  }

  // Vectors per iteration: a whole line for a body of one store; a loop that writes its gaps stores several vectors
  // already, and one that may not be whole lines would need another tail.
  int copies(Loop loop) const {
    const int64_t line = ir::line_bytes / size_of(dx_.dtype);
    const bool whole = ir::known_multiple(s_.get(loop).extent, ir::Ranges(s_.kernel())) % line == 0;
    return stores(s_.get(loop).body) > 1 || !whole ? 1 : std::max(1, 64 / target_.vector_bytes);
  }

  ir::Schedule& s_;
  const SliceExtents& extents_;
  const SliceKey key_;
  const ir::Target& target_;
  const View &dx_, &dy_;
  const int64_t bytes_;
  const bool streams_;
  std::vector<Loop> rows_;
  std::vector<std::pair<Loop, int64_t>> chunks_;
};

}  // namespace

bool stream_slice(const Plan& plan, const SliceKey& key, const ir::Target& target) {
  return target.streaming_stores && !key.accumulate && plan.bytes_written >= 4 * target.l2_bytes;
}

void schedule_slice_direct(ir::Schedule& schedule, const SliceExtents& extents, const Plan& plan,
                           const ir::Target& target) {
  if (target.gpu) return ir::schedule_gpu(schedule, target);
  SliceSchedule(schedule, extents, plan, target).run();
}

}  // namespace gradloom
