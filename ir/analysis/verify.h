#pragma once
// Legality after each stage. Throws Error(invalid_argument) that names the kernel, the node and the rule.
#include "gradloom/stmt.h"
#include "ir/analysis/ranges.h"

namespace gradloom::ir {

enum class Stage : uint8_t {
  authored,   // serial loops and scalars only: the definition of an op
  scheduled,  // any loop kind, vectors allowed; every parallel and vector loop is proved (races.h)
  lowered,  // no vector and no unroll loop left; register buffers have constant indices: the input of emitters and the
            // interpreter
};
const char* to_string(Stage stage);

void verify(const Kernel& kernel, Stage stage);

// Whether a division's divisor is proved nonzero, and a shift's count to be in range; of other operations true.
bool is_defined(const Binary& n, const Ranges& scope);

// Legal indices of a lowered register buffer: a constant, or a broadcast or ramp of constants.
bool constant_index(const Expr& e);

}  // namespace gradloom::ir
