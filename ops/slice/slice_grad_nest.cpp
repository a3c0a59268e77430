// The nests of SliceGrad: one pass, every element of dX written exactly once. The definition, "flat", is the
// gradient of Slice, one loop nest over dX; "direct" has no condition or division per element.
#include <utility>

#include "ir/index_math.h"
#include "ops/patterns/derived_nest.h"
#include "ops/slice/slice_grad.h"

namespace gradloom {
namespace {

using ir::Buffer;
using ir::Expr;

// Up to this step, the zeros between two elements of the innermost window are written with the element, so that stores
// can be merged.
constexpr int64_t max_inline_step = 8;

class SliceNest {
 public:
  SliceNest(KernelFrame& frame, const ir::Target& target)
      : key_(key_of<SliceKey>(frame.plan())),
        dy_(frame.plan().views[0]),
        dx_(frame.plan().views.back()),
        b_(frame.builder) {
    if (!key_.empty) y_ = frame.view(0, "dY");
    x_ = frame.view(key_.empty ? 0 : 1, "dX", key_.accumulate);
    int p = 0;
    for (int d = 0; d < key_.steps.size(); ++d) {
      if (key_.steps[d] == 0) {
        lo_.push_back({});
        continue;
      }
      const std::string name = "lo" + std::to_string(d);
      lo_.push_back(frame.param(p++, name, 0, x_->dims[d] - 1 - (y_->dims[d] - 1) * stride(d)));
    }
    streams_ = !key_.empty && stream_slice(frame.plan(), key_, target);
    line_ = streamed_line();
  }

  // The definition: the gradient of Slice, Y[q..] = X[lo + q * step..], on dense operands. One loop nest over dX.
  void flat() {
    if (key_.empty) {
      if (!key_.accumulate) b_.loops("z", x_->dims, [&](const std::vector<Expr>& i) { b_.store(x_, i, zero()); });
      return;
    }
    DerivedNest derived("slice", 0, ir::max_elements);
    const Buffer x = derived.forward.input("X", DType::f32, derived.dims(x_->dims)),
                 y = derived.forward.output("Y", DType::f32, derived.dims(y_->dims));
    for (int d = 0; d < rank(); ++d)
      if (lo_[d]) derived.scalar(lo_[d], 0, x_->dims[d] - 1 - (y_->dims[d] - 1) * stride(d));
    derived.forward.loops("i", y->dims, [&](const std::vector<Expr>& q) {
      std::vector<Expr> at = q;
      for (int d = 0; d < rank(); ++d)
        if (lo_[d]) at[d] = place(d, q[d]);
      derived.forward.store(y, q, ir::load(x, at));
    });
    b_.append(derived.gradient({.wanted = {"X"}, .kept = {{}}}, {{"d_Y", y_}, {"d_X", x_}},
                               key_.accumulate ? sum_of : DerivedNest::Added()));
  }

  SliceExtents direct() {
    if (!key_.empty)
      write_dim(0);
    else if (!key_.accumulate)
      zeros("z", 0, x_->dims[0]);
    return std::move(extents_);
  }

 private:
  int rank() const { return static_cast<int>(x_->dims.size()); }
  int64_t stride(int d) const { return std::abs(key_.steps[d]); }
  Expr zero() const { return ir::zero({x_->dtype, 1}); }

  // A loop along dim d. Where its extent is not constant, the view's is the expected one.
  void along(int d, const std::string& name, Expr begin, Expr extent, const View& view,
             const std::function<void(Expr)>& body) {
    const int64_t expected = ir::as_int(extent).value_or(view.dims[d]);
    extents_[b_.loop(name + std::to_string(d), std::move(begin), std::move(extent), body)] = expected;
  }

  // Elements per cache line where rows are line-aligned and streamed, so that stores of the innermost window are worth
  // aligning to lines; else 0.
  int64_t streamed_line() const {
    constexpr int64_t longest_step = 2;
    if (!streams_ || key_.steps.back() == 0 || x_->alignment < ir::line_bytes) return 0;
    const int64_t line = ir::line_bytes / size_of(x_->dtype);
    const std::optional<int64_t> row = ir::as_int(x_->dims.back());
    return row && *row % line == 0 && stride(rank() - 1) <= longest_step ? line : 0;
  }

  // Half of the outermost extent where both halves are to be copied interleaved, else 0: plain copies are faster with
  // two streams far apart.
  int64_t row_beside() const {
    const std::optional<int64_t> extent = ir::as_int(y_->dims[0]);
    return streams_ && rank() > 1 && key_.steps.back() == 0 && extent && *extent % 2 == 0 ? *extent / 2 : 0;
  }

  // A window without gaps, of at least two lines: every store is a whole line, wherever the window starts. Its first
  // and last line hold zeros as well.
  void row_in_lines() {
    const int d = rank() - 1;
    const Expr lo = lo_[d], window_end = lo + y_->dims[d], line(line_);
    const Expr begin = ir::floor_div(lo, line) * line, end = ir::floor_div(window_end + (line_ - 1), line) * line;
    prefetch_row();
    zeros("before", 0, begin);
    part_of_row("head", begin, line, [&](const Expr& i) { return i >= lo; });
    part_of_row("w", begin + line, end - begin - 2 * line, [](const Expr&) { return Expr(); });
    part_of_row("tail", end - line, line, [&](const Expr& i) { return i < window_end; });
    zeros("after", end, x_->dims[d] - end);
  }

  // Hardware does not prefetch guarded loads well: where rows are short, a later one is prefetched.
  void prefetch_row() {
    const int d = rank() - 1;
    const int64_t count = *ir::as_int(y_->dims[d]), size = size_of(y_->dtype), bytes = count * size;
    if (d == 0 || bytes > 1024) return;
    std::vector<Expr> next = at_y_;
    next.back() = next.back() + std::max<int64_t>(1024 / bytes, 1);
    next.push_back(0);
    for (int64_t i = 0; i < count; i += line_) {
      next.back() = i;
      b_.prefetch(y_, next, 1);
    }
  }

  // dX's row at [begin, begin + extent): dY's element where it lies inside the window, else zero.
  void part_of_row(const std::string& name, Expr begin, Expr extent, const std::function<Expr(const Expr& i)>& inside) {
    const int d = rank() - 1;
    along(d, name, std::move(begin), std::move(extent), dy_, [&](Expr i) {
      const Expr q = i - lo_[d], guard = inside(i);
      at(i, key_.steps[d] < 0 ? y_->dims[d] - 1 - q : q,
         [&] { put([&] { return guard ? ir::load(y_, at_y_, guard, zero()) : ir::load(y_, at_y_); }); });
    });
  }

  // A row variant for each phase, the offset (below the step) of the window's start from a line's start, then one for
  // every other offset. The branch is uniform over all rows.
  void row_by_phase(int64_t phase) {
    const int d = rank() - 1;
    const Expr lo = lo_[d];
    if (phase == stride(d)) return write_window(d);
    b_.if_then(
        ir::floor_mod(lo, line_) == phase,
        [&] {
          phase_ = phase;
          lo_[d] = ir::floor_div(lo, line_) * line_;
          write_window(d);
          lo_[d] = lo;
          phase_ = -1;
        },
        [&] { row_by_phase(phase + 1); });
  }

  // Zeros at [begin, begin + extent) of the current dim, over all of the inner ones.
  void zeros(const std::string& name, Expr begin, Expr extent) {
    const int d = static_cast<int>(at_x_.size());
    along(d, name, std::move(begin), std::move(extent), dx_, [&](Expr i) {
      at_x_.push_back(i);
      zero_rest();
      at_x_.pop_back();
    });
  }

  void zero_rest() {
    const int d = static_cast<int>(at_x_.size());
    if (d == rank())
      put_zero();
    else
      zeros("z", 0, x_->dims[d]);
  }

  // Runs `write` for the current row and the one interleaved with it, and for the zero rows that follow each within its
  // step.
  void each_row(const std::function<void(bool zeros)>& write) {
    const int64_t after = std::exchange(rows_after_, 0), beside = std::exchange(beside_, 0);
    const auto moved = [](std::vector<Expr>& index, int d, int64_t by, const auto& body) {
      const Expr here = std::exchange(index[d], index[d] + by);
      body();
      index[d] = here;
    };
    const auto rows = [&] {
      write(false);
      for (int64_t g = 1; g <= after; ++g) moved(at_x_, rank() - 2, g, [&] { write(true); });
    };
    rows();
    if (beside > 0) moved(at_x_, 0, beside, [&] { moved(at_y_, 0, beside, rows); });
    rows_after_ = after;
    beside_ = beside;
  }
  void put(const std::function<Expr()>& value) {
    each_row([&](bool zeros) { b_.store(x_, at_x_, zeros ? zero() : value()); });
  }
  void put_zero() {
    put([&] { return zero(); });
  }

  void copy_element() {
    if (!key_.accumulate) return put([&] { return ir::load(y_, at_y_); });
    const Expr value = ir::load(y_, at_y_);
    const DType sum = accumulator_of(x_->dtype);
    b_.store(x_, at_x_, ir::cast(x_->dtype, ir::cast(sum, ir::load(x_, at_x_)) + ir::cast(sum, value)));
  }

  // Runs `body` at index ix of dim d of dX and iy of dY.
  void at(Expr ix, Expr iy, const std::function<void()>& body) {
    at_x_.push_back(std::move(ix));
    at_y_.push_back(std::move(iy));
    body();
    at_x_.pop_back();
    at_y_.pop_back();
  }

  void write_dim(int d) {
    if (d == rank()) return copy_element();
    if (key_.steps[d] == 0) {
      beside_ = d == 0 ? row_beside() : beside_;
      along(d, "x", 0, beside_ > 0 && d == 0 ? Expr(beside_) : y_->dims[d], dy_,
            [&](Expr i) { at(i, i, [&] { write_dim(d + 1); }); });
      return;
    }
    if (line_ > 0 && d + 1 == rank()) {
      if (stride(d) > 1) return row_by_phase(0);
      const std::optional<int64_t> count = ir::as_int(y_->dims[d]);
      return count && *count >= 2 * line_ ? row_in_lines() : write_window(d);
    }
    write_window(d);
  }

  // The window's dim d: zeros, the window, zeros.
  void write_window(int d) {
    const Expr count = y_->dims[d], lo = lo_[d];
    const int64_t k = stride(d);
    const bool whole_steps = phase_ >= 0 && d + 1 == rank();
    const Expr end = whole_steps ? lo + count * k : lo + (count - 1) * k + 1;
    if (!key_.accumulate) zeros("before", 0, lo);
    window(d, k);
    if (!key_.accumulate) zeros("after", end, x_->dims[d] - end);
  }

  // Loops read dY in ascending order, which hardware prefetchers follow; where the step is negative, dX is written in
  // descending order.
  Expr place(int d, const Expr& q) const { return lo_[d] + (key_.steps[d] < 0 ? y_->dims[d] - 1 - q : q) * stride(d); }

  void window(int d, int64_t k) {
    const Expr count = y_->dims[d];
    const bool gaps = k > 1 && !key_.accumulate, innermost = d + 1 == rank();
    if (phase_ >= 0 && innermost) {
      // Whole steps from a line's start on, with the zeros before the element: the row is whole lines, so that the last
      // step lies in it.
      along(d, "w", 0, count, dy_, [&](Expr q) {
        each_row([&](bool zeros) {
          for (int64_t g = 0; g < k; ++g)
            at(place(d, q) + g, q, [&] { g == phase_ && !zeros ? copy_element() : put_zero(); });
        });
      });
      return;
    }
    if (gaps && innermost && k <= max_inline_step) {
      const bool down = key_.steps[d] < 0;  // in ascending order, the last element has no gap after it
      const Expr last = down ? Expr(0) : count - 1;
      along(d, "w", down ? 1 : 0, count - 1, dy_, [&](Expr q) {
        each_row([&](bool zeros) {
          at(place(d, q), q, [&] { zeros ? put_zero() : copy_element(); });
          for (int64_t g = 1; g < k; ++g) at(place(d, q) + g, {}, [&] { put_zero(); });
        });
      });
      at(place(d, last), last, [&] { copy_element(); });
      return;
    }
    const auto row = [&](const Expr& q) { at(place(d, q), q, [&] { write_dim(d + 1); }); };
    if (gaps && d + 2 == rank() && streams_ && k <= max_inline_step) {
      // Memory bandwidth is best where reads and writes alternate: a row's gap is written with the row.
      const bool down = key_.steps[d] < 0;  // in ascending order, the last row has no gap after it
      rows_after_ = k - 1;
      along(d, "w", down ? 1 : 0, count - 1, dy_, row);
      rows_after_ = 0;
      return row(down ? Expr(0) : count - 1);
    }
    along(d, "w", 0, count, dy_, row);
    if (!gaps) return;
    along(d, "gap", 0, count - 1, dy_, [&](Expr q) {
      const Expr base = lo_[d] + q * k;
      along(d, "g", 1, k - 1, dy_, [&](Expr g) {
        at_x_.push_back(base + g);
        zero_rest();
        at_x_.pop_back();
      });
    });
  }

  const SliceKey key_;
  const View &dy_, &dx_;
  ir::KernelBuilder& b_;
  Buffer y_, x_;
  std::vector<Expr> lo_;
  bool streams_ = false;
  int64_t line_ = 0;    // elements
  int64_t phase_ = -1;  // where not negative: the innermost lo is a line's start, and an element's offset in its step
  int64_t rows_after_ = 0;  // rows of dX that are zeroed with the one being written
  int64_t beside_ = 0;  // where not zero: distance, in the outermost dim, of the row interleaved with the current one
  std::vector<Expr> at_x_, at_y_;  // the indices of the dims entered so far
  SliceExtents extents_;
};

}  // namespace

ScheduleNest author_slice_flat(KernelFrame& frame, const ir::Target& target) {
  SliceNest(frame, target).flat();
  return {};
}

ScheduleNest author_slice_direct(KernelFrame& frame, const ir::Target& target) {
  return [extents = SliceNest(frame, target).direct(), &plan = frame.plan(), &target](ir::Schedule& s) {
    schedule_slice_direct(s, extents, plan, target);
  };
}

}  // namespace gradloom
