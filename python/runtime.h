#pragma once
// gradloom.Runtime and its handles.
#include <nanobind/nanobind.h>

#include "gradloom/runtime.h"

namespace gradloom::python {

// What a child of fork may use as well: the library sees to that.
struct PyRuntime {
  std::shared_ptr<Runtime> runtime;
};

nanobind::dict report_dict(const KernelReport& report);

void bind_runtime(nanobind::module_& m);

}  // namespace gradloom::python
