#pragma once
#include <stdexcept>

namespace gradloom::cli {

// An invalid argument that the parser cannot detect: one line, exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace gradloom::cli
