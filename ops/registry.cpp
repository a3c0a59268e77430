#include "ops/registry.h"

namespace gradloom {

using OpOf = const Op& (*)();
static constexpr OpOf ops[] = {broadcast_grad_op,     broadcast_gradient_args_op,
                               embedding_bag_grad_op, gather_elements_grad_op,
                               gather_grad_op,        gru_grad_op,
                               gru_training_op,       index_grad_op,
                               slice_grad_op,         sparse_gather_grad_op};

std::vector<const Op*> all_ops() {
  std::vector<const Op*> all;
  for (const OpOf op : ops) all.push_back(&op());
  return all;
}

const Op* find_op(std::string_view name) {
  for (const OpOf op : ops)
    if (op().schema().name == name) return &op();
  return nullptr;
}

}  // namespace gradloom
