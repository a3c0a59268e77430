#pragma once
// A user's kernel's declarations about its arguments, evaluated with the scalars of one call. Proofs rely on them, so a
// launch refuses violations.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gradloom/dims.h"
#include "gradloom/stmt.h"
#include "ir/scalar_program.h"

namespace gradloom {

// One 64-bit slot per scalar, as every executor reads them: integers sign- or zero-extended to 64 bits, booleans 0 or
// 1, floats as their bits. The caller's slot may differ above a narrow scalar's bits; `storage` is used only in that
// case.
std::span<const int64_t> scalar_slots(const ir::Kernel& kernel, std::span<const int64_t> scalars,
                                      std::vector<int64_t>& storage);
std::vector<int64_t> scalar_slots(const ir::Kernel& kernel, std::span<const int64_t> scalars);

// A declared range of values, of any dtypes, compared by value.
class DeclaredRange {
 public:
  DeclaredRange() = default;  // any value
  // Throws Error(invalid_argument) for a limit that cannot be evaluated.
  DeclaredRange(const ir::Kernel& kernel, const ir::Expr& min, const ir::Expr& max, std::span<const int64_t> slots);

  struct Limit {
    DType dtype = DType::i64;
    uint64_t bits = 0;
  };
  const std::optional<Limit>& min() const { return min_; }
  const std::optional<Limit>& max() const { return max_; }
  bool unlimited() const { return !min_ && !max_; }
  bool contains(DType dtype, uint64_t bits) const;  // a NaN is only in the unlimited range
  std::string text() const;                         // "in [0, 7]", "at most n - 1 (4)"

 private:
  std::optional<Limit> min_, max_;
  ir::Expr declared_min_, declared_max_;
};

// A kernel's argument declarations, compiled for evaluation at every launch.
class DeclaredArguments {
 public:
  explicit DeclaredArguments(const ir::Kernel& kernel);

  // Checks that every scalar is in its declared range. Throws Error(invalid_argument) naming the first that is not, its
  // value and the range.
  void check_scalars(std::span<const int64_t> slots) const;
  // A buffer's dims or strides (empty: dense). Throw Error(invalid_argument) for values that overflow or are undefined,
  // and for dims by scalars that are negative or, those of 0 left out, multiply to more than ir::max_elements.
  Dims dims(size_t buffer, std::span<const int64_t> slots) const;
  Dims strides(size_t buffer, std::span<const int64_t> slots) const;

 private:
  struct Value {
    ir::Expr expr;
    ir::ScalarProgram program;  // empty: no expression
  };
  struct Range {
    Value min, max;
  };
  struct Shape {
    std::vector<Value> dims, strides;
    bool by_scalars = false;  // some dim is given by scalars
  };
  Dims all(size_t buffer, const std::vector<Value>& list, const char* what, std::span<const int64_t> slots) const;

  ir::Kernel kernel_;
  std::vector<Range> scalars_;
  std::vector<Shape> buffers_;
};

// Whether two elements alias: proofs assume that the elements of a written buffer are distinct. Exact.
bool elements_overlap(const Dims& dims, const Dims& strides);

// "7", "-0.0", "nan"; a float as the shortest decimal that reads back.
std::string value_text(DType dtype, uint64_t bits);

// The names of a kernel's parameters, without backquotes. A repeated one is numbered, as in the text form: "n#1".
struct ParameterNames {
  explicit ParameterNames(const ir::Kernel& kernel);
  std::vector<std::string> scalars, buffers;
};

}  // namespace gradloom
