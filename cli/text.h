#pragma once
// Output formatting of commands: aligned tables, and tensors in numpy's style.
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <vector>

#include "gradloom/tensor.h"

namespace gradloom::cli {

// Prints to stderr. What cannot be printed, as where stderr is closed, changes no exit code.
template <class... Arguments>
void to_stderr(fmt::format_string<Arguments...> format, const Arguments&... arguments) {
  const std::string text = fmt::vformat(format, fmt::make_format_args(arguments...));
  std::fwrite(text.data(), 1, text.size(), stderr);
}

class Table {
 public:
  // A header that starts with '>' is right-aligned (numbers). `widths`: the minimum of each column.
  explicit Table(std::vector<std::string> headers, std::vector<size_t> widths = {});
  void row(std::vector<std::string> cells);
  std::string text() const;
  // A single line, as wide as the columns so far: for a table that is printed row by row.
  std::string line(const std::vector<std::string>& cells) const;
  const std::vector<std::string>& headers() const { return headers_; }

 private:
  std::vector<std::string> headers_;
  std::vector<size_t> widths_;
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

// "[[1, 2],\n [3, 4]]"; above 1000 elements only the first and last three of each axis.
std::string tensor_text(const Tensor& dense);

std::string milliseconds_text(double ms);  // three significant digits

}  // namespace gradloom::cli
