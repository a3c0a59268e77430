#include "ops/declared/declared_op.h"
#include "ops/registry.h"

namespace gradloom {
namespace {

using ir::AccumulateOp;
using ir::MathOp;

void write_softmax(DeclaredNest& n) {
  n.each_kept([&] {
    const auto top = n.local("top"), total = n.local("total"), e = n.row("e");
    n.reduce(top, AccumulateOp::max, [&] { return n["X"]; });
    n.along([&] { n.put(e, ir::math(MathOp::exp, n["X"] - n[top])); });
    n.reduce(total, AccumulateOp::add, [&] { return n[e]; });
    n.along([&] { n.put("Y", n[e] / n[total]); });
    // At the top of log(total), which changes no Y.
    n.known(e, [&] { return n["Y"]; });
    n.known(total, [&] { return n.number(1); });
  });
}

void write_log_softmax(DeclaredNest& n) {
  n.each_kept([&] {
    const auto top = n.local("top"), total = n.local("total"), shift = n.local("shift");
    n.reduce(top, AccumulateOp::max, [&] { return n["X"]; });
    n.reduce(total, AccumulateOp::add, [&] { return ir::math(MathOp::exp, n["X"] - n[top]); });
    n.put(shift, ir::math(MathOp::log, n[total]));
    n.along([&] { n.put("Y", n["X"] - n[top] - n[shift]); });
    // At X = Y, which gives the same Y, and at the top 0, which changes none.
    n.known(top, [&] { return n.number(0); });
    n.known(total, [&] { return n.number(1); });
  });
  n.known(n("X"), [&] { return n["Y"]; });
}

Declaration declaration(std::string name, std::string doc, void (*write)(DeclaredNest&)) {
  return {.name = name,
          .doc = std::move(doc),
          .inputs = {{.name = "X", .doc = "any shape of rank 1 or more"}},
          .outputs = {{.name = "Y", .doc = "X's shape"}},
          .attributes = {{.name = "axis", .type = "int", .doc = "the axis that sums to 1", .otherwise = int64_t{-1}}},
          .reduced = Reduced::axis,
          .write = write,
          .gradient = {.name = name + "Grad_13",
                       .doc = "The gradient of " + name + ", from its result.",
                       .inputs = {{"dY", "d_Y", "the gradient of Y"}, {"Y", "Y", "the result of " + name}},
                       .outputs = {{"dX", "d_X", "the gradient of X"}},
                       .attributes = {"axis"},
                       .inactive = {"top"}}};
}

}  // namespace

const DeclaredOps& softmax() {
  static constinit Lasting<const DeclaredOps> ops;
  return ops.get(
      [] { return DeclaredOps(declaration("Softmax", "exp(X) along an axis, divided by its sum.", write_softmax)); });
}

const DeclaredOps& log_softmax() {
  static constinit Lasting<const DeclaredOps> ops;
  return ops.get([] {
    return DeclaredOps(declaration("LogSoftmax", "The logarithm of Softmax along an axis.", write_log_softmax));
  });
}

}  // namespace gradloom
