// The launcher's contract with generated code, tested with a hand-written function: threads, scratch, the
// floating-point mode, and failures.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include "runtime/backend/function_kernel.h"
#include "runtime/core.h"
#include "support/float_mode.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace gradloom {
namespace {

constexpr int64_t no_failure = std::numeric_limits<int64_t>::max();

RuntimeOptions with_threads(int threads, ParallelFor pool = {}) {
  return {.target = TargetKind::interpreter, .threads = threads, .parallel_for = std::move(pool)};
}

int64_t launch(const Core& core, KernelFunction function, std::vector<void*> buffers,
               std::vector<int64_t> scalars = {}) {
  KernelEntry entry;
  entry.loaded = std::make_shared<FunctionKernel>(function, 0, nullptr);
  entry.report = std::make_shared<const KernelReport>(KernelReport{.op = "Test"});
  FloatMode mode;
  return core.launch(entry, buffers.data(), scalars.data());
}

// counts[i] += 1 for i in [0, scalars[0]).
void count(LaunchContext* context, void* const* buffers, const int64_t* scalars) {
  context->parallel_for(
      context, scalars[0],
      [](void* env, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++static_cast<std::atomic<int>*>(env)[i];
      },
      buffers[0]);
}

TEST(Launch, EveryIterationRunsOnceWhateverTheThreads) {
  for (int threads : {1, 2, 4}) {
    const Core core(with_threads(threads));
    EXPECT_EQ(core.threads().count(), threads);
    EXPECT_EQ(core.target().threads, threads);
    for (int64_t n : {0, 1, 2, 3, 17, 1000}) {
      std::vector<std::atomic<int>> counts(n + 1);
      EXPECT_EQ(launch(core, count, {counts.data()}, {n}), no_failure);
      for (int64_t i = 0; i < n; ++i) EXPECT_EQ(counts[i], 1) << n << " " << i;
      EXPECT_EQ(counts[n], 0);
    }
  }
  EXPECT_GE(Core(with_threads(0)).threads().count(), 1);
}

TEST(Launch, OneThreadStaysOnTheCallers) {
  const Core core(with_threads(1));
  std::thread::id seen;
  launch(core,
         [](LaunchContext* context, void* const* buffers, const int64_t*) {
           context->parallel_for(
               context, 8,
               [](void* env, int64_t, int64_t) { *static_cast<std::thread::id*>(env) = std::this_thread::get_id(); },
               buffers[0]);
         },
         {&seen});
  EXPECT_EQ(seen, std::this_thread::get_id());
}

TEST(Launch, AnEmbeddersPoolRunsTheBodies) {
  int calls = 0;
  const Core core(with_threads(2, [&](int64_t n, const std::function<void(int64_t, int64_t)>& fn) {
    ++calls;
    std::thread other([&] { fn(0, n / 2); });
    fn(n / 2, n);
    other.join();
  }));
  std::vector<std::atomic<int>> counts(10);
  launch(core, count, {counts.data()}, {10});
  EXPECT_EQ(calls, 1);
  for (const auto& c : counts) EXPECT_EQ(c, 1);
}

TEST(Launch, APoolThatThrowsIsAnError) {
  const Core core(with_threads(
      2, [](int64_t, const std::function<void(int64_t, int64_t)>&) { throw std::runtime_error("no threads left"); }));
  std::vector<std::atomic<int>> counts(10);
  try {
    launch(core, count, {counts.data()}, {10});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::internal);
    EXPECT_NE(std::string(error.what()).find("no threads left"), std::string::npos);
  }
}

TEST(Launch, ScratchIsAlignedAndComesBack) {
  const Core core(with_threads(1));
  const auto body = [](LaunchContext* context, void* const* buffers, const int64_t* scalars) {
    void* scratch = context->acquire_scratch(context, scalars[0]);
    *static_cast<void**>(buffers[0]) = scratch;
    if (scratch) {
      context->release_scratch(context, scratch, scalars[0]);
    } else {
      context->out_of_scratch = 1;
    }
  };
  void *first = nullptr, *second = nullptr;
  launch(core, body, {&first}, {1 << 20});
  launch(core, body, {&second}, {1 << 20});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0u);
  EXPECT_EQ(first, second);
  try {
    launch(core, body, {&first}, {int64_t{1} << 58});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::resource_exhausted);
  }
}

TEST(Launch, GivesTheBadPosition) {
  const Core core(with_threads(1));
  EXPECT_EQ(launch(core, [](LaunchContext* context, void* const*, const int64_t*) { context->bad_position = 12; }, {}),
            12);
}

#if defined(__SSE__)
TEST(Launch, WorkersKeepDenormalsAndTheirOwnMode) {
  struct Seen {
    std::mutex mutex;
    std::set<unsigned> modes;
  } seen;
  unsigned after = 0;
  const Core core(with_threads(2, [&](int64_t n, const std::function<void(int64_t, int64_t)>& fn) {
    std::thread other([&] {
      _mm_setcsr(0x8040 | 0x1f80);  // a pool whose threads flush denormals
      fn(0, n);
      after = _mm_getcsr();
    });
    other.join();
  }));
  const auto body = [](LaunchContext* context, void* const* buffers, const int64_t*) {
    context->parallel_for(
        context, 4,
        [](void* env, int64_t, int64_t) {
          auto& to = *static_cast<Seen*>(env);
          std::lock_guard lock(to.mutex);
          to.modes.insert(_mm_getcsr() & ~0x3fu);
        },
        buffers[0]);
  };
  launch(core, body, {&seen});
  EXPECT_EQ(seen.modes, (std::set<unsigned>{0x1f80}));
  EXPECT_EQ(after & ~0x3fu, 0x9fc0u);
  // The pool's threads too.
  seen.modes.clear();
  launch(Core(with_threads(4)), body, {&seen});
  EXPECT_EQ(seen.modes, (std::set<unsigned>{0x1f80}));
}
#endif

}  // namespace
}  // namespace gradloom
