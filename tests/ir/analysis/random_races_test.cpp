// Random index arithmetic: loops proved parallel pass the interpreter's race detection, and simplify changes no bit.
#include <gtest/gtest.h>

#include <random>

#include "gradloom/builder.h"
#include "gradloom/text.h"
#include "ir/analysis/races.h"
#include "ir/interpret/interpret.h"
#include "ir/passes/passes.h"

namespace gradloom::ir {
namespace {

constexpr DType f32 = DType::f32;

TEST(LoopCarriedConflict, ProofsHoldOnRandomKernels) {
  std::mt19937 random(7);
  auto pick = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
  int proved = 0;
  for (int round = 0; round < 800; ++round) {
    KernelBuilder b("k");
    Expr n = b.scalar("n", 0, 12);
    Buffer y = b.inout("y", f32, {40, 40});
    std::function<Expr(Expr, Expr)> index = [&](Expr v, Expr i) {
      Expr e = v * Expr(pick(-2, 5)) + i * Expr(pick(-1, 2)) + pick(-1, 3);
      switch (pick(0, 7)) {
        case 0:
          e = floor_div(e, Expr(pick(2, 5)));
          break;
        case 1:
          e = floor_mod(e, Expr(pick(2, 9)));
          break;
        case 2:
          e = min(e, n + pick(-1, 3));
          break;
        case 3:
          e = select(v < Expr(pick(0, 9)), e, i);
          break;
        case 4:
          e = floor_div(v, Expr(4));
          break;
        case 5:
          e = floor_mod(v, Expr(4));
          break;
        default:
          break;
      }
      return e;
    };
    Var v = make_var("v");
    Stmt body = [&] {
      KernelBuilder inner("body");
      inner.loop("i", pick(0, 1) ? Expr(0) : var(v) * Expr(pick(1, 4)), pick(0, 1) ? Expr(pick(1, 4)) : min(Expr(3), n),
                 [&](Expr i) {
                   Expr first = index(var(v), i), second = index(var(v), i), third = index(var(v), i);
                   Expr inside = (first >= Expr(0)) & (first < Expr(40)) & (second >= Expr(0)) & (second < Expr(40)) &
                                 (third >= Expr(0)) & (third < Expr(40));
                   if (pick(0, 2) == 0) inside = inside & (i < Expr(pick(1, 6))) & (var(v) > Expr(pick(-1, 3)));
                   inner.if_then(inside, [&] {
                     inner.store(y, {first, second}, cast(f32, first + i));
                     if (pick(0, 2) == 0) inner.accumulate(y, {third, second}, load(y, {first, second}));
                   });
                 });
      return inner.build().body;
    }();
    const Expr extent = pick(0, 1) ? n : Expr(pick(2, 12));
    b.append(for_loop(v, 0, extent, ForKind::serial, body));
    Kernel kernel = b.build();
    const std::string conflict = loop_carried_conflict(*kernel.body.as<For>(), Ranges(kernel));
    auto run = [&](const Kernel& k, int64_t size) {
      std::vector<float> data(1600, 0.5f);
      void* buffers[] = {data.data()};
      const int64_t scalars[] = {size};
      interpret(k, buffers, scalars);
      return data;
    };
    Kernel simple = simplify(kernel);
    for (int64_t size : {0, 3, 12}) ASSERT_EQ(run(kernel, size), run(simple, size)) << print(kernel) << print(simple);
    if (!conflict.empty()) continue;
    ++proved;
    kernel.body = for_loop(v, 0, extent, ForKind::parallel, body);
    ASSERT_NO_THROW(run(kernel, 12)) << print(kernel);
  }
  EXPECT_GT(proved, 80);
}

}  // namespace
}  // namespace gradloom::ir
