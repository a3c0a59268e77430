#pragma once
// The gradient of a nest of f64 at given numbers, by the interpreter: "x=1,-0 d_y=nan" -> "d_x=...".
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "gradloom/differentiate.h"
#include "ir/interpret/interpret.h"
#include "tests/support/schedule_support.h"

namespace gradloom::ir::testing {

using Numbers = std::map<std::string, std::vector<double>>;

inline Numbers numbers_of(const std::string& text) {
  Numbers result;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    std::istringstream values(word.substr(equals + 1));
    for (std::string value; std::getline(values, value, ',');)
      result[word.substr(0, equals)].push_back(std::strtod(value.c_str(), nullptr));
  }
  return result;
}

// Those that are not given start as NaN.
inline void interpret_at(const Kernel& kernel, Numbers& numbers) {
  std::vector<int64_t> scalars;
  ScalarValues named;
  for (const Scalar& s : kernel.scalars)
    scalars.push_back(named[s.var.name] = static_cast<int64_t>(numbers.at(s.var.name)[0]));
  std::vector<void*> buffers;
  for (const Buffer& b : kernel.buffers) {
    int64_t count = 1;
    for (const Expr& dim : b->dims) count *= value_of(dim, named);
    std::vector<double>& values = numbers[b->name];
    if (b->role != Role::out && static_cast<int64_t>(values.size()) != count)
      throw std::runtime_error(b->name + " takes " + std::to_string(count) + " numbers");
    values.resize(static_cast<size_t>(count), NAN);
    buffers.push_back(values.data());
  }
  interpret(kernel, buffers, scalars);
}

inline std::string gradient_at(const Kernel& forward, const Derivation& how, const std::string& inputs) {
  Numbers numbers = numbers_of(inputs);
  interpret_at(forward, numbers);
  interpret_at(differentiate(forward, how), numbers);
  std::string result;
  for (const std::string& x : how.wanted) {
    result += (result.empty() ? "d_" : " d_") + x + "=";
    const char* separator = "";
    for (const double v : numbers.at("d_" + x)) {
      char number[32];
      std::snprintf(number, sizeof number, "%s%.17g", std::exchange(separator, ","), std::isnan(v) ? NAN : v);
      result += number;
    }
  }
  return result;
}

// To what the stated errors of elementary functions allow; NaN is NaN, and both zeros are 0.
inline bool same_numbers(const std::string& a, const std::string& b) {
  const Numbers first = numbers_of(a), second = numbers_of(b);
  if (first.size() != second.size()) return false;
  for (const auto& [name, values] : first) {
    const auto other = second.find(name);
    if (other == second.end() || other->second.size() != values.size()) return false;
    for (size_t i = 0; i < values.size(); ++i) {
      const double x = values[i], y = other->second[i];
      if (x == y || (std::isnan(x) && std::isnan(y))) continue;
      if (!(std::abs(x - y) <= 1e-14 * std::abs(y))) return false;
    }
  }
  return true;
}

}  // namespace gradloom::ir::testing
