// Random forward nests (support/random_forward.h): each has a gradient that is the transpose of its tangent, the same
// scheduled and lowered, or is refused; a nest that overwrites nothing is never refused. GRADLOOM_GRADIENTS: the number
// of seeds; GRADLOOM_GRADIENT_SEED: the first one; GRADLOOM_GRADIENT_PRINT=1: prints each.
#include <gtest/gtest.h>

#include <iostream>
#include <regex>

#include "ir/schedule/schedule_default.h"
#include "tests/support/environment.h"
#include "tests/support/gradient_check.h"
#include "tests/support/random_forward.h"

namespace gradloom::ir::testing {
namespace {

// What a refusal says, whatever its names.
std::string sort_of(const std::string& message) {
  return std::regex_replace(message.substr(message.find(": ", message.find("kernel"))),
                            std::regex("\\b(buffer|loop|of|than|needs|keep|for) [a-z]+[0-9]+"), "$1 _");
}

TEST(GradientFuzz, DerivedIsTheTangentsTransposeOrRefused) {
  const int64_t first = environment("GRADLOOM_GRADIENT_SEED", 1), count = environment("GRADLOOM_GRADIENTS", 300);
  std::map<std::string, int64_t> refused;
  int64_t derived = 0;
  for (int64_t seed = first; seed < first + count && !HasFailure(); ++seed) {
    const RandomForward nest = RandomForwardNest(static_cast<uint64_t>(seed)).build();
    if (std::getenv("GRADLOOM_GRADIENT_PRINT")) std::cout << "// seed " << seed << "\n" << nest.text;
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + nest.text);
    const Kernel forward = parse(nest.text);
    Derivation how{.wanted = {"x0", "x1"}};
    try {
      const Kernel gradient = differentiate(forward, how);
      ++derived;
      for (const int64_t n : {0, 1, 5}) {
        EXPECT_EQ(gradient_difference(forward, how, {{"n", n}}, static_cast<uint32_t>(seed)), "");
        if (HasFailure()) break;
        const Target target{.vector_bytes = 32, .threads = 2};
        const Kernel scheduled = with_default_schedule(gradient, target);
        EXPECT_TRUE(same_bits(gradient, scheduled, {{"n", n}}, 1)) << print(scheduled);
        EXPECT_TRUE(same_bits(gradient, lower(scheduled), {{"n", n}}, 1)) << print(lower(scheduled));
      }
    } catch (const DerivationRefusal& refusal) {
      ++refused[sort_of(refusal.what())];
      EXPECT_TRUE(nest.illegal) << refusal.what();
    }
  }
  std::cout << derived << " derived\n";
  for (const auto& [sort, times] : refused) std::cout << times << " refused" << sort << "\n";
  EXPECT_GT(4 * derived, 3 * count);
}

}  // namespace
}  // namespace gradloom::ir::testing
