// Address space runs out while LLVM compiles: the call is served or gives resource_exhausted, and later ones work. Real
// processes; GRADLOOM_ALL=1 tries many more limits.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "gradloom/runtime.h"
#include "tests/support/environment.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_realloc(void* data, size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
}

namespace {
// The allocation of this thread that fails, counted down; 0: none.
thread_local int64_t failing = 0;
bool fails() { return failing > 0 && --failing == 0 && (errno = ENOMEM); }
}  // namespace

extern "C" {
void* malloc(size_t bytes) { return fails() ? nullptr : __libc_malloc(bytes); }
void* calloc(size_t count, size_t bytes) { return fails() ? nullptr : __libc_calloc(count, bytes); }
void* realloc(void* data, size_t bytes) { return fails() ? nullptr : __libc_realloc(data, bytes); }
void* aligned_alloc(size_t alignment, size_t bytes) { return fails() ? nullptr : __libc_memalign(alignment, bytes); }
}

namespace gradloom {
namespace {

enum Outcome : int { served, exhausted, wrong, unusable };

struct GatherCall {
  GatherCall(int64_t rows, int64_t columns)
      : shape{rows, columns},
        indices(rows),
        upstream(rows * columns, 1.0f),
        inputs{Tensor::borrow(shape.data(), DType::i64, {2}), Tensor::borrow(indices.data(), DType::i64, {rows}),
               Tensor::borrow(upstream.data(), DType::f32, {rows, columns})} {
    for (int64_t i = 0; i < rows; ++i) indices[i] = rows - 1 - i / 2;
  }
  Outcome run(Runtime& runtime) const {
    const auto outputs = runtime.run("GatherGrad", inputs);
    if (!outputs) return outputs.error().code() == ErrorCode::resource_exhausted ? exhausted : wrong;
    const auto* values = static_cast<const float*>(outputs.value()[0].data());
    for (int64_t i = 0; i < shape[0] * shape[1]; ++i)
      if (values[i] != (i / shape[1] >= shape[0] / 2 ? 2.0f : 0.0f)) return wrong;
    return served;
  }
  std::vector<int64_t> shape, indices;
  std::vector<float> upstream;
  std::vector<Tensor> inputs;
};

RuntimeOptions one_thread() {
  RuntimeOptions options;
  options.target = TargetKind::llvm;
  options.disk_cache = "off";
  options.threads = 1;
  return options;
}

rlim_t address_space() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE));
}

// What a child process said, or the signal that ended it; one that hangs is killed.
template <class Body>
std::string in_child(Body&& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  constexpr const char* names[] = {"served", "exhausted", "wrong", "unusable"};
  return WEXITSTATUS(status) < 4 ? names[WEXITSTATUS(status)] : "exit " + std::to_string(WEXITSTATUS(status));
}

// The same call, another one, and a new runtime, once there is memory again.
Outcome later(Runtime& runtime, Outcome first) {
  Runtime another(one_thread());
  const bool usable = GatherCall(64, 32).run(runtime) == served && GatherCall(48, 16).run(runtime) == served &&
                      GatherCall(64, 32).run(another) == served;
  return usable ? first : unusable;
}

Outcome with_room_for(rlim_t bytes, Runtime& runtime) {
  const GatherCall call(64, 32);
  rlimit before, limit;
  getrlimit(RLIMIT_AS, &before);
  limit = before;
  limit.rlim_cur = address_space() + bytes;
  setrlimit(RLIMIT_AS, &limit);
  const Outcome first = call.run(runtime);
  setrlimit(RLIMIT_AS, &before);
  return later(runtime, first);
}

void expect_no_other(const std::map<std::string, int>& seen) {
  for (const auto& [outcome, times] : seen) {
    const bool good = outcome == "served" || outcome == "exhausted";
    EXPECT_TRUE(good) << times << " times " << outcome;
  }
  EXPECT_TRUE(seen.contains("served"));
  EXPECT_TRUE(seen.contains("exhausted"));
}

const bool all = environment("GRADLOOM_ALL", 0) != 0;

TEST(MemoryLimit, AnyLimitServesOrRefuses) {
  std::map<std::string, int> seen;
  const rlim_t step = all ? 64 << 10 : 512 << 10;
  for (rlim_t room = 0; room <= 8 << 20; room += step)
    ++seen[in_child([&] {
      Runtime runtime(one_thread());
      return with_room_for(room, runtime);
    })];
  expect_no_other(seen);
}

TEST(MemoryLimit, AnyLimitOfAnotherThread) {
  std::map<std::string, int> seen;
  const rlim_t step = all ? 16 << 10 : 256 << 10;
  for (rlim_t room = 64 << 10; room <= 3 << 20; room += step)
    ++seen[in_child([&] {
      Runtime runtime(one_thread());
      GatherCall(8, 8).run(runtime);
      Outcome outcome = unusable;
      std::thread([&] { outcome = with_room_for(room, runtime); }).join();
      return outcome;
    })];
  expect_no_other(seen);
}

// Wherever in a compilation an allocation fails; LLVM has compiled before.
TEST(MemoryLimit, AnyAllocationMayFail) {
  const GatherCall call(64, 32);
  Runtime runtime(one_thread());
  ASSERT_EQ(GatherCall(8, 8).run(runtime), served);
  std::map<std::string, int> seen;
  for (int64_t at = 5; at < 60000 && !seen.contains("served"); at += all ? 7 : 197)  // until none is left to fail
    ++seen[in_child([&] {
      failing = at;
      const Outcome first = call.run(runtime);
      failing = 0;
      const int64_t now = runtime.stats().abandoned_compiles;
      if (now != 0 && (now != 1 || first != exhausted)) return unusable;
      return later(runtime, first);
    })];
  expect_no_other(seen);
}

}  // namespace
}  // namespace gradloom
#else
TEST(MemoryLimit, NeedsAnAllocatorWithoutASanitizer) { GTEST_SKIP() << "a sanitizer reserves terabytes of addresses"; }
#endif
