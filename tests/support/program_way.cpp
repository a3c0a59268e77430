#include "tests/support/program_way.h"

#include <time.h>

#include <cstdlib>

#include "gradloom/text.h"
#include "ir/analysis/verify.h"
#include "ir/passes/passes.h"
#include "ir/rewrite.h"
#include "ir/schedule/schedule_default.h"

namespace gradloom::ir::testing {

namespace {

Result interpreted(const RandomProgram& program, const Kernel& kernel, const InterpretOptions& options = {}) {
  Result result{program.buffers};
  result.bad_position =
      interpret(kernel, pointers(result.memory, program.origins), program.scalars, options).bad_position;
  return result;
}

class AllSerial : public Rewriter {
  Stmt rewrite(const For& n, const Stmt&) override {
    return for_loop(n.var, n.begin, n.extent, ForKind::serial, (*this)(n.body));
  }
};

const Target cpu_target{.vector_bytes = 32, .threads = 2};
const Target gpu_target{.gpu = true, .multiprocessors = 4, .block_threads = 32, .shared_bytes = 256};

// Processor time, so that other processes on the machine do not count.
int64_t thread_cpu_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * int64_t{1000000} + now.tv_nsec / 1000;
}

}  // namespace

ProgramFailure ProgramWay::steps() {
  const Kernel& kernel = program_.kernel;
  at("serial");
  const Kernel serial = AllSerial()(kernel);
  try {
    expected_ = interpreted(program_, serial);
  } catch (const Error& error) {  // an invalid program
    ++counts_.skipped;
    if (std::getenv("GRADLOOM_PROGRAM_SKIPS"))
      std::cout << "seed " << seed_ << " skipped: " << error.what() << std::endl;
    return {};
  }
  counts_.failed_checks += expected_.bad_position != Outcome{}.bad_position;
  at("text");
  const std::string text = print(kernel);
  if (print(parse(text)) != text) return {stage_, "difference: the text is printed differently once read"};
  at("scheduled");
  if (ProgramFailure f = differs(interpreted(program_, kernel)); !f.stage.empty()) return f;
  if (ProgramFailure f = differs(interpreted(program_, kernel, {.reverse_parallel = true})); !f.stage.empty()) return f;
  at("lower");
  const int64_t start = thread_cpu_us();
  const Kernel lowered = lower(kernel);
  const int64_t us = thread_cpu_us() - start;
  if (us > counts_.slowest_us) counts_.slowest_us = us, counts_.slowest_seed = seed_;
  at("verify lowered");
  verify(lowered, Stage::lowered);
  at("lowered");
  if (ProgramFailure f = differs(interpreted(program_, lowered, {.reverse_parallel = true})); !f.stage.empty())
    return f;
#if GRADLOOM_WITH_LLVM
  for (const codegen::Isa& isa : instruction_sets(static_cast<uint64_t>(seed_))) {
    at("llvm");
    ++counts_.compiled;
    Result result{program_.buffers};
    result.bad_position = run_compiled(lowered, isa, pointers(result.memory, program_.origins), program_.scalars);
    if (ProgramFailure f = differs(result); !f.stage.empty()) return {f.stage, f.what + " (" + isa.name + ")"};
  }
#endif
  at("schedule for a CPU");
  Schedule vectors(serial);
  vectors.replay(schedule_default(serial, cpu_target).trace);
  verify(vectors.kernel(), Stage::scheduled);
  if (ProgramFailure f = differs(interpreted(program_, vectors.kernel(), {.reverse_parallel = true})); !f.stage.empty())
    return f;
  at("lower for a CPU");
  const Kernel shared = lower(vectors.kernel());
  verify(shared, Stage::lowered);
  if (ProgramFailure f = differs(interpreted(program_, shared, {.reverse_parallel = true})); !f.stage.empty()) return f;
#if GRADLOOM_WITH_LLVM
  if (seed_ % 4 == 0) {
    at("llvm, scheduled for a CPU");
    Result result{program_.buffers};
    result.bad_position =
        run_compiled(shared, codegen::host_isa(), pointers(result.memory, program_.origins), program_.scalars);
    if (ProgramFailure f = differs(result); !f.stage.empty()) return f;
  }
#endif
  at("schedule for a GPU");
  Schedule blocks(kernel);
  blocks.replay(schedule_default(kernel, gpu_target).trace);
  verify(blocks.kernel(), Stage::scheduled);
  at("lower for a GPU");
  const Kernel launched = lower(blocks.kernel(), {.gpu = true, .shared_bytes = gpu_target.shared_bytes});
  at("verify lowered for a GPU");
  verify(launched, Stage::lowered);
  at("lowered for a GPU");
  if (ProgramFailure f =
          differs(interpreted(program_, launched, {.explicit_barriers = true, .reverse_parallel = true}));
      !f.stage.empty())
    return f;
#if GRADLOOM_WITH_CUDA
  at("emit for a GPU");
  if (cuda) module = codegen::emit_cuda(launched);
#endif
  return {};
}

#if GRADLOOM_WITH_CUDA
ProgramFailure run_cuda(const RandomProgram& program, const Result& expected, const codegen::CudaModule& module,
                        const codegen::HostModule& loaded) {
  using codegen::HostOrder;
  try {
    for (const HostOrder order : {HostOrder::forward, HostOrder::shuffled}) {
      Result result{program.buffers};
      result.bad_position =
          codegen::run_on_host(module, loaded, pointers(result.memory, program.origins), program.scalars, order, 7);
      if (const std::string d = difference(program.kernel, expected, result); !d.empty())
        return {"cuda-host", "difference: " + d};
    }
  } catch (const std::exception& error) {
    return {"cuda-host", std::string("error: ") + error.what()};
  }
  return {};
}
#endif

ProgramFailure run_program(const RandomProgram& program, int64_t seed, const std::function<void(const char*)>& at,
                           bool cuda, bool strict) {
  ProgramCounts counts;
  ProgramWay way(program, seed, at, counts);
  way.cuda = cuda;
  ProgramFailure failure = way.run();
  if (strict && counts.skipped) failure = {"serial", "the program has no defined result"};
#if GRADLOOM_WITH_CUDA
  if (failure.stage.empty() && way.module) {
    at("cuda-host");
    try {
      failure = run_cuda(program, way.expected(), *way.module, *codegen::HostModule::compile(*way.module));
    } catch (const Error& error) {
      failure = {"cuda-host", std::string("error: ") + error.what()};
    }
  }
#endif
  return failure;
}

}  // namespace gradloom::ir::testing
