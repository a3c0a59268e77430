#include "python/c_functions.h"

#include <mutex>

#include "python/gradloom/_c_functions.h"
#include "runtime/memory/recycler.h"
#include "support/fork.h"

namespace nb = nanobind;

namespace gradloom::python {
namespace {

// Outputs of other libraries' tensors live until their last holder goes, perhaps at the process's end: never destroyed.
struct Memory {
  Mutex mutex;
  std::shared_ptr<Recycler> recycler = Recycler::make(0);

  // Held for the call: another thread may set another budget meanwhile.
  std::shared_ptr<Recycler> current() {
    const std::lock_guard lock(mutex);
    return recycler;
  }
};
Memory& memory() {
  static Memory* const made = new Memory;
  return *made;
}

void* memory_allocate(int64_t bytes) { return memory().current()->try_allocate(bytes); }

void memory_release(void* data, int64_t bytes) { memory().current()->release(data, bytes); }

void memory_budget(int64_t bytes) {
  std::shared_ptr<Recycler> next = Recycler::make(bytes);
  const std::lock_guard lock(memory().mutex);
  memory().recycler.swap(next);
}

int64_t memory_kept() { return memory().current()->kept_bytes(); }

constexpr GradloomFunctions functions = {
    .version = GRADLOOM_FUNCTIONS_VERSION,
    .size = sizeof(GradloomFunctions),
    .last_error = gradloom_last_error,
    .runtime_options_init_sized = gradloom_runtime_options_init_sized,
    .runtime_create = gradloom_runtime_create,
    .runtime_destroy = gradloom_runtime_destroy,
    .run_options_init_sized = gradloom_run_options_init_sized,
    .attributes_create = gradloom_attributes_create,
    .attributes_destroy = gradloom_attributes_destroy,
    .attributes_set_int = gradloom_attributes_set_int,
    .attributes_set_ints = gradloom_attributes_set_ints,
    .attributes_set_string = gradloom_attributes_set_string,
    .prepare = gradloom_prepare,
    .prepared_destroy = gradloom_prepared_destroy,
    .prepared_run_into = gradloom_prepared_run_into,
    .memory_allocate = memory_allocate,
    .memory_release = memory_release,
    .memory_budget = memory_budget,
    .memory_kept = memory_kept,
};

}  // namespace

void bind_c_functions(nb::module_& m) {
  m.def(
      "_c_functions", [] { return nb::capsule(&functions, GRADLOOM_FUNCTIONS_NAME); },
      "The C interface as a table, for extensions of the package: gradloom/_c_functions.h.");
}

}  // namespace gradloom::python
