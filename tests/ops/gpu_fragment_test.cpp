// Products on matrix units: whole kernels against their definition on both executors, refusals, the instruction in
// NVRTC's output, and the GRU at level run_to_run.
#include <gtest/gtest.h>

#include <cstring>

#include "gradloom/text.h"
#include "ir/analysis/verify.h"
#include "ir/analysis/verify_gpu.h"
#include "ir/interpret/interpret.h"
#include "ir/passes/passes.h"
#include "ir/rewrite.h"
#include "ir/scalar_math.h"
#include "ops/matmul/matmul_blocks.h"
#include "tests/support/named_strategy.h"
#include "tests/support/op_calls.h"
#include "tests/support/sampled.h"
#ifdef GRADLOOM_WITH_CUDA
#include "codegen/cuda/nvrtc.h"
#include "tests/support/host_batch.h"
#endif

namespace gradloom {
namespace {

using namespace ir;

constexpr DType storage[] = {DType::f16, DType::bf16};

ir::Target units(int multiprocessors) {
  return {.name = "sm_90",
          .vector_bytes = 16,
          .gpu = true,
          .multiprocessors = multiprocessors,
          .shared_bytes = 227 << 10,
          .matrix_units = true};
}

struct Shape {
  int64_t m, n, k;
};
using Author = std::function<void(KernelBuilder&, const Matmul&)>;

// C = A B, with A or B possibly transposed.
Kernel authored(const Shape& s, DType dtype, bool a_turned, bool b_turned, bool any_shape, const Author& author) {
  KernelBuilder b("product");
  Expr m = s.m, n = s.n, k = s.k;
  if (any_shape) m = b.scalar("m", 0, 4096), n = b.scalar("n", 0, 4096), k = b.scalar("k", 0, 4096);
  using Dims = std::vector<Expr>;
  const Buffer x = b.input("x", dtype, a_turned ? Dims{k, m} : Dims{m, k}),
               y = b.input("y", dtype, b_turned ? Dims{n, k} : Dims{k, n});
  const Buffer c = b.output("c", DType::f32, {m, n}, 64);
  Matmul p{.prefix = "x", .m = m, .n = n, .k = k};
  p.a = [&](Expr i, Expr j) { return a_turned ? load(x, {j, i}) : load(x, {i, j}); };
  p.b = [&](Expr i, Expr j) { return b_turned ? load(y, {j, i}) : load(y, {i, j}); };
  p.first = [&](Expr i, Expr j) { return cast(DType::f32, i - j); };
  p.store = [&](Expr i, Expr j, Expr sum) { b.store(c, {i, j}, sum); };
  author(b, p);
  return b.build();
}
Kernel lowered(const Shape& s, DType dtype, bool a_turned, bool b_turned, bool any_shape, const ir::Target& target) {
  MatmulBlocks blocks;
  Schedule schedule(authored(s, dtype, a_turned, b_turned, any_shape,
                             [&](KernelBuilder& b, const Matmul& p) { blocks = author_matmul_blocks(b, p, target); }));
  schedule_matmul_blocks(schedule, blocks);
  return lower(schedule.kernel(), lowering_for(target));
}

int products_of(const Kernel& kernel) {
  int count = 0;
  walk(kernel.body, [&](const Stmt& s) { count += s.as<For>() && s.as<For>()->kind == ForKind::matrix_unit; });
  return count;
}

struct Operands {
  std::vector<uint16_t> x, y;
  std::vector<float> c;
  Operands(const Shape& s, DType dtype)
      : x(static_cast<size_t>(s.m * s.k) + 1),
        y(static_cast<size_t>(s.k * s.n) + 1),
        c(static_cast<size_t>(s.m * s.n) + 1) {
    uint32_t state = 7;
    for (auto* list : {&x, &y})
      for (uint16_t& v : *list)
        v = static_cast<uint16_t>(
            bits_from_double(dtype, static_cast<int32_t>(state = state * 1664525 + 1013904223) * 0x1p-31));
  }
  std::vector<void*> pointers() { return {x.data(), y.data(), c.data()}; }
};
std::vector<int64_t> scalars_of(const Shape& s, bool any_shape) {
  return any_shape ? std::vector<int64_t>{s.m, s.n, s.k} : std::vector<int64_t>{};
}

std::vector<float> product(const Kernel& kernel, const Shape& s, DType dtype, bool any_shape) {
  Operands o(s, dtype);
  interpret(kernel, o.pointers(), scalars_of(s, any_shape));
  return o.c;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct Case {
  int multiprocessors;  // the fewer, the larger the tiles
  Shape shape;
  bool any_shape = false;
  DType dtype = DType::f16;
  bool a_turned = false, b_turned = false;
};
// Each tile size, full tiles and partial ones along m, n and k; rows loaded 8, 4, 2 elements at once and one by one;
// each layout, f16 and bf16. The layouts are the outer loop: the sample of a sanitizer build covers all of them.
std::vector<Case> all_cases() {
  const std::vector<Case> shapes{{1, {128, 128, 32}}, {1, {130, 20, 20}},  {1, {40, 50, 37}},      {3, {64, 128, 32}},
                                 {3, {70, 50, 37}},   {132, {32, 64, 64}}, {132, {33, 40, 72}},    {132, {20, 44, 70}},
                                 {132, {1, 1, 1}},    {132, {5, 3, 0}},    {1, {70, 50, 37}, true}};
  std::vector<Case> cases;
  for (int layout = 0; layout < 4; ++layout)
    for (size_t n = 0; n < shapes.size(); ++n) {
      cases.push_back(shapes[n]);
      cases.back().dtype = storage[(n + static_cast<size_t>(layout)) % 2], cases.back().a_turned = (layout & 1) != 0,
      cases.back().b_turned = (layout & 2) != 0;
    }
  return cases;
}

// Also bit for bit: both executors accumulate along k in order.
TEST(GpuFragments, GiveTheDefinitionsSums) {
#ifdef GRADLOOM_WITH_CUDA
  HostBatch batch;
#endif
  for (const Case& c : sample(all_cases())) {
    const std::string name = std::to_string(c.shape.m) + "x" + std::to_string(c.shape.n) + "x" +
                             std::to_string(c.shape.k) + " " + to_string(c.dtype) + " " + std::to_string(c.a_turned) +
                             std::to_string(c.b_turned) + std::to_string(c.any_shape) + " " +
                             std::to_string(c.multiprocessors);
    const Kernel kernel = lowered(c.shape, c.dtype, c.a_turned, c.b_turned, c.any_shape, units(c.multiprocessors));
    verify(kernel, Stage::lowered);
    EXPECT_EQ(products_of(kernel), c.shape.k == 0 && !c.any_shape ? 0 : 1) << name;
    const std::vector<float> want = product(
        authored(c.shape, c.dtype, c.a_turned, c.b_turned, c.any_shape, author_matmul), c.shape, c.dtype, c.any_shape);
    ASSERT_TRUE(same(want, product(kernel, c.shape, c.dtype, c.any_shape))) << name << "\n" << print(kernel);
#ifdef GRADLOOM_WITH_CUDA
    batch.add(
        name, codegen::emit_cuda(kernel), [=](const codegen::CudaModule& module, const codegen::HostModule& loaded) {
          for (const codegen::HostOrder order :
               {codegen::HostOrder::forward, c.b_turned ? codegen::HostOrder::reverse : codegen::HostOrder::shuffled}) {
            Operands o(c.shape, c.dtype);
            const std::vector<int64_t> scalars = scalars_of(c.shape, c.any_shape);
            codegen::run_on_host(module, loaded, o.pointers(), scalars, order, 3);
            ASSERT_TRUE(same(want, o.c)) << name << "\n" << module.text;
          }
        });
#endif
  }
#ifdef GRADLOOM_WITH_CUDA
  batch.flush();
#endif
}

// Products of f32 operands, or of mixed operand types, do not use matrix units; nor does any on a target without them.
TEST(GpuFragments, AreForTwoOperandsOf16Bits) {
  const ir::Target target = units(1);
  EXPECT_EQ(products_of(lowered({64, 64, 64}, DType::f32, false, false, false, target)), 0);
  ir::Target without = target;
  without.matrix_units = false;
  EXPECT_EQ(products_of(lowered({64, 64, 64}, DType::bf16, false, false, false, without)), 0);
  KernelBuilder b("k");
  const Buffer x = b.input("x", DType::bf16, {64, 64}), y = b.input("y", DType::f16, {64, 64});
  Matmul p{.prefix = "x", .m = 64, .n = 64, .k = 64};
  p.a = [&](Expr i, Expr j) { return load(x, {i, j}); };
  p.b = [&](Expr i, Expr j) { return load(y, {i, j}); };
  EXPECT_FALSE(fits_matrix_units(p, target));
}

const char* const form = R"(kernel k() {
  in x: bf16[32, 32]
  in y: bf16[32, 32]
  in z: f16[32, 32]
  in v: f32[32, 32]
  out c: f32[32, 32]
  for b in 0 .. 1 grid {
    alloc sums: f32[2, 16, 32] per_warp
    alloc wide: f64[2, 16, 32] per_warp
    for w in 0 .. 2 warp {
      for i in 0 .. 16 fragment {
        for j in 0 .. 32 fragment {
          STORE
          for k in 0 .. 32 matrix_unit {
            PRODUCT
          }
        }
      }
    }
  }
})";
std::string mismatch(std::vector<std::pair<std::string, std::string>> changes) {
  std::string text = form;
  changes.push_back({"STORE", ""});
  changes.push_back({"PRODUCT", "sums[w, i, j] fma= (f32(x[w * 16 + i, k]), f32(y[k, j]))"});
  for (const auto& [from, to] : changes)
    if (const size_t at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
  try {
    verify(parse(text), Stage::lowered);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(GpuFragments, WhatIsRefused) {
  const auto refused = [](const std::string& why, const std::vector<std::pair<std::string, std::string>>& changes) {
    EXPECT_NE(mismatch(changes).find(why), std::string::npos) << "wanted: " << why << "\ngot: " << mismatch(changes);
  };
  EXPECT_EQ(mismatch({}), "");
  EXPECT_EQ(mismatch({{"f32(y[k, j])", "f32(y[j, k])"}}), "");
  refused("does not run from 0 over a multiple of 16", {{"i in 0 .. 16", "i in 0 .. 8"}});
  refused("does not run from 0 over a multiple of 8", {{"j in 0 .. 32", "j in 0 .. 12"}});
  refused("the matrix_unit loop k: it does not run from 0 over a multiple of 16", {{"k in 0 .. 32", "k in 0 .. 24"}});
  refused("does not stand directly in a pair of fragment loops", {{"STORE", "sums[w, i, j] = 0.0f32"}});
  refused("its operands are bf16 and f16", {{"PRODUCT", "sums[w, i, j] fma= (f32(x[w * 16 + i, k]), f32(z[k, j]))"}});
  refused("an operand is not an element of f16 or bf16",
          {{"PRODUCT", "sums[w, i, j] fma= (f32(x[w * 16 + i, k]), v[k, j])"}});
  refused("one fma into a per_warp buffer of f32",
          {{"PRODUCT", "sums[w, i, j] += f32(x[w * 16 + i, k]) * f32(y[k, j])"}});
  refused("one fma into a per_warp buffer of f32",
          {{"PRODUCT", "wide[w, i, j] fma= (f64(x[w * 16 + i, k]), f64(y[k, j]))"}});
  refused("one fma into a per_warp buffer of f32",
          {{"PRODUCT", "sums[w, i, j] fma= (f32(x[w * 16 + i, k]), f32(y[k, j])) where i < j"}});
  refused("not linear in the loops", {{"PRODUCT", "sums[w, i, j] fma= (f32(x[floor_div(i, 2), k]), f32(y[k, j]))"}});
  refused("not linear in the loops", {{"PRODUCT", "sums[w, i, j] fma= (f32(x[i, k]), f32(y[k, i]))"}});
  const std::string loop = "for k in 0 .. 32 matrix_unit {\n            PRODUCT\n          }";
  refused("a loop stands in the fragment loop j over columns", {{loop, "for l in 0 .. j { sums[w, i, j] += 1.0f32 }"}});
  refused("a vector stands in the fragment loop j over columns",
          {{loop, "wide[w, i, j] = f64(shuffle(broadcast(1.0f32, 4), [0]))"}});
  // Another warp's tile, or another element of the warp's own.
  refused("fragment loops over its dims",
          {{"PRODUCT", "sums[1 - w, i, j] fma= (f32(x[w * 16 + i, k]), f32(y[k, j]))"}});
  refused("fragment loops over its dims", {{"sums: f32[2, 16, 32]", "sums: f32[2, 32, 32]"}});
  // Conflicting iterations.
  refused("the fragment loop is not proved: two iterations of loop i",
          {{"for k in 0 .. 32 matrix_unit", "c[w, j] = 1.0f32 for k in 0 .. 32 matrix_unit"}});
  // Where fragment loops may be nested.
  refused("the fragment loop i stands in a grid loop", {{"for w in 0 .. 2 warp {", "let w: i64 = 0 {"}});
  refused("the fragment loop i stands in a thread", {{"2 warp", "2 thread"}});
  refused("something besides a fragment loop stands in a fragment loop over rows",
          {{"for j in 0 .. 32 fragment", "let l: i64 = i for j in 0 .. 32 fragment"}});
}

#ifdef GRADLOOM_WITH_CUDA

// The kernel's loads and stores, through the host twin, in each layout, with more than one tile: A has a single 1 per
// row, one column further right in each run, so that a row of the sums equals the row of B that the 1 selects.
TEST(GpuFragments, KernelsHoldElementsWhereTheUnitWantsThem) {
  constexpr int64_t m = 32, n = 16, k = 32;
  for (int layout = 0; layout < 4; ++layout) {
    const bool a_turned = (layout & 1) != 0, b_turned = (layout & 2) != 0;
    const Kernel kernel = lowered({m, n, k}, DType::f16, a_turned, b_turned, false, units(132));
    const codegen::CudaModule module = codegen::emit_cuda(kernel);
    const auto loaded = codegen::HostModule::compile(module);
    for (int64_t right = 0; right < k; ++right) {
      std::vector<uint16_t> x(m * k), y(k * n);
      std::vector<float> c(m * n);
      for (int64_t i = 0; i < m; ++i)
        x[static_cast<size_t>(a_turned ? (i + right) % k * m + i : i * k + (i + right) % k)] = 0x3c00;  // 1
      for (int64_t p = 0; p < k; ++p)
        for (int64_t q = 0; q < n; ++q)
          y[static_cast<size_t>(b_turned ? q * k + p : p * n + q)] =
              static_cast<uint16_t>(bits_from_double(DType::f16, static_cast<double>(16 * p + q)));
      void* const buffers[] = {x.data(), y.data(), c.data()};
      codegen::run_on_host(module, *loaded, buffers, {}, codegen::HostOrder::forward, 1);
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j)
          ASSERT_EQ(c[static_cast<size_t>(i * n + j)], static_cast<float>(i - j + 16 * ((i + right) % k) + j))
              << i << " " << j << " right " << right << " layout " << layout << "\n"
              << module.text;
    }
  }
}

// Every tile size, f16 and bf16, as one text: NVRTC's startup is then paid once.
TEST(GpuFragments, BecomeTheInstruction) {
  const codegen::Nvrtc* nvrtc = nullptr;
  try {
    nvrtc = &codegen::Nvrtc::get();
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  codegen::CudaModule all;
  for (const DType dtype : storage)
    for (const int multiprocessors : {1, 20, 132}) {
      Kernel kernel = lowered({256, 256, 512}, dtype, dtype == DType::f16, true, false, units(multiprocessors));
      kernel.name = "k" + std::to_string(all.functions.size());
      const codegen::CudaModule module = codegen::emit_cuda(kernel);
      ASSERT_EQ(module.functions.size(), 1u);
      EXPECT_GE(module.functions[0].unrolled,
                250 * (multiprocessors == 1 ? 64 : 8));  // elements per lane, for a tile of 64 by 32 or 16 by 16
      all.text += module.text;
      all.functions.push_back(module.functions[0]);
    }
  const auto known = [&](int architecture) {
    return std::binary_search(nvrtc->architectures().begin(), nvrtc->architectures().end(), architecture);
  };
  for (const int architecture : {80, 90, 100}) {
    if (!known(architecture)) continue;
    const codegen::CudaBinary binary = nvrtc->compile(all, architecture, true);
    ASSERT_EQ(binary.resources.size(), all.functions.size());
    for (const auto& function : binary.resources) {
      EXPECT_EQ(function.spill_bytes, 0) << function.function << ", sm_" << architecture;
      EXPECT_LE(function.registers, 128) << function.function << ", sm_"
                                         << architecture;  // two blocks of 256 threads a multiprocessor
    }
  }
  if (!known(80)) return;
  const std::string ptx = nvrtc->compile_to_ptx(all, 80).images[0].bytes;
  for (const char* instruction :
       {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16", "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"})
    EXPECT_NE(ptx.find(instruction), std::string::npos) << instruction;
  EXPECT_EQ(ptx.find("fma.rn.f32"), std::string::npos);
  EXPECT_NE(ptx.find("st.global.v2"), std::string::npos);  // two neighbours of a row in one store
}

#endif

// The GRU's products over all steps, where the level allows it; gpu_schedule_test runs the results.
TEST(GpuFragments, ServeTheGruAtRunToRun) {
  const ir::Target target = units(132);
  int kernels = 0;
  for (const testing_ops::Call& call : testing_ops::gru_calls()) {
    const Op& op = *find_op(call.op);
    const gradloom::Operands operands(op.schema(), call.inputs);
    const auto chosen = [&](Determinism level) {
      return chosen_strategy(op, op.check(operands.request(call.attributes, ~0u, call.accumulate, level)), target);
    };
    EXPECT_EQ(chosen(Determinism::sequential), "blocks");
    if (!is_storage_float(call.inputs[0].dtype())) {
      EXPECT_EQ(chosen(Determinism::run_to_run), "split") << call.name;
      continue;
    }
    EXPECT_EQ(chosen(Determinism::run_to_run), "matrix") << call.name;
    EXPECT_EQ(level_of(op, "matrix"), Determinism::run_to_run);
    // x W'; or dX, dW and, where r h' is not needed in higher precision, dR.
    const Plan plan = op.check(operands.request(call.attributes, ~0u, call.accumulate, Determinism::run_to_run));
    EXPECT_GE(products_of(build_kernel(op, plan, "matrix", target, kernels % 2 == 1, 1, call.accumulate).lowered),
              call.op == "GRUTraining" ? 1 : 2)
        << call.name;
    if (kernels++ == 0) {
      EXPECT_EQ(products_of(build_kernel(op, plan, "blocks", target, false, 1, false).lowered), 0) << call.name;
    }
  }
  EXPECT_GE(kernels, 14);
}

// 16-byte loads, of the operands of dR's product too: its gates are in separate parts, and the division that computes
// their address is uniform across lanes.
TEST(GpuFragments, TheGrusOperandsAreReadAsVectors) {
  const Op& op = *find_op("GRUGrad");
  const auto tensor = [](const gradloom::Dims& dims) { return Tensor::empty(DType::bf16, dims); };
  constexpr int64_t s = 4, n = 8, i = 64, h = 64;
  const std::vector<Tensor> inputs{
      tensor({s, n, i}), tensor({1, 3 * h, i}), tensor({1, 3 * h, h}),    tensor({1, 6 * h}),  Tensor(),
      tensor({1, n, h}), tensor({s, 1, n, h}),  tensor({s, 1, n, 3 * h}), tensor({s, 1, n, h})};
  const gradloom::Operands operands(op.schema(), inputs);
  const Plan plan =
      op.check(operands.request({{"linear_before_reset", int64_t{1}}}, ~0u, false, Determinism::run_to_run));
  const Kernel kernel = build_kernel(op, plan, "matrix", units(132), false, 64, false).lowered;
  int vectors = 0;
  walk(kernel.body, [&](const Stmt& statement) {
    const Store* store = statement.as<Store>();
    const Load* load = store ? store->value.as<Load>() : nullptr;
    if (!load || store->buffer->space != Space::shared || store->value.lanes() != 8) return;
    ++vectors;
    EXPECT_TRUE(load->index.back().as<Ramp>()) << print(statement);
  });
  EXPECT_EQ(vectors, 8);  // A and B of dX, dW, dR and of the product that the reset gate multiplies
}

}  // namespace
}  // namespace gradloom
