#include "cli/cases.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "cli/json.h"

namespace gradloom::cases {
namespace {

const Json& member(const Json& object, const char* name) {
  auto found = object.find(name);
  if (found == object.end()) refuse(fmt::format("expected a member \"{}\"", name));
  return *found;
}

// Json iterates values other than lists too: an object over its members, a number over itself.
const Json& list(const Json& object, const char* name) {
  const Json& json = member(object, name);
  if (!json.is_array()) refuse(fmt::format("\"{}\" is of type {}, expected a list", name, json.type_name()));
  return json;
}

const std::string& text(const Json& object, const char* name) {
  const Json& json = member(object, name);
  if (!json.is_string()) refuse(fmt::format("\"{}\" is of type {}, expected a string", name, json.type_name()));
  return json.get_ref<const std::string&>();
}

double number(const Json& object, const char* name) {
  const Json& json = member(object, name);
  if (!json.is_number()) refuse(fmt::format("\"{}\" is of type {}, expected a number", name, json.type_name()));
  return json.get<double>();
}

// An unknown member would be ignored silently.
void check_members(const Json& object, std::initializer_list<std::string_view> known) {
  for (const auto& [name, value] : object.items())
    if (std::find(known.begin(), known.end(), name) == known.end())
      refuse(fmt::format("got a member \"{}\", expected one of {}", name, fmt::join(known, ", ")));
}

// Runs `body`; adds the location in the file to an error.
template <class Body>
auto inside(const std::string& where, Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    refuse(fmt::format("{}: {}", where, error.what()));
  }
}

void put_element(void* data, DType dtype, int64_t position, const Json& value) {
  const auto bits = element_bits(value, dtype);
  if (!bits)
    refuse(fmt::format("a value of a {} tensor is {}, expected {}", onnx_name(dtype), json_text(value),
                       expected_element(dtype)));
  const int bytes = size_of(dtype);  // little endian: the low bytes are the value
  std::memcpy(static_cast<char*>(data) + position * bytes, &*bits, bytes);
}

// A tensor's "shape" may be any that an op rejects; one that cannot be allocated is an error of the file, not of the
// op.
Tensor read_tensor(const Json& json) {
  if (json.is_null()) return {};
  if (!json.is_object()) refuse(fmt::format("a tensor is {}, expected an object or null", json.type_name()));
  check_members(json, {"dtype", "shape", "data", "tile"});
  const std::string& name = text(json, "dtype");
  const auto dtype = dtype_from_string(name);
  if (!dtype)
    refuse(fmt::format("dtype \"{}\" is none of float32, float64, float16, bfloat16, int8 to uint64, bool", name));
  Dims dims;
  for (const Json& dim : list(json, "shape")) {
    if (!fits_i64(dim) || dim.get<int64_t>() < 0)
      refuse(fmt::format("a dim is {}, expected an integer from 0", dim.dump()));
    dims.push_back(dim.get<int64_t>());
  }
  const int64_t count = element_count(dims, size_of(*dtype));
  const bool tiled = json.contains("tile");
  const Json& values = list(json, tiled ? "tile" : "data");
  const int64_t given = static_cast<int64_t>(values.size());
  if (tiled ? given == 0 && count > 0 : given != count)
    refuse(fmt::format("a tensor of shape {} has {} values, expected {}", to_string(dims), given,
                       tiled ? "at least one" : std::to_string(count)));
  Tensor tensor = Tensor::empty(*dtype, dims);
  for (int64_t i = 0; i < count; ++i) put_element(tensor.data(), *dtype, i, values[tiled ? i % given : i]);
  return tensor;
}

Attribute read_attribute(const Json& json) {
  if (fits_i64(json)) return json.get<int64_t>();
  if (json.is_number_float()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array()) {
    const auto all = [&](auto is) { return std::all_of(json.begin(), json.end(), is); };
    if (all(fits_i64)) return json.get<std::vector<int64_t>>();
    if (all([](const Json& v) { return v.is_number_float() || fits_i64(v); })) return json.get<std::vector<double>>();
    if (all([](const Json& v) { return v.is_string(); })) return json.get<std::vector<std::string>>();
  }
  refuse(
      fmt::format("an attribute is {}, expected a number (integers within 64 bits), a string, or a list of one of them",
                  json.dump()));
}

// Null is an absent attribute, or none of them.
Attributes read_attributes(const Json& json) {
  if (!json.is_object() && !json.is_null())
    refuse(fmt::format("\"attributes\" is of type {}, expected an object", json.type_name()));
  Attributes attributes;
  for (const auto& [name, value] : json.items())
    if (!value.is_null())
      attributes[name] = inside("attributes." + name, [&, &json = value] { return read_attribute(json); });
  return attributes;
}

std::vector<Tensor> read_tensors(const Json& object, const char* name) {
  std::vector<Tensor> tensors;
  for (const Json& json : list(object, name))
    tensors.push_back(inside(fmt::format("{}[{}]", name, tensors.size()), [&] { return read_tensor(json); }));
  return tensors;
}

ErrorCode read_error(const std::string& name) {
  for (const ErrorCode code :
       {ErrorCode::invalid_argument, ErrorCode::out_of_range, ErrorCode::unsupported, ErrorCode::resource_exhausted,
        ErrorCode::compile_failed, ErrorCode::device_error, ErrorCode::internal})
    if (name == to_string(code)) return code;
  refuse(fmt::format("error \"{}\" is none of the error codes", name));
}

Case parse_case(const Json& json) {
  if (!json.is_object()) refuse(fmt::format("expected an object, got {}", json.type_name()));
  check_members(json, {"name", "op", "source", "attributes", "inputs", "outputs", "tolerance", "exact", "error"});
  Case c;
  c.name = text(json, "name");
  c.op = text(json, "op");
  if (json.contains("source")) c.source = text(json, "source");
  c.attributes = read_attributes(json.value("attributes", Json::object()));
  c.inputs = read_tensors(json, "inputs");
  if (json.contains("error")) {
    c.error = read_error(text(json, "error"));
    return c;
  }
  c.outputs = read_tensors(json, "outputs");
  inside("tolerance", [&] {
    const Json& tolerance = member(json, "tolerance");
    if (!tolerance.is_object()) refuse(fmt::format("it is of type {}, expected an object", tolerance.type_name()));
    check_members(tolerance, {"rtol", "atol"});
    c.rtol = number(tolerance, "rtol");
    c.atol = number(tolerance, "atol");
  });
  if (json.contains("exact")) {
    for (const Json& target : list(json, "exact")) {
      const std::set<Json> targets{"interpreter", "llvm", "cuda-host", "cuda"};
      if (!targets.count(target))
        refuse(fmt::format("\"exact\" holds {}, expected interpreter, llvm, cuda-host or cuda", target.dump()));
      c.exact.push_back(target.get<std::string>());
    }
  }
  return c;
}

}  // namespace

bool Case::exact_on(std::string_view target) const {
  return std::find(exact.begin(), exact.end(), target) != exact.end();
}

Case read_case(const std::filesystem::path& file) {
  std::error_code code;
  const bool readable = std::filesystem::is_regular_file(file, code);  // opening a pipe would block
  std::ifstream in(readable ? file : std::filesystem::path());
  if (!in) refuse(fmt::format("{}: cannot be read, expected a case file (.json)", file.string()));
  try {
    return parse_case(read_json(in));
  } catch (const Error& error) {
    refuse(fmt::format("{}: {}", file.string(), error.what()));
  } catch (const std::ios_base::failure&) {  // a folder, a failing device
    refuse(fmt::format("{}: cannot be read, expected a case file (.json)", file.string()));
  } catch (const Json::exception& error) {
    refuse(fmt::format("{}: expected a case in JSON: {}", file.string(), error.what()));
  }
}

Attributes parse_attributes(const std::string& json) {
  try {
    std::istringstream text(json);
    return read_attributes(read_json(text));
  } catch (const Json::exception& error) {
    refuse(fmt::format("\"attributes\" is {}, expected a JSON object: {}", json, error.what()));
  }
}

std::vector<std::filesystem::path> find_cases(const std::vector<std::string>& paths) {
  std::vector<std::filesystem::path> files;
  for (const std::string& path : paths) {
    std::error_code code;
    if (std::filesystem::is_directory(path, code)) {
      const std::filesystem::directory_iterator entries(path, code);
      if (code) refuse(fmt::format("{}: cannot be read, expected a folder of case files", path));
      for (const auto& entry : entries)
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
