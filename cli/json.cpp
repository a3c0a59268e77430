#include "cli/json.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "gradloom/error.h"
#include "ir/scalar_math.h"

namespace gradloom::cases {
namespace {

// Validates during parsing. Copying and printing a Json recurse, and no file nests deeper than its data, so that a
// nesting which would overflow the stack is rejected. So is a duplicate key, of which one value would be lost.
class Strict {
 public:
  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    constexpr int deepest = 16;
    if (depth > deepest) refuse(fmt::format("lists and objects nest deeper than {}, expected a case", deepest));
    if (event == Json::parse_event_t::object_start) keys_.resize(depth + 1), keys_[depth].clear();
    if (event == Json::parse_event_t::key && !keys_[depth - 1].insert(parsed.get<std::string>()).second)
      refuse(fmt::format("key {} is given twice, expected once", json_text(parsed)));
    return true;
  }

 private:
  std::vector<std::set<std::string>> keys_;  // of the open objects, by depth
};

}  // namespace

void refuse(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

Json read_json(std::istream& in) { return Json::parse(in, Strict()); }

// Json stores integers up to 2^64 - 1; get would wrap those beyond i64.
bool fits_i64(const Json& value) {
  return value.is_number_integer() &&
         (!value.is_number_unsigned() ||
          value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
}

std::optional<uint64_t> element_bits(const Json& value, DType dtype) {
  if (is_float(dtype)) {
    // "-0" without a point is the one integer that Json stores as a signed zero.
    const bool negative_zero = value.is_number_integer() && !value.is_number_unsigned() && value.get<int64_t>() == 0;
    if (value.is_number()) return ir::bits_from_double(dtype, negative_zero ? -0.0 : value.get<double>());
    if (value == "nan") return ir::bits_from_double(dtype, std::numeric_limits<double>::quiet_NaN());
    if (value == "inf") return ir::bits_from_double(dtype, std::numeric_limits<double>::infinity());
    if (value == "-inf") return ir::bits_from_double(dtype, -std::numeric_limits<double>::infinity());
    return std::nullopt;
  }
  if (dtype == DType::boolean && value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (dtype == DType::u64 && value.is_number_unsigned()) return value.get<uint64_t>();
  if (fits_i64(value) && dtype != DType::u64) {
    const uint64_t bits = ir::bits_from_int(dtype, value.get<int64_t>());
    if (ir::int_from_bits(dtype, bits) == value.get<int64_t>()) return bits;
  }
  return std::nullopt;
}

std::string expected_element(DType dtype) {
  return is_float(dtype)           ? "a number, \"nan\", \"inf\" or \"-inf\""
         : dtype == DType::boolean ? "true or false"
                                   : "an integer of that type";
}

std::string json_text(const Json& value) {
  if (value.is_array() || value.is_object()) return value.is_array() ? "a list" : "an object";
  constexpr size_t longest = 60;
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > longest) text = text.substr(0, longest) + "...";
  return text;
}

}  // namespace gradloom::cases
