#pragma once
// A product in every iteration of a loop over time, on a GPU, with a loop-invariant B that stays resident: each block
// keeps its columns of B in shared memory across iterations. The same sums as author_matmul's, in the same order unless
// limits leave it free.
//
//   RecurrentMatmul product(builder, shape, target, limits);     // prefix, m, n, k, sum and b of a Matmul
//   builder.loop("launch", 0, 1, [&](Expr) {                     // a cooperative loop, once scheduled
//     product.load_resident_b();
//     builder.loop("t", 0, steps, [&](Expr t) { product.multiply(a, first, store); });
//   });
//
// `count` products of one A, as in author_matmul_blocks: a block has the same columns of each B, so that an epilogue
// that combines a column's sums (a state from its gates) needs no other block.
#include "ops/matmul/matmul_blocks.h"

namespace gradloom {

struct RecurrentLoops {
  PlannedLoops kept;                // where B is resident
  std::vector<MatmulBlocks> turns;  // else: one per multiply
};
void schedule_matmul_recurrent(ir::Schedule& schedule, const RecurrentLoops& product);

class RecurrentMatmul {
 public:
  struct Limits {
    int64_t shared_bytes;  // per block, for this product
    // In-order reduction along k, a serial dependence chain. Else in a few parts, each by a thread of its own, whose
    // partial sums are added in order.
    bool in_order = true;
  };
  // Where a block's columns of B do not fit, or extents are not constant, each iteration falls back to
  // author_matmul_blocks.
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

  // The loops of everything emitted.
  const RecurrentLoops& loops() const { return loops_; }

 private:
  using Expr = ir::Expr;

  void choose(const Limits& limits);
  Expr in_row(const Expr& block, const Expr& m) const;
  Expr in_column(const Expr& block, const Expr& n) const;
  Expr of_b(int64_t g, const Expr& n) const;       // column n of product g
  Expr of_thread(int64_t g, const Expr& j) const;  // index of a thread's sum of its column j
  Expr first_of(const Expr& t) const;              // the thread with the first part of the same sums
  void guarded(const Expr& t, const Expr& m, const Expr& n, const std::function<void()>& body);
  void loop(ir::ForKind kind, const std::string& name, int64_t extent, const std::function<void(Expr)>& body) {
    loops_.kept.write(b_, kind, p_.prefix + name, extent, body);
  }
  void each(const char* name, const Expr& block, const Expr& t,
            const std::function<void(const Expr& j, const Expr& m, const Expr& n)>& body);
  // A copy to shared memory in groups of `lanes` contiguous elements; zeros where the guard is false.
  struct Moved {
    int64_t groups, lanes;
    std::function<Expr(const Expr& group, const Expr& lane)> value;
    std::function<Expr(const Expr& group)> guard;  // absent, or returns none: always true
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
  int64_t rows_ = 0, columns_ = 0;  // per block; rows_ is 0 where B is not resident
  int64_t row_blocks_ = 0, column_blocks_ = 0;
  int64_t each_ = 1,
          threads_ = 0;  // columns per thread, of each product; threads per part along k
  int64_t parts_ = 1;    // along k
  int64_t depth_ = 0;    // elements along k of A that are staged at a time
  int64_t lanes_ = 1;    // vector length of loads along k
  ir::Buffer kept_;
  RecurrentLoops loops_;
};

}  // namespace gradloom
