#include "ops/patterns/block_sort.h"

#include <bit>

namespace gradloom {

using ir::Expr;

ir::Loop author_block_sort(ir::KernelBuilder& b, const ir::Buffer& own, int64_t length) {
  const auto shl = [](Expr a, Expr count) { return ir::binary(ir::BinaryOp::shl, std::move(a), std::move(count)); };
  const auto shr = [](Expr a, Expr count) { return ir::binary(ir::BinaryOp::shr, std::move(a), std::move(count)); };
  const int bits = std::countr_zero(static_cast<uint64_t>(length));
  ir::Loop pairs = 0;
  b.loop("stage", 0, bits, [&](Expr stage) {
    b.loop("step", 0, bits, [&](Expr step) {
      const Expr bit = b.let("bit", Expr(bits - 1) - step);
      b.if_then(bit <= stage, [&] {
        pairs = b.loop("pair", 0, length / 2, [&](Expr i) {
          const Expr apart = b.let("apart", shl(1, bit));
          const Expr low = b.let("low", shl(shr(i, bit), bit + 1) + (i & (apart - 1)));
          const Expr x = b.let("x", ir::load(own, {low})), y = b.let("y", ir::load(own, {low + apart}));
          const Expr down = b.let("down", (shr(low, stage + 1) & Expr(1)) == 1);
          b.store(own, {low}, ir::select(down, ir::max(x, y), ir::min(x, y)));
          b.store(own, {low + apart}, ir::select(down, ir::min(x, y), ir::max(x, y)));
        });
      });
    });
  });
  return pairs;
}

}  // namespace gradloom
