// Blocked products: the same sums as author_matmul's nest, in the form of a GPU kernel, for full and partial tiles,
// both layouts, constant and any shapes; and the space per_thread of its accumulators.
#include <gtest/gtest.h>

#include <cstring>

#include "ir/analysis/verify.h"
#include "ir/analysis/verify_gpu.h"
#include "ir/interpret/interpret.h"
#include "ir/passes/passes.h"
#include "ir/rewrite.h"
#include "ir/schedule/schedule_gpu.h"
#include "ops/matmul/matmul_blocks.h"
#include "tests/support/schedule_support.h"

namespace gradloom {
namespace {

using namespace ir;

struct Shape {
  int64_t m, n, k;
};
using Author = std::function<void(KernelBuilder&, const Matmul&)>;

// C = A B, with A and B possibly transposed.
Kernel authored(const Shape& s, bool transposed, bool any_shape, const Author& author) {
  KernelBuilder b("product");
  Expr m = s.m, n = s.n, k = s.k;
  if (any_shape) m = b.scalar("m", 0, 4096), n = b.scalar("n", 0, 4096), k = b.scalar("k", 0, 4096);
  using Dims = std::vector<Expr>;
  const Buffer x = b.input("x", DType::f32, transposed ? Dims{k, m} : Dims{m, k}),
               y = b.input("y", DType::f32, transposed ? Dims{n, k} : Dims{k, n});
  const Buffer c = b.output("c", DType::f32, {m, n}, 64);
  Matmul p{.prefix = "x", .m = m, .n = n, .k = k};
  p.a = [&](Expr i, Expr j) { return transposed ? load(x, {j, i}) : load(x, {i, j}); };
  p.b = [&](Expr i, Expr j) { return transposed ? load(y, {j, i}) : load(y, {i, j}); };
  p.first = [&](Expr i, Expr j) { return cast(DType::f32, i - j); };
  p.store = [&](Expr i, Expr j, Expr sum) { b.store(c, {i, j}, sum); };
  author(b, p);
  return b.build();
}

std::vector<float> product(const Kernel& kernel, const Shape& s, bool any_shape) {
  std::vector<float> x(static_cast<size_t>(s.m * s.k) + 1), y(static_cast<size_t>(s.k * s.n) + 1),
      c(static_cast<size_t>(s.m * s.n) + 1);
  uint32_t state = 7;
  for (auto* list : {&x, &y})
    for (float& v : *list)
      v = static_cast<float>(static_cast<int32_t>(state = state * 1664525 + 1013904223)) * 0x1p-31f;
  void* const buffers[] = {x.data(), y.data(), c.data()};
  const std::vector<int64_t> scalars = any_shape ? std::vector<int64_t>{s.m, s.n, s.k} : std::vector<int64_t>{};
  interpret(kernel, buffers, scalars);
  return c;
}

TEST(GpuProduct, KeepsEverySum) {
  for (const int multiprocessors : {1, 8, 132})  // the fewer, the larger the tiles
    for (const Shape& s : {Shape{70, 50, 37}, Shape{128, 128, 32}, Shape{1, 1, 1}, Shape{5, 3, 0}, Shape{16, 40, 16},
                           Shape{150, 130, 20}})
      for (const bool transposed : {false, true})
        for (const bool any_shape : {false, true}) {
          const Target target{.gpu = true, .multiprocessors = multiprocessors};
          MatmulBlocks blocks;
          Schedule schedule(authored(s, transposed, any_shape, [&](KernelBuilder& b, const Matmul& p) {
            blocks = author_matmul_blocks(b, p, target);
          }));
          schedule_matmul_blocks(schedule, blocks);
          const Kernel lowered = lower(schedule.kernel(), lowering_for(target));
          verify(lowered, Stage::lowered);
          EXPECT_EQ(gpu_structure_error(lowered), "");
          const std::vector<float> want = product(authored(s, transposed, any_shape, author_matmul), s, any_shape),
                                   got = product(lowered, s, any_shape);
          EXPECT_EQ(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)), 0)
              << s.m << "x" << s.n << "x" << s.k << transposed << any_shape << multiprocessors;
        }
}

// A long k with few tiles, split into parts: sums of integral values are exact in any order. Equal parts, a shorter
// last one, partial tiles, and no split.
TEST(GpuProduct, SumsInPartsAreComplete) {
  struct Case {
    Shape shape;
    int multiprocessors;
    bool cut;
  };
  for (const Case& c : {Case{{70, 66, 520}, 8, true}, Case{{64, 128, 512}, 4, true}, Case{{30, 20, 530}, 2, true},
                        Case{{64, 64, 500}, 4, false}, Case{{512, 512, 1024}, 4, false}}) {
    const auto [m, n, k] = c.shape;
    SCOPED_TRACE(std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k));
    const auto authored = [&](const Author& author) {
      KernelBuilder b("product");
      const Buffer x = b.input("x", DType::i8, {m, k}), y = b.input("y", DType::i8, {k, n}),
                   out = b.output("out", DType::f32, {m, n}, 64);
      Matmul p{.prefix = "x", .m = m, .n = n, .k = k};
      p.a = [&](Expr i, Expr j) { return load(x, {i, j}); };
      p.b = [&](Expr j, Expr i) { return load(y, {j, i}); };
      p.first = [&](Expr i, Expr j) { return cast(DType::f32, i - j); };
      p.store = [&](Expr i, Expr j, Expr sum) { b.store(out, {i, j}, sum); };
      author(b, p);
      return b.build();
    };
    const Target target{.gpu = true, .multiprocessors = c.multiprocessors};
    MatmulBlocks blocks;
    Schedule schedule(
        authored([&](KernelBuilder& b, const Matmul& p) { blocks = author_matmul_blocks(b, p, target, false); }));
    EXPECT_EQ(!schedule.loops("x_part").empty(), c.cut);
    if (!c.cut) continue;
    schedule_matmul_blocks(schedule, blocks);
    schedule_gpu(schedule, target);
    const Kernel lowered = lower(schedule.kernel(), lowering_for(target));
    verify(lowered, Stage::lowered);
    EXPECT_EQ(gpu_structure_error(lowered), "");
    expect_same(authored(author_matmul), lowered);
  }
}

// Sums never pass through shared memory: each access is indexed by constants and the thread's number.
TEST(GpuProduct, SumsStayWithTheirThreads) {
  const Target target{.gpu = true, .multiprocessors = 1};
  MatmulBlocks blocks;
  Schedule schedule(authored({128, 128, 32}, false, false,
                             [&](KernelBuilder& b, const Matmul& p) { blocks = author_matmul_blocks(b, p, target); }));
  schedule_matmul_blocks(schedule, blocks);
  const Kernel lowered = lower(schedule.kernel(), lowering_for(target));
  int accesses = 0;
  walk(lowered.body, [&](const Stmt& s) {
    const auto* n = s.as<Accumulate>();
    if (!n || n->buffer->space != Space::per_thread) return;
    ++accesses;
    EXPECT_TRUE(n->index[0].as<Var>() && as_int(n->index[1]) && as_int(n->index[2])) << n->buffer->name;
  });
  EXPECT_EQ(accesses, 64);
}

TEST(GpuForm, APartAThreadIsUsedByThatThreadOnly) {
  const Var g = make_var("g"), t = make_var("t");
  const Buffer own = make_buffer({.name = "own", .dims = {32}, .space = Space::per_thread});
  const auto mismatch = [&](const Expr& index, int64_t threads) {
    Kernel kernel{.name = "k",
                  .body = for_loop(g, 0, 1, ForKind::grid,
                                   alloc(own, for_loop(t, 0, threads, ForKind::thread,
                                                       store(own, {index}, constant(DType::f32, 0)))))};
    return gpu_structure_error(kernel);
  };
  EXPECT_EQ(mismatch(var(t), 32), "");
  EXPECT_NE(mismatch(Expr(31) - var(t), 32), "");
  EXPECT_NE(mismatch(var(t), 16), "");
}

}  // namespace
}  // namespace gradloom
