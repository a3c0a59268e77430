#pragma once
// Which pairs of values a valid call can have.
#include <algorithm>
#include <map>
#include <set>

#include "tests/support/pair_coverage.h"
#include "tests/support/sweep_factors.h"

namespace gradloom::sweep {

// Where each strategy is offered, as the ops declare it.
struct StrategyUse {
  std::set<std::string> ops;
  bool cpu = true, gpu = true, any_shape = true;
  Determinism level = Determinism::sequential;  // the strongest level at which it is offered
  std::set<DType> dtypes = {};                  // none: all of the op's
  bool overwrites = true, accumulates = true, extent_zero = false;
};
inline const std::map<std::string, StrategyUse>& strategy_uses() {
  static const std::set<std::string> gathers{"GatherGrad", "GatherElementsGrad"}, gru{"GRUTraining", "GRUGrad"},
      sorted{"GatherGrad", "GatherElementsGrad", "EmbeddingBagGrad", "IndexGrad"},
      touched{"GatherGrad", "GatherElementsGrad", "EmbeddingBagGrad", "IndexGrad"};
  static const std::map<std::string, StrategyUse> uses{
      {"flat", {.ops = {"SliceGrad"}, .extent_zero = true}},
      {"row", {.ops = gathers, .gpu = false}},
      {"strip", {.ops = gathers, .gpu = false}},
      {"pipelined", {.ops = {"GatherElementsGrad"}, .gpu = false, .any_shape = false}},
      {"grouped", {.ops = sorted}},
      {"sorted", {.ops = gathers, .cpu = false, .any_shape = false}},
      {"chunked", {.ops = gathers, .cpu = false, .any_shape = false, .level = Determinism::run_to_run}},
      {"partition", {.ops = gathers}},
      {"bins", {.ops = gathers, .cpu = false, .any_shape = false}},
      {"block", {.ops = gathers, .cpu = false}},
      {"atomic", {.ops = gathers, .cpu = false, .level = Determinism::relaxed, .dtypes = {DType::f32, DType::f64}}},
      {"touched", {.ops = touched, .overwrites = false}},
      {"touched_rows", {.ops = {"GatherGrad"}, .overwrites = false}},
      {"in_place", {.ops = gathers, .gpu = false, .dtypes = {DType::f32, DType::f64}, .accumulates = false}},
      {"staged", {.ops = {"BroadcastGrad"}, .cpu = false, .extent_zero = true}},
      {"split", {.ops = {"BroadcastGrad", "GRUTraining", "GRUGrad"}, .extent_zero = true}},
      {"blocks", {.ops = gru, .cpu = false, .extent_zero = true}},
      {"matrix",
       {.ops = gru,
        .cpu = false,
        .level = Determinism::run_to_run,
        .dtypes = {DType::f16, DType::bf16},
        .extent_zero = true}},
  };
  return uses;
}

inline bool op_allows(const Op& op, FactorValue v) {
  const std::string& name = op.schema().name;
  switch (v.factor) {
    case op_of:
      return all_ops()[static_cast<size_t>(v.value)] == &op;
    case dtype_of: {
      const std::vector<DType> dtypes = dtypes_of(op);
      return std::find(dtypes.begin(), dtypes.end(), static_cast<DType>(v.value)) != dtypes.end();
    }
    case strategy_of: {
      const std::string& strategy = strategy_names[static_cast<size_t>(v.value)];
      return strategy == "direct" || strategy_uses().at(strategy).ops.contains(name);
    }
    case accumulate_of:
      return v.value == 0 || (name.find("Grad") != std::string::npos && !op.schema().on_host);
    case traffic_of:
      return v.value == few_bytes || name != "BroadcastGradientArgs";
    default:
      return true;
  }
}

// The conditions under which a strategy is offered, beyond its ops.
inline bool strategy_allows(const std::string& strategy, FactorValue v) {
  if (strategy == "direct") return true;
  const StrategyUse& use = strategy_uses().at(strategy);
  switch (v.factor) {
    case level_of:
      return static_cast<Determinism>(v.value) >= use.level;
    case target_of:
      return v.value == on_llvm ? use.cpu : use.gpu;
    case kernel_of:
      return v.value == 0 || use.any_shape;
    case dtype_of:
      return use.dtypes.empty() || use.dtypes.contains(static_cast<DType>(v.value));
    case accumulate_of:
      return v.value == 0 ? use.overwrites : use.accumulates;
    case extent_of:
      return v.value != zero || use.extent_zero;
    default:
      return true;
  }
}

inline bool pair_is_possible(FactorValue a, FactorValue b) {
  const auto strategy_rules = [](FactorValue x, FactorValue y) {
    return x.factor != strategy_of || strategy_allows(strategy_names[static_cast<size_t>(x.value)], y);
  };
  if (!strategy_rules(a, b) || !strategy_rules(b, a)) return false;
  if (a.factor == traffic_of && b.factor == traffic_of) return a.value != few_bytes && b.value != few_bytes;
  const FactorValue bools{dtype_of, static_cast<int>(DType::boolean)}, accumulating{accumulate_of, 1};
  if (a == bools && b == accumulating) return false;
  const std::vector<const Op*> ops = all_ops();
  return std::any_of(ops.begin(), ops.end(), [&](const Op* op) { return op_allows(*op, a) && op_allows(*op, b); });
}

inline PairCoverage call_pairs() {
  return PairCoverage(
      factor_names(), [](int factor) { return factor == extent_of || factor == traffic_of; }, pair_is_possible);
}

}  // namespace gradloom::sweep
