#include "cli/nest_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <istream>
#include <sstream>

#include "cli/json.h"
#include "ir/scalar_math.h"

namespace gradloom::nest {
namespace {

using cases::Json;

[[noreturn]] void refuse(const ir::Kernel& kernel, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, fmt::format("kernel {}: {}", kernel.name, what));
}

// As element_bits, but a finite number that overflows the dtype to an infinity is out of range.
std::optional<uint64_t> value_bits(const Json& value, DType dtype) {
  const auto bits = cases::element_bits(value, dtype);
  if (bits && is_float(dtype) && value.is_number() && !std::isfinite(ir::double_from_bits(dtype, *bits)))
    return std::nullopt;
  return bits;
}

std::string expected_value(DType dtype) {
  if (dtype == DType::boolean) return "0 or 1";
  if (dtype == DType::f64) return "a number, \"nan\", \"inf\" or \"-inf\"";
  if (is_float(dtype)) return fmt::format("a number within {}, \"nan\", \"inf\" or \"-inf\"", to_string(dtype));
  return fmt::format("an integer within {}", to_string(dtype));
}

// The value of a scalar on the command line: as in JSON, "nan" without quotes too.
Json scalar_json(const std::string& text) {
  if (text == "nan" || text == "inf" || text == "-inf") return text;
  std::istringstream in(text);
  try {
    return cases::read_json(in);
  } catch (const Json::exception&) {
    return text;
  }
}

std::string listed(const std::vector<std::string>& names) {
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

void read_list(const ir::Kernel& kernel, Argument& argument, const Json& list) {
  const DType dtype = argument.declared->dtype;
  if (!list.is_array())
    refuse(kernel, fmt::format("buffer {} is given {}, expected a flat list of {} values", argument.name,
                               cases::json_text(list), argument.memory.elements()));
  if (static_cast<int64_t>(list.size()) != argument.memory.elements()) {
    refuse(kernel, fmt::format("buffer {} is given {} values, expected {}: its shape is {}", argument.name, list.size(),
                               argument.memory.elements(), to_string(argument.dims)));
  }
  argument.memory.each([&](int64_t position, int64_t offset) {
    const Json& value = list[static_cast<size_t>(position)];
    const auto bits = value_bits(value, dtype);
    if (!bits)
      refuse(kernel, fmt::format("buffer {} is given {}, expected {}", argument.element_name(position),
                                 cases::json_text(value), expected_value(dtype)));
    argument.memory.set(offset, *bits);
  });
  // Elements may share memory: a stride of 0.
  argument.memory.each([&](int64_t position, int64_t offset) {
    const uint64_t wanted = *value_bits(list[static_cast<size_t>(position)], dtype), got = argument.memory.get(offset);
    if (got == wanted) return;
    refuse(kernel,
           fmt::format("buffer {} is given {}; by its strides {} it shares memory with an element that is given {}",
                       argument.element_name(position), value_text(dtype, wanted), to_string(argument.strides),
                       value_text(dtype, got)));
  });
}

}  // namespace

std::vector<std::optional<int64_t>> read_scalars(const ir::Kernel& kernel, std::span<const std::string> given) {
  const ParameterNames names(kernel);
  std::vector<std::optional<int64_t>> values(kernel.scalars.size());
  for (const std::string& assignment : given) {
    const size_t at = assignment.rfind('=');
    if (at == std::string::npos)
      refuse(kernel, fmt::format("scalar \"{}\" has no value, expected NAME=VALUE", assignment));
    const std::string name = assignment.substr(0, at), text = assignment.substr(at + 1);
    const auto found = std::find(names.scalars.begin(), names.scalars.end(), name);
    if (found == names.scalars.end())
      refuse(kernel, fmt::format("it has no scalar {}; its scalars: {}", name, listed(names.scalars)));
    const size_t i = static_cast<size_t>(found - names.scalars.begin());
    if (values[i]) refuse(kernel, fmt::format("scalar {} is given twice, expected once", name));
    const DType dtype = kernel.scalars[i].var.type.dtype;
    const auto bits = value_bits(scalar_json(text), dtype);
    if (!bits) refuse(kernel, fmt::format("scalar {} is given {}, expected {}", name, text, expected_value(dtype)));
    values[i] = is_int(dtype) ? ir::int_from_bits(dtype, *bits) : static_cast<int64_t>(*bits);
  }
  return values;
}

std::vector<int64_t> all_scalars(const ir::Kernel& kernel, std::span<const std::optional<int64_t>> scalars) {
  std::vector<int64_t> all;
  for (size_t i = 0; i < scalars.size(); ++i) {
    if (!scalars[i]) {
      const std::string name = ParameterNames(kernel).scalars[i];
      refuse(kernel, fmt::format("scalar {} is not given, expected --scalar {}=VALUE or --seed N", name, name));
    }
    all.push_back(*scalars[i]);
  }
  return all;
}

void read_buffers(Call& call, std::istream& in) {
  Json json;
  try {
    json = cases::read_json(in);
  } catch (const Json::exception& error) {
    refuse(call.kernel, fmt::format("the data is no JSON: {}", error.what()));
  }
  if (!json.is_object())
    refuse(call.kernel,
           fmt::format("the data is {}, expected an object: buffer name -> flat list", cases::json_text(json)));
  std::vector<std::string> wanted;
  for (const Argument& argument : call.buffers)
    if (argument.given()) wanted.push_back(argument.name);
  for (const auto& [name, list] : json.items()) {
    const auto named = [&, &name = name](const Argument& argument) { return argument.name == name; };
    const auto found = std::find_if(call.buffers.begin(), call.buffers.end(), named);
    if (found == call.buffers.end())
      refuse(call.kernel, fmt::format("it has no buffer {}; those with values: {}", name, listed(wanted)));
    if (!found->given())
      refuse(call.kernel,
             fmt::format("buffer {} is out, so it takes no values; those with values: {}", name, listed(wanted)));
    read_list(call.kernel, *found, list);
  }
  for (const std::string& name : wanted)
    if (!json.contains(name)) refuse(call.kernel, fmt::format("buffer {} is missing in the data", name));
  call.check_facts();
}

void refuse_missing_values(const Call& call) {
  for (const Argument& argument : call.buffers)
    if (argument.given())
      refuse(call.kernel, fmt::format("buffer {} has no values, expected --data FILE or --seed N", argument.name));
}

std::string json_element(DType dtype, uint64_t bits) {
  if (!is_float(dtype)) return value_text(dtype, bits);
  const double value = ir::double_from_bits(dtype, bits);
  std::string text = value_text(dtype, bits);
  if (!std::isfinite(value)) return fmt::format("\"{}\"", text);
  // The shortest text of an f32 may parse to another value by double rounding.
  if (cases::element_bits(Json::parse(text), dtype) != bits)
    text = value_text(DType::f64, ir::bits_from_double(DType::f64, value));
  return text;
}

std::string json_buffers(const Call& call) {
  std::string out = "{";
  for (const Argument& argument : call.buffers) {
    if (!argument.written()) continue;
    if (out.size() > 1) out += ", ";
    out += Json(argument.name).dump(-1, ' ', false, Json::error_handler_t::replace) + ": [";
    argument.memory.each([&](int64_t position, int64_t offset) {
      if (position > 0) out += ", ";
      out += json_element(argument.declared->dtype, argument.memory.get(offset));
    });
    out += "]";
  }
  return out + "}";
}

}  // namespace gradloom::nest
