// Strategies that are recipes: one authored nest, the definition's, and traces that make the same kernel of it again.
#include <set>

#include "gradloom/text.h"
#include "ops/registry.h"
#include "tests/ops/ops_expect.h"
#include "tests/support/named_strategy.h"

namespace gradloom {
namespace {

using namespace testing_ops;

const std::set<std::string> recipes{"row",          "strip",  "grouped", "direct", "in_place", "atomic",
                                    "touched_rows", "sorted", "chunked", "bins",   "block"};

// Without its first line, which names the strategy.
std::string body(const ir::Kernel& kernel) {
  const std::string text = ir::print(kernel);
  return text.substr(text.find('\n'));
}

struct RecipeCall {
  const char* op;
  Dims shape, indices;
  int64_t axis;
};

std::vector<Tensor> inputs_of(const RecipeCall& call) {
  const Tensor indices = Tensor::empty(DType::i64, call.indices);
  if (std::string(call.op) == "GatherElementsGrad")
    return {Tensor::empty(DType::f32, call.indices), ints({call.shape.begin(), call.shape.end()}), indices};
  Dims dy;
  for (int d = 0; d < call.axis; ++d) dy.push_back(call.shape[d]);
  for (const int64_t d : call.indices) dy.push_back(d);
  for (int d = static_cast<int>(call.axis) + 1; d < call.shape.size(); ++d) dy.push_back(call.shape[d]);
  return {ints({call.shape.begin(), call.shape.end()}), indices, Tensor::empty(DType::f32, dy)};
}

TEST(GatherRecipes, AreOfOneNestAndReplay) {
  const std::vector<RecipeCall> calls{{"GatherGrad", {5000, 100}, {8, 51}, 0},
                                      {"GatherGrad", {6, 500, 70}, {40}, 1},
                                      {"GatherGrad", {3000}, {400}, 0},
                                      {"GatherGrad", {3, 50000, 24}, {8, 5}, 1},
                                      {"GatherElementsGrad", {512, 640}, {300, 500}, 0},
                                      {"GatherElementsGrad", {300, 2000}, {300, 700}, 1}};
  const std::vector<ir::Target> targets{{.vector_bytes = 64, .l2_bytes = 1 << 20, .threads = 1},
                                        {.vector_bytes = 32, .l2_bytes = 1 << 14, .threads = 4},
                                        {.gpu = true}};
  std::set<std::string> seen;
  for (const RecipeCall& call : calls) {
    const Op& called = op(call.op);
    const std::vector<Tensor> inputs = inputs_of(call);
    const Operands operands(called.schema(), inputs);
    const Attributes attributes{{"axis", call.axis}};
    for (const bool accumulate : {false, true}) {
      const Plan plan = called.check(operands.request(attributes, ~0u, accumulate, Determinism::relaxed));
      for (const ir::Target& target : targets)
        for (const bool any_shape : {false, true}) {
          const RunOptions options{.accumulate = accumulate, .any_shape = any_shape};
          const auto planned = [&](const std::string& strategy) {
            return PlannedCall{called, plan, find_strategy(called, strategy), options, ~0u, aligned_outputs};
          };
          const std::string definition = body(author_kernel(planned("direct"), target).authored);
          for (const std::string& strategy : serving_names(called, plan, target, any_shape)) {
            if (!recipes.contains(strategy)) continue;
            SCOPED_TRACE(std::string(call.op) + " " + to_string(call.shape) + " " + strategy +
                         (any_shape ? " any" : "") + (accumulate ? " accumulate" : "") + (target.gpu ? " gpu" : ""));
            const BuiltKernel built = build_kernel(planned(strategy), target);
            seen.insert(strategy);
            EXPECT_EQ(body(built.authored), definition);
            if (target.gpu && strategy == "direct") continue;  // scheduled by default
            EXPECT_EQ(body(replay_kernel(planned(strategy), target, built.trace).scheduled), body(built.scheduled));
          }
        }
    }
  }
  EXPECT_EQ(seen, recipes);
}

}  // namespace
}  // namespace gradloom
