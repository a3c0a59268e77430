#pragma once
// Loop nests of the user's own: parsed or built, scheduled, printed at any stage, compiled and called.
#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <vector>

#include "gradloom/stmt.h"

namespace gradloom::python {

// gradloom.Kernel: immutable.
struct Nest {
  std::shared_ptr<const ir::Kernel> authored;
  ir::Kernel kernel;  // with the steps of the trace
  std::vector<std::string> trace;
};

// Verified, as authored or else as scheduled. Throws Error(invalid_argument).
Nest verified(ir::Kernel kernel);

struct TextOptions {
  std::string stage = "lowered", target, after;
  int threads = 0;
};
std::string text_of(const Nest& nest, const TextOptions& options);  // in nest_text.cpp

void bind_nests(nanobind::module_& m);     // in nest.cpp, before the Runtime
void bind_compiled(nanobind::module_& m);  // in compiled.cpp, after it

}  // namespace gradloom::python
