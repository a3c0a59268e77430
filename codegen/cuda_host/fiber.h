#pragma once
// A function with its own stack that can suspend and resume: one thread of a GPU block, run on a host thread.
#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__) || defined(GRADLOOM_PORTABLE_FIBERS)
#include <ucontext.h>
#define GRADLOOM_UCONTEXT 1
#endif

namespace gradloom::codegen {

class Fiber {
 public:
  using Entry = void (*)(void* argument);  // does not throw

  Fiber();  // throws Error(resource_exhausted)
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next resume starts `entry`. What ran on this stack before is abandoned, without running its destructors.
  void start(Entry entry, void* argument);
  // Runs it until it suspends or ends. Until it has ended, always from the same host thread.
  void resume();
  // Called on the fiber: suspends it and returns to whoever resumed it.
  void wait();

  void main();  // the stack's entry point; only for the switch

 private:
  void enter();

  static constexpr size_t stack_bytes = 256 << 10;  // reserved; pages are committed when touched
  char* memory_ = nullptr;                          // a guard page, then the stack
  bool guarded_ = false;
  Entry entry_ = nullptr;
  void* argument_ = nullptr;
#ifdef GRADLOOM_UCONTEXT
  ucontext_t own_{}, caller_{};
#else
  void* own_ = nullptr;
  void* caller_ = nullptr;
#endif
  // For the sanitizers.
  void* own_shadow_ = nullptr;
  void* caller_shadow_ = nullptr;
  const void* caller_stack_ = nullptr;
  size_t caller_bytes_ = 0;
};

}  // namespace gradloom::codegen
