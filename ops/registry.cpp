#include "ops/registry.h"

#include <algorithm>
#include <cctype>

#include "ops/declared/declared_op.h"

namespace gradloom {

using OpOf = const Op& (*)();
static constexpr OpOf ops[] = {broadcast_grad_op,     broadcast_gradient_args_op,
                               embedding_bag_grad_op, gather_elements_grad_op,
                               gather_grad_op,        gru_grad_op,
                               gru_training_op,       index_grad_op,
                               slice_grad_op,         sparse_gather_grad_op};

using DeclaredOpsOf = const DeclaredOps& (*)();
static constexpr DeclaredOpsOf declared[] = {fast_gelu, gelu,    layer_normalization,       log_softmax,
                                             relu,      softmax, softmax_cross_entropy_loss};

std::vector<const DeclaredOps*> all_declared_ops() {
  std::vector<const DeclaredOps*> all;
  for (const DeclaredOpsOf ops_of : declared) all.push_back(&ops_of());
  return all;
}

std::vector<const Op*> all_ops() {
  std::vector<const Op*> all;
  for (const OpOf op : ops) all.push_back(&op());
  for (const DeclaredOps* both : all_declared_ops()) all.insert(all.end(), {&both->forward(), &both->gradient()});
  const auto before = [](unsigned char a, unsigned char b) { return std::tolower(a) < std::tolower(b); };
  std::sort(all.begin(), all.end(), [&](const Op* a, const Op* b) {
    const std::string &x = a->schema().name, &y = b->schema().name;
    return std::lexicographical_compare(x.begin(), x.end(), y.begin(), y.end(), before);
  });
  return all;
}

const Op* find_op(std::string_view name) {
  for (const OpOf op : ops)
    if (op().schema().name == name) return &op();
  for (const DeclaredOpsOf ops_of : declared)
    for (const Op* op : {&ops_of().forward(), &ops_of().gradient()})
      if (op->schema().name == name) return op;
  return nullptr;
}

}  // namespace gradloom
