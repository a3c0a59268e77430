#pragma once
#include <pthread.h>

#include <cstdint>
#include <functional>
#include <optional>

namespace gradloom {

// A thread of the library's: with a stack of that size, whatever the process's limit says, and with the signals blocked
// that are sent to a process, so that the host's handlers run on the host's threads. None when none can be made.
std::optional<pthread_t> start_thread(int64_t stack_bytes, std::function<void()> body) noexcept;

}  // namespace gradloom
