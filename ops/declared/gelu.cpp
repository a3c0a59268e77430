#include <cmath>
#include <numbers>

#include "ops/declared/declared_op.h"
#include "ops/registry.h"

namespace gradloom {
namespace {

using ir::MathOp;

void write_gelu(DeclaredNest& n) {
  n.each_kept([&] {
    const ir::Expr x = n["X"], normal = ir::math(MathOp::erf, x * n.number(std::numbers::sqrt2 / 2));
    n.put("Y", x * ir::fma(normal, n.number(0.5), n.number(0.5)));
  });
}

void write_fast_gelu(DeclaredNest& n) {
  n.each_kept([&] {
    const double root = std::sqrt(2 / std::numbers::pi);
    const ir::Expr x = n["X"], slope = ir::fma(x * x, n.number(root * 0.044715), n.number(root));
    n.put("Y", x * ir::fma(ir::math(MathOp::tanh, x * slope), n.number(0.5), n.number(0.5)));
  });
}

Declaration declaration(std::string name, std::string doc, void (*write)(DeclaredNest&)) {
  return {.name = name,
          .doc = std::move(doc),
          .inputs = {{.name = "X", .doc = "any shape"}},
          .outputs = {{.name = "Y", .doc = "X's shape"}},
          .write = write,
          .gradient = {.name = name + "Grad",
                       .doc = "The gradient of " + name + ".",
                       .inputs = {{"dY", "d_Y", "the gradient of Y"}, {"X", "X", name + "'s input"}},
                       .outputs = {{"dX", "d_X", "the gradient of X"}}}};
}

}  // namespace

const DeclaredOps& gelu() {
  static constinit Lasting<const DeclaredOps> ops;
  return ops.get([] {
    return DeclaredOps(declaration("Gelu", "X times the normal distribution's probability below X.", write_gelu));
  });
}

const DeclaredOps& fast_gelu() {
  static constinit Lasting<const DeclaredOps> ops;
  return ops.get([] {
    return DeclaredOps(declaration("FastGelu", "Gelu approximated by a hyperbolic tangent.", write_fast_gelu));
  });
}

}  // namespace gradloom
