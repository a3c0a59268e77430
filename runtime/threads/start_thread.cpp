#include "runtime/threads/start_thread.h"

#include <csignal>
#include <memory>

#include "support/float_mode.h"

namespace gradloom {

std::optional<pthread_t> start_thread(int64_t stack_bytes, std::function<void()> body) noexcept try {
  auto given = std::make_unique<std::function<void()>>(std::move(body));
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return std::nullopt;
  pthread_attr_setstacksize(&attributes, static_cast<size_t>(stack_bytes));
  // Those that an instruction of the thread's own raises, and a profiler's, stay.
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF}) sigdelset(&blocked, own);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  pthread_t thread;
  const int failed = pthread_create(
      &thread, &attributes,
      [](void* argument) -> void* {
        const std::unique_ptr<std::function<void()>> body(static_cast<std::function<void()>*>(argument));
        const FloatMode mode;
        (*body)();
        return nullptr;
      },
      given.get());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (failed) return std::nullopt;
  given.release();
  return thread;
} catch (const std::bad_alloc&) {
  return std::nullopt;
}

}  // namespace gradloom
