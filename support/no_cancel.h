#pragma once
// A thread is not cancelled within a call: it would leave locks taken, and its unwinding ends the process where it
// reaches `noexcept` or a handler of all exceptions. A pending cancellation takes effect after the scope.
#include <pthread.h>

namespace gradloom {

class NoCancel {
 public:
  NoCancel() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancel() {
    if (before_ != PTHREAD_CANCEL_DISABLE) pthread_setcancelstate(before_, nullptr);
  }
  NoCancel(const NoCancel&) = delete;
  NoCancel& operator=(const NoCancel&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_DISABLE;
};

}  // namespace gradloom
