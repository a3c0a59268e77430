#pragma once
// Building loop nests from Python, a scope at a time: gradloom/builder.py opens and closes them.
#include <nanobind/nanobind.h>

namespace gradloom::python {

void bind_builder(nanobind::module_& m);

}  // namespace gradloom::python
