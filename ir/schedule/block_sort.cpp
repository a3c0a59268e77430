#include "ir/schedule/block_sort.h"

#include <bit>

#include "ir/schedule/site.h"

namespace gradloom::ir {

Loop author_block_sort(KernelBuilder& b, const Buffer& own, int64_t length) {
  const auto shl = [](Expr a, Expr count) { return binary(BinaryOp::shl, std::move(a), std::move(count)); };
  const auto shr = [](Expr a, Expr count) { return binary(BinaryOp::shr, std::move(a), std::move(count)); };
  const int bits = std::countr_zero(static_cast<uint64_t>(length));
  Loop pairs = 0;
  const auto in_order = [&](const char* name, const std::function<void(Expr)>& body) {
    b.loop(name, 0, bits, body, ForKind::ordered);
  };
  in_order("stage", [&](Expr stage) {
    in_order("step", [&](Expr step) {
      const Expr bit = b.let("bit", Expr(bits - 1) - step);
      b.if_then(bit <= stage, [&] {
        pairs = b.loop("pair", 0, length / 2, [&](Expr i) {
          const Expr apart = b.let("apart", shl(1, bit));
          const Expr low = b.let("low", shl(shr(i, bit), bit + 1) + (i & (apart - 1)));
          const Expr x = b.let("x", load(own, {low})), y = b.let("y", load(own, {low + apart}));
          const Expr down = b.let("down", (shr(low, stage + 1) & Expr(1)) == 1);
          b.store(own, {low}, select(down, max(x, y), min(x, y)));
          b.store(own, {low + apart}, select(down, min(x, y), max(x, y)));
        });
      });
    });
  });
  return pairs;
}

void require_run(const std::string& step, const For& loop, int64_t run) {
  if (run < 2 || run > (1 << 16) || (run & (run - 1)) != 0)
    wrong_argument(step, loop.var.name, "a run is a power of two, 2 to 65536, got " + std::to_string(run));
}

}  // namespace gradloom::ir
