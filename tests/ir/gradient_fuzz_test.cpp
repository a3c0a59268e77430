// Random forward nests (support/random_forward.h): each has a gradient that is the transpose of its tangent, the same
// bits scheduled, lowered, and compiled for CPUs and, by the host's compiler, for a GPU; or is refused. A nest that
// overwrites nothing is never refused. GRADLOOM_GRADIENTS: the number of seeds; GRADLOOM_GRADIENT_SEED: the first one;
// GRADLOOM_GRADIENT_PRINT=1: prints each; GRADLOOM_GRADIENT_COMPILED=N: one in N is compiled.
#include <gtest/gtest.h>

#include <iostream>
#include <regex>

#include "ir/schedule/schedule_default.h"
#include "tests/support/environment.h"
#include "tests/support/gradient_check.h"
#include "tests/support/kernel_run.h"
#include "tests/support/random_forward.h"
#include "tests/support/refusal_audit.h"
#if GRADLOOM_WITH_CUDA
#include "tests/support/host_batch.h"
#endif

namespace gradloom::ir::testing {
namespace {

// What a refusal says, whatever its names.
std::string sort_of(const std::string& message) {
  return std::regex_replace(message.substr(message.find(": ", message.find("kernel"))),
                            std::regex("\\b(d_)?[a-z]+[0-9]+\\b"), "_");
}

#if GRADLOOM_WITH_CUDA
HostBatch batch;
#endif

// A gradient's own result, and that of its default schedules, compiled.
void expect_same_compiled(const Kernel& gradient, const ScalarValues& scalars, [[maybe_unused]] uint64_t seed) {
  const std::vector<int64_t> values{scalars.at("n")};
  Result expected{Arrays(1).memory(gradient, scalars)};
  const Memory start = expected.memory;
  expected.bad_position = interpret(gradient, pointers(expected.memory), values).bad_position;
#if GRADLOOM_WITH_LLVM
  const Kernel for_cpu = lower(with_default_schedule(gradient, {.vector_bytes = 32, .threads = 2}));
  for (const codegen::Isa& isa : instruction_sets(seed)) {
    Result result{start};
    result.bad_position = run_compiled(for_cpu, isa, pointers(result.memory), values);
    EXPECT_EQ(difference(gradient, expected, result), "") << isa.name << "\n" << print(for_cpu);
  }
#endif
#if GRADLOOM_WITH_CUDA
  const Target gpu{.gpu = true, .shared_bytes = 48 << 10};
  const Kernel for_gpu = lower(with_default_schedule(gradient, gpu), {.gpu = true, .shared_bytes = gpu.shared_bytes});
  batch.add("seed " + std::to_string(seed), codegen::emit_cuda(for_gpu),
            [=](const codegen::CudaModule& module, const codegen::HostModule& loaded) {
              Result result{start};
              result.bad_position = codegen::run_on_host(module, loaded, pointers(result.memory), values,
                                                         codegen::HostOrder::shuffled, 7);
              EXPECT_EQ(difference(gradient, expected, result), "") << "seed " << seed << "\n" << print(for_gpu);
            });
#endif
}

TEST(GradientFuzz, DerivedIsTheTangentsTransposeOrRefused) {
  const int64_t first = environment("GRADLOOM_GRADIENT_SEED", 1), count = environment("GRADLOOM_GRADIENTS", 300),
                each = environment("GRADLOOM_GRADIENT_COMPILED", sanitized ? 50 : 10);
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
      if (seed % each == 0) expect_same_compiled(gradient, {{"n", 5}}, static_cast<uint64_t>(seed));
    } catch (const DerivationRefusal& refusal) {
      ++refused[sort_of(refusal.what())];
      EXPECT_TRUE(nest.illegal) << refusal.what();
    }
  }
#if GRADLOOM_WITH_CUDA
  batch.flush();
#endif
  std::cout << derived << " derived\n";
  for (const auto& [sort, times] : refused) std::cout << times << " refused" << sort << "\n";
  EXPECT_GT(4 * derived, 3 * count);
}

// A nest's text with one thing in it that a gradient may have to refuse.
std::string spoiled(const std::string& text, std::mt19937_64& random) {
  const auto pick = [&](const std::vector<std::string>& all) { return all[random() % all.size()]; };
  const auto once = [&](const std::string& pattern, const std::string& with) {
    std::vector<std::smatch> found;
    const std::regex what(pattern);
    for (auto i = std::sregex_iterator(text.begin(), text.end(), what); i != std::sregex_iterator(); ++i)
      found.push_back(*i);
    if (found.empty()) return text;
    const std::smatch& m = found[random() % found.size()];
    return text.substr(0, static_cast<size_t>(m.position())) + m.format(with) +
           text.substr(static_cast<size_t>(m.position() + m.length()));
  };
  switch (random() % 15) {
    case 0:
      return once("( (?:\\+|max|min)= .*)", "$1 atomic");
    case 1:
      return once("  out y", "  inout y");
    case 2:
      return once("\\b(x[01]\\[[^\\]]*\\])", "bitcast(f32, bitcast(i32, $1))");
    case 3:
      return once("  in idx", "  in d_" + pick({"x0", "x1"}) + ": f32[3]\n  in idx");
    case 4:
      return once(" \\+= ", " *= ");
    case 5:
      return once("(\\n *)(\\w+\\[[^=\\n]*\\]) (\\+|max|min)= (.*)",
                  "$1$2 $3= $4$1$2 " + pick({"min", "max", "*"}) + "= 0.5f32");
    case 6:
      return once("\\[i[0-9]+ \\+ 1\\] = ", "[0] = ");
    case 7:
      return once("(\\n +)(y\\d+\\[[^=\\n]*\\] = [^\\n]*\\b(t\\d+\\[[^\\]\\n]*\\])[^\\n]*)", "$1$2$1$3 = 0.25f32");
    case 8:  // an extremum of two statements
      return once("(\\n *)(\\w+\\[[^=\\n]*\\]) (max|min)= ([^\\n]*)", "$1$2 $3= $4$1$2 $3= 0.5f32 * $4");
    case 9:  // a product whose factors come in two statements
      return once("(\\n *)(\\w+\\[[^=\\n]*\\]) \\*= ([^\\n]*)", "$1$2 *= $3$1$2 *= 0.5f32 * $3");
    case 10:  // in place over what has no gradient
      return once("(\\n *)(y\\d+\\[[^=\\n]*\\]) = ([^\\n]*)", "$1$2 = 0.25f32$1$2 = $2 * ($3)");
    case 11:  // the same where no loop is
      return once("(\\n *)(y\\d+\\[\\]) = ([^\\n]*)", "$1$2 = $3$1$2 *= 0.5f32 * $3$1$2 *= $3");
    case 12:  // what an iteration reads, the next one writes
      return once("(\\n +)(y\\d+\\[[^=\\n]*\\] = [^\\n]*\\b(t\\d+\\[[^\\]\\n]*\\])[^\\n]*)", "$1$3 = 0.25f32$1$2");
    default:
      return text;
  }
}

// By hand: GRADLOOM_GRADIENTS=100000; how often each occurs, and how often what it says does not show.
TEST(GradientFuzz, RefusalsAreTrue) {
  const int64_t first = environment("GRADLOOM_GRADIENT_SEED", 1), count = environment("GRADLOOM_GRADIENTS", 600);
  struct Times {
    int64_t refused = 0, gaps = 0;
    std::string gap;
  };
  std::map<std::string, Times> all;
  for (int64_t seed = first; seed < first + count && !HasFailure(); ++seed) {
    std::mt19937_64 random(static_cast<uint64_t>(seed) * 7919);
    const std::string text = spoiled(RandomForwardNest(static_cast<uint64_t>(seed)).build().text, random);
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + text);
    Kernel forward;
    try {
      forward = parse(text);
    } catch (const Error&) {
      continue;  // spoiled too far
    }
    Derivation how{.wanted = {"x0", "x1"}, .tie = all_ties[random() % std::size(all_ties)]};
    if (random() % 3 == 0) how.kept = std::vector<std::string>{random() % 2 ? "x0" : "idx"};
    try {
      differentiate(forward, how);
    } catch (const DerivationRefusal& refusal) {
      Times& times = all[sort_of(refusal.what())];
      ++times.refused;
      const std::string wrong = untrue(forward, text, how, refusal.what());
      EXPECT_EQ(wrong.find("no check of"), std::string::npos) << wrong;
      if (!wrong.empty() && ++times.gaps == 1) times.gap = wrong + "\n" + text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    }
  }
  for (const auto& [sort, times] : all) {
    std::cout << times.refused << " refused" << sort << "; " << times.gaps << " do not show\n";
    if (times.gaps && std::getenv("GRADLOOM_GRADIENT_PRINT")) std::cout << times.gap;
    if (times.refused >= 20) EXPECT_LT(times.gaps, times.refused) << sort;
  }
}

}  // namespace
}  // namespace gradloom::ir::testing
