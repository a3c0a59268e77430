#include "ops/index_error.h"

#include <fmt/format.h>

namespace gradloom {

Error index_error(const OpSchema& schema, int input, const std::string& at, int64_t value, int64_t extent,
                  Negative negative) {
  const int64_t least = negative == Negative::refused ? 0 : -extent;
  const std::string allowed = extent == 0 ? "no index is allowed, since the dim that it is of is 0"
                                          : fmt::format("it must be in [{}, {}]", least, extent - 1);
  return Error(ErrorCode::out_of_range,
               fmt::format("{}: {}{} is {}; {}", schema.name, describe_input(schema, input), at, value, allowed));
}

}  // namespace gradloom
