#pragma once
// An in-order sum, unrolled so that several loads are in flight: for nests of several ops on a GPU.
#include <functional>
#include <string>

#include "gradloom/builder.h"

namespace gradloom {

// value(first) + value(first + 1) + ..., in order, `count` of them, in loops of this name: `loads_ahead` are loaded
// before the first of them is added.
ir::Expr author_unrolled_sum(ir::KernelBuilder& b, DType sum, const std::string& loop, const ir::Expr& first,
                             const ir::Expr& count, int64_t loads_ahead,
                             const std::function<ir::Expr(const ir::Expr& i)>& value);

}  // namespace gradloom
