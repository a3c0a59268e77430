// Every op scheduled for a GPU: each strategy, specialised and for any shape, has the form of gpu_form.h once lowered. Two executors run what was lowered and
// give the bits of the definition: the interpreter, which finds races whatever the order, and the text, compiled with the host's compiler, its threads in
// three orders.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "ir/gpu_form.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "support/op_calls.h"
#include "support/sampled.h"
#ifdef GRADLOOM_WITH_CUDA
#include "support/host_batch.h"
#endif

namespace gradloom {
namespace {

using namespace testing_ops;

const ir::Target gpu{.name = "gpu", .vector_bytes = 16, .gpu = true, .multiprocessors = 132, .shared_bytes = 227 << 10};

class GpuSchedule : public testing::TestWithParam<Call> {
 protected:
  static void TearDownTestSuite() {
#ifdef GRADLOOM_WITH_CUDA
    batch.flush();
    std::cout << "interpreter: " << interpreted_kernels << " GPU kernels; cuda-host: " << batch.kernels() << "\n";
#else
    std::cout << "interpreter: " << interpreted_kernels << " GPU kernels\n";
#endif
  }

#ifdef GRADLOOM_WITH_CUDA
  // Later, with others. Outputs lie at the alignment that the kernel was built for, or beside it.
  static void run_text(const std::string& name, const BuiltKernel& built, const Call& call, const Plan& plan, const std::vector<int64_t>& scalars, bool unaligned,
                       const Bits& want) {
    batch.add(name, codegen::emit_cuda(built.lowered), [=](const codegen::CudaModule& module, const codegen::HostModule& loaded) {
      using codegen::HostOrder;
      for (const HostOrder order : {HostOrder::forward, HostOrder::reverse, HostOrder::shuffled}) {
        const Buffers buffers(call, plan, unaligned);
        const int64_t bad = codegen::run_on_host(module, loaded, buffers.pointers(), scalars, order, 7);
        EXPECT_EQ(bad, ir::Outcome{}.bad_position) << name;
        EXPECT_EQ(buffers.bits(), want) << name << ", order " << static_cast<int>(order) << "\n" << module.text;
        if (HasFailure()) return;
      }
    });
  }
  static inline HostBatch batch;
#endif
  static inline int interpreted_kernels = 0;
};

TEST_P(GpuSchedule, EveryStrategyGivesTheDefinitionsBits) {
  const Call& call = GetParam();
  const Op* op = find_op(call.op);
  ASSERT_NE(op, nullptr);
  const Operands operands(op->schema(), call.inputs);
  const Plan plan = op->check(operands.request(call.attributes, ~0u, call.accumulate));
  const Bits want = defined(*op, call, plan);
  for (const std::string& strategy : op->strategies(plan, gpu))
    for (const bool any_shape : {false, true}) {
      const std::string name = call.op + " " + call.name + " " + strategy + (any_shape ? " any shape" : "");
      SCOPED_TRACE(name);
      const BuiltKernel built = build_kernel(*op, plan, strategy, gpu, any_shape, any_shape ? 1 : 64, call.accumulate);
      ir::verify(built.scheduled, ir::Stage::scheduled);
      ir::verify(built.lowered, ir::Stage::lowered);
      EXPECT_TRUE(ir::is_gpu(built.lowered)) << ir::print(built.lowered);
      EXPECT_EQ(ir::gpu_misfit(built.lowered), "");
      std::vector<int64_t> scalars(built.sources.size());
      fill_scalars(plan, built.sources, scalars.data());
      // Forwards or backwards: that neither matters, race detection says of both.
      EXPECT_EQ(interpreted(built.lowered, call, plan, scalars, any_shape), want);
      ++interpreted_kernels;
      if (HasFailure()) {
        ADD_FAILURE() << ir::print(built.lowered);
        return;
      }
#ifdef GRADLOOM_WITH_CUDA
      // Compiling is most of the time: of the any-shape kernels every third.
      if (!any_shape || interpreted_kernels % 3 == 0 || std::getenv("GRADLOOM_ALL")) run_text(name, built, call, plan, scalars, any_shape, want);
#endif
    }
}

INSTANTIATE_TEST_SUITE_P(Calls, GpuSchedule, testing::ValuesIn(sample(all_calls())),
                         [](const testing::TestParamInfo<Call>& info) { return info.param.op + "_" + info.param.name; });

}  // namespace
}  // namespace gradloom
