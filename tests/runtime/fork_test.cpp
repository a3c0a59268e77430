// After a fork in a process that used its threads, the child can use the parent's runtimes and handles, and new ones.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>

#include "gradloom/log.h"
#include "gradloom/runtime.h"
#include "runtime/diagnose/log.h"

namespace gradloom {
namespace {

class ForkTest : public testing::Test {
 protected:
  static constexpr int64_t rows = 4096, features = 64;
  ForkTest() : upstream_(rows * features, 1.0f), indices_(rows), shape_{rows, features} {
    for (int64_t i = 0; i < rows; ++i) indices_[i] = rows - 1 - i / 2;
    inputs_ = {Tensor::borrow(shape_.data(), DType::i64, {2}), Tensor::borrow(indices_.data(), DType::i64, {rows}),
               Tensor::borrow(upstream_.data(), DType::f32, {rows, features})};
  }
  static bool right(const Tensor& gradient) {
    const float* values = static_cast<const float*>(gradient.data());
    for (int64_t i = 0; i < rows * features; ++i)
      if (values[i] != (i / features >= rows / 2 ? 2.0f : 0.0f)) return false;
    return true;
  }
  bool runs(Runtime& runtime, bool any_shape = false) {
    const auto outputs = runtime.run("GatherGrad", inputs_, {}, {.any_shape = any_shape});
    return outputs.ok() && right(outputs.value()[0]);
  }
  // The child's status; it is killed when it hangs.
  template <class Body>
  static int in_child(Body&& body) {
#ifdef __SANITIZE_ADDRESS__
    // The child's allocator, unlike the system's, may be locked by another thread at that moment, and stays so in the
    // child.
    while (!others_sleep()) usleep(1000);
#endif
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      std::exit(body() ? 0 : 1);  // not _exit: the libraries' exit handlers must not hang either
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
  }

  // Whether no other thread of this process runs.
  static bool others_sleep() {
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
      if (thread.path().filename() == std::to_string(gettid())) continue;
      std::ifstream file(thread.path() / "stat");
      const std::string stat{std::istreambuf_iterator<char>(file), {}};
      const size_t name_end = stat.rfind(')');
      if (name_end != std::string::npos && stat.compare(name_end, 3, ") S") != 0) return false;
    }
    return true;
  }

  std::vector<float> upstream_;
  std::vector<int64_t> indices_, shape_;
  std::vector<Tensor> inputs_;
};

TEST_F(ForkTest, AChildGoesOnAndItsParentToo) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer does not follow a fork of several threads";
#endif
  Runtime runtime({.threads = 4});
  ASSERT_TRUE(runs(runtime));
  Result<Executable> handle = runtime.compile("GatherGrad", inputs_);
  ASSERT_TRUE(handle.ok());
  for (int round = 0; round < 5; ++round) {
    EXPECT_EQ(in_child([&] {
                std::vector<Tensor> outputs{Tensor::empty(DType::f32, {rows, features})};
                if (!runs(runtime) || !runs(runtime, /*any_shape=*/true)) return false;  // a hit, and a compilation
                if (!handle.value()(inputs_, outputs).ok() || !right(outputs[0])) return false;
                Runtime fresh({.threads = 4});
                return runs(fresh) && in_child([&] { return runs(runtime) && runs(fresh); }) == 0;
              }),
              0);
    ASSERT_TRUE(runs(runtime));
  }
}

TEST_F(ForkTest, AnEmbeddersPoolIsCalledInTheChild) {
  int calls = 0;
  Runtime runtime({.threads = 4, .parallel_for = [&](int64_t n, const std::function<void(int64_t, int64_t)>& fn) {
                     ++calls;
                     fn(0, n);
                   }});
  if (runtime.target_name() == "interpreter") GTEST_SKIP() << "the interpreter uses no pool";
  ASSERT_TRUE(runs(runtime));
  const int before = calls;
  ASSERT_GT(before, 0);
  EXPECT_EQ(in_child([&] { return runs(runtime) && calls == 2 * before; }), 0);
}

// A sink may wait for what the forking thread holds, as one in Python does for the interpreter's lock.
TEST_F(ForkTest, AForkDoesNotWaitForASink) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer does not follow a fork of several threads";
#endif
  std::mutex hosts;
  std::atomic<bool> inside{false};
  set_log_sink([&](LogLevel, std::string_view) {
    inside = true;
    std::lock_guard lock(hosts);
  });
  hosts.lock();
  std::thread other([] { log(LogLevel::error, "a message"); });
  while (!inside) std::this_thread::yield();
  EXPECT_EQ(in_child([] {
              int messages = 0;
              set_log_sink([&](LogLevel, std::string_view) { ++messages; });
              log(LogLevel::error, "a child's message");
#ifdef __SANITIZE_ADDRESS__
              _exit(messages != 1);  // the old sink is held by the stack of a thread that the child lacks
#endif
              return messages == 1;
            }),
            0);
  hosts.unlock();
  other.join();
  set_log_sink({});
}

}  // namespace
}  // namespace gradloom
