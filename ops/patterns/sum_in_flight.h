#pragma once
// A sum whose values are read before they are needed, for nests of several ops on a GPU.
#include <functional>
#include <string>

#include "gradloom/builder.h"

namespace gradloom {

// value(first) + value(first + 1) + ..., in order, `count` of them: `together` are read before the first of them is
// added, in loops of this name.
ir::Expr author_sum_in_flight(ir::KernelBuilder& b, DType sum, const std::string& loop, const ir::Expr& first,
                              const ir::Expr& count, int64_t together,
                              const std::function<ir::Expr(const ir::Expr& i)>& value);

}  // namespace gradloom
