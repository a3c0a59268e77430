#pragma once
// One constant object per op; registry.cpp lists them.
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

}  // namespace gradloom
