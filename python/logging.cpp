#include "python/logging.h"

#include <nanobind/nanobind.h>
#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <deque>
#include <mutex>
#include <string>

#include "gradloom/log.h"

namespace nb = nanobind;

namespace gradloom::python {
namespace {

struct Message {
  LogLevel level;
  std::string text;
};
constexpr size_t most_waiting = 1000;

// Never destroyed: a thread may log while the process ends.
struct Queue {
  std::mutex mutex;
  std::deque<Message> waiting;
  std::atomic<bool> any{false};
};
Queue& queue() {
  static Queue* const made = new Queue;
  return *made;
}

thread_local bool in_handler = false;  // it may call gradloom, which may log

int levels(LogLevel level) {
  switch (level) {
    case LogLevel::error:
      return 40;
    case LogLevel::warn:
      return 30;
    case LogLevel::info:
      return 20;
    default:
      return 10;
  }
}

int when_pending(void*) {
  log_waiting();
  return 0;
}

void take(LogLevel level, std::string_view text) {
  if (in_handler) {  // its own messages would keep it going for ever
    std::fprintf(stderr, "gradloom %s: %.*s\n", to_string(level), static_cast<int>(text.size()), text.data());
    return;
  }
  Queue& q = queue();
  bool first;
  {
    const std::lock_guard lock(q.mutex);
    if (q.waiting.size() == most_waiting) q.waiting.pop_front();
    q.waiting.push_back({level, std::string(text)});
    first = !q.any.exchange(true);
  }
  if (first) Py_AddPendingCall(when_pending, nullptr);
}

}  // namespace

void log_waiting() {
  Queue& q = queue();
  if (!q.any || in_handler) return;
  in_handler = true;
  for (;;) {
    std::deque<Message> messages;
    {
      const std::lock_guard lock(q.mutex);
      messages.swap(q.waiting);
      q.any = false;
    }
    if (messages.empty()) break;
    for (const Message& message : messages) {
      try {
        const nb::object text = nb::steal(
            PyUnicode_DecodeUTF8(message.text.data(), static_cast<Py_ssize_t>(message.text.size()), "replace"));
        nb::module_::import_("logging").attr("getLogger")("gradloom").attr("log")(levels(message.level), "%s", text);
      } catch (nb::python_error& error) {
        if (error.matches(PyExc_KeyboardInterrupt)) {  // raised where Python next looks
          PyErr_SetInterrupt();
          continue;
        }
        error.discard_as_unraisable("gradloom's log");
      }
    }
  }
  in_handler = false;
}

void start_logging() {
  // A child of fork finds the queue unlocked, whatever its parent's threads were doing.
  pthread_atfork([] { queue().mutex.lock(); }, [] { queue().mutex.unlock(); }, [] { queue().mutex.unlock(); });
  set_log_sink(take);
}

void stop_logging() {
  set_log_sink({});
  log_waiting();
}

}  // namespace gradloom::python
