#pragma once
// Matrix products inside any kernel: an authored nest, and a schedule for it by the handle of its row loop.
//
//   Matmul product{.prefix = "x", .m = rows, .n = 3 * hidden, .k = inputs};
//   product.a = [&](Expr m, Expr k) { return load(x, {m, k}); };
//   product.b = [&](Expr k, Expr n) { return load(w, {n, k}); };  // transposed: any index is allowed
//   product.store = [&](Expr m, Expr n, Expr sum) { builder.store(gates, {m, n}, sum); };
//   const ir::Loop loop = author_matmul(builder, product);
//   ...
//   schedule_matmul(schedule, loop, target);
//
// Each element is its initial value, then an fma for each k in order, whatever the schedule: the bits do not depend on
// tile sizes, threads or the machine.
#include <functional>
#include <string>

#include "gradloom/builder.h"
#include "gradloom/schedule.h"
#include "gradloom/target.h"

#pragma GCC visibility push(default)
namespace gradloom {

// for <prefix>_m {
//   for <prefix>_n {
//     sum = first(m, n);
//     for <prefix>_k { sum = fma(a(m, k), b(k, n), sum) }
//     store(m, n, sum)
//   }
// }
struct Matmul {
  std::string prefix = {};          // prefix of its loop and buffer names, for readers of the kernel
  ir::Expr m = {}, n = {}, k = {};  // extents: constants or scalars
  DType sum = DType::f32;           // f64 for f64 operands; f32 for f32, f16 and bf16
  // The operands' elements, converted to `sum` when stored in another dtype. They read only memory that the nest does
  // not write. `a` does not depend on n, nor `b` on m.
  std::function<ir::Expr(ir::Expr m, ir::Expr k)> a = {};
  std::function<ir::Expr(ir::Expr k, ir::Expr n)> b = {};
  std::function<ir::Expr(ir::Expr m, ir::Expr n)> first = {};  // absent: +0.0. The old value of C for C += A B
  // The epilogue: any statements that write elementwise, only what belongs to (m, n). With f16 and bf16: store(c, {m,
  // n}, cast(dtype, sum)).
  std::function<void(ir::Expr m, ir::Expr n, ir::Expr sum)> store = {};
};
// Gives the loop over rows.
ir::Loop author_matmul(ir::KernelBuilder& builder, const Matmul& product);

struct MatmulHints {
  // A loop enclosing the product that neither changes B nor is mentioned by it (a time loop, say): B is packed into
  // panels once before that loop instead of in each iteration. 0: packed inside.
  ir::Schedule::Loop pack_b_before = 0;
  // Whether rows or columns may be distributed over threads, where that pays and no enclosing loop is parallel.
  bool parallel = true;
  int64_t m = 512, n = 512, k = 512;  // expected values of extents that are not constant
};
// Register tiles, packed panels and cache blocks for one product, derived from the target's vectors, registers and
// caches. Enclosing loops stay as they are; the product's own loops are consumed.
void schedule_matmul(ir::Schedule& schedule, ir::Loop rows, const ir::Target& target, const MatmulHints& hints = {});

}  // namespace gradloom

#pragma GCC visibility pop
