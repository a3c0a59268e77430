#pragma once
// One constant object per op, or per op and its gradient; registry.cpp lists them.
#include "gradloom/op.h"

namespace gradloom {

const Op& slice_grad_op();
const Op& broadcast_gradient_args_op();
const Op& broadcast_grad_op();
const Op& gather_grad_op();
const Op& gather_elements_grad_op();
const Op& embedding_bag_grad_op();
const Op& index_grad_op();
const Op& sparse_gather_grad_op();
const Op& gru_training_op();
const Op& gru_grad_op();

class DeclaredOps;  // ops/declared: an op and that of its gradient
std::vector<const DeclaredOps*> all_declared_ops();
const DeclaredOps& fast_gelu();
const DeclaredOps& gelu();
const DeclaredOps& layer_normalization();
const DeclaredOps& log_softmax();
const DeclaredOps& relu();
const DeclaredOps& softmax();
const DeclaredOps& softmax_cross_entropy_loss();

}  // namespace gradloom
