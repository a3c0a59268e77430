// Stack switching: a few instructions on x86-64 (ucontext makes a system call per switch, for the signal mask),
// ucontext elsewhere.
#include "codegen/cuda_host/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

#include "codegen/cuda_host/sanitizers.h"
#include "gradloom/error.h"

#ifdef GRADLOOM_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef GRADLOOM_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#ifndef GRADLOOM_UCONTEXT
// gradloom_fiber_switch(save, to): saves the callee-saved registers and the stack pointer to *save and resumes the
// stack saved at `to`. gradloom_fiber_begin: the entry point of a fresh stack; its Fiber is in r12.
asm(R"(
.text
.p2align 4
.globl gradloom_fiber_switch
.hidden gradloom_fiber_switch
.type gradloom_fiber_switch, @function
gradloom_fiber_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size gradloom_fiber_switch, .-gradloom_fiber_switch
.globl gradloom_fiber_begin
.hidden gradloom_fiber_begin
.type gradloom_fiber_begin, @function
gradloom_fiber_begin:
  movq %r12, %rdi
  call gradloom_fiber_main
  ud2
.size gradloom_fiber_begin, .-gradloom_fiber_begin
)");
extern "C" void gradloom_fiber_switch(void** save, void* to);
extern "C" void gradloom_fiber_begin();
#endif
extern "C" __attribute__((visibility("hidden"), used)) void gradloom_fiber_main(void* fiber) {
  static_cast<gradloom::codegen::Fiber*>(fiber)->main();
}

namespace gradloom::codegen {
namespace {

size_t page_bytes() {
  static constinit std::atomic<size_t> bytes{0};
  size_t known = bytes.load(std::memory_order_relaxed);
  if (known == 0) bytes.store(known = static_cast<size_t>(sysconf(_SC_PAGESIZE)), std::memory_order_relaxed);
  return known;
}

// A process may have some 65,000 mappings, and a stack with a guard page takes two. Adjacent stacks without guard pages
// merge into one.
constexpr int most_guarded = 12000;
std::atomic<int> guarded{0};

#ifdef GRADLOOM_UCONTEXT
void begin(unsigned high, unsigned low) {
  gradloom_fiber_main(reinterpret_cast<void*>(static_cast<uintptr_t>(static_cast<uint64_t>(high) << 32 | low)));
}
#endif

}  // namespace

Fiber::Fiber() {
  void* memory = mmap(nullptr, page_bytes() + stack_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw Error(ErrorCode::resource_exhausted, "cuda-host: no memory for a thread's stack");
  memory_ = static_cast<char*>(memory);
  guarded_ =
      guarded.fetch_add(1, std::memory_order_relaxed) < most_guarded && mprotect(memory_, page_bytes(), PROT_NONE) == 0;
  if (!guarded_) guarded.fetch_sub(1, std::memory_order_relaxed);
}

Fiber::~Fiber() {
#ifdef GRADLOOM_TSAN
  if (own_shadow_) __tsan_destroy_fiber(own_shadow_);
#endif
  if (guarded_) guarded.fetch_sub(1, std::memory_order_relaxed);
  munmap(memory_, page_bytes() + stack_bytes);
}

void Fiber::start(Entry entry, void* argument) {
  entry_ = entry;
  argument_ = argument;
  char* const low = memory_ + page_bytes();
#ifdef GRADLOOM_ASAN
  __asan_unpoison_memory_region(low, stack_bytes);
  own_shadow_ = nullptr;
#endif
#ifdef GRADLOOM_TSAN
  if (own_shadow_) __tsan_destroy_fiber(own_shadow_);
  own_shadow_ = __tsan_create_fiber(0);
#endif
#ifdef GRADLOOM_UCONTEXT
  getcontext(&own_);
  own_.uc_stack = {.ss_sp = low, .ss_flags = 0, .ss_size = stack_bytes};
  own_.uc_link = nullptr;
  const auto self = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(this));
  makecontext(&own_, reinterpret_cast<void (*)()>(begin), 2, static_cast<unsigned>(self >> 32),
              static_cast<unsigned>(self));
#else
  // The frame that gradloom_fiber_switch pops: r15, r14, r13, r12, rbx, rbp, the return address; 16-byte aligned once
  // that is popped.
  void** top = reinterpret_cast<void**>(low + stack_bytes - 16);
  *--top = reinterpret_cast<void*>(gradloom_fiber_begin);
  for (int i = 0; i < 6; ++i) *--top = i == 2 ? this : nullptr;
  own_ = top;
#endif
}

void Fiber::resume() {
#ifdef GRADLOOM_ASAN
  __sanitizer_start_switch_fiber(&caller_shadow_, memory_ + page_bytes(), stack_bytes);
#endif
#ifdef GRADLOOM_TSAN
  caller_shadow_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(own_shadow_, 0);
#endif
#ifdef GRADLOOM_UCONTEXT
  swapcontext(&caller_, &own_);
#else
  gradloom_fiber_switch(&caller_, own_);
#endif
#ifdef GRADLOOM_ASAN
  __sanitizer_finish_switch_fiber(caller_shadow_, nullptr, nullptr);
#endif
}

void Fiber::enter() {
#ifdef GRADLOOM_ASAN
  __sanitizer_finish_switch_fiber(own_shadow_, &caller_stack_, &caller_bytes_);
#endif
}

void Fiber::wait() {
#ifdef GRADLOOM_ASAN
  __sanitizer_start_switch_fiber(&own_shadow_, caller_stack_, caller_bytes_);
#endif
#ifdef GRADLOOM_TSAN
  __tsan_switch_to_fiber(caller_shadow_, 0);
#endif
#ifdef GRADLOOM_UCONTEXT
  swapcontext(&own_, &caller_);
#else
  gradloom_fiber_switch(&own_, caller_);
#endif
  enter();
}

// A stack runs one entry after another: a thread that never waits leaves its stack to the next.
void Fiber::main() {
  enter();
  for (;;) {
    entry_(argument_);
    wait();
  }
}

}  // namespace gradloom::codegen
