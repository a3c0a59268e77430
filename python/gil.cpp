#include "python/gil.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace gradloom::python {
namespace {

std::atomic<int> taking{0};  // threads between their look at `closed` and the lock
std::atomic<bool> closed{false};
std::atomic<unsigned long> closer{0};

}  // namespace

Unlocked::~Unlocked() {
  ++taking;
  if (closed && closer != PyThread_get_thread_ident()) {
    --taking;
    for (;;) pause();
  }
  PyEval_RestoreThread(state_);
  --taking;
}

void open_gate_in_children() {
  pthread_atfork(nullptr, nullptr, [] { taking = 0; });
}

void close_gate() {
  closer = PyThread_get_thread_ident();
  closed = true;
  PyThreadState* const state = PyEval_SaveThread();
  while (taking > 0) std::this_thread::yield();
  PyEval_RestoreThread(state);
}

}  // namespace gradloom::python
