#pragma once
// The nests of `bench nests`: what a user would write (nests/*.loop), at one size each, against plain C++ loops.
#include <map>
#include <string>
#include <vector>

#include "gradloom/stmt.h"
#include "gradloom/tensor.h"

namespace gradloom::cli {

// Arguments in the order of the nest's buffers and scalars.
using NestLoop = void (*)(void* const* buffers, const int64_t* scalars);

struct NestCase {
  std::string name, nest;  // the nest's file
  std::vector<int64_t> scalars;
  NestLoop plain = nullptr;  // the loop of the nest, in its order
  NestLoop tuned = nullptr;  // the same sums in the same order, made fast by hand; none where plain is as good
  // Values of integer buffers by name, and of floats that are places: the first that is not below, and how they lie.
  struct Draw {
    int64_t bound;
    enum Lie : uint8_t { anywhere, ascending, spaced } lie = anywhere;
  };
  std::map<std::string, Draw> draws = {};
};
const std::vector<NestCase>& nest_cases();

// The nest for the case's sizes; with `any_shape`, its scalars stay.
ir::Kernel nest_kernel(const NestCase& c, bool any_shape);
// A tensor for each buffer of the nest; floats that are no places are in [-1, 1), outputs all NaN, or -1.
std::vector<Tensor> nest_buffers(const NestCase& c);

}  // namespace gradloom::cli
