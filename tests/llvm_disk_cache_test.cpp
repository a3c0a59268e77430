// Warm starts: what a second process, another build and a damaged cache do to calls. Workers are this program again, with a shape of its own.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "codegen/llvm/compiler.h"
#include "ir/print.h"
#include "runtime/build.h"
#include "runtime/kernel_store.h"
#include "runtime/log.h"
#include "runtime/outputs.h"
#include "runtime/runtime.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

int64_t setting(const char* name, int64_t otherwise) {
  const char* const value = std::getenv(name);
  return value ? std::atoll(value) : otherwise;
}

// Kernel `k`'s call: its shape makes it a kernel of its own. True when the result is right.
std::vector<Tensor> inputs_of(int k) {
  const int64_t rows = 2 + k, count = 5;
  std::vector<int64_t> indices;
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    indices.push_back((i * 3 + k) % rows);
    for (int64_t c = 0; c < 3; ++c) values.push_back(static_cast<float>(i * 7 + c + k));
  }
  return {Tensor::of(DType::i64, {2}, std::vector<int64_t>{rows, 3}), Tensor::of(DType::i64, {count}, indices), Tensor::of(DType::f32, {count, 3}, values)};
}

bool right(Runtime& runtime, int k, const RunOptions& options = {}) {
  const std::vector<Tensor> inputs = inputs_of(k);
  const auto outputs = runtime.run("GatherGrad", inputs, {{"axis", int64_t{0}}}, options);
  if (!outputs) return false;
  std::vector<float> expected(static_cast<size_t>((2 + k) * 3));
  const auto* indices = static_cast<const int64_t*>(inputs[1].data());
  const auto* values = static_cast<const float*>(inputs[2].data());
  for (int i = 0; i < 5; ++i) {
    for (int c = 0; c < 3; ++c) expected[static_cast<size_t>(indices[i] * 3 + c)] += values[i * 3 + c];
  }
  return std::memcmp(outputs.value()[0].data(), expected.data(), expected.size() * sizeof(float)) == 0;
}

// What a worker has to tell.
struct WorkerReport {
  int64_t wrong = -1, compiles = 0, compile_count = 0, disk_hits = 0, rejected = 0, first_us = 0, write_failures = 0;
};

class LlvmDiskCache : public ::testing::Test {
 protected:
  LlvmDiskCache() {
    char name[] = "/tmp/gradloom_warm_XXXXXX";
    folder_ = mkdtemp(name);
    cache_ = folder_ + "/cache";
    set_log_sink([this](LogLevel level, std::string_view message) {
      if (level <= LogLevel::warn) log_ += std::string(message) + "\n";
    });
  }
  ~LlvmDiskCache() override {
    set_log_sink({});
    fs::remove_all(folder_);
  }
  RuntimeOptions options() const { return {.threads = 1, .disk_cache = cache_}; }

  // Starts a worker; `before` runs in the child, and exit code 77 from it means that it cannot be done here.
  pid_t start(const std::string& report, int threads, int kernels, const std::function<bool()>& before = {}) const {
    const pid_t child = fork();
    if (child != 0) return child;
    setenv("GRADLOOM_CACHE_DIR", cache_.c_str(), 1);
    setenv("WORKER_REPORT", report.c_str(), 1);
    setenv("WORKER_THREADS", std::to_string(threads).c_str(), 1);
    setenv("WORKER_KERNELS", std::to_string(kernels).c_str(), 1);
    setenv("GRADLOOM_LOG", "off", 1);
    if (before && !before()) _exit(77);
    execl("/proc/self/exe", "worker", "--gtest_filter=Worker.DISABLED_Calls", "--gtest_also_run_disabled_tests", "--gtest_brief=1", nullptr);
    _exit(1);
  }
  static int wait_for(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  static WorkerReport read_report(const std::string& path) {
    WorkerReport r;
    std::ifstream(path) >> r.wrong >> r.compiles >> r.compile_count >> r.disk_hits >> r.rejected >> r.first_us >> r.write_failures;
    return r;
  }
  WorkerReport work(int threads, int kernels, int* code = nullptr, const std::function<bool()>& before = {}) const {
    const std::string report = folder_ + "/report";
    const int exit_code = wait_for(start(report, threads, kernels, before));
    if (code) *code = exit_code;
    return read_report(report);
  }
  std::vector<std::string> files(const std::string& prefix) const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(cache_)) {
      if (entry.path().filename().string().starts_with(prefix)) found.push_back(entry.path());
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  std::string folder_, cache_, log_;
};

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void put_bytes(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

// The worker: threads that call the same kernels, each in an order of its own.
TEST(Worker, DISABLED_Calls) {
  const char* const report = std::getenv("WORKER_REPORT");
  if (!report) GTEST_SKIP() << "started by the other tests";
  const int threads = static_cast<int>(setting("WORKER_THREADS", 1)), kernels = static_cast<int>(setting("WORKER_KERNELS", 1));
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
  std::ofstream(report) << wrong << ' ' << s.compiles << ' ' << codegen::compile_count() << ' ' << s.disk_hits << ' ' << s.disk_rejected << ' ' << first_us << ' '
                        << s.disk_write_failures << '\n';
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
  std::printf("first call: %lld us cold, %lld us warm\n", static_cast<long long>(cold.first_us), static_cast<long long>(warm.first_us));
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
    EXPECT_EQ(r.compiles + r.disk_hits, kernels);  // at most once a process
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

TEST_F(LlvmDiskCache, DamagedEntriesAreCompiledAgainAndReplaced) {
  ASSERT_TRUE(right(*std::make_unique<Runtime>(options()), 0));
  for (const char* prefix : {"k-", "i-"}) {
    const std::string path = files(prefix).at(0), whole = bytes_of(path);
    for (size_t i = 0; i < whole.size(); i += whole.size() / 40 + 1) {
      std::string torn = whole;
      torn[i] = static_cast<char>(torn[i] ^ 0x10);
      put_bytes(path, torn);
      Runtime runtime(options());
      ASSERT_TRUE(right(runtime, 0)) << prefix << i;
      const Stats s = runtime.stats();
      EXPECT_GE(s.disk_rejected, 1) << prefix << i;
      EXPECT_EQ(s.compiles, prefix[0] == 'k') << i;  // a damaged index is made again without compiling
      ASSERT_EQ(bytes_of(path).size(), whole.size());
      Runtime again(options());
      ASSERT_TRUE(right(again, 0));
      EXPECT_EQ(again.stats().disk_hits, 1);
      EXPECT_EQ(again.stats().disk_rejected, 0);
    }
  }
}

TEST_F(LlvmDiskCache, CodeThatDoesNotLoadIsAMiss) {
  ASSERT_TRUE(right(*std::make_unique<Runtime>(options()), 0));
  const std::string path = files("k-").at(0);
  const KernelRecord whole = decode_kernel(bytes_of(path));
  // Whole frames around what is no object, or one without the kernel's function.
  for (int damage = 0; damage < 3; ++damage) {
    KernelRecord record = whole;
    if (damage == 0) record.code = "no object";
    if (damage == 1) record.code.resize(record.code.size() / 2);
    if (damage == 2) record.kernel_name = "another";
    put_bytes(path, encode(record));
    log_.clear();
    Runtime runtime(options());
    ASSERT_TRUE(right(runtime, 0)) << damage;
    EXPECT_EQ(runtime.stats().compiles, 1);
    EXPECT_NE(log_.find("is not used"), std::string::npos) << log_;
  }
}

TEST_F(LlvmDiskCache, VanishedFilesAreMisses) {
  ASSERT_TRUE(right(*std::make_unique<Runtime>(options()), 0));
  fs::remove(files("k-").at(0));
  Runtime without_kernel(options());
  EXPECT_TRUE(right(without_kernel, 0));
  EXPECT_EQ(without_kernel.stats().compiles, 1);
  fs::remove(files("i-").at(0));
  Runtime without_index(options());
  EXPECT_TRUE(right(without_index, 0));
  EXPECT_EQ(without_index.stats().compiles, 0);  // the content is there
  EXPECT_EQ(without_index.stats().disk_hits, 1);
  fs::remove_all(cache_);
  EXPECT_TRUE(right(without_index, 1));
  EXPECT_EQ(log_, "");
}

// The op's key as a Runtime makes it, for an ISA of choice.
struct Made {
  OpKey key;
  BuiltKernel built;
  IndexRecord index;
  KernelRecord kernel;
};
Made make_entry(const codegen::Isa& isa, const std::string& toolchain, int k) {
  const Op& op = *find_op("GatherGrad");
  const std::vector<Tensor> inputs = inputs_of(k);
  const Operands operands(op.schema(), inputs);
  const Attributes attributes{{"axis", int64_t{0}}};
  const Plan plan = op.check(operands.request(attributes, 1));
  ir::Target target = isa.target;
  target.threads = 1;
  const std::string strategy = choose_strategy(op, plan, "", target);
  Made made{OpKey(op, plan, strategy, {}, 1, aligned_outputs, target_text(target, isa.features), toolchain),
            build_kernel(op, plan, strategy, target, false, aligned_outputs, false), {}, {}};
  made.kernel = {content_key(toolchain, isa.features, ir::print(made.built.lowered)), made.built.lowered.name, isa.cpu,
                 codegen::compile_object(made.built.lowered, isa).bytes, 1};
  made.index = {made.key.text(), content_id(made.kernel.key), made.built.sources, "GatherGrad", strategy, 1, {}};
  return made;
}

TEST_F(LlvmDiskCache, EntriesOfAnotherInstructionSetAreMisses) {
  if (!codegen::runs_here(codegen::isa_named("x86-64-v3"))) GTEST_SKIP() << "needs AVX2";
  const std::string toolchain = toolchain_text(codegen::toolchain_text());
  const Made wide = make_entry(codegen::isa_named("x86-64-v4"), toolchain, 0);  // compiled here, never run here
  DiskCache files({cache_, {}, 1 << 30});
  files.write(kernel_file_name(wide.index.content), encode(wide.kernel));
  files.write(wide.key.file_name(), encode(wide.index));
  RuntimeOptions masked = options();
  masked.isa = "x86-64-v3";
  {
    Runtime runtime(masked);
    EXPECT_TRUE(right(runtime, 0));
    const Stats s = runtime.stats();
    EXPECT_EQ(s.compiles, 1);
    EXPECT_EQ(s.disk_hits, 0);
    EXPECT_EQ(s.disk_miss_parts.count("target"), 1u);
  }
  // An index that leads to it nevertheless.
  const Made narrow = make_entry(codegen::isa_named("x86-64-v3"), toolchain, 0);
  IndexRecord crossed = narrow.index;
  crossed.content = wide.index.content;
  files.write(narrow.key.file_name(), encode(crossed));
  Runtime runtime(masked);
  EXPECT_TRUE(right(runtime, 0));
  EXPECT_EQ(runtime.stats().disk_rejected, 1) << log_;
  EXPECT_NE(log_.find("instruction set"), std::string::npos) << log_;
  EXPECT_EQ(runtime.stats().compiles, 0);  // its own content was there from before
}

TEST_F(LlvmDiskCache, TheKeyIsTheOneThatARuntimeMakes) {
  const Made made = make_entry(codegen::host_isa(), toolchain_text(codegen::toolchain_text()), 0);
  DiskCache files({cache_, {}, 1 << 30});
  files.write(kernel_file_name(made.index.content), encode(made.kernel));
  files.write(made.key.file_name(), encode(made.index));
  Runtime runtime(options());
  EXPECT_TRUE(right(runtime, 0));
  EXPECT_EQ(runtime.stats().disk_hits, 1);
  EXPECT_EQ(runtime.stats().compiles, 0);
}

TEST_F(LlvmDiskCache, TwoVersionsShareAFolder) {
  const Made other = make_entry(codegen::host_isa(), "another compiler", 0);
  {
    DiskCache files({cache_, {}, 1 << 30});
    files.write(kernel_file_name(other.index.content), encode(other.kernel));
    files.write(other.key.file_name(), encode(other.index));
  }
  Runtime runtime(options());
  EXPECT_TRUE(right(runtime, 0));
  EXPECT_EQ(runtime.stats().compiles, 1);
  EXPECT_EQ(runtime.stats().disk_miss_parts, (std::map<std::string, int64_t>{{"toolchain", 1}}));
  EXPECT_EQ(files("k-").size(), 2u);
  EXPECT_EQ(log_, "");
  // A file of another format under our own name.
  for (const std::string& path : files("")) {
    std::string bytes = bytes_of(path);
    bytes[8] = static_cast<char>(bytes[8] + 1);
    put_bytes(path, bytes);
  }
  Runtime again(options());
  EXPECT_TRUE(right(again, 0));
  EXPECT_EQ(again.stats().compiles, 1);
  EXPECT_NE(log_.find("its format is 2, this library's is 1"), std::string::npos) << log_;
}

TEST_F(LlvmDiskCache, AReadOnlyHomeAndAFullDiskDoNotFailCalls) {
  const WorkerReport no_home = work(2, 5, nullptr, [] {
    setenv("GRADLOOM_CACHE_DIR", "/proc/self/.cache/gradloom", 1);  // no folder can be made there
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
