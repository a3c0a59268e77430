#pragma once
// Runs one program through every executor, in this process.
#include "tests/support/kernel_run.h"
#include "tests/support/program_run.h"
#if GRADLOOM_WITH_CUDA
#include "codegen/cuda_host/host_executor.h"
#endif

namespace gradloom::ir::testing {

// Runs one program through all executors but the last. `at` is called with each stage's name before it begins.
class ProgramWay {
 public:
  ProgramWay(const RandomProgram& program, int64_t seed, const std::function<void(const char*)>& at,
             ProgramCounts& counts)
      : program_(program), seed_(seed), at_(at), counts_(counts) {}

  ProgramFailure run() {
    try {
      return steps();
    } catch (const std::exception& error) {
      return {stage_, std::string("error: ") + error.what()};
    }
  }
  const Result& expected() const { return expected_; }
#if GRADLOOM_WITH_CUDA
  std::optional<codegen::CudaModule> module;  // for the last executor
#endif
  bool cuda = true;

 private:
  void at(const char* stage) { at_(stage_ = stage); }
  ProgramFailure differs(const Result& result) const {
    const std::string d = difference(program_.kernel, expected_, result);
    return d.empty() ? ProgramFailure{} : ProgramFailure{stage_, "difference: " + d};
  }

  ProgramFailure steps();

  const RandomProgram& program_;
  const int64_t seed_;
  const std::function<void(const char*)>& at_;
  ProgramCounts& counts_;
  const char* stage_ = "";
  Result expected_;
};

#if GRADLOOM_WITH_CUDA
ProgramFailure run_cuda(const RandomProgram& program, const Result& expected, const codegen::CudaModule& module,
                        const codegen::HostModule& loaded);
#endif

// Runs all of it. `strict`: a program without a defined result fails too.
ProgramFailure run_program(const RandomProgram& program, int64_t seed, const std::function<void(const char*)>& at,
                           bool cuda, bool strict);

}  // namespace gradloom::ir::testing
