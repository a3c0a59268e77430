#include "gradloom/matmul.h"

#include "ir/schedule/schedule_product.h"

namespace gradloom {

using namespace ir;

Loop author_matmul(KernelBuilder& builder, const Matmul& product) {
  return builder.loop(product.prefix + "_m", 0, product.m, [&](Expr m) {
    builder.loop(product.prefix + "_n", 0, product.n, [&](Expr n) {
      const Buffer sum = builder.alloc(product.prefix + "_sum", product.sum, {}, {}, Space::registers);
      builder.store(sum, {}, product.first ? cast(product.sum, product.first(m, n)) : zero({product.sum, 1}));
      builder.loop(product.prefix + "_k", 0, product.k, [&](Expr k) {
        builder.accumulate(sum, {}, cast(product.sum, product.a(m, k)), AccumulateOp::fma,
                           cast(product.sum, product.b(k, n)));
      });
      product.store(m, n, load(sum, {}));
    });
  });
}

void schedule_matmul(Schedule& schedule, Loop rows, const Target& target, const MatmulHints& hints) {
  schedule_product(schedule, rows, target,
                   {.pack_before = hints.pack_b_before,
                    .parallel = hints.parallel,
                    .m = hints.m,
                    .n = hints.n,
                    .k = hints.k});
}

}  // namespace gradloom
