// NVRTC on the ops' texts, where the machine has it: every op, dtype and strategy compiles for three architectures, and
// at the benchmarks' shapes no register is spilled. That takes a minute; GRADLOOM_ALL=1 covers every strategy in every
// dtype at the benchmarks' shapes too.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "codegen/cuda/nvrtc.h"
#include "tests/support/all_calls.h"
#include "tests/support/named_strategy.h"

namespace gradloom {
namespace {

using namespace testing_ops;
using codegen::CudaModule;

const codegen::Nvrtc* library(std::string& why) {
  try {
    return &codegen::Nvrtc::get();
  } catch (const Error& e) {
    why = e.what();
    return nullptr;
  }
}

#define NEEDS_NVRTC                                 \
  std::string why;                                  \
  const codegen::Nvrtc* const nvrtc = library(why); \
  if (!nvrtc) GTEST_SKIP() << why

ir::Target target_of(int architecture) {
  return {.name = fmt::format("sm_{}", architecture),
          .vector_bytes = 16,
          .gpu = true,
          .multiprocessors = 132,
          .shared_bytes = (architecture == 80 ? 163 : 227) << 10,
          .matrix_units = true};
}

// Several kernels as one text, distinguished by their names: NVRTC's startup and the prelude are then paid once.
class Texts {
 public:
  void add(const Op& op, const Plan& plan, const std::string& strategy, const ir::Target& target,
           const std::string& name) {
    BuiltKernel built = build_kernel(op, plan, strategy, target, false, 64, false);
    built.lowered.name = fmt::format("k{}_{}", names.size(), built.lowered.name);
    names.push_back(name + " " + strategy);
    CudaModule module = codegen::emit_cuda(built.lowered);
    all.text += module.text;
    for (codegen::CudaFunction& f : module.functions)
      all.functions.push_back(std::move(f)), owners.push_back(names.size() - 1);
  }
  // The name of the kernel that the function belongs to.
  const std::string& name(size_t function) const { return names[owners[function]]; }

  CudaModule all;
  std::vector<std::string> names;
  std::vector<size_t> owners;
};

// One small call for each op, dtype and kind of indexing.
bool is_small(const Call& call) {
  const std::string stem = call.name.substr(0, call.name.rfind('_'));
  const std::string dtype = call.name.substr(call.name.rfind('_') + 1);
  if (call.accumulate) return false;
  if (call.op == "SliceGrad") return stem == "inner" || (stem == "step2" && dtype == "f32") || call.name == "bools";
  if (call.op == "GatherElementsGrad")
    return stem == "rows" || stem == "columns" || stem == "flat" || (stem == "middle" && dtype == "f32");
  if (call.op == "GatherGrad") return stem == "embedding" || stem == "flat" || (stem == "middle" && dtype == "f32");
  if (call.op == "EmbeddingBagGrad") return stem == "sum" || stem == "max" || stem == "mean";
  if (call.op == "IndexGrad") return stem == "rows" || (stem == "apart" && dtype == "f32");
  if (call.op == "BroadcastGrad") return stem == "rows" || stem == "columns" || stem == "mixed";
  return stem == "plain" || (stem == "linear" && dtype == "f32");
}

// The strategies differ by dtype: f32 accumulates in its own type, bf16 in a wider one.
bool is_small_in_full(const Call& call) { return call.name.ends_with("_f32") || call.name.ends_with("_bf16"); }

class CudaTexts : public testing::TestWithParam<int> {};

TEST_P(CudaTexts, EveryOpDtypeAndStrategyCompiles) {
  NEEDS_NVRTC;
  const int architecture = GetParam();
  if (!std::binary_search(nvrtc->architectures().begin(), nvrtc->architectures().end(), architecture))
    GTEST_SKIP() << "NVRTC " << nvrtc->version() << " knows no sm_" << architecture;
  const ir::Target target = target_of(architecture);
  const bool all = std::getenv("GRADLOOM_ALL") != nullptr;
  Texts texts;
  size_t kernels = 0, functions = 0;
  const auto compile = [&] {
    if (texts.names.empty()) return;
    const codegen::CudaBinary binary = nvrtc->compile(texts.all, architecture);
    EXPECT_FALSE(binary.ptx);
    ASSERT_EQ(binary.resources.size(), texts.all.functions.size());
    for (size_t i = 0; i < binary.resources.size(); ++i) {
      EXPECT_GT(binary.resources[i].code_bytes, 0) << texts.name(i);
      EXPECT_LE(binary.resources[i].registers * texts.all.functions[i].threads, 65536)
          << texts.name(i) << ": no multiprocessor runs a block of it";
      EXPECT_LE(texts.all.functions[i].shared_bytes, target.shared_bytes) << texts.name(i);
    }
    kernels += texts.names.size(), functions += binary.resources.size();
    texts = {};
  };
  for (const Call& call : all_calls()) {
    if (!is_small(call)) continue;
    const Op& op = *find_op(call.op);
    if (op.schema().on_host) continue;
    const Operands operands(op.schema(), call.inputs);
    const Plan plan = op.check(operands.request(call.attributes));
    std::vector<std::string> strategies = serving_names(op, plan, target);
    if (!all && !is_small_in_full(call)) strategies.resize(1);
    for (const std::string& strategy : strategies) texts.add(op, plan, strategy, target, call.op + " " + call.name);
    if (texts.names.size() >= 24) compile();
  }
  compile();
  std::cout << "NVRTC " << nvrtc->version() << ", sm_" << architecture << ": " << kernels << " kernels, " << functions
            << " functions\n";
}

INSTANTIATE_TEST_SUITE_P(Architectures, CudaTexts, testing::Values(80, 90, 100),
                         [](const testing::TestParamInfo<int>& info) { return fmt::format("sm_{}", info.param); });

// Unallocated tensors: an op reads descriptors, and the values of shapes only.
Tensor described(DType dtype, const Dims& dims) {
  static const double nothing = 0;
  return Tensor::borrow(static_cast<const void*>(&nothing), dtype, dims);
}
std::vector<Tensor> gru_inputs(DType t, int64_t s, int64_t n, int64_t i, int64_t h, bool gradient) {
  const auto values = [&](const Dims& dims) { return described(t, dims); };
  std::vector<Tensor> in{values({s, n, i}), values({1, 3 * h, i}), values({1, 3 * h, h}), values({1, 6 * h}), {},
                         values({1, n, h})};
  if (gradient)
    in.insert(in.end(), {values({s, 1, n, h}), values({s, 1, n, 3 * h}), values({s, 1, n, h}), values({1, n, h})});
  return in;
}

// The benchmarks' calls.
std::vector<Call> benchmark_calls(DType t) {
  const auto values = [&](const Dims& dims) { return described(t, dims); };
  const auto indices = [&](const Dims& dims) { return described(DType::i64, dims); };
  const auto gru = [&](int64_t s, int64_t n, int64_t i, int64_t h, bool gradient) {
    return gru_inputs(t, s, n, i, h, gradient);
  };
  const Attributes axis0{{"axis", int64_t{0}}}, axis1{{"axis", int64_t{1}}},
      linear{{"linear_before_reset", int64_t{1}}};
  const Dims cube{64, 512, 768};
  std::vector<Call> calls{
      {"axis0", "GatherElementsGrad", {values({4096, 4096}), shape_tensor({4096, 4096}), indices({4096, 4096})}, axis0},
      {"axis1", "GatherElementsGrad", {values({4096, 4096}), shape_tensor({4096, 4096}), indices({4096, 4096})}, axis1},
      {"3d",
       "GatherElementsGrad",
       {values({64, 128, 256}), shape_tensor({64, 1024, 256}), indices({64, 128, 256})},
       axis1},
      {"flat", "GatherElementsGrad", {values({1 << 22}), shape_tensor({1 << 24}), indices({1 << 22})}, axis0},
      {"50000x768", "GatherGrad", {shape_tensor({50000, 768}), indices({8, 512}), values({8, 512, 768})}, axis0},
      {"1Mx64", "GatherGrad", {shape_tensor({1000000, 64}), indices({65536}), values({65536, 64})}, axis0},
      {"32000x4096", "GatherGrad", {shape_tensor({32000, 4096}), indices({8, 2048}), values({8, 2048, 4096})}, axis0},
      {"mid",
       "SliceGrad",
       {values({64, 510, 768}), shape_tensor(cube), ints({1}), ints({-1}), ints({1}), ints({1})},
       {}},
      {"inner",
       "SliceGrad",
       {values({64, 512, 64}), shape_tensor(cube), ints({64}), ints({128}), ints({2}), ints({1})},
       {}},
      {"step2",
       "SliceGrad",
       {values({4096, 4096}), shape_tensor({8192, 8192}), ints({0, 0}), ints({INT64_MAX, INT64_MAX}), ints({0, 1}),
        ints({2, 2})},
       {}},
      {"t50", "GRUTraining", gru(50, 32, 128, 256, false), linear},
      {"t128", "GRUTraining", gru(128, 64, 512, 512, false), linear},
      {"t128_lbr0", "GRUTraining", gru(128, 64, 512, 512, false), {}},
      {"t50", "GRUGrad", gru(50, 32, 128, 256, true), linear},
      {"t128", "GRUGrad", gru(128, 64, 512, 512, true), linear},
  };
  for (const Dims& to : {Dims{768}, Dims{64, 1, 768}, Dims{64, 512, 1}, Dims{1, 512, 1}})
    calls.push_back({"to_" + to_string(to), "BroadcastGrad", {values(cube), shape_tensor(to)}, {}});
  return calls;
}

TEST(CudaTextsOfBenchmarks, NoSpillsAtTheBenchmarksShapes) {
  NEEDS_NVRTC;
  constexpr int architecture = 90;
  const bool all = std::getenv("GRADLOOM_ALL") != nullptr;
  const ir::Target target = target_of(architecture);
  size_t kernels = 0;
  int most_registers = 0;
  for (const DType dtype : all ? floats : std::vector<DType>{DType::f32, DType::bf16}) {
    Texts texts;
    for (const Call& call : benchmark_calls(dtype)) {
      const bool matrix = dtype == DType::bf16 && call.op.starts_with("GRU");
      if (!all && dtype != DType::f32 && call.op != "GatherGrad" && call.op != "BroadcastGrad" && !matrix) continue;
      const Op& op = *find_op(call.op);
      const Operands operands(op.schema(), call.inputs);
      const Plan plan = op.check(
          operands.request(call.attributes, ~0u, false, matrix ? Determinism::run_to_run : Determinism::sequential));
      std::vector<std::string> strategies = serving_names(op, plan, target);
      if (!all) strategies.resize(1);  // the preferred one
      for (const std::string& strategy : strategies)
        texts.add(op, plan, strategy, target, call.op + " " + call.name + " " + to_string(dtype));
    }
    const codegen::CudaBinary binary = nvrtc->compile(texts.all, architecture, true);
    for (size_t i = 0; i < binary.resources.size(); ++i) {
      EXPECT_EQ(binary.resources[i].spill_bytes, 0) << texts.name(i) << ", " << binary.resources[i].function;
      most_registers = std::max(most_registers, binary.resources[i].registers);
    }
    kernels += texts.names.size();
  }
  std::cout << kernels << " kernels at the benchmarks' shapes: at most " << most_registers << " registers a thread\n";
}

// A thread of the per-step product has at most 8 columns, of up to 3 products, where the batch is large; partial tiles
// need more.
TEST(CudaTextsOfLargeBatches, NoSpillsWhereAThreadHasTheMostColumns) {
  NEEDS_NVRTC;
  constexpr int architecture = 90;
  const ir::Target target = target_of(architecture);
  Texts texts;
  const auto add = [&](const char* name, DType dtype, int64_t batch, int64_t hidden, int64_t linear) {
    const Op& op = *find_op(name);
    const Operands operands(op.schema(), gru_inputs(dtype, 20, batch, 64, hidden, op.schema().name == "GRUGrad"));
    const Plan plan =
        op.check(operands.request({{"linear_before_reset", linear}}, ~0u, false, Determinism::sequential));
    texts.add(op, plan, "blocks", target,
              std::string(name) + " " + to_string(dtype) + " " + std::to_string(batch) + (linear ? " linear" : ""));
  };
  add("GRUTraining", DType::f32, 256, 512, 1);
  add("GRUGrad", DType::f32, 256, 512, 1);
  for (const int64_t linear : {0, 1}) add("GRUTraining", DType::f64, 520, 130, linear);
  const codegen::CudaBinary binary = nvrtc->compile(texts.all, architecture, true);
  int kept = 0;
  for (size_t i = 0; i < binary.resources.size(); ++i) {
    EXPECT_EQ(binary.resources[i].spill_bytes, 0) << texts.name(i) << ", " << binary.resources[i].function;
    kept += texts.all.functions[i].cooperative > 0;
  }
  EXPECT_EQ(kept, 4);  // each keeps its weights resident
}

}  // namespace
}  // namespace gradloom
