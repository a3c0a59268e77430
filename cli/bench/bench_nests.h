#pragma once
// Nests that are no op of the library, as a user writes them and with the default schedule, against plain C++ loops.
#include <string>
#include <vector>

#include "gradloom/runtime.h"

namespace gradloom::cli {

struct NestOptions {
  std::vector<std::string> cases;  // empty: all
  double seconds = 1.5;
  bool any_shape = false, json = false;
};
// Throws UsageError for a name that is none of a case. Returns the exit code.
void check_nest_names(const std::vector<std::string>& cases);
int bench_nests(const NestOptions& options, Runtime& runtime);

}  // namespace gradloom::cli
