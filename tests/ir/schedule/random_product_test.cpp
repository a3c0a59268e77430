// Random matrix products under random tiles: after tile_product, and after the steps that follow it, the nest verifies,
// lowers, and interprets to the same bits. GRADLOOM_FUZZ_RUNS: the number of seeds; GRADLOOM_FUZZ_SEED: the first one.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "gradloom/builder.h"
#include "tests/support/environment.h"
#include "tests/support/schedule_support.h"

namespace gradloom::ir {
namespace {

class RandomProduct {
 public:
  explicit RandomProduct(uint64_t seed) : random_(seed) {}

  // for t { for m { for n { sum = first; for k { sum fma= (a, b) } store } } }, with random operand forms.
  Kernel nest() {
    KernelBuilder b("product");
    const Expr m = extent(b, "m"), n = extent(b, "n"), k = extent(b, "k");
    const DType t = pick(3) ? DType::f32 : DType::f64;
    const int64_t first_m = pick(4) ? 0 : pick(5) - 2;
    const bool a_across = pick(2), b_across = pick(2), shifted = pick(4) == 0, several = pick(3) == 0,
               guarded = pick(4) == 0;
    const Buffer x = b.input("x", t, a_across ? std::vector<Expr>{k, m} : std::vector<Expr>{m, k});
    const Buffer y = b.input("y", t, b_across ? std::vector<Expr>{n, k} : std::vector<Expr>{k, n});
    const Buffer z = b.inout("z", t, {m, n});
    const auto product = [&] {
      b.loop("m", first_m, m, [&](Expr i) {
        const Expr row = i - first_m;
        b.loop("n", 0, n, [&](Expr j) {
          const Buffer sum = b.alloc("sum", t, {});
          b.store(sum, {}, pick(2) ? load(z, {row, j}) : constant(t, 0.5));
          b.loop("k", 0, k, [&](Expr l) {
            const std::vector<Expr> at = a_across ? std::vector<Expr>{l, row} : std::vector<Expr>{row, l};
            Expr a = shifted ? load(x, at, l > 1, constant(t, 0.25)) : load(x, at);
            Expr f = b_across ? load(y, {j, l}) : load(y, {l, j});
            if (pick(2)) std::swap(a, f);
            b.accumulate(sum, {}, a, AccumulateOp::fma, f);
          });
          if (guarded)
            b.if_then(j != 3, [&] { b.store(z, {row, j}, load(sum, {}) * constant(t, 0.5)); });
          else
            b.store(z, {row, j}, load(sum, {}));
        });
      });
    };
    if (several)
      b.loop("t", 0, 2, [&](Expr) { product(); });
    else
      product();
    return b.build();
  }

  ProductTiles tiles() {
    ProductTiles t{.rows = 1 + pick(5), .vectors = 1 + pick(3), .lanes = 2 << pick(3), .unroll_k = 1 + pick(3)};
    if (pick(2)) t.block_m = int64_t{t.rows} * (1 + pick(4));
    if (pick(2)) t.block_n = t.columns() * (1 + pick(3));
    if (pick(2)) t.block_k = 1 + pick(9);
    if (pick(3) == 0) t.outer_n = std::max<int64_t>(t.block_n, t.columns()) * (1 + pick(3));
    t.pack_a = pick(2), t.pack_b = pick(2), t.along_rows = pick(2);
    t.share = static_cast<ProductTiles::Share>(pick(3));
    return t;
  }

  // Whether a step was accepted.
  bool follow(Schedule& s) {
    const std::vector<Schedule::Loop> loops = s.loops();
    if (loops.empty()) return false;
    const Schedule::Loop loop = loops[static_cast<size_t>(pick(static_cast<int>(loops.size())))];
    const size_t before = s.trace().size();
    s.attempt([&](Schedule& trial) {
      switch (pick(4)) {
        case 0:
          return void(trial.split(loop, 2 + pick(4)));
        case 1:
          return trial.parallel(loop);
        case 2:
          return trial.prefetch(loop, trial.kernel().buffers[static_cast<size_t>(pick(3))], 1 + pick(3), 1);
        default:
          return void(trial.vectorize(loop, 4));
      }
    });
    return s.trace().size() > before;
  }
  int pick(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  ScalarValues scalars;

 private:
  Expr extent(KernelBuilder& b, const std::string& name) {
    const int64_t size = pick(12) == 0 ? 0 : 1 + pick(20);
    if (pick(2)) return size;
    scalars[name] = size;
    return b.scalar(name, 0, 64);
  }
  std::mt19937_64 random_;
};

TEST(RandomProducts, AreTheSameAfterEachStep) {
  const int64_t first = environment("GRADLOOM_FUZZ_SEED", 1), runs = environment("GRADLOOM_FUZZ_RUNS", 40);
  int tiled = 0;
  for (int64_t seed = first; seed < first + runs && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomProduct random(static_cast<uint64_t>(seed));
    const std::string text = print(random.nest());
    Schedule s(parse(text));
    const ProductTiles tiles = random.tiles();
    const bool before = random.pick(3) == 0 && !s.loops("t").empty();
    s.attempt([&](Schedule& trial) { trial.tile_product(trial.loop("m"), tiles, before ? trial.loop("t") : 0); });
    if (s.trace().empty()) continue;
    ++tiled;
    check(text, s, {random.scalars});
    for (int k = 0; k < 3; ++k)
      if (random.follow(s)) check(text, s, {random.scalars});
  }
  EXPECT_GE(3 * tiled, 2 * runs);
}

}  // namespace
}  // namespace gradloom::ir
