#pragma once
// Elementary functions as nests of ir nodes (fma, shifts, bitcasts, select), so that every executor gives the same
// bits, scalar or vector. They write lets into the builder's open scope and give the value. Arguments are f32 or f64.
// tests/ir/math_test.cpp holds the bounds against wider arithmetic.
//
// All: NaN gives NaN, denormal arguments and results are kept. A bound is in units of the last place of the result, for
// f32 and f64.
#include "gradloom/builder.h"

namespace gradloom::ir {

Expr exp(KernelBuilder& b, Expr x);       // 1.1 ulp; exp(-inf) = 0, exp(inf) = inf, overflow to inf, underflow gradual
Expr expm1(KernelBuilder& b, Expr x);     // 2.0 ulp; keeps the sign of 0; at least -1
Expr log(KernelBuilder& b, Expr x);       // 1.0 ulp; log(0) = -inf, log(inf) = inf, negative: NaN
Expr log1p(KernelBuilder& b, Expr x);     // 1.7 ulp; keeps the sign of 0; log1p(-1) = -inf, below: NaN
Expr tanh(KernelBuilder& b, Expr x);      // 2.7 ulp; odd, within [-1, 1], +-1 at the infinities
Expr logistic(KernelBuilder& b, Expr x);  // 1 / (1 + exp(-x)): 2.5 ulp; within [0, 1], 0 and 1 at the infinities
Expr softplus(KernelBuilder& b, Expr x);  // log(1 + exp(x)): 2.1 ulp; 0 at -inf, inf at inf

}  // namespace gradloom::ir
