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

// Whether updates of rows (bytes of sums) are faster sorted by row, each row summed in registers and written once, than
// added one by one to dX filled with zeros. Measured on one and two threads, dX from 4 to 256 MiB: rows of 32 bytes are
// never worth sorting (2 to 10 times slower), 64 bytes are even at best, 128 bytes are from a sixteenth of the rows on,
// and 256 bytes lose at most a tenth however few are named.
inline bool sorting_pays(int64_t updates, int64_t rows, int64_t row_bytes) {
  return row_bytes >= 256 || (row_bytes >= 128 && updates > rows / 16);
}

// Whether rows of so many columns are whole cache lines. Others are not streamed row by row: streaming stores and
// ordinary ones to a line's other part cost 3 to 29 times ordinary ones alone (of [200000, 200] f32, [2000000, 20]).
inline bool whole_lines(int64_t columns, DType dtype) { return columns * size_of(dtype) % ir::line_bytes == 0; }

// Whether some view is empty.
bool has_no_elements(const Plan& plan);

// An element of dX with a total added to it: in the total's dtype, rounded once. A total of 0 leaves the element's bits
// as they are (-0.0, a signalling NaN), so that what no update names is kept by every strategy, however many elements
// it reads and writes.
ir::Expr added_to(const ir::Expr& element, const ir::Expr& total);

// Sorts the updates by row; then each row's columns are summed in registers, many at a time, and written once.
// `columns`: the innermost dim, or what it is expected to be. `traffic`: the call's bytes.
void schedule_scatter_rows(ir::Schedule& schedule, const ScatterLoops& loops, const ScatterSums& sums, int64_t columns,
                           int64_t traffic, const ir::Target& target);

// Vectorizes a loop over `width` elements of a row, up to 64 at a time: one vector value of many registers, so that
// what is the same for a row is read once for all of them.
void vectorize_row(ir::Schedule& schedule, ir::Loop loop, int64_t width, DType dtype, const ir::Target& target);

}  // namespace gradloom
