#pragma once
// Keyword arguments of a call: an op's attributes, and how it is run.
#include <nanobind/nanobind.h>

#include "gradloom/options.h"

namespace gradloom::python {

struct CallOptions {
  Attributes attributes;
  RunOptions run;
  nanobind::object out;        // None: allocated
  bool named_outputs = false;  // run.outputs_wanted is the caller's
};

// `op` may be null: unknown to the library, which then says so. Throws Error(invalid_argument).
CallOptions call_options(std::string_view name, const Op* op, const nanobind::kwargs& given);

}  // namespace gradloom::python
