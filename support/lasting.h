#pragma once
// Static objects of a library that may be unloaded, in a process that may end at any time. A static object with a
// destructor is destroyed by `exit` while other threads, other libraries' destructors and handlers of atexit still use
// it; one that is never destroyed leaks with each unload. A Lasting lasts until the library is unloaded, and through
// the whole end of the process. Its making is also safe to fork in, unlike that of a function's static object.
#include <atomic>
#include <new>

#include "support/fork.h"

namespace gradloom {
namespace detail {
struct LastingNode {
  void (*destroy)(LastingNode& node) noexcept = nullptr;
  LastingNode* older = nullptr;
};
// Destroys it when the library is unloaded: the newest first.
void keep_until_unload(LastingNode& node) noexcept;
}  // namespace detail

// Of static storage: `static constinit Lasting<T> object;`. Made at first use.
template <class T>
class Lasting : private detail::LastingNode {
 public:
  constexpr Lasting() = default;
  Lasting(const Lasting&) = delete;
  Lasting& operator=(const Lasting&) = delete;

  // `make` returns a T; when it throws, the next use tries again.
  template <class Make>
  T& get(Make&& make) {
    if (T* made = made_.load(std::memory_order_acquire)) return *made;
    return make_now(make);
  }
  T& operator*() {
    return get([] { return T(); });
  }
  T* operator->() { return &**this; }

 private:
  template <class Make>
  [[gnu::noinline]] T& make_now(Make& make) {
    mutex_.lock();
    struct Unlock {
      Mutex& mutex;
      ~Unlock() { mutex.unlock(); }
    } unlock{mutex_};
    if (T* made = made_.load(std::memory_order_relaxed)) return *made;
    T* const made = new (memory_) T(make());
    destroy = [](LastingNode& node) noexcept {
      auto& self = static_cast<Lasting&>(node);
      self.made_.exchange(nullptr)->~T();
    };
    detail::keep_until_unload(*this);
    made_.store(made, std::memory_order_release);
    return *made;
  }

  Mutex mutex_;
  std::atomic<T*> made_{nullptr};
  alignas(T) unsigned char memory_[sizeof(T)] = {};
};

// Held by what must be gone before the library may be unloaded: runtimes, their memory, tensors. The library's own end
// is also run when the process ends; then these may be in use by other threads, and nothing is freed. Throws
// std::bad_alloc once the library's memory has been freed.
class InUse {
 public:
  InUse();
  ~InUse();
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;
};

// Whether the library's memory has been freed, because it is being unloaded.
bool unloaded() noexcept;

// Whether `exit` has begun to run handlers. A hint: it may be late.
bool process_ends() noexcept;
// Called by handlers of atexit.
void note_process_end() noexcept;

}  // namespace gradloom
