#pragma once
// What commands print: aligned tables, and tensors the way numpy shows them.
#include <string>
#include <vector>

#include "runtime/memory/tensor.h"

namespace gradloom::cli {

class Table {
 public:
  // A header that starts with '>' is right-aligned (numbers).
  explicit Table(std::vector<std::string> headers);
  void row(std::vector<std::string> cells);
  std::string text() const;

 private:
  std::vector<std::string> headers_;
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

// "[[1, 2],\n [3, 4]]"; above 1000 elements only the first and last three of each axis.
std::string tensor_text(const Tensor& dense);

std::string milliseconds_text(double ms);  // three significant digits

}  // namespace gradloom::cli
