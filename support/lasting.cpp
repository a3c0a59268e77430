#include "support/lasting.h"

#include <cstdlib>

#include "support/gate.h"
#include "support/per_thread.h"

namespace gradloom {
namespace {

constinit Gate users;
constinit Mutex list_mutex;
constinit detail::LastingNode* newest = nullptr;
constinit std::atomic<bool> freed{false}, ends{false};

// dlclose runs this; so does the end of the process, where a handler that was registered later has run before, or the
// library's memory is still in use, or else nobody needs it any more.
__attribute__((destructor)) void unload() {
  if (ends.load() || !users.close(0, std::chrono::milliseconds(0))) return users.open();
  freed.store(true);
  detail::destroy_thread_values();
  while (detail::LastingNode* const node = newest) {
    newest = node->older;
    node->destroy(*node);
  }
}

}  // namespace

namespace detail {

void keep_until_unload(LastingNode& node) noexcept {
  // Each time: before main, the handler would be run after this library's destructors.
  std::atexit(note_process_end);
  list_mutex.lock();
  node.older = newest;
  newest = &node;
  list_mutex.unlock();
}

}  // namespace detail

InUse::InUse() {
  if (!users.enter()) throw std::bad_alloc();
}
InUse::~InUse() { users.leave(); }

bool unloaded() noexcept { return freed.load(std::memory_order_relaxed); }
bool process_ends() noexcept { return ends.load(std::memory_order_relaxed); }
void note_process_end() noexcept { ends.store(true); }

}  // namespace gradloom
