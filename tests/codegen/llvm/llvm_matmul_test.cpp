// Matrix products by schedule: the authored nest, its schedule and the compiled kernel agree bit for bit, over layouts,
// dtypes, odd sizes and targets.
#include "gradloom/matmul.h"
#include "gradloom/text.h"
#include "ir/analysis/verify.h"
#include "ir/passes/passes.h"
#include "tests/support/llvm_run.h"
#include "tests/support/sampled.h"

namespace gradloom::testing {
namespace {

using namespace ir;

struct Case {
  int64_t m, n, k;
  DType dtype = DType::f32;
  bool a_transposed = false, b_transposed = false, accumulate = false;
  int64_t steps = 1;       // products with one B
  bool any_shape = false;  // extents are scalars
};

std::vector<Expr> dims(bool several, int64_t steps, Expr first, Expr second) {
  return several ? std::vector<Expr>{steps, first, second} : std::vector<Expr>{first, second};
}

Kernel author(const Case& p) {
  KernelBuilder builder("product");
  const bool several = p.steps > 1;
  const Expr m = p.any_shape ? builder.scalar("m", 0) : Expr(p.m), n = p.any_shape ? builder.scalar("n", 0) : Expr(p.n),
             k = p.any_shape ? builder.scalar("k", 0) : Expr(p.k);
  const Buffer a =
      builder.input("a", p.dtype, p.a_transposed ? dims(several, p.steps, k, m) : dims(several, p.steps, m, k));
  const Buffer b = builder.input("b", p.dtype, p.b_transposed ? std::vector<Expr>{n, k} : std::vector<Expr>{k, n});
  const Buffer c = p.accumulate ? builder.inout("c", p.dtype, dims(several, p.steps, m, n))
                                : builder.output("c", p.dtype, dims(several, p.steps, m, n));
  const auto nest = [&](Expr t) {
    const auto at = [&](Expr i, Expr j) { return several ? std::vector<Expr>{t, i, j} : std::vector<Expr>{i, j}; };
    Matmul product{.prefix = "p", .m = m, .n = n, .k = k, .sum = p.dtype == DType::f64 ? DType::f64 : DType::f32};
    product.a = [&](Expr i, Expr j) { return p.a_transposed ? load(a, at(j, i)) : load(a, at(i, j)); };
    product.b = [&](Expr i, Expr j) { return p.b_transposed ? load(b, {j, i}) : load(b, {i, j}); };
    if (p.accumulate) product.first = [&](Expr i, Expr j) { return load(c, at(i, j)); };
    product.store = [&](Expr i, Expr j, Expr sum) { builder.store(c, at(i, j), cast(p.dtype, sum)); };
    author_matmul(builder, product);
  };
  if (several)
    builder.loop("t", 0, p.steps, nest);
  else
    nest(0);
  return builder.build();
}

std::vector<Bytes> operands(const Case& p) {
  return {elements(p.dtype, p.steps * p.m * p.k, 1), elements(p.dtype, p.k * p.n, 2),
          elements(p.dtype, p.steps * p.m * p.n, 3)};
}

std::vector<int64_t> scalars(const Case& p) {
  return p.any_shape ? std::vector<int64_t>{p.m, p.n, p.k} : std::vector<int64_t>{};
}

// The authored nest, interpreted, against the result of `schedule`, interpreted once and compiled for each available
// instruction set.
void expect_equal(const Case& p, const std::function<void(Schedule&)>& apply) {
  static size_t call = 0;
  if (!sampled(call++)) return;
  const Kernel authored = author(p);
  Schedule schedule(authored);
  apply(schedule);
  SCOPED_TRACE(schedule.trace().back() + " on " + std::to_string(p.m) + "x" + std::to_string(p.n) + "x" +
               std::to_string(p.k));
  verify(schedule.kernel(), Stage::scheduled);
  Schedule again(authored);
  again.replay(schedule.trace());
  EXPECT_EQ(again.trace(), schedule.trace());
  EXPECT_EQ(print(again.kernel()), print(schedule.kernel()));
  const Kernel lowered = lower(schedule.kernel());
  verify(lowered, Stage::lowered);
  const std::vector<Bytes> inputs = operands(p);
  const auto interpreted = [&](const Kernel& kernel) {
    return run_on_copies(
        inputs, {}, [&](std::vector<void*>& pointers) { return interpret(kernel, pointers, scalars(p)).bad_position; });
  };
  const Ran expected = interpreted(authored);
  compare(lowered, expected, interpreted(lowered), "interpreter");
  for (const codegen::Isa& isa : isas_here())
    compare(lowered, expected, run_compiled(codegen::compile(lowered, isa), inputs, scalars(p), {}), isa.name);
}

void expect_equal(const Case& p, Target target, bool before = false) {
  expect_equal(
      p, [&](Schedule& s) { schedule_matmul(s, s.loop("p_m"), target, {.pack_b_before = before ? s.loop("t") : 0}); });
}

Target level(const std::string& name, int threads = 1) {
  Target target = codegen::isa_named(name).target;
  target.threads = threads;
  // Small caches, so that small products have several blocks.
  target.l1_bytes = 2 << 10, target.l2_bytes = 8 << 10;
  return target;
}

constexpr DType floats[] = {DType::f32, DType::f64, DType::f16, DType::bf16};

TEST(Matmul, EveryLayoutDtypeAndOddSize) {
  for (const DType dtype : floats)
    for (int layout = 0; layout < 8; ++layout)
      for (const auto& [m, n, k] : {std::tuple{13, 37, 29}, {9, 50, 8}}) {
        Case p{m, n, k, dtype, (layout & 1) != 0, (layout & 2) != 0, (layout & 4) != 0};
        expect_equal(p, level("x86-64-v3"));
      }
}

TEST(Matmul, SmallAndEmpty) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool transposed : {false, true})
      for (const auto& [m, n, k] : {std::tuple{1, 1, 1},
                                    {1, 70, 33},
                                    {2, 24, 40},
                                    {3, 5, 7},
                                    {4, 48, 16},
                                    {5, 33, 17},
                                    {8, 96, 9},
                                    {0, 5, 3},
                                    {5, 0, 3},
                                    {5, 3, 0},
                                    {1, 40, 0}})
        for (const bool accumulate : {false, true})
          expect_equal({m, n, k, dtype, transposed, transposed, accumulate}, level("x86-64-v3"));
}

TEST(Matmul, CachesOfAnySize) {
  for (const int64_t bytes : {int64_t{0}, int64_t{16}, int64_t{1} << 40}) {
    Target target = level("x86-64-v3", 2);
    target.l1_bytes = target.l2_bytes = bytes;
    for (const bool transposed : {false, true}) expect_equal({13, 37, 29, DType::f32, transposed}, target);
    expect_equal({3, 37, 29}, target);
  }
}

TEST(Matmul, TilesOfWiderAndNarrowerVectors) {
  for (const char* name : {"x86-64-v2", "x86-64-v4"})
    for (const DType dtype : floats)
      for (int layout = 0; layout < 4; ++layout)
        expect_equal({31, 67, 40, dtype, (layout & 1) != 0, (layout & 2) != 0}, level(name));
}

TEST(Matmul, RowsAndColumnsToThreads) {
  for (const auto& [m, n, k] : {std::tuple{130, 90, 70}, {3, 2000, 100}})
    for (int layout = 0; layout < 4; ++layout) {
      const Case p{m, n, k, DType::f32, (layout & 1) != 0, (layout & 2) != 0};
      expect_equal(p, level("x86-64-v3", 3));
      Schedule s(author(p));
      schedule_matmul(s, s.loop("p_m"), level("x86-64-v3", 3));
      EXPECT_NE(print(s.kernel()).find("parallel"), std::string::npos);
    }
}

TEST(Matmul, PanelsBeforeALoop) {
  for (const DType dtype : {DType::f32, DType::f16})
    for (const bool transposed : {false, true})
      for (const int64_t m : {1, 7, 32})
        expect_equal({m, 45, 19, dtype, false, transposed, false, 3}, level("x86-64-v3"), true);
}

TEST(Matmul, AnyShape) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (int layout = 0; layout < 4; ++layout)
      for (const auto& [m, n, k] : {std::tuple{13, 37, 29}, {12, 48, 32}, {1, 5, 40}, {0, 3, 2}, {6, 6, 0}}) {
        Case p{m, n, k, dtype, (layout & 1) != 0, (layout & 2) != 0};
        p.any_shape = true;
        expect_equal(p, level("x86-64-v3", 2));
      }
}

// Every combination of panels and blocks, not only those that a schedule would choose.
TEST(Matmul, AllTiles) {
  using P = ProductTiles;
  const Case p{23, 70, 37};
  for (const bool pack_a : {false, true})
    for (const bool pack_b : {false, true})
      for (const int64_t block_k : {0, 12})
        for (const auto share : {P::serial, P::rows_parallel, P::columns_parallel})
          for (const int layout : {0, 3}) {
            Case c = p;
            c.a_transposed = (layout & 1) != 0, c.b_transposed = (layout & 2) != 0;
            const int64_t block_n = (layout == 0) == (block_k == 0) ? 0 : 16;
            if (block_k == 0) c.dtype = DType::bf16;
            P t{.rows = 3,
                .vectors = 2,
                .lanes = 4,
                .unroll_k = layout == 3 ? 3 : 1,
                .block_m = 9,
                .block_n = block_n,
                .block_k = block_k,
                .outer_n = block_n ? 32 : 0};
            t.pack_a = pack_a, t.pack_b = pack_b, t.share = share;
            for (const bool along_rows : {false, true}) {
              t.along_rows = along_rows;
              expect_equal(c, [&](Schedule& s) { s.tile_product(s.loop("p_m"), t); });
            }
          }
}

// Partial sums across blocks along k, of a product whose epilogue is no plain store.
TEST(Matmul, AnEndOfItsOwn) {
  const auto author_biased = [](DType dtype) {
    KernelBuilder builder("biased");
    const Buffer a = builder.input("a", dtype, {21, 50}), b = builder.input("b", dtype, {50, 33}),
                 bias = builder.input("bias", dtype, {33});
    const Buffer c = builder.output("c", dtype, {21, 33}), positive = builder.output("positive", DType::u8, {21, 33});
    Matmul product{.prefix = "p", .m = 21, .n = 33, .k = 50, .sum = DType::f32};
    product.a = [&](Expr m, Expr k) { return load(a, {m, k}); };
    product.b = [&](Expr k, Expr n) { return load(b, {k, n}); };
    product.first = [&](Expr, Expr n) { return load(bias, {n}); };
    product.store = [&](Expr m, Expr n, Expr sum) {
      builder.store(c, {m, n}, cast(dtype, max(sum, constant(DType::f32, 0))));
      builder.store(positive, {m, n}, cast(DType::u8, sum > constant(DType::f32, 0)));
    };
    author_matmul(builder, product);
    return builder.build();
  };
  for (const DType dtype : {DType::f32, DType::f16}) {
    const Kernel authored = author_biased(dtype);
    Schedule s(authored);
    schedule_matmul(s, s.loop("p_m"), level("x86-64-v3", 2));
    s = Schedule(authored);
    s.tile_product(s.loop("p_m"), {.rows = 4, .vectors = 2, .lanes = 8, .block_m = 8, .block_k = 16});
    const std::vector<Bytes> inputs{elements(dtype, 21 * 50, 1), elements(dtype, 50 * 33, 2), elements(dtype, 33, 3),
                                    elements(dtype, 21 * 33, 4), elements(DType::u8, 21 * 33, 5)};
    const Ran expected = run_on_copies(
        inputs, {}, [&](std::vector<void*>& pointers) { return interpret(authored, pointers, {}).bad_position; });
    const Kernel lowered = lower(s.kernel());
    agree(lowered, inputs);
    compare(lowered, expected,
            run_on_copies(inputs, {},
                          [&](std::vector<void*>& pointers) { return interpret(lowered, pointers, {}).bad_position; }),
            "interpreter");
  }
}

// Performance properties of a scheduled product: sums in registers, no spills in the loop along k.
TEST(Matmul, SumsStayInRegisters) {
  for (const char* name : {"x86-64-v3", "x86-64-v4"}) {
    const codegen::Isa isa = codegen::isa_named(name);
    Target target = isa.target;
    target.threads = 1;
    Schedule s(author({512, 512, 512}));
    schedule_matmul(s, s.loop("p_m"), target);
    const std::string assembly = codegen::emit_assembly(lower(s.kernel()), isa);
    const size_t first = assembly.find("vfmadd231ps"), last = assembly.rfind("vfmadd231ps");
    ASSERT_NE(first, std::string::npos);
    const std::string loop = assembly.substr(first, last - first);
    EXPECT_EQ(loop.find("(%rsp)"), std::string::npos) << loop;
    EXPECT_EQ(loop.find("vmovups"), std::string::npos) << loop;
    const char* widest = isa.target.vector_bytes == 64 ? "%zmm" : "%ymm";
    EXPECT_NE(loop.find(widest), std::string::npos) << loop;
  }
}

}  // namespace
}  // namespace gradloom::testing
