#include "tests/support/program_text.h"

#include <cmath>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gradloom/text.h"
#include "ir/scalar_math.h"

namespace gradloom::ir::testing {

namespace {

std::string number_text(DType t, uint64_t bits) {
  if (!is_float(t)) return t == DType::u64 ? std::to_string(bits) : std::to_string(int_from_bits(t, bits));
  const double value = double_from_bits(t, bits);
  if (std::isnan(value)) return "\"nan\"";
  if (std::isinf(value)) return value > 0 ? "\"inf\"" : "\"-inf\"";
  char text[64];
  std::snprintf(text, sizeof text, value == std::floor(value) && std::fabs(value) < 1e15 ? "%.1f" : "%.17g", value);
  return text;
}

template <class Json>
uint64_t bits_of(DType t, const Json& value) {
  if (value.is_string()) return bits_from_double(t, value == "inf" ? INFINITY : value == "-inf" ? -INFINITY : NAN);
  if (value.is_number_float()) return bits_from_double(t, value.template get<double>());
  return bits_from_int(t, value.is_number_unsigned() ? static_cast<int64_t>(value.template get<uint64_t>())
                                                     : value.template get<int64_t>());
}

}  // namespace

void print_failure(const RandomProgram& program, const ProgramFailure& failure, int64_t seed) {
  std::cout << "// seed " << seed << ", " << failure.stage << ": " << failure.what << "\n// scalars:";
  for (size_t k = 0; k < program.kernel.scalars.size(); ++k) {
    const Var& v = program.kernel.scalars[k].var;
    std::cout << " --scalar " << v.name << "="
              << number_text(v.type.dtype, bits_from_int(DType::i64, program.scalars[k]));
  }
  std::cout << "\n// origins:";
  for (const size_t origin : program.origins) std::cout << " " << origin;
  std::cout << "\n// data: {";
  for (size_t k = 0; k < program.kernel.buffers.size(); ++k) {
    const Buffer& b = program.kernel.buffers[k];
    std::cout << (k ? ", " : "") << "\"" << b->name << "\": [";
    const size_t size = static_cast<size_t>(size_of(b->dtype));
    for (size_t i = 0; i < program.buffers[k].size(); i += size) {
      uint64_t bits = 0;
      std::memcpy(&bits, &program.buffers[k][i], size);
      std::cout << (i ? ", " : "") << number_text(b->dtype, bits);
    }
    std::cout << "]";
  }
  std::cout << "}\n" << print(program.kernel) << std::endl;
}

RandomProgram read_program(const std::string& text) {
  RandomProgram program{parse(text), {}, {}, {}};
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    words >> word >> word;
    if (word == "scalars:") {
      for (const Scalar& s : program.kernel.scalars) {
        words >> word >> word;
        const uint64_t bits = bits_of(s.var.type.dtype, nlohmann::json::parse(word.substr(word.find('=') + 1)));
        program.scalars.push_back(is_float(s.var.type.dtype) ? static_cast<int64_t>(bits)
                                                             : int_from_bits(s.var.type.dtype, bits));
      }
    } else if (word == "origins:") {
      for (size_t origin; words >> origin;) program.origins.push_back(origin);
    } else if (word == "data:") {
      const nlohmann::json data = nlohmann::json::parse(line.substr(line.find('{')));
      for (const Buffer& b : program.kernel.buffers) {
        const size_t size = static_cast<size_t>(size_of(b->dtype));
        std::vector<uint8_t> bytes;
        for (const nlohmann::json& value : data.at(b->name)) {
          const uint64_t bits = bits_of(b->dtype, value);
          bytes.resize(bytes.size() + size);
          std::memcpy(&bytes[bytes.size() - size], &bits, size);
        }
        program.buffers.push_back(std::move(bytes));
      }
    }
  }
  program.origins.resize(program.buffers.size());
  return program;
}

}  // namespace gradloom::ir::testing
