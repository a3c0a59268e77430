// The strategy "direct" of SliceGrad: the definition, whose loops over dX are cut where the slice begins and ends, so
// that no element asks whether it lies in it. Elements go to vectors, rows to threads; what does not fit in the caches
// is written by streaming stores.
#include <algorithm>
#include <set>

#include "gradloom/schedule_common.h"
#include "ir/analysis/ranges.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/schedule/schedule_gpu.h"
#include "ops/slice/slice_grad.h"

namespace gradloom {
namespace {

using ir::Expr;
using Loop = ir::Schedule::Loop;

// Up to this step, the zeros between two elements are written with the element, so that stores can be merged, and those
// between two rows with the row: memory bandwidth is best where reads and writes alternate.
constexpr int64_t max_inline_step = 8;

class SliceSchedule {
 public:
  SliceSchedule(ir::Schedule& schedule, const Plan& plan, const ir::Target& target)
      : s_(schedule),
        key_(key_of<SliceKey>(plan)),
        target_(target),
        dy_(plan.views[0]),
        dx_(plan.views.back()),
        rank_(key_.steps.size()),
        bytes_(plan.bytes_read + plan.bytes_written),
        streams_(stream_slice(plan, key_, target)),
        line_(streamed_line()) {}

  void run() {
    cut_nest();
    unroll();
    if (worth_threads(bytes_, target_)) {
      plan_parallel(s_.kernel().body, bytes_);
      for (const Loop loop : rows_) parallel(loop);
      for (const auto& [loop, piece] : pieces_) share(loop, piece);
    }
    for (const Loop loop : leaves_)
      if (worth_vectors(loop)) vectorize(loop);
    if (streams_) s_.streaming(s_.kernel().buffers.back());
  }

  // An accumulating call costs what the slice has, not what dX has.
  void cut_nest() {
    const std::vector<Loop> loops = s_.loops();
    if (loops.empty()) return;
    if (key_.empty)
      leaf(loops.back());
    else
      cut(0, beside(loops), 0);
  }

 private:
  int64_t step(int d) const { return std::abs(key_.steps[d]); }
  const ir::Buffer& y() const { return s_.kernel().buffers[0]; }
  const ir::Buffer& x() const { return s_.kernel().buffers.back(); }
  Expr lo(int d) const {
    const std::string name = "lo" + std::to_string(d);
    for (const ir::Scalar& s : s_.kernel().scalars)
      if (s.var.name == name) return ir::var(s.var);
    throw Error(ErrorCode::internal, "SliceGrad: the nest has no scalar " + name);
  }

  // Elements per cache line where rows are line-aligned and streamed, so that stores of the innermost dim are worth
  // aligning to lines; else 0.
  int64_t streamed_line() const {
    constexpr int64_t longest_step = 2;
    if (!streams_ || key_.empty || key_.steps.back() == 0 || x()->alignment < ir::line_bytes) return 0;
    const int64_t line = ir::line_bytes / size_of(x()->dtype);
    const std::optional<int64_t> row = ir::as_int(x()->dims.back()), count = ir::as_int(y()->dims.back());
    return row && *row % line == 0 && count && *count >= 2 * line && step(rank_ - 1) <= longest_step ? line : 0;
  }

  // Plain copies are faster with two streams far apart: the halves of the outermost dim, row by row. Returns the
  // outermost loop.
  Loop beside(const std::vector<Loop>& loops) {
    const std::optional<int64_t> extent = ir::as_int(y()->dims[0]);
    if (!streams_ || rank_ == 1 || key_.steps[0] != 0 || key_.steps.back() != 0 || !extent || *extent % 2 != 0)
      return loops[0];
    const ir::Schedule::Split halves = s_.split(loops[0], *extent / 2);
    s_.reorder(halves.outer, halves.inner);
    for (size_t d = 1; d < loops.size(); ++d) s_.reorder(halves.outer, loops[d]);
    within_.insert(s_.get(halves.outer).var.name);
    return halves.inner;
  }

  // The first iteration apart: in it alone dY is read, where rows are written with the zeros that follow.
  void unroll() {
    for (const Loop loop : unrolled_) s_.unroll(loop);
    for (const std::string& name : within_)
      for (const Loop loop : s_.loops(name)) {
        const auto [first, rest] = s_.partition(loop, 1);
        for (const Loop part : {first, rest})
          if (part) s_.unroll(part);
      }
  }

  // The loop over dim d of dX, inside the slice in the dims around it; `around`: the loop over the dim before.
  void cut(int d, Loop loop, Loop around) {
    if (!loop) return;
    const bool innermost = d + 1 == rank_;
    const Expr count = y()->dims[d];
    const int64_t k = step(d);
    if (k == 0) return enter(d, ir::equal(x()->dims[d], count) ? loop : s_.partition(loop, count).first);
    if (innermost && line_ > 0) return in_lines(loop, around);
    const bool whole = k == 1 && ir::equal(x()->dims[d], count);
    const Loop inside = whole ? loop : window(d, loop, lo(d), lo(d) + (count - 1) * k + 1);
    if (k == 1) return enter(d, in_order_of_dy(d, inside));
    const auto [steps, last] = s_.partition(inside, lo(d) + (count - 1) * k);
    enter(d, last);
    const ir::Schedule::Split each = s_.split(steps, k);
    if (!each.outer) return;
    const Loop rows = in_order_of_dy(d, each.outer);
    if (d + 2 == rank_ && streams_ && k <= max_inline_step) {
      const Loop inner = loop_in(each.inner);
      const auto together = s_.attempt([&](ir::Schedule& trial) { trial.reorder(each.inner, inner); });
      if (together) {
        within_.insert(s_.get(each.inner).var.name);
        return cut(d + 1, inner, rows);
      }
    }
    if (innermost) put_innermost(each.inner);
    const auto [element, gap] = s_.partition(each.inner, 1);
    if (innermost && k <= max_inline_step) {
      for (const Loop part : {element, gap})
        if (part) unrolled_.push_back(part);
      return leaf(rows);
    }
    enter(d, element);
    zeros(d, gap);
  }

  // The part [begin, end) of a loop over dim d; what is left of it on both sides is outside of the slice.
  Loop window(int d, Loop loop, const Expr& begin, const Expr& end) {
    const auto [before, rest] = s_.partition(loop, begin);
    const auto [inside, after] = s_.partition(rest, end);
    zeros(d, before);
    zeros(d, after);
    return inside;
  }

  // Stores of whole lines, wherever the slice begins: its first and its last line hold zeros as well. With a step of 2,
  // every other element of a line is one of the slice, and which is known in each copy.
  void in_lines(Loop loop, Loop around) {
    const Expr first = lo(rank_ - 1);
    if (step(rank_ - 1) == 1) {
      fetch_rows(around);
      return lines(loop, first, false);
    }
    for (const Loop copy : s_.specialise(loop, first, 2)) {
      const ir::Schedule::Split pairs = s_.split(copy, 2);
      put_innermost(pairs.inner);
      within_.insert(s_.get(pairs.inner).var.name);
      lines(pairs.outer, ir::index_div(first, 2), true);
    }
  }

  // `first`: the first iteration of the loop, over elements or pairs of them, that stores one of the slice.
  void lines(Loop loop, const Expr& first, bool pairs) {
    const int d = rank_ - 1;
    const Expr count = y()->dims[d], line(line_);
    std::vector<Loop> parts{loop};
    if (!ir::equal(ir::index_mul(count, step(d)), x()->dims[d])) {
      const Expr begin = ir::floor_div(first, line) * line,
                 end = ir::floor_div(first + count + (line_ - 1), line) * line;
      const auto [head, rest] = s_.partition(window(d, loop, begin, end), begin + line);
      const auto [body, tail] = s_.partition(rest, end - line);
      parts = {head, body, tail};
    }
    for (const Loop part : parts) {
      if (pairs) {
        const auto [even, odd] = s_.partition(ir::loops_below(s_.get(part).body).back()->var.id, 1);
        unrolled_.insert(unrolled_.end(), {even, odd});
      }
      leaf(pairs ? in_order_of_dy(d, part) : part);
    }
  }

  // Hardware does not prefetch guarded loads well: where rows are short, a later one is prefetched.
  void fetch_rows(Loop around) {
    const int64_t bytes = *ir::as_int(y()->dims[rank_ - 1]) * size_of(y()->dtype);
    if (around == 0 || bytes > bytes_ahead) return;
    s_.attempt([&](ir::Schedule& trial) { trial.prefetch(around, y(), std::max<int64_t>(bytes_ahead / bytes, 1), 1); });
  }

  // Reads dY in ascending order, which hardware prefetchers follow; where the step is negative, dX is then written in
  // descending order.
  Loop in_order_of_dy(int d, Loop loop) {
    Loop down = loop;
    if (key_.steps[d] < 0) s_.attempt([&](ir::Schedule& trial) { down = trial.reverse(loop); });
    return down;
  }
  void parallel(Loop loop) {
    s_.attempt([&](ir::Schedule& trial) { trial.parallel(loop); });
  }

  // Goes on inside of the slice.
  void enter(int d, Loop loop) {
    if (d + 1 == rank_) return leaf(loop);
    cut(d + 1, loop_in(loop), loop);
  }
  void zeros(int d, Loop loop) {
    while (loop && ++d < rank_) loop = loop_in(loop);
    if (loop) leaf(loop);
  }
  // Past the loop over the rows that are written together, so that neighbouring stores are merged.
  void put_innermost(Loop loop) {
    if (const Loop rows = loop_in(loop)) s_.attempt([&](ir::Schedule& trial) { trial.reorder(loop, rows); });
  }
  void leaf(Loop loop) { leaves_.push_back(loop); }
  // 0: nothing is stored there.
  Loop loop_in(Loop loop) const {
    const std::vector<const ir::For*> inner = ir::loops_below(s_.get(loop).body);
    return inner.empty() ? 0 : inner[0]->var.id;
  }

  void vectorize(Loop loop) {
    const bool copied = reads(s_.get(loop).body);
    const int vectors = copies(loop);
    Loop whole = loop;
    s_.attempt([&](ir::Schedule& trial) {
      whole = vectorize_elements(trial, loop, size_of(dx_.dtype), vectors, target_);
    });
    // Where a line of dX takes less than a line of dY, the hardware prefetcher does not run far enough ahead; for plain
    // copies it does.
    if (copied && streams_ && step(rank_ - 1) > 1)
      s_.attempt([&](ir::Schedule& trial) {
        trial.prefetch(whole, y(), bytes_ahead / (target_.vector_bytes * vectors), 1);
      });
  }

  // Parallelises the outermost loops with a task for every thread; where the outer ones are too short, the inner ones.
  void plan_parallel(const ir::Stmt& stmt, int64_t bytes) {
    if (const ir::Block* block = stmt.as<ir::Block>()) {
      for (const ir::Stmt& s : block->stmts) plan_parallel(s, bytes);
    } else if (const ir::Let* let = stmt.as<ir::Let>()) {
      plan_parallel(let->body, bytes);
    } else if (const ir::If* copies = stmt.as<ir::If>()) {
      plan_parallel(copies->then_case, bytes);
      plan_parallel(copies->else_case, bytes);
    } else if (const ir::For* loop = stmt.as<ir::For>()) {
      const int64_t extent = expected(loop->extent), tasks = wanted_tasks(target_);
      if (is_leaf(loop->var.id)) {
        const int64_t piece = row_piece(extent, target_);
        if (bytes >= parallel_bytes && piece < extent) pieces_.push_back({loop->var.id, piece});
      } else if (extent >= tasks || bytes / std::max<int64_t>(extent, 1) < parallel_bytes / 2) {
        if (extent > 1 && ir::holds_loop(loop->body)) rows_.push_back(loop->var.id);
      } else {
        plan_parallel(loop->body, bytes / std::max<int64_t>(extent, 1));
      }
    }
  }
  bool is_leaf(Loop loop) const { return std::find(leaves_.begin(), leaves_.end(), loop) != leaves_.end(); }

  // Of the call's sizes: where a loop depends on where the slice begins, the most.
  int64_t expected(const Expr& extent) const {
    int64_t most = 1;
    for (const int64_t n : dx_.dims) most = std::max(most, n);
    ir::Ranges sizes(s_.kernel());
    const auto set = [&](const ir::Buffer& b, const View& view) {
      for (size_t d = 0; d < b->dims.size(); ++d)
        if (const ir::Var* v = b->dims[d].as<ir::Var>()) sizes.set(v->id, {view.dims[d], view.dims[d]});
    };
    set(y(), dy_), set(x(), dx_);
    return std::min(most, sizes.of(extent).max.value_or(most));
  }

  void share(Loop loop, int64_t piece) {
    const ir::Schedule::Split split = s_.split(loop, piece);
    std::erase(leaves_, loop);
    if (split.tail) leaf(split.tail);
    if (!split.outer) return;
    leaf(split.inner);
    parallel(split.outer);
  }

  // A strided dY needs gathers, and accumulation into a strided window scatters.
  bool worth_vectors(Loop loop) const {
    if (stores(s_.get(loop).body) == 0) return false;
    if (key_.empty || !reads(s_.get(loop).body)) return true;
    const bool gathers = std::abs(dy_.strides.back()) > 1, scatters = step(rank_ - 1) > 1 && key_.accumulate;
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
    const ir::Stmt& body = s_.get(loop).body;
    return stores(body) > 1 || ir::holds_loop(body) || !whole ? 1 : std::max(1, 64 / target_.vector_bytes);
  }

  static constexpr int64_t bytes_ahead = 1024;  // prefetched

  ir::Schedule& s_;
  const SliceKey key_;
  const ir::Target& target_;
  const View &dy_, &dx_;
  const int rank_;
  const int64_t bytes_;
  const bool streams_;
  const int64_t line_;               // elements
  std::vector<Loop> leaves_;         // that become vectors
  std::vector<Loop> unrolled_;       // in them
  std::set<std::string> within_;     // the same, by name: cutting a loop copies those in it
  std::vector<Loop> rows_;           // that become parallel; pieces of others
  std::vector<std::pair<Loop, int64_t>> pieces_;
};

}  // namespace

bool stream_slice(const Plan& plan, const SliceKey& key, const ir::Target& target) {
  return target.streaming_stores && !key.accumulate && plan.bytes_written >= 4 * target.l2_bytes;
}

void schedule_slice_direct(ir::Schedule& schedule, const Plan& plan, const ir::Target& target) {
  SliceSchedule slice(schedule, plan, target);
  if (!target.gpu) return slice.run();
  if (key_of<SliceKey>(plan).accumulate) slice.cut_nest();
  ir::schedule_gpu(schedule, target);
}

}  // namespace gradloom
