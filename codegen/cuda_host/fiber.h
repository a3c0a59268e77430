#pragma once
// A function on a stack of its own that can stop and go on: a thread of a GPU's block, run on one thread of the host.
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

  // The next resume begins `entry`. What ran before on this stack is forgotten, without its destructors.
  void start(Entry entry, void* argument);
  // Runs it until it waits or ends. Always from the same thread of the host while it has not ended.
  void resume();
  // Called on the fiber: back to whoever resumed it.
  void wait();

  void main();  // of the stack; for the switch's own use

 private:
  void enter();

  static constexpr size_t stack_bytes = 256 << 10;  // what is not touched is not there
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
