#include "ops/patterns/unrolled_sum.h"

#include "ir/index_math.h"

namespace gradloom {

using ir::Expr;

Expr author_unrolled_sum(ir::KernelBuilder& b, DType sum, const std::string& loop, const Expr& first, const Expr& count,
                         int64_t loads_ahead, const std::function<Expr(const Expr& i)>& value) {
  const ir::Buffer total = b.alloc("total", sum, {1}, {}, ir::Space::registers);
  b.store(total, {0}, ir::zero({sum, 1}));
  const auto read = [&](const Expr& i) { return b.let("value", value(i)); };
  const Expr groups = ir::index_div(count, loads_ahead), whole = ir::as_int(groups) ? groups : b.let("whole", groups);
  b.loop(loop, 0, whole, [&](Expr group) {
    std::vector<Expr> values;
    for (int64_t k = 0; k < loads_ahead; ++k)
      values.push_back(read(ir::index_add(ir::index_add(first, group * loads_ahead), k)));
    for (const Expr& v : values) b.accumulate(total, {0}, v);
  });
  const Expr done = ir::index_mul(whole, loads_ahead);
  b.loop(loop, ir::index_add(first, done), ir::index_sub(count, done),
         [&](Expr i) { b.accumulate(total, {0}, read(i)); });
  return ir::load(total, {0});
}

}  // namespace gradloom
