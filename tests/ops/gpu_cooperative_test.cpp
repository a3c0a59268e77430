// Cooperative loops: their form, and the schedules that make them; products in every iteration of one, with a matrix
// that stays resident per block.
#include <gtest/gtest.h>

#include "gradloom/schedule.h"
#include "gradloom/text.h"
#include "ir/analysis/verify.h"
#include "ir/analysis/verify_gpu.h"
#include "ir/passes/passes.h"
#include "ir/rewrite.h"
#include "ops/matmul/matmul_recurrent.h"
#include "tests/support/schedule_support.h"

namespace gradloom::ir {
namespace {

// `inside`: the body of a cooperative loop over t.
std::string mismatch(const std::string& inside, const std::string& around = "cooperative") {
  return gpu_structure_error(parse("kernel k() {\n  in n: i64[4]\n  inout y: f32[8, 32]\n  for t in 0 .. 5 " + around +
                                   " {\n" + inside + "\n  }\n}\n"));
}
const std::string phase = "for b in 0 .. 8 grid { for i in 0 .. 32 thread { y[b, i] += 1.0f32 } }";

TEST(Cooperative, TheFormHasPhasesOnly) {
  EXPECT_EQ(mismatch(phase), "");
  EXPECT_EQ(mismatch("let s: i64 = t * 2\n if s < 7 { for u in 0 .. s { " + phase + " } }"), "");
  EXPECT_EQ(mismatch("for u in 0 .. 2 cooperative { " + phase + " }"),
            "the cooperative loop u stands in a cooperative loop, outside grid loops");
  EXPECT_EQ(mismatch("for b in 0 .. 2 grid { for u in 0 .. 2 cooperative { y[b, 0] = 1.0f32 } }"),
            "the cooperative loop u stands in a grid loop, outside thread and warp loops");
  EXPECT_EQ(mismatch("for i in 0 .. 32 thread { y[0, i] = 1.0f32 }"),
            "the thread loop i stands in a cooperative loop, outside grid loops");
  EXPECT_EQ(mismatch("y[0, 0] = 1.0f32"), "a store to y stands in a cooperative loop, outside grid loops");
  EXPECT_EQ(mismatch("alloc s: f32[8]\n" + phase),
            "the global buffer s is allocated in a cooperative loop, outside grid loops");
  EXPECT_EQ(mismatch("if n[0] > t { " + phase + " }"),
            "a condition in a cooperative loop, outside grid loops reads the buffer n");
  EXPECT_EQ(mismatch("let s: i64 = t + 1\n for b in 0 .. min(s, 8) grid { y[b, 0] = 1.0f32 }"),
            "the extent of the grid loop b depends on s, of the cooperative loop around it");
}

TEST(Cooperative, ABlockUsesItsOwnPart) {
  const auto use = [](const std::string& extent, const std::string& index) {
    return mismatch("alloc w: f32[8, 32] per_block\n for b in 0 .. " + extent + " grid { for i in 0 .. 32 thread { w[" +
                    index + ", i] = 1.0f32 } }");
  };
  EXPECT_EQ(use("8", "b"), "");
  const std::string otherwise =
      "the buffer w, a part a block, is used otherwise than by iterations of a grid loop over its first dim";
  EXPECT_EQ(use("8", "7 - b"), otherwise);
  EXPECT_EQ(use("4", "b"), otherwise);
  EXPECT_EQ(use("4", "0"), otherwise);
  EXPECT_EQ(mismatch("alloc w: f32[8, 32] per_block\n" + phase, ""),
            "the per_block buffer w is allocated outside every grid loop");
}

TEST(Cooperative, AScheduleBindsALoopInOrder) {
  const Kernel authored = parse(R"(kernel k() {
  inout y: f32[8, 32]
  for t in 0 .. 5 {
    for b in 0 .. 8 {
      for i in 0 .. 32 {
        y[b, i] = y[b, i] * 0.5f32 + f32(t)
      }
    }
  }
})");
  Schedule s(authored);
  s.bind(s.loop("b"), ForKind::grid);
  s.bind(s.loop("i"), ForKind::thread);
  EXPECT_THROW(s.bind(s.loop("b"), ForKind::cooperative), Error);
  s.bind(s.loop("t"), ForKind::cooperative);
  EXPECT_EQ(s.trace().back(), "bind t cooperative");
  expect_same(authored, s.kernel());
  const Kernel lowered = lower(s.kernel());
  verify(lowered, Stage::lowered);
  EXPECT_EQ(gpu_structure_error(lowered), "");
  expect_same(authored, lowered);
  Schedule again(authored);
  again.replay(s.trace());
  EXPECT_EQ(print(again.kernel()), print(s.kernel()));
}

// Grid loops inside are parallel: conflicts between two of their iterations are detected in any order.
TEST(Cooperative, TheInterpreterFindsRacesInAPhase) {
  const Kernel kernel = parse(R"(kernel k() {
  inout y: f32[8]
  for t in 0 .. 2 cooperative {
    for b in 0 .. 8 grid {
      y[0] += 1.0f32
    }
  }
})");
  EXPECT_THROW(run(kernel, {}, 1), Error);
}

}  // namespace
}  // namespace gradloom::ir

namespace gradloom {
namespace {

// Repeated products with resident matrices: x = first + x B, for `count` matrices B in parallel. Partial tiles, k in
// parts, several columns per thread.
struct Shape {
  int64_t m, n, k, multiprocessors, shared_bytes;
  int64_t count = 1;
};
using Author = std::function<void(ir::KernelBuilder&, const ir::Buffer& x, const ir::Buffer& y, const ir::Buffer& out)>;

ir::Kernel over_time(const Shape& s, const Author& author) {
  ir::KernelBuilder b("over_time");
  const ir::Buffer x = b.input("x", DType::f32, {3, s.m, s.k}), y = b.input("y", DType::f32, {s.k, s.count * s.n});
  author(b, x, y, b.output("out", DType::f32, {3, s.count, s.m, s.n}, 64));
  return b.build();
}

// `kept`: whether B is to stay resident; else each iteration reloads it.
void expect_every_sum(const Shape& s, bool kept) {
  SCOPED_TRACE(std::to_string(s.m) + " x " + std::to_string(s.n) + " x " + std::to_string(s.k) + ", " +
               std::to_string(s.count) + (kept ? ", kept" : ""));
  const ir::Target target{.gpu = true,
                          .multiprocessors = static_cast<int>(s.multiprocessors),
                          .cooperative = kept,
                          .shared_bytes = s.shared_bytes};
  // Starting at column `from` of y.
  const auto product = [&](const ir::Buffer& y, int64_t from) {
    Matmul p{.prefix = "p", .m = s.m, .n = s.n, .k = s.k};
    p.b = [=](ir::Expr k, ir::Expr n) { return ir::load(y, {k, from + n}); };
    p.first = [=](ir::Expr m, ir::Expr n) { return ir::cast(DType::f32, m - (from + n)); };
    return p;
  };
  const ir::Kernel want =
      over_time(s, [&](ir::KernelBuilder& b, const ir::Buffer& x, const ir::Buffer& y, const ir::Buffer& out) {
        b.loop("t", 0, 3, [&](ir::Expr t) {
          for (int64_t g = 0; g < s.count; ++g) {
            Matmul p = product(y, g * s.n);
            p.a = [&](ir::Expr m, ir::Expr k) { return ir::load(x, {t, m, k}); };
            p.store = [&](ir::Expr m, ir::Expr n, ir::Expr sum) { b.store(out, {t, g, m, n}, sum); };
            author_matmul(b, p);
          }
        });
      });
  RecurrentLoops loops;
  const ir::Kernel authored =
      over_time(s, [&](ir::KernelBuilder& b, const ir::Buffer& x, const ir::Buffer& y, const ir::Buffer& out) {
        RecurrentMatmul p(b, product(y, 0), target, {.shared_bytes = s.shared_bytes}, s.count);
        b.loop("launch", 0, 1, [&](ir::Expr) {
          p.load_resident_b();
          b.loop("t", 0, 3, [&](ir::Expr t) {
            const Epilogue store = [&](ir::Expr m, ir::Expr n, const std::vector<ir::Expr>& sums) {
              ASSERT_EQ(std::ssize(sums), s.count);
              for (int64_t g = 0; g < s.count; ++g) b.store(out, {t, g, m, n}, sums[g]);
            };
            p.multiply([&](ir::Expr m, ir::Expr k) { return ir::load(x, {t, m, k}); }, product(y, 0).first, store);
          });
        });
        loops = p.loops();
      });
  ir::Schedule schedule(authored);
  schedule_matmul_recurrent(schedule, loops);
  ASSERT_EQ(schedule.loops("p_rb").empty(), !kept);
  if (kept) schedule.bind(schedule.loop("launch"), ir::ForKind::cooperative);
  const ir::Kernel lowered = ir::lower(schedule.kernel(), {.gpu = true, .shared_bytes = s.shared_bytes});
  ir::verify(lowered, ir::Stage::lowered);
  EXPECT_EQ(ir::gpu_structure_error(lowered), "") << ir::print(lowered);
  ir::expect_same(want, lowered);
}

TEST(RecurrentMatmul, KeepsEverySum) {
  for (const int64_t count : {1, 2, 3})
    for (const bool kept : {true, false})
      for (const Shape& s :
           {Shape{8, 16, 64, 132, 64 << 10}, Shape{5, 7, 9, 8, 64 << 10}, Shape{16, 64, 48, 4, 48 << 10},
            Shape{32, 32, 36, 1, 32 << 10}, Shape{1, 3, 100, 132, 8 << 10}})
        expect_every_sum({s.m, s.n, s.k, s.multiprocessors, s.shared_bytes, count}, kept);
}

// B transposed, as R is in GRUTraining: neighbours are loaded as one vector.
TEST(RecurrentMatmul, BringsWhatLiesAlongK) {
  for (const int64_t k : {64, 9}) {
    ir::KernelBuilder b("along_k");
    const ir::Buffer x = b.input("x", DType::f32, {8, k}), y = b.input("y", DType::f32, {48, k}),
                     out = b.output("out", DType::f32, {3, 8, 16}, 64);
    Matmul p{.prefix = "p", .m = 8, .n = 16, .k = k};
    p.b = [&](ir::Expr k, ir::Expr n) { return ir::load(y, {n, k}); };
    RecurrentMatmul product(b, p, {.gpu = true}, {.shared_bytes = 64 << 10}, 3);
    b.loop("launch", 0, 1, [&](ir::Expr) {
      product.load_resident_b();
      product.multiply(
          [&](ir::Expr m, ir::Expr k) {
            return ir::load(x, {m, k});
          },
          {},
          [&](ir::Expr m, ir::Expr n, const std::vector<ir::Expr>& sums) {
            for (int64_t g = 0; g < 3; ++g) b.store(out, {g, m, n}, sums[g]);
          });
    });
    const ir::Kernel authored = b.build();
    ir::Schedule schedule(authored);
    schedule_matmul_recurrent(schedule, product.loops());
    schedule.bind(schedule.loop("launch"), ir::ForKind::cooperative);
    const ir::Kernel lowered = ir::lower(schedule.kernel(), {.gpu = true});
    ir::expect_same(authored, lowered);
    EXPECT_EQ(ir::print(lowered).find("p_held[ramp(0, 1, 4)] = y[") != std::string::npos, k == 64)
        << ir::print(lowered);
  }
}

}  // namespace
}  // namespace gradloom
