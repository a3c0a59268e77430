#pragma once
// Options' values from Python, and enumerations by name. All throw Error(invalid_argument) that names the option.
#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

#include "gradloom/options.h"

namespace gradloom::python {

// A str's UTF-8, valid as long as it is. Throws Error(invalid_argument) where it has none (lone surrogates).
std::string_view view_of(nanobind::handle text);
std::string_view option_text(const char* option, nanobind::handle value);
bool option_flag(const char* option, nanobind::handle value);

Determinism determinism_of(std::string_view name);
const char* to_name(Determinism determinism);
Policy policy_of(std::string_view name);
Tuning tuning_of(std::string_view name);
TargetKind target_of(std::string_view name);

// Of any iterable. Throws python_error.
inline nanobind::object tuple_of(nanobind::handle items) {
  PyObject* const tuple = PySequence_Tuple(items.ptr());
  if (!tuple) nanobind::raise_python_error();
  return nanobind::steal(tuple);
}

}  // namespace gradloom::python
