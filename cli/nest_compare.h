#pragma once
// Compares the same call on several targets.
#include <optional>
#include <span>
#include <string>

#include "cli/nest_call.h"
#include "gradloom/error.h"

namespace gradloom::nest {

// The outcome on one target: the results in its out and inout buffers, or the error.
struct Ran {
  std::string target;
  Call call;
  std::optional<Error> error;
};

// The first difference, in one line; nothing when all are equal. Two NaNs are equal regardless of their bits; so are
// equal errors.
std::optional<std::string> difference(std::span<const Ran> all);

}  // namespace gradloom::nest
