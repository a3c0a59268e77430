#include "support/fork.h"

#include <pthread.h>

#include "support/gate.h"

namespace gradloom {
namespace {

constinit Gate gate;
constinit std::mutex forking;  // one fork at a time; held from before it until after it, in both processes
constinit std::atomic<uint32_t> generation{0};
thread_local constinit int depth = 0;
thread_local constinit bool forks_inside = false;

void before_fork() {
  // Only a signal handler can fork within a scope of its own thread; its child returns from it or does little.
  forks_inside = depth > 0;
  if (forks_inside) return;
  forking.lock();
  gate.close(0, std::chrono::hours(1));
}

void after_fork() {
  if (forks_inside) return;
  gate.open();
  forking.unlock();
}

// At load, before an allocator or library that is loaded later can register handlers: those of first come run last.
__attribute__((constructor)) void watch_forks() {
  pthread_atfork(before_fork, after_fork, [] {
    generation.fetch_add(1, std::memory_order_relaxed);
    after_fork();
  });
}

void enter() noexcept {
  if (depth == 0) {
    while (!gate.enter()) gate.wait_until_open();
  }
  ++depth;
}
void leave() noexcept {
  if (--depth == 0) gate.leave();
}

}  // namespace

uint32_t fork_generation() noexcept { return generation.load(std::memory_order_relaxed); }

NoFork::NoFork() noexcept { enter(); }
NoFork::~NoFork() { leave(); }

void Mutex::lock() {
  enter();
  mutex_.lock();
}
void Mutex::unlock() {
  mutex_.unlock();
  leave();
}

}  // namespace gradloom
