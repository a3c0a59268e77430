// Matrix products by schedule: authored == scheduled == compiled, bit for bit, over layouts, dtypes and odd sizes.
#include "ops/matmul.h"

#include "ir/passes/passes.h"
#include "ir/verify.h"
#include "llvm_run.h"

namespace gradloom::testing {
namespace {

using namespace ir;

struct Product {
  int64_t m, n, k;
  DType dtype = DType::f32;
  bool a_transposed = false, b_transposed = false, accumulate = false;
};

Kernel author(const Product& p) {
  KernelBuilder builder("product");
  const Buffer a = builder.input("a", p.dtype, p.a_transposed ? std::vector<Expr>{p.k, p.m} : std::vector<Expr>{p.m, p.k});
  const Buffer b = builder.input("b", p.dtype, p.b_transposed ? std::vector<Expr>{p.n, p.k} : std::vector<Expr>{p.k, p.n});
  const Buffer c = p.accumulate ? builder.inout("c", p.dtype, {p.m, p.n}) : builder.output("c", p.dtype, {p.m, p.n});
  Matmul product{.prefix = "p", .m = p.m, .n = p.n, .k = p.k, .sum = p.dtype == DType::f64 ? DType::f64 : DType::f32};
  product.a = [&](Expr m, Expr k) { return p.a_transposed ? load(a, {k, m}) : load(a, {m, k}); };
  product.b = [&](Expr k, Expr n) { return p.b_transposed ? load(b, {n, k}) : load(b, {k, n}); };
  if (p.accumulate) product.first = [&](Expr m, Expr n) { return load(c, {m, n}); };
  product.store = [&](Expr m, Expr n, Expr sum) { builder.store(c, {m, n}, cast(p.dtype, sum)); };
  author_matmul(builder, product);
  return builder.build();
}

void expect_equal(const Product& p) {
  const Kernel kernel = author(p);
  Schedule schedule(kernel);
  schedule_matmul(schedule, "p", codegen::host_isa().target);
  const Kernel lowered = lower(schedule.kernel());
  const std::vector<Bytes> inputs{elements(p.dtype, p.m * p.k, 1), elements(p.dtype, p.k * p.n, 2), elements(p.dtype, p.m * p.n, 3)};
  agree(lowered, inputs);
}

TEST(Matmul, PlainProduct) { expect_equal({17, 33, 9}); }

}  // namespace
}  // namespace gradloom::testing
