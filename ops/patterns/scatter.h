#pragma once
// Scatter-adds into dX: the sums around an op's own updates, and the recipe of schedule steps for updates of rows.
//
//   sums = 0; for k { .. for q { sums[row(k), q] += value } } dX = sums
#include <limits>

#include "gradloom/op.h"
#include "gradloom/schedule.h"
#include "gradloom/target.h"

namespace gradloom {

// Of a dim of a call that an any-shape kernel serves: its positions and rows are counted by i32.
inline constexpr int64_t most_of_a_dim = std::numeric_limits<int32_t>::max() - 2;

// The loops of such a nest, each list outermost first.
struct ScatterLoops {
  std::vector<ir::Loop> clear;    // over dX's outer dims, its destination dims, its columns
  std::vector<ir::Loop> outer;    // of the updates: over dX's outer dims,
  std::vector<ir::Loop> updates;  // over what chooses destinations; segments and their places, or several dims,
  std::vector<ir::Loop> columns;  // and over dX's columns
  std::vector<ir::Loop> store;    // as clear; empty where dX itself is summed in
};

// f16 and bf16 are summed in f32 and rounded once; accumulated, an element gets its whole sum added, also once.
class ScatterSums {
 public:
  using Index = std::vector<ir::Expr>;
  // `order`: dX's dims in the order in which loops go over them. `scaled`: sums are changed before they are stored.
  ScatterSums(ir::KernelBuilder& b, ir::Buffer dx, std::vector<int> order, bool accumulate, bool scaled = false);

  std::vector<ir::Loop> clear() const;
  void add(Index index, const ir::Expr& value) const { b_.accumulate(sums_, std::move(index), value); }
  // `scale` gets the index and the sum.
  std::vector<ir::Loop> store(const std::function<ir::Expr(const Index&, ir::Expr)>& scale = {}) const;
  DType dtype() const { return sums_->dtype; }
  const ir::Buffer& sums() const { return sums_; }
  const std::vector<int>& order() const { return order_; }

 private:
  std::vector<ir::Loop> over_all(const std::string& name, const std::function<void(const Index&)>& body) const;

  ir::KernelBuilder& b_;
  const ir::Buffer dx_;
  const std::vector<int> order_;
  const bool accumulate_;
  ir::Buffer sums_;
};

// Whether schedule_scatter_rows is worth a pass over the rows, for so many updates: not where few rows of few bytes are
// named (of [500000, 8] f32, 5,000: seven times the time of adding them one by one; rows of 256 bytes lose nothing).
inline bool sorting_pays(int64_t updates, int64_t rows, int64_t row_bytes) {
  return row_bytes >= 256 || (row_bytes >= 32 && updates >= rows / 8);
}

// Whether some view is empty.
bool has_no_elements(const Plan& plan);

// An element of dX with a total added to it: in the total's dtype, rounded once. A total of 0 leaves the element's bits
// as they are (-0.0, a signalling NaN), so that what no update names is kept by every strategy, however many elements it
// reads and writes.
ir::Expr added_to(const ir::Expr& element, const ir::Expr& total);

// Sorts the updates by row; then each row's columns are summed in registers, many at a time, and written once.
// `columns`: the innermost dim, or what it is expected to be. `traffic`: the call's bytes.
void schedule_scatter_rows(ir::Schedule& schedule, const ScatterLoops& loops, const ScatterSums& sums, int64_t columns,
                           int64_t traffic, const ir::Target& target);

// Vectorizes a loop over `width` elements of a row, up to 64 at a time: one vector value of many registers, so that
// what is the same for a row is read once for all of them.
void vectorize_row(ir::Schedule& schedule, ir::Loop loop, int64_t width, DType dtype, const ir::Target& target);

}  // namespace gradloom
