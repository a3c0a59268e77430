#include "support/stack.h"

#include <fmt/format.h>
#include <pthread.h>

#include "gradloom/error.h"
#include "support/no_cancel.h"

namespace gradloom {
namespace {

struct Stack {
  uintptr_t low = 0, high = 0;
};

Stack find_stack() noexcept {
  const NoCancel no_cancel;
  Stack stack;
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return stack;
  void* low = nullptr;
  size_t bytes = 0;
  if (pthread_attr_getstack(&attributes, &low, &bytes) == 0) {
    stack.low = reinterpret_cast<uintptr_t>(low);
    stack.high = stack.low + bytes;
  }
  pthread_attr_destroy(&attributes);
  return stack;
}

}  // namespace

std::optional<int64_t> stack_left() noexcept {
  // Asked once a thread: for the main one it reads a file.
  thread_local constinit Stack mine;
  if (mine.high == 0) mine = find_stack();
  const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  if (here < mine.low || here >= mine.high) return std::nullopt;
  return static_cast<int64_t>(here - mine.low);
}

bool stack_suffices(int64_t bytes) noexcept { return stack_left().value_or(bytes) >= bytes; }

void require_stack(int64_t bytes, std::string_view kernel) {
  if (stack_suffices(bytes)) return;
  throw Error(ErrorCode::resource_exhausted, fmt::format("{}: this thread has {} KiB of stack left; {} are needed",
                                                         kernel, stack_left().value_or(0) >> 10, bytes >> 10));
}

}  // namespace gradloom
