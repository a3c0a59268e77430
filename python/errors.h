#pragma once
// gradloom's errors as Python's exceptions: a class a code, in gradloom/errors.py.
#include <nanobind/nanobind.h>

#include <string>

#include "gradloom/error.h"

namespace gradloom::python {

// Sets the Python exception of an error.
void set_exception(const Error& error);
// A parse error of `text`, whose message begins with "line:column: ".
void set_parse_exception(const Error& error, const std::string& text);

void bind_errors();

[[noreturn]] inline void refuse(const std::string& what) { throw Error(ErrorCode::invalid_argument, what); }

}  // namespace gradloom::python
