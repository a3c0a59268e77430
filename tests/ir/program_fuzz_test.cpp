// Random programs over the whole language (support/random_program.h): text form, lowering, interpreter, machine code
// and the text for a GPU agree, bit for bit (all NaNs are equal), on data and on bad positions. Each block of seeds
// runs in its own process, so that a crash or a hang is a finding like others. GRADLOOM_PROGRAMS: the number of seeds;
// GRADLOOM_PROGRAM_SEED: the first one; GRADLOOM_PROGRAM_SIZE: statements; GRADLOOM_PROGRAM_PRINT=1: prints each;
// GRADLOOM_PROGRAM_SHRINK=1: failing programs are minimised; GRADLOOM_PROGRAM_CUDA=N: one program in N is compiled by
// the host's compiler.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/environment.h"
#include "tests/support/program_run.h"

namespace gradloom::ir::testing {
namespace {

TEST(ProgramFuzz, EveryExecutorAgreesOnRandomPrograms) {
  ProgramOptions options;
  options.first = environment("GRADLOOM_PROGRAM_SEED", 1);
  options.count = environment("GRADLOOM_PROGRAMS", sanitized ? 30 : 150);
  options.statements = static_cast<int>(environment("GRADLOOM_PROGRAM_SIZE", 20));
  options.cuda = environment("GRADLOOM_PROGRAM_CUDA", sanitized ? 4 : 1);
  options.print = environment("GRADLOOM_PROGRAM_PRINT", 0) != 0;
  options.shrink = environment("GRADLOOM_PROGRAM_SHRINK", 0) != 0;
  options.most_failures = environment("GRADLOOM_PROGRAM_FAILURES", 3);
  const ProgramCounts n = run_programs(options);
  std::cout << n.programs << " programs, " << n.skipped << " with no defined result, " << n.failed_checks
            << " with a failed check; " << n.compiled << " compiled; " << n.gpu_refused << " refused for a GPU, "
            << n.cuda << " on cuda-host; slowest lowering " << static_cast<double>(n.slowest_us) / 1000 << " ms (seed "
            << n.slowest_seed << ")\n";
  EXPECT_EQ(n.failures, 0);
  EXPECT_LE(10 * n.skipped, n.programs);
}

// Minimised past failures of such programs: tests/programs/*.loop.
TEST(ProgramFuzz, FoundProgramsRunAlike) {
  int programs = 0;
  for (const auto& file : std::filesystem::directory_iterator(std::string(GRADLOOM_TEST_DIR) + "/programs")) {
    std::ifstream in(file.path());
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    EXPECT_EQ(replay_program(text), "") << file.path();
    ++programs;
  }
  EXPECT_GT(programs, 0);
}

}  // namespace
}  // namespace gradloom::ir::testing
