// Every op scheduled for a GPU: each strategy, specialised and any-shape, has the form of verify_gpu.h once lowered.
// Two executors run the lowered kernel and reproduce the definition's bits: the interpreter, whose race detection is
// independent of the order, and the text, compiled with the host's compiler, with three thread orders. So does a kernel
// of a weaker determinism level, as far as that level guarantees it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <set>

#include "gradloom/text.h"
#include "ir/analysis/verify.h"
#include "ir/analysis/verify_gpu.h"
#include "tests/support/all_calls.h"
#include "tests/support/named_strategy.h"
#include "tests/support/sampled.h"
#ifdef GRADLOOM_WITH_CUDA
#include "tests/support/host_batch.h"
#endif

namespace gradloom {
namespace {

using namespace testing_ops;

const ir::Target gpu{.name = "gpu",
                     .vector_bytes = 16,
                     .gpu = true,
                     .multiprocessors = 132,
                     .shared_bytes = 227 << 10,
                     .matrix_units = true};

class GpuSchedule : public testing::TestWithParam<Call> {
 protected:
  static void TearDownTestSuite() {
#ifdef GRADLOOM_WITH_CUDA
    batch.flush();
    std::cout << "interpreter: " << interpreted_kernels << " GPU kernels, and " << weaker_kernels
              << " of weaker determinism; cuda-host: " << batch.kernels() << "\n";
#else
    std::cout << "interpreter: " << interpreted_kernels << " GPU kernels, and " << weaker_kernels
              << " of weaker determinism\n";
#endif
  }

#ifdef GRADLOOM_WITH_CUDA
  // Batched: compiled and run later, together with others. Outputs have the alignment that the kernel was built for, or
  // are offset from it.
  static void run_text(const std::string& name, const BuiltKernel& built, const Call& call, const Plan& plan,
                       const std::vector<int64_t>& scalars, bool unaligned,
                       const std::function<void(const Bits&)>& expect) {
    batch.add(name, codegen::emit_cuda(built.lowered),
              [=](const codegen::CudaModule& module, const codegen::HostModule& loaded) {
                using codegen::HostOrder;
                for (const HostOrder order : {HostOrder::forward, HostOrder::reverse, HostOrder::shuffled}) {
                  const Buffers buffers(call, plan, unaligned);
                  const int64_t bad = codegen::run_on_host(module, loaded, buffers.pointers(), scalars, order, 7);
                  EXPECT_EQ(bad, ir::Outcome{}.bad_position) << name;
                  expect(buffers.bits());
                  if (!HasFailure()) continue;
                  ADD_FAILURE() << name << ", order " << static_cast<int>(order) << "\n" << module.text;
                  return;
                }
              });
  }
  static inline HostBatch batch{codegen::HostOverflow::wraps};
#endif
  static inline int interpreted_kernels = 0, weaker_kernels = 0;
};

TEST_P(GpuSchedule, EveryStrategyGivesTheDefinitionsBits) {
  const Call& call = GetParam();
  const Op* op = find_op(call.op);
  ASSERT_NE(op, nullptr);
  const Operands operands(op->schema(), call.inputs);
  const Plan plan = op->check(operands.request(call.attributes, ~0u, call.accumulate));
  const Bits want = defined(*op, call, plan);
  for (const bool any_shape : {false, true})
    for (const std::string& strategy : serving_names(*op, plan, gpu, any_shape)) {
      const std::string name = call.op + " " + call.name + " " + strategy + (any_shape ? " any shape" : "");
      SCOPED_TRACE(name);
      const BuiltKernel built = build_kernel(*op, plan, strategy, gpu, any_shape, any_shape ? 1 : 64, call.accumulate);
      ir::verify(built.scheduled, ir::Stage::scheduled);
      ir::verify(built.lowered, ir::Stage::lowered);
      EXPECT_TRUE(ir::is_gpu(built.lowered)) << ir::print(built.lowered);
      EXPECT_EQ(ir::gpu_structure_error(built.lowered), "");
      std::vector<int64_t> scalars(built.sources.size());
      fill_scalars(plan, built.sources, scalars.data());
      // Forwards or backwards: race detection proves that neither matters.
      EXPECT_EQ(interpreted(built.lowered, call, plan, scalars, any_shape), want);
      ++interpreted_kernels;
      if (HasFailure()) {
        ADD_FAILURE() << ir::print(built.lowered);
        return;
      }
#ifdef GRADLOOM_WITH_CUDA
      // Compilation dominates the run time: only every third any-shape kernel is compiled.
      if (!any_shape || interpreted_kernels % 3 == 0 || std::getenv("GRADLOOM_ALL"))
        run_text(name, built, call, plan, scalars, any_shape, [want](const Bits& got) { EXPECT_EQ(got, want); });
#endif
    }
}

// The tolerance of reordered sums: the error bound of that order, relative to the largest sum.
void expect_close(const Plan& plan, const Bits& got, const Bits& want) {
  ASSERT_EQ(got.size(), want.size());
  size_t first = 0;
  for (const View& view : plan.views) {
    if (!view.output) continue;
    const auto count = static_cast<size_t>(element_count(view.dims));
    if (is_float(view.dtype)) {
      const double tolerance = view.dtype == DType::f64   ? 1e-13
                               : view.dtype == DType::f32 ? 1e-5
                               : view.dtype == DType::f16 ? 0x1p-9
                                                          : 0x1p-6;
      double most = 0, largest = 0;
      for (size_t i = first; i < first + count; ++i) {
        const double a = ir::double_from_bits(view.dtype, got[i]), b = ir::double_from_bits(view.dtype, want[i]);
        ASSERT_FALSE(std::isnan(a) || std::isnan(b));
        most = std::max(most, std::abs(a - b)), largest = std::max(largest, std::abs(b));
      }
      EXPECT_LE(most, tolerance * largest) << "output " << view.index;
    } else {
      EXPECT_TRUE(std::equal(got.begin() + first, got.begin() + first + count, want.begin() + first))
          << "output " << view.index;
    }
    first += count;
  }
}

// run_to_run: the same bits on every executor in every order. relaxed: close to them. Both close to the definition.
TEST_P(GpuSchedule, WeakerLevelsKeepTheirPromises) {
  const Call& call = GetParam();
  const Op* op = find_op(call.op);
  const Operands operands(op->schema(), call.inputs);
  std::set<std::string> seen;
  for (const Determinism level : {Determinism::run_to_run, Determinism::relaxed}) {
    const Plan plan = op->check(operands.request(call.attributes, ~0u, call.accumulate, level));
    Bits want;
    for (const bool any_shape : {false, true})
      for (const std::string& strategy : serving_names(*op, plan, gpu, any_shape)) {
        ASSERT_LE(level_of(*op, strategy), level) << strategy << " promises less than was asked for";
        const Determinism promise = level_of(*op, strategy);
        if (promise == Determinism::sequential || !seen.insert(strategy + (any_shape ? " any shape" : "")).second)
          continue;
        if (want.empty()) want = defined(*op, call, plan);
        const std::string name = call.op + " " + call.name + " " + strategy + (any_shape ? " any shape" : "");
        SCOPED_TRACE(name);
        const BuiltKernel built =
            build_kernel(*op, plan, strategy, gpu, any_shape, any_shape ? 1 : 64, call.accumulate);
        std::vector<int64_t> scalars(built.sources.size());
        fill_scalars(plan, built.sources, scalars.data());
        const Bits forwards = interpreted(built.lowered, call, plan, scalars, false),
                   backwards = interpreted(built.lowered, call, plan, scalars, true);
        expect_close(plan, forwards, want);
        expect_close(plan, backwards, want);
        const bool fixed = promise == Determinism::run_to_run;
        if (fixed) {
          EXPECT_EQ(forwards, backwards);
        }
        ++weaker_kernels;
        if (HasFailure()) {
          ADD_FAILURE() << ir::print(built.lowered);
          return;
        }
#ifdef GRADLOOM_WITH_CUDA
        if (any_shape && weaker_kernels % 3 != 0 && !std::getenv("GRADLOOM_ALL")) continue;
        run_text(name, built, call, plan, scalars, any_shape, [=](const Bits& got) {
          if (fixed) {
            EXPECT_EQ(got, forwards);
          }
          expect_close(plan, got, want);
        });
#endif
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Calls, GpuSchedule, testing::ValuesIn(sample(all_calls())),
                         [](const testing::TestParamInfo<Call>& info) {
                           return info.param.op + "_" + info.param.name;
                         });

}  // namespace
}  // namespace gradloom
