#pragma once
// An op's nest as the gradient of a forward nest (gradloom/differentiate.h), on the op's own buffers.
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "gradloom/builder.h"
#include "gradloom/differentiate.h"
#include "ir/rewrite.h"

namespace gradloom {

class DerivedNest {
 public:
  // The forward nest's scalars, the variables in its parameters' dims, are in [least, most].
  DerivedNest(std::string forward_name, int64_t least_of_a_dim, int64_t most_of_a_dim)
      : forward(std::move(forward_name)), least_(least_of_a_dim), most_(most_of_a_dim) {}

  ir::KernelBuilder forward;  // dense inputs and outputs, and what they are computed by
  // A dim of a parameter. One of extent 1 is a scalar while the gradient is derived, so that its loops stay.
  ir::Expr dim(const ir::Expr& extent);
  std::vector<ir::Expr> dims(const std::vector<ir::Expr>& extents);

  // A scalar of the frame that the forward nest uses.
  void scalar(const ir::Expr& variable, const ir::Expr& min, const ir::Expr& max);

  // Where the gradient's parameters are: "d_Y" -> the view dY, of any strides, its dims no smaller. Where a view has
  // another dtype, elements are moved only: the gradient holds no other number than 0.
  using Views = std::unordered_map<std::string, ir::Buffer>;
  // What is stored to a wanted input's adjoint, from the element that is there and the total, in the accumulation
  // dtype. Where it adds to the element, elements that have no part of the gradient are not written.
  using Added = std::function<ir::Expr(const ir::Expr& element, const ir::Expr& total)>;
  // The body of the gradient, on the views; without `added` the totals are stored.
  ir::Stmt gradient(const ir::Derivation& how, const Views& views, const Added& added);

 private:
  const int64_t least_, most_;
  ir::Substitution ones_;
  std::vector<ir::Scalar> scalars_;
};

// Values for `Added`: the element and the total, rounded once; the total.
ir::Expr sum_of(const ir::Expr& element, const ir::Expr& total);
ir::Expr total_of(const ir::Expr& element, const ir::Expr& total);

}  // namespace gradloom
