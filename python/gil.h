#pragma once
// The interpreter's lock around calls into gradloom: released while one runs, taken again afterwards, but never once
// the interpreter has begun to finalise: CPython then ends the thread by unwinding it, through frames that may not be
// unwound.
#include <Python.h>

#include <utility>

namespace gradloom::python {

class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* state_;
};

// Runs `body`, which uses no Python object, without the lock.
template <class Body>
auto unlocked(Body&& body) {
  const Unlocked guard;
  return std::forward<Body>(body)();
}

// From now on only the calling thread, which holds the lock, takes it again; others that come back from gradloom sleep
// until the process ends. For atexit.
void close_gate();
// A child of fork has none of its parent's threads: the gate does not wait for them there.
void open_gate_in_children();

}  // namespace gradloom::python
