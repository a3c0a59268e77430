#pragma once
// The attribute padding_idx of ops on tables of rows.
#include <fmt/format.h>

#include <optional>

#include "gradloom/op.h"

namespace gradloom {

// Counted from the start; none where it is absent.
inline std::optional<int64_t> padding_index(const OpSchema& schema, const Request& request, int64_t rows) {
  if (!request.attributes.contains("padding_idx")) return {};
  const int64_t given = int_attribute(request, "padding_idx", 0);
  if (given < -rows || given >= rows)
    refuse(
        schema, ErrorCode::invalid_argument,
        fmt::format("attribute padding_idx is {}; it must be in [{}, {}] for {} rows", given, -rows, rows - 1, rows));
  return given < 0 ? given + rows : given;
}

}  // namespace gradloom
