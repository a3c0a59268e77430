// Warm starts: a second process, many concurrent ones, killed ones, ones without a disk. Workers are re-executions of
// this program.
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "codegen/llvm/compiler.h"
#include "gradloom/builder.h"
#include "tests/support/warm_cache.h"

namespace gradloom {
namespace {

using namespace testing;

int64_t setting(const char* name, int64_t otherwise) {
  const char* const value = std::getenv(name);
  return value ? std::atoll(value) : otherwise;
}

// A worker's report.
struct WorkerReport {
  int64_t wrong = -1, compiles = 0, compile_count = 0, disk_hits = 0, rejected = 0, first_us = 0, write_failures = 0;
};

class LlvmDiskCache : public WarmCacheTest {
 protected:
  // Starts a worker; `before` runs in the child, and exit code 77 from it means that the setup is impossible here.
  pid_t start(const std::string& report, int threads, int kernels, const std::function<bool()>& before = {}) const {
    const pid_t child = fork();
    if (child != 0) return child;
    setenv("GRADLOOM_CACHE_DIR", cache_.c_str(), 1);
    setenv("WORKER_REPORT", report.c_str(), 1);
    setenv("WORKER_THREADS", std::to_string(threads).c_str(), 1);
    setenv("WORKER_KERNELS", std::to_string(kernels).c_str(), 1);
    setenv("GRADLOOM_LOG", "off", 1);
    if (before && !before()) _exit(77);
    execl("/proc/self/exe", "worker", "--gtest_filter=Worker.DISABLED_Calls", "--gtest_also_run_disabled_tests",
          "--gtest_brief=1", nullptr);
    _exit(1);
  }
  static int wait_for(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  static WorkerReport read_report(const std::string& path) {
    WorkerReport r;
    std::ifstream(path) >> r.wrong >> r.compiles >> r.compile_count >> r.disk_hits >> r.rejected >> r.first_us >>
        r.write_failures;
    return r;
  }
  WorkerReport work(int threads, int kernels, int* code = nullptr, const std::function<bool()>& before = {}) const {
    const std::string report = folder_ + "/report";
    const int exit_code = wait_for(start(report, threads, kernels, before));
    if (code) *code = exit_code;
    return read_report(report);
  }
};

// The worker: threads that call the same kernels, each in a different order.
TEST(Worker, DISABLED_Calls) {
  const char* const report = std::getenv("WORKER_REPORT");
  if (!report) GTEST_SKIP() << "started by the other tests";
  const int threads = static_cast<int>(setting("WORKER_THREADS", 1)),
            kernels = static_cast<int>(setting("WORKER_KERNELS", 1));
  std::atomic<int64_t> wrong{0};
  int64_t first_us = 0;
  Runtime runtime({.threads = 1});
  const auto calls = [&](int t) {
    for (int k = 0; k < kernels; ++k) wrong += !right(runtime, (k * 7 + t) % kernels);
  };
  if (threads == 1) {
    const auto begin = std::chrono::steady_clock::now();
    wrong += !right(runtime, 0);
    first_us = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin).count();
    calls(0);
  } else {
    std::vector<std::thread> team;
    for (int t = 0; t < threads; ++t) team.emplace_back(calls, t);
    for (std::thread& t : team) t.join();
  }
  const Stats s = runtime.stats();
  std::ofstream(report) << wrong << ' ' << s.compiles << ' ' << codegen::compile_count() << ' ' << s.disk_hits << ' '
                        << s.disk_rejected << ' ' << first_us << ' ' << s.disk_write_failures << '\n';
}

TEST_F(LlvmDiskCache, AWarmProcessCompilesNothing) {
  const WorkerReport cold = work(1, 5);
  EXPECT_EQ(cold.wrong, 0);
  EXPECT_EQ(cold.compiles, 5);
  const WorkerReport warm = work(1, 5);
  EXPECT_EQ(warm.wrong, 0);
  EXPECT_EQ(warm.compiles, 0);
  EXPECT_EQ(warm.compile_count, 0);
  EXPECT_EQ(warm.disk_hits, 5);
  EXPECT_EQ(warm.rejected, 0);
  std::printf("first call: %lld us cold, %lld us warm\n", static_cast<long long>(cold.first_us),
              static_cast<long long>(warm.first_us));
}

TEST_F(LlvmDiskCache, ManyProcessesAndThreadsStartOnAnEmptyCache) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr int some = 4;
#else
  constexpr int some = 16;
#endif
  const int processes = static_cast<int>(setting("GRADLOOM_CACHE_TEST_PROCESSES", some)), kernels = 50;
  std::vector<pid_t> children;
  for (int p = 0; p < processes; ++p) children.push_back(start(folder_ + "/report" + std::to_string(p), 8, kernels));
  for (int p = 0; p < processes; ++p) {
    EXPECT_EQ(wait_for(children[p]), 0);
    const WorkerReport r = read_report(folder_ + "/report" + std::to_string(p));
    EXPECT_EQ(r.wrong, 0);
    EXPECT_EQ(r.rejected, 0);
    EXPECT_EQ(r.compiles + r.disk_hits, kernels);  // at most once per process
    EXPECT_EQ(r.compile_count, r.compiles);
    EXPECT_EQ(r.write_failures, 0);
  }
  EXPECT_EQ(files("k-").size(), 50u);
  EXPECT_EQ(files("i-").size(), 50u);
  EXPECT_EQ(files("tmp-").size(), 0u);
  const WorkerReport warm = work(8, kernels);
  EXPECT_EQ(warm.wrong, 0);
  EXPECT_EQ(warm.compile_count, 0);
}

TEST_F(LlvmDiskCache, KilledProcessesLeaveAValidCache) {
  for (int round = 0; round < 20; ++round) {
    const pid_t child = start(folder_ + "/none", 2, 50);
    usleep(20000 + round * 4000);
    kill(child, SIGKILL);
    wait_for(child);
  }
  const WorkerReport after = work(2, 50);
  EXPECT_EQ(after.wrong, 0);
  EXPECT_EQ(after.rejected, 0);
  EXPECT_EQ(after.compiles + after.disk_hits, 50);
}

TEST_F(LlvmDiskCache, AReadOnlyHomeAndAFullDiskDoNotFailCalls) {
  const WorkerReport no_home = work(2, 5, nullptr, [] {
    setenv("GRADLOOM_CACHE_DIR", "/proc/self/.cache/gradloom", 1);  // a folder cannot be created there
    return true;
  });
  EXPECT_EQ(no_home.wrong, 0);
  EXPECT_EQ(no_home.compiles, 5);
  int code = 0;
  fs::create_directory(cache_);
  for (const char* how : {"size=20480,mode=700", "ro,mode=700"}) {
    const bool read_only = how[0] == 'r';
    const WorkerReport r = work(2, 20, &code, [&] {
      return unshare(CLONE_NEWNS) == 0 && mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
             mount("tmpfs", cache_.c_str(), "tmpfs", read_only ? MS_RDONLY : 0, read_only ? "mode=700" : how) == 0;
    });
    if (code == 77) GTEST_SKIP() << "this user may not mount";
    EXPECT_EQ(r.wrong, 0) << how;
    EXPECT_EQ(r.compiles, 20) << how;
    EXPECT_GT(r.write_failures, 0) << how;
  }
}

TEST_F(LlvmDiskCache, AShippedCacheServesAndAnyShapeAndOwnKernelsAreKept) {
  {
    Runtime runtime(options());
    EXPECT_TRUE(right(runtime, 0, {.any_shape = true}));
  }
  RuntimeOptions shipped{.threads = 1, .disk_cache = folder_ + "/own", .disk_cache_read_only = {cache_}};
  Runtime runtime(shipped);
  for (int k = 0; k < 5; ++k) EXPECT_TRUE(right(runtime, k, {.any_shape = true}));
  EXPECT_EQ(runtime.stats().compiles, 0);
  EXPECT_EQ(runtime.stats().disk_hits, 1);
  EXPECT_TRUE(runtime.last_report().from_disk);
  EXPECT_TRUE(fs::is_empty(folder_ + "/own"));

  ir::KernelBuilder b("own");
  const ir::Buffer x = b.input("x", DType::f32, {4}), y = b.output("y", DType::f32, {4});
  b.loop("i", 0, 4, [&](ir::Expr i) { b.store(y, {i}, ir::load(x, {i}) + ir::load(x, {i})); });
  const ir::Kernel kernel = b.build();
  for (const int compiles : {1, 0}) {
    Runtime own(shipped);
    const auto compiled = own.compile(kernel);
    ASSERT_TRUE(compiled.ok());
    const Tensor in = Tensor::of(DType::f32, {4}, std::vector<float>{1, 2, 3, 4}), out = Tensor::empty(DType::f32, {4});
    ASSERT_TRUE(compiled.value()(std::vector{in, out}).ok());
    EXPECT_EQ(static_cast<const float*>(out.data())[3], 8);
    EXPECT_EQ(own.stats().compiles, compiles);
  }
}

TEST_F(LlvmDiskCache, OffIsOff) {
  RuntimeOptions off = options();
  off.disk_cache = "off";
  Runtime runtime(off);
  EXPECT_TRUE(right(runtime, 0));
  EXPECT_FALSE(fs::exists(cache_));
  EXPECT_FALSE(fs::exists("off"));
}

}  // namespace
}  // namespace gradloom
