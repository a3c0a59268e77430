// Symbols for profilers: the entries of compiled and of loaded kernels in /tmp/perf-<pid>.map, and that perf itself
// resolves them.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "codegen/llvm/compiler.h"
#include "gradloom/builder.h"
#include "ir/passes/passes.h"
#include "runtime/diagnose/perf_map.h"
#include "tests/support/warm_cache.h"

namespace gradloom {
namespace {

using namespace testing;

// Before the first kernel.
const bool on = setenv("GRADLOOM_PERF_MAP", "1", 1) == 0;

struct Line {
  uint64_t address = 0, bytes = 0;
  std::string name;
};

std::string map_path(pid_t process = getpid()) { return fmt::format("/tmp/perf-{}.map", process); }

std::vector<Line> lines_of(const std::string& path) {
  std::vector<Line> lines;
  std::ifstream file(path);
  for (Line line; file >> std::hex >> line.address >> line.bytes >> line.name;) lines.push_back(line);
  return lines;
}

class PerfMap : public WarmCacheTest {
 protected:
  PerfMap() { std::remove(map_path().c_str()); }
  ~PerfMap() override { std::remove(map_path().c_str()); }
};

TEST_F(PerfMap, ALineNamesTheFunctionThatIsCalled) {
  ir::KernelBuilder b("my kernel");
  const ir::Buffer x = b.input("x", DType::f32, {4}), y = b.output("y", DType::f32, {4});
  b.loop("i", 0, 4, [&](ir::Expr i) { b.store(y, {i}, ir::load(x, {i}) + ir::load(x, {i})); });
  const codegen::CompiledKernel compiled = codegen::compile(ir::lower(b.build()), codegen::host_isa());
  ASSERT_FALSE(compiled.symbols.empty());
  add_to_perf_map(compiled.symbols);
  const auto function = reinterpret_cast<uint64_t>(compiled.function);
  int found = 0;
  for (const Line& line : lines_of(map_path())) {
    if (line.name != "gradloom::my_kernel") continue;
    ++found;
    EXPECT_EQ(line.address, function);
    EXPECT_GT(line.bytes, 8u);  // it loads, adds, stores and returns
    EXPECT_LT(line.bytes, static_cast<uint64_t>(compiled.code_bytes));
  }
  EXPECT_EQ(found, 1);
}

TEST_F(PerfMap, KernelsFromTheCompilerAndFromTheDiskAreNamed) {
  for (const bool from_disk : {false, true}) {
    std::remove(map_path().c_str());
    Runtime runtime(options());
    ASSERT_TRUE(right(runtime, 0));
    EXPECT_EQ(runtime.last_report().from_disk, from_disk);
    const std::string prefix = "gradloom::GatherGrad_" + runtime.last_report().strategy;
    int found = 0;
    for (const Line& line : lines_of(map_path())) found += line.name.starts_with(prefix);
    EXPECT_GE(found, 1) << prefix;
  }
  EXPECT_EQ(log_, "");
}

TEST_F(PerfMap, AChildOfForkNamesItsParentsKernelsToo) {
  Runtime runtime(options());
  ASSERT_TRUE(right(runtime, 1));
  const size_t before = lines_of(map_path()).size();
  const pid_t child = fork();
  if (child == 0) {
    const bool good = right(runtime, 2) && lines_of(map_path()).size() > before;
    std::remove(map_path().c_str());
    _exit(good ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(PerfMap, AFileOfOthersIsALineInTheLog) {
  ASSERT_EQ(symlink("/dev/null", map_path().c_str()), 0);
  Runtime runtime(options());
  EXPECT_TRUE(right(runtime, 3));
  EXPECT_NE(log_.find("perf map " + map_path() + " is not written: "), std::string::npos) << log_;
}

// The profiled workload: one kernel repeatedly.
TEST(Worker, DISABLED_Busy) {
  if (!std::getenv("GRADLOOM_TEST_BUSY")) GTEST_SKIP() << "started by the other tests";
  Runtime runtime({.threads = 1});
  const int64_t rows = 1000, features = 256;
  const std::vector<Tensor> inputs{
      Tensor::of(DType::i64, {2}, std::vector<int64_t>{rows, features}),
      Tensor::of(DType::i64, {rows}, std::vector<int64_t>(rows, 3)),
      Tensor::of(DType::f32, {rows, features}, std::vector<float>(static_cast<size_t>(rows * features), 1))};
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(400))
    ASSERT_TRUE(runtime.run("GatherGrad", inputs).ok());
}

int shell(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

TEST_F(PerfMap, PerfTellsTheKernelsName) {
  const std::string data = folder_ + "/data", report = folder_ + "/report", out = " >" + folder_ + "/out 2>&1";
  if (shell("perf --version" + out) != 0) GTEST_SKIP() << "perf is not installed";
  if (shell("perf record -e cpu-clock -o " + data + " true" + out) != 0)
    GTEST_SKIP() << "perf may not record here: " << bytes_of(folder_ + "/out");
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  ASSERT_EQ(shell("GRADLOOM_TEST_BUSY=1 perf record -e cpu-clock -F 2000 -o " + data + " " + self +
                  " --gtest_filter=Worker.DISABLED_Busy --gtest_also_run_disabled_tests" + out),
            0)
      << bytes_of(folder_ + "/out");
  ASSERT_EQ(shell("perf report --stdio --sort symbol -i " + data + " >" + report + " 2>/dev/null"), 0);
  EXPECT_NE(bytes_of(report).find("gradloom::GatherGrad_"), std::string::npos) << bytes_of(report).substr(0, 2000);
}

}  // namespace
}  // namespace gradloom
