#pragma once
// Text form of a nest's scalars and buffers: parsed from the command line and from JSON, and printed.
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "cli/nest_call.h"

namespace gradloom::nest {

// By kernel.scalars; none: not given. `given`: "NAME=VALUE". Throws Error(invalid_argument) for a name that is unknown
// or duplicate, and for an invalid value of the scalar's dtype.
std::vector<std::optional<int64_t>> read_scalars(const ir::Kernel& kernel, std::span<const std::string> given);
// Throws Error(invalid_argument) naming the first scalar that is not given.
std::vector<int64_t> all_scalars(const ir::Kernel& kernel, std::span<const std::optional<int64_t>> scalars);

// Values for the in and inout buffers from JSON: an object, buffer name -> flat row-major list. Throws
// Error(invalid_argument) for missing or extra buffers, lists of another length, invalid values of the dtype, and
// violated facts.
void read_buffers(Call& call, std::istream& json);
// Throws Error(invalid_argument) naming the first buffer that requires values.
void refuse_missing_values(const Call& call);

// An element in JSON: "nan", "inf", "-inf", -0.0, 7, 0.1; it parses to the same bits (a NaN to a NaN).
std::string json_element(DType dtype, uint64_t bits);
// The out and inout buffers: {"y": [1, 2]}.
std::string json_buffers(const Call& call);

}  // namespace gradloom::nest
