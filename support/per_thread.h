#pragma once
// What `thread_local` gives, for a library that may be unloaded. A thread_local with a destructor keeps the library
// mapped after dlclose until every thread that touched it has ended: the main one never does. Values from here go with
// their thread, or all of them with the library.
#include <memory>

namespace gradloom {
namespace detail {
// Hands over a value of this thread; `*slot` is set to null when it is destroyed. Throws std::bad_alloc, and the value
// stays the caller's.
void keep_for_thread(void* value, void (*destroy)(void* value) noexcept, void** slot);
}  // namespace detail

// This thread's T, made by its first use. T names the value: give each a type of its own. Throws std::bad_alloc. A
// thread that is ending may make it again.
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

// Runs when the library is unloaded, before its objects of static storage go. Not at the end of the process: other
// threads may still be in a call then, and memory goes anyway. For objects of static storage.
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

// An object of static storage that the end of the process leaves alone: others may use it while they go. AtUnload must
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
