#pragma once
// Tensors for `gradloom emit`, from a few shapes: only the properties that a kernel depends on.
#include <string>
#include <vector>

#include "cli/cases.h"

namespace gradloom::cli {

struct EmitShapes {
  std::string op, dtype = "float32", indices_dtype = "int64";
  std::vector<std::string> given;  // the options that were passed, without dashes
  std::string shape, indices_shape, to_shape;
  std::string starts, ends, axes, steps;
  int64_t axis = 0;
  std::vector<std::string> inputs;  // of any op, in order: DTYPE[dims], a shape's values, or - for none
  std::string attributes;           // of any op: a JSON object
};

// "2,3,4" -> {2, 3, 4}; "" is rank 0. Throws UsageError naming the option.
std::vector<int64_t> parse_ints(const std::string& option, const std::string& text);

// A case without outputs. Throws UsageError for an option that the op requires or does not have.
cases::Case emit_call(const EmitShapes& shapes);

}  // namespace gradloom::cli
