#pragma once
// The values of a nest's scalars and buffers as text: from the command line, from JSON, and back.
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "cli/nest_call.h"

namespace gradloom::nest {

// By kernel.scalars; none: not given. `given`: "NAME=VALUE". Throws Error(invalid_argument) for a name that the kernel
// does not have or that comes twice, and for what is no value of the scalar's dtype.
std::vector<std::optional<int64_t>> read_scalars(const ir::Kernel& kernel, std::span<const std::string> given);
// Throws Error(invalid_argument) naming the first scalar that is not given.
std::vector<int64_t> all_scalars(const ir::Kernel& kernel, std::span<const std::optional<int64_t>> scalars);

// Values for the in and inout buffers from JSON: an object, buffer name -> flat row-major list. Throws
// Error(invalid_argument) for buffers that are missing or surplus, for lists of another length, for what is no value of
// the dtype, and for facts that do not hold.
void read_buffers(Call& call, std::istream& json);
// Throws Error(invalid_argument) naming the first buffer that takes values.
void refuse_missing_values(const Call& call);

// An element in JSON: "nan", "inf", "-inf", -0.0, 7, 0.1; it reads back to the same bits (a NaN to a NaN).
std::string json_element(DType dtype, uint64_t bits);
// The out and inout buffers: {"y": [1, 2]}.
std::string json_buffers(const Call& call);

}  // namespace gradloom::nest
