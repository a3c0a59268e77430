#pragma once
// Matrix products inside any kernel: an authored nest, and a schedule for it by its handle, the loop over rows.
//
//   Matmul product{.prefix = "x", .m = rows, .n = 3 * hidden, .k = inputs};
//   product.a = [&](Expr m, Expr k) { return load(x, {m, k}); };
//   product.b = [&](Expr k, Expr n) { return load(w, {n, k}); };                                  // transposed: any
//   index is allowed product.store = [&](Expr m, Expr n, Expr sum) { builder.store(gates, {m, n}, sum); };
//   const ir::Loop loop = author_matmul(builder, product);
//   ...
//   schedule_matmul(schedule, loop, target);
//
// Each element is its first value, then Fma along k in order, whatever the schedule: bits do not depend on tiles,
// threads or the machine.
#include <functional>
#include <string>

#include "gradloom/builder.h"
#include "gradloom/schedule.h"
#include "gradloom/target.h"

namespace gradloom {

// for <prefix>_m { for <prefix>_n { sum = first(m, n); for <prefix>_k { sum = fma(a(m, k), b(k, n), sum) } store(m, n,
// sum) } }
struct Matmul {
  std::string prefix;      // of its loops' and buffers' names, for who reads the kernel
  ir::Expr m, n, k;        // extents: constants or scalars
  DType sum = DType::f32;  // f64 for f64 operands; f32 for f32, f16 and bf16
  // The operands' elements, cast to `sum` when they are stored otherwise. They read what the nest does not write. `a`
  // does not depend on n, nor `b` on m.
  std::function<ir::Expr(ir::Expr m, ir::Expr k)> a;
  std::function<ir::Expr(ir::Expr k, ir::Expr n)> b;
  std::function<ir::Expr(ir::Expr m, ir::Expr n)> first;  // absent: +0.0. The old value of C for C += A B
  // What becomes of the sum: any statements that write what belongs to (m, n) alone, elementwise. With f16 and bf16:
  // store(c, {m, n}, cast(dtype, sum)).
  std::function<void(ir::Expr m, ir::Expr n, ir::Expr sum)> store;
};
// Gives the loop over rows.
ir::Loop author_matmul(ir::KernelBuilder& builder, const Matmul& product);

struct MatmulHints {
  // A loop around the product that neither changes B nor is mentioned by it (a loop over time, say): B is brought into
  // panels once before it, not each time. 0: inside.
  ir::Schedule::Loop pack_b_before = 0;
  bool parallel = true;  // may rows or columns go to threads, where that pays and no parallel loop is around
  int64_t m = 512, n = 512, k = 512;  // what to expect of extents that are no constants
};
// Register tiles, panels and cache blocks for one product, from the target's vectors, registers and caches. Loops
// around it stay as they are; the product's own loops are consumed.
void schedule_matmul(ir::Schedule& schedule, ir::Loop rows, const ir::Target& target, const MatmulHints& hints = {});

}  // namespace gradloom
