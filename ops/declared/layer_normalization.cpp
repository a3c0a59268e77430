#include "ops/declared/declared_op.h"
#include "ops/registry.h"

namespace gradloom {
namespace {

using ir::AccumulateOp;

void write(DeclaredNest& n) {
  n.each_kept([&] {
    const auto sum = n.local("sum"), mean = n.local("mean"), center = n.local("center"), squares = n.local("squares"),
               deviation = n.local("deviation"), inverse = n.local("inverse");
    n.reduce(sum, AccumulateOp::add, [&] { return n["X"]; });
    n.put(mean, n[sum] / n.reduced_count());
    n.put(center, n[mean]);
    n.reduce(squares, AccumulateOp::add, [&] { return (n["X"] - n[center]) * (n["X"] - n[center]); });
    n.put(deviation,
          ir::unary(ir::UnaryOp::sqrt, n[squares] / n.reduced_count() + n.number(n.float_attribute("epsilon"))));
    n.put(inverse, n.number(1) / n[deviation]);
    n.put("Mean", n[mean]);
    n.put("InvStdDev", n[inverse]);
    n.along([&] {
      const ir::Expr scaled = (n["X"] - n[mean]) * n[inverse] * n["Scale"];
      n.put("Y", n("B") ? scaled + n["B"] : scaled);
    });
    n.known(mean, [&] { return n["Mean"]; });
    n.known(center, [&] { return n["Mean"]; });
    n.known(inverse, [&] { return n["InvStdDev"]; });
    n.known(deviation, [&] { return n.number(1) / n["InvStdDev"]; });
  });
}

}  // namespace

const DeclaredOps& layer_normalization() {
  static constinit Lasting<const DeclaredOps> ops;
  return ops.get([] {
    return DeclaredOps(
        {.name = "LayerNormalization",
         .doc = "X less its mean, divided by its deviation, over `axis` and all axes after it; scaled and shifted.",
         .inputs = {{.name = "X", .doc = "any shape of rank 1 or more"},
                    {.name = "Scale", .doc = "the shape of what is normalised", .over = Over::reduced, .type = "V"},
                    {.name = "B", .doc = "the same", .over = Over::reduced, .type = "V", .optional = true}},
         .outputs = {{.name = "Y", .doc = "X's shape"},
                     {.name = "Mean",
                      .doc = "X's shape with 1 for the axes that are normalised; f32",
                      .over = Over::kept_ones,
                      .type = "U",
                      .dtypes = {DType::f32, DType::f64},
                      .optional = true},
                     {.name = "InvStdDev",
                      .doc = "1 / the deviation, of the same shape; f32",
                      .over = Over::kept_ones,
                      .type = "U",
                      .dtypes = {DType::f32, DType::f64},
                      .optional = true}},
         .attributes =
             {{.name = "axis", .type = "int", .doc = "the first axis that is normalised", .otherwise = int64_t{-1}},
              {.name = "epsilon", .type = "float", .doc = "is added to the variance", .otherwise = 1e-5}},
         .reduced = Reduced::from_axis,
         .write = write,
         .gradient = {.name = "LayerNormalizationGrad",
                      .doc = "The gradients of LayerNormalization.",
                      .inputs = {{"Y_grad", "d_Y", "the gradient of Y"},
                                 {"X", "X", "LayerNormalization's input"},
                                 {"scale", "Scale", "the shape of what is normalised"},
                                 {"mean", "Mean", "LayerNormalization's Mean"},
                                 {"inv_std_dev", "InvStdDev", "its InvStdDev"}},
                      .outputs = {{"X_grad", "d_X", "the gradient of X"},
                                  {"scale_grad", "d_Scale", "the gradient of Scale"},
                                  {"bias_grad", "d_B", "the gradient of B"}},
                      .attributes = {"axis"},
                      // The sum of squares has no derivative by what is subtracted, as that is the mean.
                      .inactive = {"center"}}});
  });
}

}  // namespace gradloom
