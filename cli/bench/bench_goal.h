#pragma once
// What a bench is to show, and whether it did.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "cli/command.h"

namespace gradloom::cli {

// What a measurement came to beside what it should be.
struct Goal {
  std::string what;
  double value, wanted;
  bool at_most;  // else at least
  const char* unit;
  bool met() const { return at_most ? value <= wanted : value >= wanted; }
};

// Prints a line each; gives the exit code, 0 when all are met.
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
