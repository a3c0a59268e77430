#pragma once
// The caller's error for an index out of range.
#include <string>

#include "gradloom/op.h"

namespace gradloom {

// "OP: input 1 (indices)[4] is 9; it must be in [-5, 4]", or why there is no such index. `at`: its place in the input,
// as "[4]"; `extent`: of the dim that is indexed.
enum class Negative : uint8_t { refused, counts_from_the_end };
Error index_error(const OpSchema& schema, int input, const std::string& at, int64_t value, int64_t extent,
                  Negative negative = Negative::counts_from_the_end);

}  // namespace gradloom
