#pragma once
// A product in every iteration of a loop over time, on a GPU, where B is always the same: it stays resident, each
// block's columns of it in shared memory from one iteration to the next. The same sums as author_matmul's, in the same
// order unless limits say that it is free.
//
//   RecurrentMatmul product(builder, shape, target, limits);     // prefix, m, n, k, sum and b of a Matmul
//   builder.loop("launch", 0, 1, [&](Expr) {                     // a cooperative loop, once scheduled
//     product.load_resident_b();
//     builder.loop("t", 0, steps, [&](Expr t) { product.multiply(a, first, store); });
//   });
//
// `count` products of one A, as author_matmul_blocks has them: a block keeps the same columns of each B, so that what
// is made of a column's sums together (a state of its gates) needs no other block.
#include "ops/matmul/matmul_blocks.h"

namespace gradloom {

struct RecurrentLoops {
  PlannedLoops kept;                // where B is resident
  std::vector<MatmulBlocks> turns;  // else: each multiply
};
void schedule_matmul_recurrent(ir::Schedule& schedule, const RecurrentLoops& product);

class RecurrentMatmul {
 public:
  struct Limits {
    int64_t shared_bytes;  // of a block, for this product
    // Each sum is taken along k in order, so that one addition waits for another. Else in a few parts, each by a thread
    // of its own, that are added in order.
    bool in_order = true;
  };
  // Where a block's part of B does not fit, or extents are no constants, each iteration is author_matmul_blocks'.
  RecurrentMatmul(ir::KernelBuilder& builder, Matmul shape, const ir::Target& target, const Limits& limits,
                  int64_t count = 1);

  void load_resident_b();
  void multiply(std::function<ir::Expr(ir::Expr m, ir::Expr k)> a,
                std::function<ir::Expr(ir::Expr m, ir::Expr n)> first,
                std::function<void(ir::Expr m, ir::Expr n, ir::Expr sum)> store);
  // `epilogue_operands`, where given: values in shape.sum, loaded before the loop along k and passed to `store` after
  // the sums. It returns as many for every (m, n), is called once with (0, 0) for their number, and must emit nothing
  // then; where B is not resident, they are loaded after the sums instead.
  using EpilogueOperands = std::function<std::vector<ir::Expr>(ir::Expr m, ir::Expr n)>;
  void multiply(std::function<ir::Expr(ir::Expr m, ir::Expr k)> a,
                std::function<ir::Expr(ir::Expr m, ir::Expr n)> first, const Epilogue& store,
                const EpilogueOperands& epilogue_operands = {});

  // Of all that was written.
  const RecurrentLoops& loops() const { return loops_; }

 private:
  using Expr = ir::Expr;

  void choose(const Limits& limits);
  Expr in_row(const Expr& block, const Expr& m) const;
  Expr in_column(const Expr& block, const Expr& n) const;
  Expr of_b(int64_t g, const Expr& n) const;       // column n of product g
  Expr of_thread(int64_t g, const Expr& j) const;  // where a thread has its sum of its column j
  Expr first_of(const Expr& t) const;              // the thread that has the same sums' first part
  void guarded(const Expr& t, const Expr& m, const Expr& n, const std::function<void()>& body);
  void loop(ir::ForKind kind, const std::string& name, int64_t extent, const std::function<void(Expr)>& body) {
    loops_.kept.write(b_, kind, p_.prefix + name, extent, body);
  }
  void each(const char* name, const Expr& block, const Expr& t,
            const std::function<void(const Expr& j, const Expr& m, const Expr& n)>& body);
  // Elements on their way to shared memory, in groups of neighbours: where the guard does not hold, zeros.
  struct Moved {
    int64_t groups, lanes;
    std::function<Expr(const Expr& group, const Expr& lane)> value;
    std::function<Expr(const Expr& group)> guard;  // absent, or gives none: always
    std::function<void(const Expr& group, const Expr& lane, const Expr& value)> put;
  };
  void move(const std::string& name, const Moved& moved);
  void add(const std::string& name, const Expr& t, const ir::Buffer& sums, const ir::Buffer& rows, const Expr& block,
           const Expr& part, int64_t from, int64_t count, int64_t turns);

  ir::KernelBuilder& b_;
  Matmul p_;
  const ir::Target target_;
  const int64_t count_;  // of products
  int64_t m_ = 0, n_ = 0, k_ = 0;
  int64_t rows_ = 0, columns_ = 0;  // a block's; no rows: B is not resident
  int64_t row_blocks_ = 0, column_blocks_ = 0;
  int64_t each_ = 1,
          threads_ = 0;  // columns of a thread, of each product; threads that have the sums of a part along k
  int64_t parts_ = 1;    // along k
  int64_t depth_ = 0;    // of A, that is brought at once
  int64_t lanes_ = 1;    // neighbours along k that are read at once
  ir::Buffer kept_;
  RecurrentLoops loops_;
};

}  // namespace gradloom
