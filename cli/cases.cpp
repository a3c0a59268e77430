#include "cli/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ir/scalar_math.h"

namespace gradloom::cases {
namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

const Json& member(const Json& object, const char* name) {
  auto found = object.find(name);
  if (found == object.end()) refuse(fmt::format("expected a member \"{}\"", name));
  return *found;
}

void put_bits(void* data, DType dtype, int64_t position, uint64_t bits) {
  const int bytes = size_of(dtype);  // little endian: the low bytes are the value
  std::memcpy(static_cast<char*>(data) + position * bytes, &bits, bytes);
}

uint64_t bits_of(const Json& value, DType dtype) {
  if (is_float(dtype)) {
    if (value.is_number()) return ir::bits_from_double(dtype, value.get<double>());
    if (value == "nan") return ir::bits_from_double(dtype, std::numeric_limits<double>::quiet_NaN());
    if (value == "inf") return ir::bits_from_double(dtype, std::numeric_limits<double>::infinity());
    if (value == "-inf") return ir::bits_from_double(dtype, -std::numeric_limits<double>::infinity());
    refuse(fmt::format("a value of a {} tensor is {}, expected a number, \"nan\", \"inf\" or \"-inf\"", onnx_name(dtype), value.dump()));
  }
  if (dtype == DType::boolean && value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (value.is_number_unsigned()) return ir::bits_from_int(dtype, static_cast<int64_t>(value.get<uint64_t>()));
  if (value.is_number_integer()) return ir::bits_from_int(dtype, value.get<int64_t>());
  refuse(fmt::format("a value of a {} tensor is {}, expected {}", onnx_name(dtype), value.dump(), dtype == DType::boolean ? "true or false" : "an integer"));
}

// A tensor's "shape" may be anything a call may be refused for, so what cannot be held is an error here and not of the op.
Tensor read_tensor(const Json& json) {
  if (json.is_null()) return {};
  if (!json.is_object()) refuse(fmt::format("a tensor is {}, expected an object or null", json.type_name()));
  const std::string name = member(json, "dtype").get<std::string>();
  const auto dtype = dtype_from_string(name);
  if (!dtype) refuse(fmt::format("dtype \"{}\" is none of float32, float64, float16, bfloat16, int8 to uint64, bool", name));
  Dims dims;
  for (const Json& dim : member(json, "shape")) {
    if (!dim.is_number_integer() || dim.get<int64_t>() < 0) refuse(fmt::format("a dim is {}, expected an integer from 0", dim.dump()));
    dims.push_back(dim.get<int64_t>());
  }
  const int64_t count = element_count(dims, size_of(*dtype));
  const bool tiled = json.contains("tile");
  const Json& values = member(json, tiled ? "tile" : "data");
  const int64_t given = static_cast<int64_t>(values.size());
  if (!values.is_array() || (tiled ? given == 0 && count > 0 : given != count))
    refuse(fmt::format("a tensor of shape {} has {} values, expected {}", to_string(dims), given, tiled ? "at least one" : std::to_string(count)));
  Tensor tensor = Tensor::empty(*dtype, dims);
  for (int64_t i = 0; i < count; ++i) put_bits(tensor.data(), *dtype, i, bits_of(values[tiled ? i % given : i], *dtype));
  return tensor;
}

Attribute read_attribute(const Json& json) {
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array()) {
    const auto all = [&](auto is) { return std::all_of(json.begin(), json.end(), is); };
    if (all([](const Json& v) { return v.is_number_integer(); })) return json.get<std::vector<int64_t>>();
    if (all([](const Json& v) { return v.is_number(); })) return json.get<std::vector<double>>();
    if (all([](const Json& v) { return v.is_string(); })) return json.get<std::vector<std::string>>();
  }
  refuse(fmt::format("an attribute is {}, expected a number, a string, or a list of one of them", json.dump()));
}

ErrorCode read_error(const std::string& name) {
  for (const ErrorCode code : {ErrorCode::invalid_argument, ErrorCode::out_of_range, ErrorCode::unsupported, ErrorCode::resource_exhausted,
                               ErrorCode::compile_failed, ErrorCode::device_error, ErrorCode::internal})
    if (name == to_string(code)) return code;
  refuse(fmt::format("error \"{}\" is none of the error codes", name));
}

Case parse_case(const Json& json) {
  if (!json.is_object()) refuse(fmt::format("expected an object, got {}", json.type_name()));
  Case c;
  c.name = member(json, "name").get<std::string>();
  c.op = member(json, "op").get<std::string>();
  c.source = json.value("source", "");
  const Json attributes = json.value("attributes", Json::object());
  for (const auto& [name, value] : attributes.items())
    if (!value.is_null()) c.attributes[name] = read_attribute(value);  // null: the attribute is absent
  for (const Json& tensor : member(json, "inputs")) c.inputs.push_back(read_tensor(tensor));
  if (json.contains("error")) {
    c.error = read_error(json["error"].get<std::string>());
    return c;
  }
  for (const Json& tensor : member(json, "outputs")) c.outputs.push_back(read_tensor(tensor));
  const Json& tolerance = member(json, "tolerance");
  c.rtol = member(tolerance, "rtol").get<double>();
  c.atol = member(tolerance, "atol").get<double>();
  c.exact = json.value("exact", std::vector<std::string>{});
  return c;
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

bool Case::exact_on(std::string_view target) const { return std::find(exact.begin(), exact.end(), target) != exact.end(); }

Case read_case(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) refuse(fmt::format("{}: cannot be read, expected a case file (.json)", file.string()));
  try {
    return parse_case(Json::parse(in));
  } catch (const Error& error) {
    refuse(fmt::format("{}: {}", file.string(), one_line(error.what())));
  } catch (const Json::exception& error) {
    refuse(fmt::format("{}: expected a case in JSON: {}", file.string(), one_line(error.what())));
  }
}

std::vector<std::filesystem::path> find_cases(const std::vector<std::string>& paths) {
  std::vector<std::filesystem::path> files;
  for (const std::string& path : paths) {
    std::error_code code;
    if (std::filesystem::is_directory(path, code)) {
      for (const auto& entry : std::filesystem::directory_iterator(path))
        if (entry.path().extension() == ".json") files.push_back(entry.path());
    } else if (std::filesystem::exists(path, code)) {
      files.push_back(path);
    } else {
      refuse(fmt::format("{}: not there, expected a case file or a folder of them", path));
    }
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

}  // namespace gradloom::cases
