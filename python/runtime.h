#pragma once
// gradloom.Runtime and its handles.
#include <nanobind/nanobind.h>

#include "gradloom/runtime.h"
#include "python/gil.h"

namespace gradloom::python {

struct PyRuntime {
  std::shared_ptr<Runtime> runtime;
  explicit PyRuntime(std::shared_ptr<Runtime> made) : runtime(std::move(made)) {}
  // The last holder waits for what is compiled in the background.
  ~PyRuntime() {
    unlocked([this] { runtime.reset(); });
  }
  PyRuntime(const PyRuntime&) = delete;
  PyRuntime& operator=(const PyRuntime&) = delete;
};

nanobind::dict report_dict(const KernelReport& report);

void bind_runtime(nanobind::module_& m);

}  // namespace gradloom::python
