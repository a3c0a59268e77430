// Whatever sizes of caches a machine reports, every strategy has a schedule, and gives the bits of the definition.
#include <gtest/gtest.h>

#include "tests/support/all_calls.h"
#include "tests/support/named_strategy.h"

namespace gradloom {
namespace {

using namespace testing_ops;

TEST(CacheSizes, AnyWorks) {
  const std::vector<Call> calls = all_calls();
  constexpr int64_t sizes[] = {0, 1, 2, 8, 16, 64, int64_t{1} << 40};
  int built = 0;
  for (size_t i = 0; i < calls.size(); i += 17) {
    const Call& call = calls[i];
    const Op& op = *find_op(call.op);
    const Operands operands(op.schema(), call.inputs);
    const Plan plan = op.check(operands.request(call.attributes, ~0u, call.accumulate));
    const Bits want = defined(op, call, plan);
    for (const int64_t bytes : sizes) {
      const ir::Target target{
          .vector_bytes = 32, .streaming_stores = true, .l1_bytes = bytes, .l2_bytes = bytes, .threads = 2};
      for (const std::string& strategy : serving_names(op, plan, target)) {
        const ServingKernel kernel = build_serving(op, plan, strategy, target, false, aligned_outputs, call.accumulate);
        EXPECT_TRUE(kernel.gave_way.empty()) << call.name << ", " << strategy << ", caches of " << bytes;
        ++built;
        if (built % 5 != 0) continue;  // the interpreter takes its time
        std::vector<int64_t> scalars(kernel.built.sources.size());
        fill_scalars(plan, kernel.built.sources, scalars.data());
        EXPECT_EQ(difference(interpreted(kernel.built.lowered, call, plan, scalars, false), want), "")
            << call.name << ", " << strategy << ", caches of " << bytes;
      }
    }
  }
  EXPECT_GT(built, 80);
}

}  // namespace
}  // namespace gradloom
