#pragma once
// The declarations of a random program so far, and the scope at its next statement.
#include <algorithm>
#include <string>
#include <vector>

#include "gradloom/builder.h"
#include "tests/support/random_program.h"

namespace gradloom::ir::testing {

struct ScalarValue {
  Expr e;
  int64_t slot;   // its bits, sign-extended
  bool positive;  // by its declared range
};
struct Array {
  Buffer buffer;
  std::vector<Expr> dims;
  std::vector<int64_t> sizes, strides;  // in this run; strides are empty for a dense one
  bool writable = false;
  enum class Values : uint8_t { any, within, sorted, permutation } values = Values::any;
  int64_t low = 0, high = 0;  // of values that are not `any`
  bool empty() const { return std::find(sizes.begin(), sizes.end(), 0) != sizes.end(); }
};
struct Within {  // e is in [0, size)
  Expr e;
  int64_t size;
};

struct ProgramScope {
  std::string name(const char* stem) { return stem + std::to_string(names++); }

  const ProgramShape& shape;
  KernelBuilder builder{"program"};
  std::vector<ScalarValue> scalars{};
  std::vector<Within> dims{};  // a dim's expression and its size in this run
  std::vector<Array> parameters{}, readable{}, writable{};
  std::vector<Expr> values{};    // lets and loop variables in scope, of any type
  std::vector<Within> within{};  // indices in scope
  std::vector<Expr> positive{};  // proved by a guard
  bool dead = false;             // this code never runs
  int64_t iterations = 1;        // of the enclosing loops
  int names = 0;
};

}  // namespace gradloom::ir::testing
