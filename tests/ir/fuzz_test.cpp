// Random kernels, and those of tests/text (every fourth seed), under random schedules: authored == scheduled == lowered
// == machine code, and for a GPU == lowered == the text compiled with the host's compiler, bit for bit (all NaNs are
// equal). After each accepted step the nest verifies, lowers, and interprets to the same bits. GRADLOOM_FUZZ_RUNS: the
// number of seeds; GRADLOOM_FUZZ_SEED: the first one; GRADLOOM_FUZZ_FAILURES: the failures after which it stops;
// GRADLOOM_FUZZ_INTERPRET: if set, nothing is compiled; GRADLOOM_FUZZ_REASONS: if set, how often each step was taken,
// and each reason given against one.
#include <gtest/gtest.h>

#include <iostream>

#include "gradloom/text.h"
#include "ir/analysis/verify.h"
#include "ir/analysis/verify_gpu.h"
#include "ir/passes/passes.h"
#include "ir/schedule/schedule_cpu.h"
#include "ir/schedule/schedule_gpu.h"
#include "tests/support/environment.h"
#include "tests/support/kernel_run.h"
#include "tests/support/random_ir.h"
#include "tests/support/random_schedule.h"
#include "tests/support/text_case.h"
#if GRADLOOM_WITH_CUDA
#include "tests/support/host_batch.h"
#endif

namespace gradloom::ir::testing {
namespace {

Result interpreted(const RandomCase& c, const Kernel& kernel, const InterpretOptions& options = {}) {
  Result result{c.buffers};
  result.bad_position = interpret(kernel, pointers(result.memory), c.scalars, options).bad_position;
  return result;
}

#if GRADLOOM_WITH_LLVM
Result compiled(const RandomCase& c, const Kernel& lowered, const codegen::Isa& isa) {
  Result result{c.buffers};
  result.bad_position = run_compiled(lowered, isa, pointers(result.memory), c.scalars);
  return result;
}
#endif

struct Counts {
  int accepted = 0, refused = 0;          // steps
  int gpu_accepted = 0, gpu_refused = 0;  // steps of random GPU schedules
  int gpu_kernels = 0, gpu_unsupported = 0;
  int launches = 0;  // of the general GPU schedule
  std::map<std::string, int> taken, reasons;
};

#if GRADLOOM_WITH_CUDA
HostBatch batch;
#endif

const bool compiles = !std::getenv("GRADLOOM_FUZZ_INTERPRET");

// The first difference between the kernel, scheduled or lowered, and the expected result: its parallel loops run in
// both directions.
std::string interpreted_difference(const RandomCase& c, const Kernel& kernel, Stage stage, const Result& expected) {
  try {
    verify(kernel, stage);
    for (const bool reverse : {false, true})
      if (std::string d = difference(
              c.kernel, expected,
              interpreted(c, kernel, {.explicit_barriers = stage == Stage::lowered, .reverse_parallel = reverse}));
          !d.empty())
        return d + (reverse ? ", parallel loops reversed" : "") + "\n" + to_string(stage) + " kernel:\n" +
               print(kernel);
  } catch (const Error& error) {
    return std::string(error.what()) + "\n" + to_string(stage) + " kernel:\n" + print(kernel);
  }
  return {};
}

// The defect in a nest after a step.
std::string step_difference(const RandomCase& c, const Kernel& scheduled, const LowerOptions& options,
                            const Result& expected) {
  if (std::string d = interpreted_difference(c, scheduled, Stage::scheduled, expected); !d.empty()) return d;
  return interpreted_difference(c, lower(scheduled, options), Stage::lowered, expected);
}

// A cache so small that scatters are worth sorting.
const Target cpu_target{.vector_bytes = 32, .l2_bytes = 64, .threads = 2};
const LowerOptions for_gpu{.gpu = true, .shared_bytes = gpu_target.shared_bytes};

// Loops may be bound where a GPU does not support them, which is detected only in lowering: the exceptions to "an
// accepted step can be lowered".
bool no_gpu_form(const Error& error) {
  return error.code() == ErrorCode::unsupported ||
         (error.code() == ErrorCode::invalid_argument &&
          std::string(error.what()).find("(lowered): body") != std::string::npos);
}

// Both executors run the lowered GPU schedule.
std::string run_for_gpu([[maybe_unused]] const std::string& name, const RandomCase& c, const Kernel& scheduled,
                        const Result& expected) {
  const Kernel launched = lower(scheduled, for_gpu);
  verify(launched, Stage::lowered);
  if (std::string d = interpreted_difference(c, launched, Stage::lowered, expected); !d.empty()) return d;
#if GRADLOOM_WITH_CUDA
  if (!compiles) return {};
  batch.add(
      name, codegen::emit_cuda(launched), [=](const codegen::CudaModule& module, const codegen::HostModule& loaded) {
        using codegen::HostOrder;
        for (const HostOrder order : {HostOrder::forward, HostOrder::reverse, HostOrder::shuffled}) {
          Result result{c.buffers};
          result.bad_position = codegen::run_on_host(module, loaded, pointers(result.memory), c.scalars, order, 7);
          const std::string d = difference(c.kernel, expected, result);
          EXPECT_EQ(d, "") << name << ", compiled for the host, order " << static_cast<int>(order) << "\n"
                           << module.text << print(launched);
          if (!d.empty()) return;
        }
      });
#endif
  return {};
}

std::string lines_of(const std::vector<std::string>& trace) {
  std::string text;
  for (const std::string& line : trace) text += "  " + line + "\n";
  return text;
}

// The failure of a seed, or an empty string.
std::string fuzz(uint64_t seed, Counts& counts) {
  std::string stage = "generate", steps;
  Kernel kernel;
  const auto report = [&](const std::string& what) {
    return "seed " + std::to_string(seed) + ", " + stage + ": " + what + "\nsteps:\n" + steps + "authored kernel:\n" +
           print(kernel);
  };
  try {
    const RandomCase c = seed % 4 ? RandomIr(seed).build() : text_case(seed / 4);
    kernel = c.kernel;
    verify(kernel, Stage::authored);
    stage = "authored";
    const Result expected = interpreted(c, kernel);

    stage = "text";
    const Kernel read = parse(print(kernel));
    if (std::string d = difference(kernel, expected, interpreted(c, read)); !d.empty()) return report(d);

    stage = "schedule";
    RandomSchedule random(kernel, seed);
    for (int k = 0; k < 8; ++k) {
      if (!random.step()) continue;
      steps = lines_of(random.schedule.trace());
      if (std::string d = step_difference(c, random.schedule.kernel(), {}, expected); !d.empty()) return report(d);
    }
    counts.accepted += random.accepted;
    counts.refused += random.refused;
    for (const auto& [step, times] : random.taken) counts.taken[step] += times;
    for (const auto& [reason, times] : random.reasons) counts.reasons[reason] += times;
    const Kernel& scheduled = random.schedule.kernel();
    stage = "replay";
    Schedule again(kernel);
    again.replay(random.schedule.trace());
    if (print(again.kernel()) != print(scheduled))
      return report("the replayed kernel differs:\n" + print(again.kernel()) + print(scheduled));

#if GRADLOOM_WITH_LLVM
    if (compiles) {
      const Kernel lowered = lower(scheduled);
      for (const codegen::Isa& isa : instruction_sets(seed)) {
        stage = "compiled for " + isa.name;
        if (std::string d = difference(kernel, expected, compiled(c, lowered, isa)); !d.empty())
          return report(d + "\nlowered kernel:\n" + print(lowered));
      }
    }
#endif
    stage = "default CPU schedule";
    const Scheduled vectors = schedule_cpu(kernel, cpu_target);
    steps = lines_of(vectors.trace);
    if (std::string d = step_difference(c, vectors.kernel, {}, expected); !d.empty()) return report(d);

    stage = "general GPU schedule";
    Schedule blocks(kernel);
    schedule_gpu(blocks, gpu_target);
    steps = lines_of(blocks.trace());
    verify(blocks.kernel(), Stage::scheduled);
    counts.launches += is_gpu(blocks.kernel());
    if (std::string d =
            run_for_gpu("seed " + std::to_string(seed) + ", general schedule", c, blocks.kernel(), expected);
        !d.empty())
      return report(d);

    stage = "random GPU schedule";
    RandomGpuSchedule bound(kernel, seed);
    for (int k = 0; k < 8; ++k) {
      if (!bound.step()) continue;
      steps = lines_of(bound.schedule.trace());
      if (std::string d = interpreted_difference(c, bound.schedule.kernel(), Stage::scheduled, expected); !d.empty())
        return report(d);
      try {
        if (std::string d =
                interpreted_difference(c, lower(bound.schedule.kernel(), for_gpu), Stage::lowered, expected);
            !d.empty() && d.find("(lowered): body") == std::string::npos)
          return report(d);
      } catch (const Error& error) {
        if (!no_gpu_form(error)) throw;
      }
    }
    counts.gpu_accepted += bound.accepted;
    counts.gpu_refused += bound.refused;
    schedule_gpu(bound.schedule, gpu_target);
    steps = lines_of(bound.schedule.trace());
    verify(bound.schedule.kernel(), Stage::scheduled);
    try {
      if (std::string d = run_for_gpu("seed " + std::to_string(seed) + ", random schedule\n" + steps, c,
                                      bound.schedule.kernel(), expected);
          !d.empty())
        return report(d);
      ++counts.gpu_kernels;
    } catch (const Error& error) {
      if (!no_gpu_form(error)) throw;
      ++counts.gpu_unsupported;
    }
    return {};
  } catch (const std::exception& error) {
    return report(error.what());
  }
}

TEST(Fuzz, EveryExecutorAgreesOnRandomKernels) {
  const int64_t runs = environment("GRADLOOM_FUZZ_RUNS", 30), first = environment("GRADLOOM_FUZZ_SEED", 1),
                most = environment("GRADLOOM_FUZZ_FAILURES", 3);
  int failures = 0;
  Counts n;
  for (int64_t seed = first; seed < first + runs && failures < most; ++seed) {
    const std::string problem = fuzz(static_cast<uint64_t>(seed), n);
    EXPECT_EQ(problem, "");
    failures += !problem.empty();
  }
  std::cout << runs << " kernels, schedule steps: " << n.accepted << " accepted, " << n.refused << " refused; "
            << n.launches << " with loops bound to a GPU\n"
            << "random GPU schedules: " << n.gpu_kernels << " run, " << n.gpu_unsupported
            << " of no form for a GPU; steps: " << n.gpu_accepted << " accepted, " << n.gpu_refused << " refused\n";
  if (std::getenv("GRADLOOM_FUZZ_REASONS"))
    for (const auto* counted : {&n.taken, &n.reasons})
      for (const auto& [what, times] : *counted) std::cout << times << " " << what << "\n";
#if GRADLOOM_WITH_CUDA
  batch.flush();
  std::cout << "cuda-host: " << batch.kernels() << " kernels\n";
#endif
  EXPECT_GE(n.accepted, n.refused);
  EXPECT_GE(2 * n.launches, runs);
  EXPECT_GE(n.gpu_kernels, n.gpu_unsupported);
  EXPECT_GE(2 * n.gpu_accepted, n.gpu_refused);
}

}  // namespace
}  // namespace gradloom::ir::testing
