#pragma once
// JSON as cases and nests use it: parsed strictly, with every value of every dtype (tests/golden/FORMAT.md).
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "gradloom/dtype.h"

namespace gradloom::cases {

using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& message);  // Error(invalid_argument)

// Throws Error(invalid_argument) for duplicate keys and for deeply nested lists, Json::exception for malformed JSON.
Json read_json(std::istream& in);

bool fits_i64(const Json& value);

// An element's bits: a number rounded once to a float dtype, "nan", "inf" or "-inf", an integer of the dtype, true,
// false, 0 or 1 for a boolean. Nothing for any other value.
std::optional<uint64_t> element_bits(const Json& value, DType dtype);
std::string expected_element(DType dtype);  // "a number, \"nan\", \"inf\" or \"-inf\""

std::string json_text(const Json& value);  // on one line and of a bounded length, for a message

}  // namespace gradloom::cases
