// The nest of SliceGrad: one pass, every element of dX written exactly once, no condition or division an element.
#include "ops/slice_grad.h"

namespace gradloom {
namespace {

using ir::Buffer;
using ir::Expr;

// Up to this step, the zeros between two elements of the innermost window are written with the element, so that stores can be merged.
constexpr int64_t max_inline_step = 8;

class SliceNest {
 public:
  explicit SliceNest(KernelFrame& frame) : key_(frame.plan()), b_(frame.builder) {
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
  }

  void write() {
    if (key_.empty) {
      if (!key_.accumulate) zeros("z", 0, x_->dims[0]);
      return;
    }
    write_dim(0);
  }

 private:
  int rank() const { return static_cast<int>(x_->dims.size()); }
  int64_t stride(int d) const { return std::abs(key_.steps[d]); }
  Expr zero() const { return ir::zero({x_->dtype, 1}); }

  // Zeros at [begin, begin + extent) of the current dim, over all of the inner ones.
  void zeros(const std::string& name, Expr begin, Expr extent) {
    const int d = static_cast<int>(at_x_.size());
    b_.loop(name + std::to_string(d), std::move(begin), std::move(extent), [&](Expr i) {
      at_x_.push_back(i);
      zero_rest();
      at_x_.pop_back();
    });
  }

  void zero_rest() {
    const int d = static_cast<int>(at_x_.size());
    if (d == rank())
      b_.store(x_, at_x_, zero());
    else
      zeros("z", 0, x_->dims[d]);
  }

  void copy_element() {
    const Expr value = ir::load(y_, at_y_);
    if (!key_.accumulate) return b_.store(x_, at_x_, value);
    const DType sum = accumulator_of(x_->dtype);
    b_.store(x_, at_x_, ir::cast(x_->dtype, ir::cast(sum, ir::load(x_, at_x_)) + ir::cast(sum, value)));
  }

  // Everything at index ix of dim d of dX and iy of dY.
  void at(Expr ix, Expr iy, const std::function<void()>& body) {
    at_x_.push_back(std::move(ix));
    at_y_.push_back(std::move(iy));
    body();
    at_x_.pop_back();
    at_y_.pop_back();
  }

  void write_dim(int d) {
    if (d == rank()) return copy_element();
    const std::string number = std::to_string(d);
    if (key_.steps[d] == 0) {
      b_.loop("x" + number, 0, y_->dims[d], [&](Expr i) { at(i, i, [&] { write_dim(d + 1); }); });
      return;
    }
    const Expr count = y_->dims[d], lo = lo_[d];
    const int64_t k = stride(d);
    const Expr end = lo + (count - 1) * k + 1;
    if (!key_.accumulate) zeros("before", 0, lo);
    window(d, "w" + number, k);
    if (!key_.accumulate) zeros("after", end, x_->dims[d] - end);
  }

  Expr source(int d, const Expr& q) const { return key_.steps[d] < 0 ? y_->dims[d] - 1 - q : q; }

  void window(int d, const std::string& name, int64_t k) {
    const Expr count = y_->dims[d], lo = lo_[d];
    const bool gaps = k > 1 && !key_.accumulate;
    if (gaps && d + 1 == rank() && k <= max_inline_step) {
      b_.loop(name, 0, count - 1, [&](Expr q) {
        const Expr base = lo + q * k;
        at(base, source(d, q), [&] { copy_element(); });
        for (int64_t g = 1; g < k; ++g) at(base + g, {}, [&] { b_.store(x_, at_x_, zero()); });
      });
      at(lo + (count - 1) * k, source(d, count - 1), [&] { copy_element(); });
      return;
    }
    b_.loop(name, 0, count, [&](Expr q) { at(lo + q * k, source(d, q), [&] { write_dim(d + 1); }); });
    if (!gaps) return;
    b_.loop("gap" + std::to_string(d), 0, count - 1, [&](Expr q) {
      const Expr base = lo + q * k;
      b_.loop("g" + std::to_string(d), 1, k - 1, [&](Expr g) {
        at_x_.push_back(base + g);
        zero_rest();
        at_x_.pop_back();
      });
    });
  }

  const SliceKey key_;
  ir::KernelBuilder& b_;
  Buffer y_, x_;
  std::vector<Expr> lo_;
  std::vector<Expr> at_x_, at_y_;  // the indices of the dims entered so far
};

}  // namespace

void author_slice_grad(KernelFrame& frame, const ir::Target&) { SliceNest(frame).write(); }

}  // namespace gradloom
