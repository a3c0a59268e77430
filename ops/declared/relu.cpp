#include "ops/declared/declared_op.h"
#include "ops/registry.h"

namespace gradloom {
namespace {

void write(DeclaredNest& n) {
  n.each_kept([&] { n.put("Y", ir::max(n["X"], 0)); });
}

}  // namespace

const DeclaredOps& relu() {
  static constinit Lasting<const DeclaredOps> ops;
  return ops.get([] {
    return DeclaredOps({.name = "Relu",
                        .doc = "The larger of X and 0.",
                        .inputs = {{.name = "X", .doc = "any shape"}},
                        .outputs = {{.name = "Y", .doc = "X's shape"}},
                        .write = write,
                        .gradient = {.name = "ReluGrad",
                                     .doc = "The gradient of Relu: dY where X is above 0, else 0.",
                                     .inputs = {{"dY", "d_Y", "the gradient of Y"}, {"X", "X", "Relu's input"}},
                                     .outputs = {{"dX", "d_X", "the gradient of X"}},
                                     .tie = ir::Tie::none}});  // as ORT's: also of a NaN
  });
}

}  // namespace gradloom
