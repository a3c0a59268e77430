#pragma once
// Elementary functions expanded into ir nodes (fma, shifts, bitcasts, select), so that every executor computes the same
// bits, scalar or vector. They append lets to the builder's open scope and return the value. Arguments are f32 or f64.
//
// All: NaN gives NaN, denormal arguments and results are preserved. Error bounds are in units in the last place (ulp)
// of the result, for f32 and f64.
#include "gradloom/builder.h"

#pragma GCC visibility push(default)
namespace gradloom::ir {

Expr exp(KernelBuilder& b, Expr x);       // 1.1 ulp; exp(-inf) = 0, exp(inf) = inf, overflow to inf, underflow gradual
Expr expm1(KernelBuilder& b, Expr x);     // 2.0 ulp; keeps the sign of 0; at least -1
Expr log(KernelBuilder& b, Expr x);       // 1.0 ulp; log(0) = -inf, log(inf) = inf, negative: NaN
Expr log1p(KernelBuilder& b, Expr x);     // 1.7 ulp; keeps the sign of 0; log1p(-1) = -inf, below: NaN
Expr tanh(KernelBuilder& b, Expr x);      // 2.7 ulp; odd, within [-1, 1], +-1 at the infinities
Expr logistic(KernelBuilder& b, Expr x);  // 1 / (1 + exp(-x)): 2.5 ulp; within [0, 1], 0 and 1 at the infinities
Expr softplus(KernelBuilder& b, Expr x);  // log(1 + exp(x)): 2.1 ulp; 0 at -inf, inf at inf
Expr erf(KernelBuilder& b, Expr x);       // 1.3 ulp; odd, within [-1, 1], +-1 at the infinities; keeps the sign of 0
// Any finite argument, reduced exactly by as much of 2 / pi as it takes; NaN at the infinities.
Expr sin(KernelBuilder& b, Expr x);  // 0.9 ulp; odd, within [-1, 1]; keeps the sign of 0
Expr cos(KernelBuilder& b, Expr x);  // 0.9 ulp; even, within [-1, 1]
// x to a constant power, rounded to x's dtype, with C's values at 0, 1, infinities and NaN. 2.0 ulp; of the exponents
// 2, -1 and 0.5: 0.5 ulp.
Expr pow(KernelBuilder& b, Expr x, double exponent);

}  // namespace gradloom::ir

#pragma GCC visibility pop
