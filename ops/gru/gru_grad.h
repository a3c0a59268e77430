#pragma once
// GRUGrad's outputs, by number.
#include "ops/gru/gru.h"

namespace gradloom {

inline constexpr int out_dx = 0, out_dw = 1, out_dr = 2, out_db = 3, out_dh0 = 4;

}  // namespace gradloom
