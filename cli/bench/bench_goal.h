#pragma once
// Goals of a benchmark and whether they were met.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "cli/command.h"

namespace gradloom::cli {

// A measured value and its goal.
struct Goal {
  std::string what;
  double value, wanted;
  bool at_most;  // else at least
  const char* unit;
  bool met() const { return at_most ? value <= wanted : value >= wanted; }
};

// Prints one line per goal; returns the exit code, 0 when all are met.
inline int verdict(const std::vector<Goal>& goals) {
  bool all = true;
  fmt::print("\n");
  for (const Goal& goal : goals) {
    fmt::print("{}: {} {:.3g}{}, wanted {} {:g}{}\n", goal.met() ? "met" : "MISSED", goal.what, goal.value, goal.unit,
               goal.at_most ? "at most" : "at least", goal.wanted, goal.unit);
    all &= goal.met();
  }
  return all ? 0 : exit_failure;
}

}  // namespace gradloom::cli
