// Every op scheduled for a GPU: each strategy, specialised and for any shape, has the form of gpu_form.h once lowered, and the interpreter computes the bits
// of the definition, blocks and threads in any order.
#include <gtest/gtest.h>

#include "ir/gpu_form.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "support/op_calls.h"
#include "support/sampled.h"
#ifdef GRADLOOM_WITH_CUDA
#include "codegen/cuda/module.h"
#endif

namespace gradloom {
namespace {

using namespace testing_ops;

const ir::Target gpu{.name = "gpu", .vector_bytes = 16, .gpu = true, .multiprocessors = 132, .shared_bytes = 227 << 10};

class GpuSchedule : public testing::TestWithParam<Call> {};

TEST_P(GpuSchedule, EveryStrategyGivesTheDefinitionsBits) {
  const Call& call = GetParam();
  const Op* op = find_op(call.op);
  ASSERT_NE(op, nullptr);
  const Operands operands(op->schema(), call.inputs);
  const Plan plan = op->check(operands.request(call.attributes, ~0u, call.accumulate));
  const Bits want = defined(*op, call, plan);
  for (const std::string& strategy : op->strategies(plan, gpu))
    for (const bool any_shape : {false, true}) {
      SCOPED_TRACE(strategy + (any_shape ? " any shape" : ""));
      const BuiltKernel built = build_kernel(*op, plan, strategy, gpu, any_shape, 64, call.accumulate);
      ir::verify(built.scheduled, ir::Stage::scheduled);
      ir::verify(built.lowered, ir::Stage::lowered);
      EXPECT_TRUE(ir::is_gpu(built.lowered)) << ir::print(built.lowered);
      EXPECT_EQ(ir::gpu_misfit(built.lowered), "");
#ifdef GRADLOOM_WITH_CUDA
      EXPECT_FALSE(codegen::emit_cuda(built.lowered).functions.empty());
#endif
      std::vector<int64_t> scalars(built.sources.size());
      fill_scalars(plan, built.sources, scalars.data());
      for (const bool reverse : {false, true}) EXPECT_EQ(interpreted(built.lowered, call, plan, scalars, reverse), want);
      if (HasFailure()) {
        ADD_FAILURE() << ir::print(built.lowered);
        return;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Calls, GpuSchedule, testing::ValuesIn(sample(all_calls())),
                         [](const testing::TestParamInfo<Call>& info) { return info.param.op + "_" + info.param.name; });

}  // namespace
}  // namespace gradloom
