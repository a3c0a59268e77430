#include "ops/registry.h"

namespace gradloom {

std::vector<const Op*> all_ops() {
  return {&broadcast_grad_op(),
          &broadcast_gradient_args_op(),
          &gather_elements_grad_op(),
          &gather_grad_op(),
          &gru_grad_op(),
          &gru_training_op(),
          &slice_grad_op()};
}

const Op* find_op(std::string_view name) {
  static const std::vector<const Op*> ops = all_ops();
  for (const Op* op : ops)
    if (op->schema().name == name) return op;
  return nullptr;
}

}  // namespace gradloom
