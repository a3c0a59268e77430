#pragma once
// Cases: one call of an op with its expected outputs or error. One JSON file per case (tests/golden/FORMAT.md).
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gradloom/runtime.h"

namespace gradloom::cases {

struct Case {
  std::string name, op, source;
  Attributes attributes;
  std::vector<Tensor> inputs;      // absent tensors: optional inputs that are not given
  std::vector<Tensor> outputs;     // absent tensors: outputs that are not requested
  double rtol = 0, atol = 0;       // |got - want| <= atol + rtol * |want|; both 0: equal values
  std::vector<std::string> exact;  // targets on which the values must be equal regardless of the tolerance
  std::optional<ErrorCode> error;  // expected instead of outputs
  bool exact_on(std::string_view target) const;
};

// Throws Error(invalid_argument) with the file and what was expected in it.
Case read_case(const std::filesystem::path& file);

// A JSON object of them; null is an absent one. Throws Error(invalid_argument).
Attributes parse_attributes(const std::string& json);

// The .json files that are named or are in the named folders, sorted by path. Throws Error(invalid_argument) for a path
// that does not exist.
std::vector<std::filesystem::path> find_cases(const std::vector<std::string>& paths);

// One element as a case file writes it: "nan", "-0", "1e-42", "7", "true".
std::string element_text(const Tensor& dense, int64_t position);
double element_value(const Tensor& dense, int64_t position);

// The first difference, as "position [1,2]: got 3, want 4", or nothing. Both tensors are dense. NaN equals NaN, -0
// equals 0.
std::optional<std::string> difference(const Tensor& got, const Tensor& want, double rtol, double atol);
// The largest |got - want| / max(1, |want|) over all elements; infinity where one is NaN or infinite and the other is
// not the same.
double largest_error(const Tensor& got, const Tensor& want);

// Calls the op with the case's inputs; outputs that the case does not request are absent in the result.
Result<std::vector<Tensor>> call(Runtime& runtime, const Case& c, const RunOptions& options);
// The plan that the op's check makes of the call, for queries about it. Throws what the check throws.
Plan plan_of(const Case& c);

// Calls and compares. Nothing when everything matches, else one line on the mismatch. `target` is the name that the
// report must contain: "interpreter" or "llvm".
std::optional<std::string> failure(Runtime& runtime, const Case& c, std::string_view target,
                                   const RunOptions& options = {});

}  // namespace gradloom::cases
