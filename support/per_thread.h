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
// Those of all threads, as the library is unloaded. None is made afterwards.
void destroy_thread_values() noexcept;
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

}  // namespace gradloom
