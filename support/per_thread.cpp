#include "support/per_thread.h"

#include <pthread.h>

#include <mutex>
#include <new>

#include "support/fork.h"
#include "support/lasting.h"

namespace gradloom {
namespace {

struct Value {
  void* value;
  void (*destroy)(void* value) noexcept;
  void** slot;
  Value* older;
};

// One thread's values, in the list of all threads.
struct Thread {
  Value* newest = nullptr;
  Thread* previous = nullptr;
  Thread* next = nullptr;
};

constinit Mutex mutex;
constinit Thread* first = nullptr;
constinit bool has_key = false;
pthread_key_t key;
thread_local constinit Thread* this_thread = nullptr;

void destroy_values(Thread& thread, bool mine) {
  while (Value* value = thread.newest) {
    thread.newest = value->older;
    if (mine) *value->slot = nullptr;  // another thread's slot may be gone
    value->destroy(value->value);
    delete value;
  }
}

void unlink(Thread& thread) {
  std::lock_guard lock(mutex);
  (thread.previous ? thread.previous->next : first) = thread.next;
  if (thread.next) thread.next->previous = thread.previous;
}

// Runs when a thread ends. A value created again during the destructors is destroyed by a further call.
void thread_ends(void* ending) {
  auto* const thread = static_cast<Thread*>(ending);
  this_thread = nullptr;
  unlink(*thread);
  destroy_values(*thread, true);
  delete thread;
}

// At load; without a key, values stay until the library is unloaded.
__attribute__((constructor)) void make_key() { has_key = pthread_key_create(&key, thread_ends) == 0; }

}  // namespace

namespace detail {

void keep_for_thread(void* value, void (*destroy)(void* value) noexcept, void** slot) {
  if (unloaded()) throw std::bad_alloc();
  auto node = std::make_unique<Value>(Value{value, destroy, slot, nullptr});
  if (!this_thread) {
    auto thread = std::make_unique<Thread>();
    if (has_key && pthread_setspecific(key, thread.get()) != 0) throw std::bad_alloc();
    this_thread = thread.release();
    std::lock_guard lock(mutex);
    this_thread->next = first;
    if (first) first->previous = this_thread;
    first = this_thread;
  }
  node->older = this_thread->newest;
  this_thread->newest = node.release();
}

void destroy_thread_values() noexcept {
  if (has_key) pthread_key_delete(key);
  has_key = false;
  for (Thread* thread = first; thread;) {
    Thread* const next = thread->next;
    destroy_values(*thread, thread == this_thread);
    delete thread;
    thread = next;
  }
  first = nullptr;
  this_thread = nullptr;
}

}  // namespace detail
}  // namespace gradloom
