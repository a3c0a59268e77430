// Every op, over dtypes, shapes with odd residues, strategies, targets and thread counts: authored == scheduled ==
// lowered (all interpreted) == LLVM, bit for bit, and every strategy gives the bits of "direct", the definition.
#include <gtest/gtest.h>

#include "gradloom/text.h"
#include "ir/analysis/verify.h"
#include "tests/support/all_calls.h"
#include "tests/support/named_strategy.h"
#include "tests/support/sampled.h"

namespace gradloom {
namespace {

using namespace testing_ops;

// The runtimes whose kernels are compared, each with its target, thread count and instruction set.
std::vector<std::pair<std::string, std::unique_ptr<Runtime>>>& runtimes() {
  static std::vector<std::pair<std::string, std::unique_ptr<Runtime>>> all = [] {
    std::vector<std::pair<std::string, std::unique_ptr<Runtime>>> made;
    const auto add = [&](std::string name, RuntimeOptions options) {
      made.emplace_back(std::move(name), std::make_unique<Runtime>(std::move(options)));
    };
    add("interpreter_1", {.target = TargetKind::interpreter, .threads = 1});
#ifdef GRADLOOM_WITH_LLVM
    add("host_1", {.target = TargetKind::llvm, .threads = 1});
    add("host_3", {.target = TargetKind::llvm, .threads = 3});
    add("v2_2", {.target = TargetKind::llvm, .threads = 2, .isa = "x86-64-v2"});
    if (__builtin_cpu_supports("avx512f")) add("v3_2", {.target = TargetKind::llvm, .threads = 2, .isa = "x86-64-v3"});
#endif
    return made;
  }();
  return all;
}

Bits compiled(Runtime& runtime, const ir::Kernel& kernel, const Call& call, const Plan& plan,
              const std::vector<int64_t>& scalars, bool unaligned) {
  Result<KernelExecutable> executable = runtime.compile(kernel);
  if (!executable) {
    ADD_FAILURE() << executable.error().what();
    return {};
  }
  Buffers buffers(call, plan, unaligned);
  const auto done = executable.value()(buffers.tensors, scalars);
  EXPECT_TRUE(done.ok()) << done.error().what();
  return buffers.bits();
}

class Differential : public testing::TestWithParam<Call> {};

TEST_P(Differential, EveryStageStrategyAndTargetGivesTheSameBits) {
  const Call& call = GetParam();
  const Op* op = find_op(call.op);
  ASSERT_NE(op, nullptr);
  const Operands operands(op->schema(), call.inputs);
  const Plan plan = op->check(operands.request(call.attributes, ~0u, call.accumulate));

  const Bits want = defined(*op, call, plan);
  for (const auto& [name, runtime] : runtimes())
    for (const auto& [any_shape, alignment] : {std::pair{false, 64}, {false, 1}, {true, 64}})
      for (const std::string& strategy : serving_names(*op, plan, runtime->target(), any_shape)) {
        if (name == "v2_2" && (alignment == 1 || strategy != serving_names(*op, plan, runtime->target(), any_shape)[0]))
          continue;  // compilation dominates the run time
        {
          SCOPED_TRACE(name + " " + strategy + (any_shape ? " any shape" : "") + " alignment " +
                       std::to_string(alignment));
          const BuiltKernel built =
              build_kernel(*op, plan, strategy, runtime->target(), any_shape, alignment, call.accumulate);
          ir::verify(built.authored, ir::Stage::authored);
          ir::verify(built.scheduled, ir::Stage::scheduled);
          ir::verify(built.lowered, ir::Stage::lowered);
          std::vector<int64_t> scalars(built.sources.size());
          fill_scalars(plan, built.sources, scalars.data());
          if (runtime->target_name() == "interpreter") {
            EXPECT_EQ(difference(interpreted(built.authored, call, plan, scalars, false), want), "") << "authored";
            continue;
          }
          if (alignment == 64 && name == "host_3") {
            EXPECT_EQ(difference(interpreted(built.scheduled, call, plan, scalars, true), want), "") << "scheduled";
            EXPECT_EQ(difference(interpreted(built.lowered, call, plan, scalars, false), want), "") << "lowered";
          }
          EXPECT_EQ(difference(compiled(*runtime, built.scheduled, call, plan, scalars, alignment == 1), want), "")
              << "llvm";
          if (HasFailure()) {
            ADD_FAILURE() << ir::print(built.scheduled);
            return;
          }
        }
      }
}

// The text is self-contained: printed, parsed and compiled alone, the authored nest computes the op's result.
TEST_P(Differential, ThePrintedNestAloneGivesTheSame) {
  const Call& call = GetParam();
  const Op* op = find_op(call.op);
  ASSERT_NE(op, nullptr);
  const Operands operands(op->schema(), call.inputs);
  const Plan plan = op->check(operands.request(call.attributes, ~0u, call.accumulate));
  for (const std::string& strategy : serving_names(*op, plan, {})) {
    const BuiltKernel built = author_kernel(*op, plan, strategy, {}, false, 1, call.accumulate);
    std::vector<int64_t> scalars(built.sources.size());
    fill_scalars(plan, built.sources, scalars.data());
    const std::string text = ir::print(built.authored);
    const ir::Kernel parsed = ir::parse(text);
    EXPECT_EQ(ir::print(parsed), text);
    const Bits want = interpreted(built.authored, call, plan, scalars, false);
    EXPECT_EQ(difference(compiled(*runtimes().back().second, parsed, call, plan, scalars, false), want), "") << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Calls, Differential, testing::ValuesIn(sample(all_calls())),
                         [](const testing::TestParamInfo<Call>& info) {
                           return info.param.op + "_" + info.param.name;
                         });

}  // namespace
}  // namespace gradloom
