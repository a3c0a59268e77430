#pragma once
// A replacement for `thread_local` in a library that may be unloaded. A thread_local with a destructor keeps the
// library mapped after dlclose until every thread that used it has ended, which the main thread never does. These
// values are destroyed with their thread, or all of them when the library is unloaded.
#include <memory>

namespace gradloom {
namespace detail {
// Transfers ownership of a value of this thread; `*slot` is set to null when it is destroyed. Throws std::bad_alloc,
// and the caller then still owns the value.
void keep_for_thread(void* value, void (*destroy)(void* value) noexcept, void** slot);
}  // namespace detail

// This thread's T, created on first use. T identifies the value: give each its own type. Throws std::bad_alloc. A
// thread that is ending may create it again.
template <class T>
T& per_thread() {
  thread_local void* mine = nullptr;
  if (!mine) {
    auto made = std::make_unique<T>();
    detail::keep_for_thread(
        made.get(), [](void* value) noexcept { delete static_cast<T*>(value); }, &mine);
    mine = made.release();
  }
  return *static_cast<T*>(mine);
}

// Runs when the library is unloaded, before its static objects are destroyed. Not at the end of the process: other
// threads may still be in a call then, and its memory is freed anyway. For objects of static storage.
class AtUnload {
 public:
  explicit AtUnload(void (*run)() noexcept);
  AtUnload(const AtUnload&) = delete;
  AtUnload& operator=(const AtUnload&) = delete;

 private:
  friend struct Unloading;
  void (*const run_)() noexcept;
  AtUnload* const next_;
};

// A static object that is not destroyed at the end of the process, as other threads may still use it. AtUnload must
// empty it.
template <class T>
class Lasting {
 public:
  Lasting() { new (memory_) T(); }
  T& operator*() { return *std::launder(reinterpret_cast<T*>(memory_)); }
  T* operator->() { return &**this; }

 private:
  alignas(T) unsigned char memory_[sizeof(T)];
};

}  // namespace gradloom
