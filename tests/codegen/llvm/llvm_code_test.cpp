// Properties of the machine code: alignment, registers, streaming stores, gathers; instruction sets, lifetime and
// compile times.
#include "gradloom/text.h"
#include "ir/passes/passes.h"
#include "tests/support/llvm_run.h"

namespace gradloom {
namespace {

using namespace ir;
using testing::agree;
using testing::Bytes;
using testing::elements;

// y[i, :] = sum of rows of x, in four vector accumulators in `registers`.
Kernel row_sums(int lanes) {
  KernelBuilder b("row_sums");
  const Buffer x = b.input("x", DType::f32, {1000, 4 * lanes}), y = b.output("y", DType::f32, {4 * lanes}, 64);
  const Buffer sums = b.alloc("sums", DType::f32, {4, lanes}, {}, Space::registers);
  for (int q = 0; q < 4; ++q) b.store(sums, {q, ramp(0, 1, lanes)}, zero({DType::f32, lanes}));
  b.loop("i", 0, 1000, [&](Expr i) {
    for (int q = 0; q < 4; ++q) b.accumulate(sums, {q, ramp(0, 1, lanes)}, load(x, {i, ramp(q * lanes, 1, lanes)}));
  });
  for (int q = 0; q < 4; ++q) b.store(y, {ramp(q * lanes, 1, lanes)}, load(sums, {q, ramp(0, 1, lanes)}), {}, true);
  return b.build();
}

// That a loop ran at least once is a fact inside its body only: with lo of 0 the second row is not line-aligned, though
// lo is 1 inside the loop over [0, lo).
TEST(LlvmCode, WhatALoopTellsOfAlignmentEndsWithIt) {
  KernelBuilder b("after_loop");
  const Expr lo = b.scalar("lo", 0, 1);
  const Buffer y = b.output("y", DType::f32, {3, 20}, 64);  // rows of 80 bytes
  b.loop("i", 0, lo, [&](Expr i) { b.store(y, {i, ramp(0, 1, 8)}, broadcast(constant(DType::f32, 1), 8), {}, true); });
  b.store(y, {lo + 1, ramp(0, 1, 8)}, broadcast(constant(DType::f32, 2), 8), {}, true);
  const std::string text = codegen::emit_llvm(b.build(), codegen::isa_named("x86-64-v3"), false);
  const size_t after = text.find("i.done:");
  ASSERT_NE(after, std::string::npos);
  EXPECT_EQ(text.find("align 32", after), std::string::npos) << text;
  EXPECT_NE(text.find("align 16", after), std::string::npos) << text;
}

TEST(LlvmCode, RegisterBuffersBecomeValues) {
  agree(row_sums(8), {elements(DType::f32, 32000, 1), Bytes(128)});
  const std::string text = codegen::emit_llvm(row_sums(8), codegen::isa_named("x86-64-v3"), true);
  EXPECT_EQ(text.find("alloca"), std::string::npos) << text;
  EXPECT_NE(text.find("phi <8 x float>"), std::string::npos) << text;
  const std::string assembly = codegen::emit_assembly(row_sums(8), codegen::isa_named("x86-64-v3"));
  EXPECT_EQ(assembly.find("(%rsp)"), std::string::npos) << assembly;
}

TEST(LlvmCode, StreamsWhereAlignmentIsProvedOrFoundAndFences) {
  const std::string wide = codegen::emit_assembly(row_sums(16), codegen::isa_named("x86-64-v4"));
  EXPECT_NE(wide.find("vmovntps\t%zmm"), std::string::npos) << wide;
  EXPECT_NE(wide.find("sfence"), std::string::npos);
  KernelBuilder b("unaligned");
  const Buffer x = b.input("x", DType::f32, {64}), y = b.output("y", DType::f32, {64});
  b.store(y, {ramp(0, 1, 16)}, load(x, {ramp(0, 1, 16)}), {}, true);
  const Kernel kernel = b.build();
  const std::string either = codegen::emit_assembly(kernel, codegen::isa_named("x86-64-v4"));
  EXPECT_NE(either.find("vmovntps\t%zmm"), std::string::npos) << either;
  EXPECT_NE(either.find("vmovups\t%zmm"), std::string::npos) << either;
  EXPECT_NE(either.find("sfence"), std::string::npos);
}

// Where the trip counts are known to the schedule, it has decided.
TEST(LlvmCode, AParallelLoopOfLittleWorkIsNotShared) {
  const auto text = [](const std::string& scalar, const std::string& rows) {
    return codegen::emit_llvm(
        parse("kernel rows(" + scalar + ") { in x: f32[" + rows + ", 8] out y: f32[" + rows + ", 8] for i in 0 .. " +
              rows + " parallel { for j in 0 .. 8 { y[i, j] = x[i, j] } } }"),
        codegen::isa_named("x86-64-v3"), false);
  };
  const std::string any = text("n: i64 in [0, 1000000]", "n"), known = text("", "64");
  EXPECT_NE(any.find("fcmp oge double"), std::string::npos) << any;
  EXPECT_NE(any.find("call void @rows.i.0("), std::string::npos) << any;
  EXPECT_EQ(known.find("fcmp"), std::string::npos) << known;
}

TEST(LlvmCode, Avx512GathersAndScatters) {
  KernelBuilder b("strip");
  const Buffer k = b.input("k", DType::i64, {16, 64}), x = b.input("x", DType::f32, {16, 64}),
               y = b.inout("y", DType::f32, {100, 64});
  b.loop("i", 0, 16, [&](Expr i) {
    const Expr j = b.let("j", load(k, {i, ramp(0, 1, 16)}));
    b.accumulate(y, {j, ramp(0, 1, 16)}, load(x, {i, ramp(0, 1, 16)}));
  });
  const Kernel kernel = b.build();
  const std::string text = codegen::emit_assembly(kernel, codegen::isa_named("x86-64-v4"));
  EXPECT_NE(text.find("vgatherqps"), std::string::npos) << text;
  EXPECT_NE(text.find("vscatterqps"), std::string::npos) << text;
  EXPECT_EQ(codegen::emit_assembly(kernel, codegen::isa_named("x86-64-v3")).find("vscatter"), std::string::npos);
}

// A row's end and the next row's start are neighbours; where rows are strided they are not.
TEST(LlvmCode, AVectorOverRowsIsOneAccess) {
  const auto kernel = [](const std::string& strides) {
    return parse("kernel rows() { in x: f32[48] out y: f32[48, 3]" + strides +
                 " for z in 0 .. 3 { for i in 0 .. 3 unroll { for e in 0 .. 16 vector {"
                 " y[z * 16 + floor_div(i * 16 + e, 3), floor_mod(i * 16 + e, 3)] = x[i * 16 + e] } } } }");
  };
  agree(lower(kernel("")), {elements(DType::f32, 48, 1), Bytes(48 * 3 * 4)});
  const std::string text = codegen::emit_assembly(lower(kernel("")), codegen::isa_named("x86-64-v4"));
  EXPECT_EQ(text.find("vscatter"), std::string::npos) << text;
  const std::string strided = codegen::emit_assembly(lower(kernel(" strides [4, 1]")), codegen::isa_named("x86-64-v4"));
  EXPECT_NE(strided.find("vscatter"), std::string::npos) << strided;
}

TEST(LlvmCode, NothingIsContractedOrReassociated) {
  const std::string text = codegen::emit_llvm(row_sums(8), codegen::host_isa(), true);
  for (const char* flag : {"fast", "reassoc", "contract", "nnan"})
    EXPECT_EQ(text.find(flag), std::string::npos) << flag;
}

TEST(LlvmCode, Isas) {
  EXPECT_TRUE(codegen::runs_here(codegen::host_isa()));
  EXPECT_EQ(codegen::isa_named("x86-64-v4").target.vector_bytes, 64);
  EXPECT_TRUE(codegen::isa_named("x86-64-v4").target.hardware_scatter);
  EXPECT_EQ(codegen::isa_named("x86-64-v3").target.vector_bytes, 32);
  EXPECT_EQ(codegen::isa_named("x86-64-v3").target.name, "x86-64-v3");
  EXPECT_EQ(codegen::isa_named("x86-64-v2").target.vector_bytes, 16);
  EXPECT_FALSE(codegen::runs_here(codegen::Isa{"odd", "x86-64", "+no-such-feature", {}}));
  EXPECT_THROW(codegen::isa_named("z80"), Error);
}

TEST(LlvmCode, CodeIsUnloadedWithItsLastHandleAndCompilesInParallel) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([] {
      for (int i = 0; i < 3; ++i) {
        const codegen::CompiledKernel compiled = codegen::compile(row_sums(8), codegen::host_isa());
        const std::vector<float> x(32000, 1.0f);
        alignas(64) float y[32];
        void* pointers[] = {const_cast<float*>(x.data()), y};
        testing::Launcher launcher;
        compiled.function(&launcher.context, pointers, nullptr);
        EXPECT_EQ(y[31], 1000.0f);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(LlvmCode, TimesTheStages) {
  const codegen::CompileTimes t = codegen::compile(row_sums(8), codegen::host_isa()).times;
  for (const double ms : {t.emit_ms, t.optimize_ms, t.codegen_ms, t.link_ms}) EXPECT_GT(ms, 0);
}

}  // namespace
}  // namespace gradloom
