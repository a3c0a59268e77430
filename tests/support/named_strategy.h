#pragma once
// Kernels of a strategy by name, for tests.
#include "runtime/build.h"

namespace gradloom {

inline BuiltKernel build_kernel(const Op& op, const Plan& plan, std::string_view strategy, const ir::Target& target,
                                bool any_shape, int64_t output_alignment, bool accumulate) {
  const RunOptions options{.accumulate = accumulate, .any_shape = any_shape};
  return build_kernel({op, plan, find_strategy(op, strategy), options, ~0u, output_alignment}, target);
}

inline BuiltKernel author_kernel(const Op& op, const Plan& plan, std::string_view strategy, const ir::Target& target,
                                 bool any_shape, int64_t output_alignment, bool accumulate) {
  const RunOptions options{.accumulate = accumulate, .any_shape = any_shape};
  return author_kernel({op, plan, find_strategy(op, strategy), options, ~0u, output_alignment}, target);
}

inline ServingKernel build_serving(const Op& op, const Plan& plan, std::string_view strategy, const ir::Target& target,
                                   bool any_shape, int64_t output_alignment, bool accumulate,
                                   const Finish& finish = {}) {
  const RunOptions options{.accumulate = accumulate, .any_shape = any_shape};
  return build_serving({op, plan, find_strategy(op, strategy), options, ~0u, output_alignment}, target, finish);
}

inline std::string chosen_strategy(const Op& op, const Plan& plan, const ir::Target& target) {
  return choose_strategy(op, plan, "", target).name;
}
inline Determinism level_of(const Op& op, std::string_view strategy) { return find_strategy(op, strategy).level; }

}  // namespace gradloom
