#pragma once
// The C interface for other extensions of the process.
#include <nanobind/nanobind.h>

namespace gradloom::python {

void bind_c_functions(nanobind::module_& m);

}  // namespace gradloom::python
