// Hashes of the emitted code for every golden and bench case, by every strategy that serves it, specialised and
// any-shape: of the canonical text (support/canonical_text.h) of unoptimised LLVM IR and of CUDA C++, compared with
// those in emitted/hashes.txt. The targets are fixed here, so that the hashes are the same on every machine.
//
// GRADLOOM_UPDATE=1 rewrites the file; a commit that changes it states why. GRADLOOM_EMITTED_TEXTS=FOLDER writes the
// texts, so that two runs can be compared.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "cli/bench/bench_cases.h"
#include "cli/cases.h"
#include "gradloom/refusal.h"
#include "gradloom/text.h"
#include "ir/passes/passes.h"
#include "runtime/cache/kernel_key.h"
#include "support/hash.h"
#include "tests/support/canonical_text.h"
#include "tests/support/named_strategy.h"
#include "tests/support/sampled.h"
#if GRADLOOM_WITH_LLVM
#include "codegen/llvm/compiler.h"
#endif
#if GRADLOOM_WITH_CUDA
#include "codegen/cuda/module.h"
#endif

namespace gradloom {
namespace {

struct EmitTarget {
  ir::Target target;
  std::string features;  // empty: a GPU
};

const std::vector<EmitTarget>& targets() {
  static const std::string v3 =
      "+cx16,+sahf,+popcnt,+sse3,+ssse3,+sse4.1,+sse4.2,+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+xsave";
  static const std::vector<EmitTarget> all {
#if GRADLOOM_WITH_LLVM
    {{.name = "x86-64-v3", .vector_bytes = 32, .l1_bytes = 32 << 10, .l2_bytes = 1 << 20, .threads = 2}, v3},
        {{.name = "x86-64-v4",
          .vector_bytes = 64,
          .vector_registers = 32,
          .hardware_scatter = true,
          .fast_scatter = true,
          .l1_bytes = 48 << 10,
          .l2_bytes = 2 << 20,
          .threads = 2},
         v3 + ",+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"},
#endif
#if GRADLOOM_WITH_CUDA
        {{.name = "sm_90",
          .vector_bytes = 16,
          .gpu = true,
          .multiprocessors = 132,
          .shared_bytes = 227 << 10,
          .matrix_units = true},
         ""},
#endif
  };
  return all;
}

std::string canonical(const ir::Kernel& lowered, const EmitTarget& t) {
#if GRADLOOM_WITH_CUDA
  if (t.target.gpu) return canonical_cuda(codegen::emit_cuda(lowered).text);
#endif
#if GRADLOOM_WITH_LLVM
  return canonical_llvm(codegen::emit_llvm(lowered, {t.target.name, t.target.name, t.features, t.target}, false));
#endif
}

struct Call {
  std::string name;
  const Op* op;
  Plan plan;  // at the sequential level
};

// The timed calls of GRUGrad: the saved values have the dims of GRUTraining's outputs.
Plan plan_of(const cli::GruCase& c) {
  const int64_t s = c.steps, n = c.batch, i = c.inputs, h = c.hidden;
  const auto operand = [](const Dims& dims) { return Operand{true, DType::f32, dims, dense_strides(dims), nullptr}; };
  const Attributes attributes{{"linear_before_reset", int64_t{1}}};
  std::vector<Operand> inputs{
      operand({s, n, i}), operand({1, 3 * h, i}), operand({1, 3 * h, h}), operand({1, 6 * h}), {}, operand({1, n, h})};
  const Plan forward = find_op("GRUTraining")->check({.inputs = inputs, .attributes = attributes});
  for (const Dims& dims : {forward.outputs[0].dims, forward.outputs[2].dims, Dims{s, 1, n, h}})
    inputs.push_back(operand(dims));
  return find_op("GRUGrad")->check({.inputs = inputs, .attributes = attributes});
}

std::vector<Call> calls() {
  std::vector<Call> all;
  for (const std::filesystem::path& file : cases::find_cases({GRADLOOM_TEST_DIR "/golden"})) {
    const cases::Case c = cases::read_case(file);
    if (!c.error) all.push_back({file.stem().string(), find_op(c.op), cases::plan_of(c)});
  }
  for (const cli::BenchCase& c : cli::bench_cases()) {
    std::vector<std::vector<int64_t>> storage;
    const std::vector<Operand> operands = cli::bench_operands(c, storage);
    const Op* op = find_op(c.op);
    all.push_back({"bench__" + c.name, op, op->check({.inputs = operands, .attributes = c.attributes})});
  }
  for (const cli::GruCase& c : cli::gru_cases()) all.push_back({"bench__" + c.name, find_op("GRUGrad"), plan_of(c)});
  return all;
}

class Emitted {
 public:
  // "name target form: strategy hash ...", a line for each target and form.
  std::vector<std::string> lines(const Call& call) {
    std::vector<std::string> all;
    for (const EmitTarget& t : targets())
      for (const bool any_shape : {false, true}) {
        if (any_shape && !serves_any_shape(call.plan)) continue;
        std::string line = fmt::format("{} {} {}:", call.name, t.target.name, any_shape ? "any" : "own");
        std::vector<std::string> seen;
        // At the target's default level, then the strategies that serve the weakest level only.
        for (const Determinism level : {own_determinism(t.target), Determinism::relaxed}) {
          Plan plan = call.plan;
          plan.determinism = level;
          for (const std::string& strategy : serving_names(*call.op, plan, t.target, any_shape)) {
            if (std::find(seen.begin(), seen.end(), strategy) != seen.end()) continue;
            seen.push_back(strategy);
            line += fmt::format(" {} {}", strategy, hash(call, plan, strategy, t, any_shape));
          }
        }
        all.push_back(std::move(line));
      }
    return all;
  }

 private:
  std::string hash(const Call& call, const Plan& plan, const std::string& strategy, const EmitTarget& t,
                   bool any_shape) {
    // An any-shape kernel is scheduled for the call that it is built for; only GRU's, which takes seconds, is excluded.
    const bool shared = any_shape && call.op->schema().name.starts_with("GRU");
    const RunOptions options{.any_shape = shared, .determinism = plan.determinism};
    const KernelKey key({*call.op, plan, find_strategy(*call.op, strategy), options, ~0u, aligned_outputs});
    std::string& known = known_[t.target.name][any_shape][{key.words().begin(), key.words().end()}];
    if (known.empty())
      known = hash_of(fmt::format("{}-{}-{}-{}", call.name, t.target.name, any_shape ? "any" : "own", strategy), [&] {
        return canonical(build_kernel(*call.op, plan, strategy, t.target, any_shape, aligned_outputs, false).lowered,
                         t);
      });
    return known;
  }
  template <class Text>
  static std::string hash_of(const std::string& name, Text&& text_of) {
    std::string text;
    try {
      text = text_of();
    } catch (const ir::Refusal&) {
      return "refused";
    }
    if (const char* folder = std::getenv("GRADLOOM_EMITTED_TEXTS"))
      std::ofstream(std::filesystem::path(folder) / (name + ".txt")) << text;
    return to_hex(hash128(text)).substr(0, 12);
  }

  std::map<std::string, std::map<std::vector<uint64_t>, std::string>[2]> known_;  // by target, specialised or any-shape
};

const std::filesystem::path file = GRADLOOM_TEST_DIR "/emitted/hashes.txt";

TEST(Emitted, IsWhatItWas) {
  if (targets().size() < 3 && std::getenv("GRADLOOM_UPDATE"))
    FAIL() << "the file holds LLVM's and CUDA's hashes: update it with a build that has both";
  std::map<std::string, std::string> expected;  // by the text before the colon
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (!line.starts_with("#")) expected[line.substr(0, line.find(':'))] = line;
  Emitted emitted;
  std::string all =
      "# What tests/codegen/cuda/emitted_test.cpp emits: a line for each call, target and form. GRADLOOM_UPDATE=1 "
      "rewrites it.\n";
  size_t count = 0;
  for (const Call& call : calls()) {
    if (!sampled(count++, 64)) continue;
    for (const std::string& line : emitted.lines(call)) {
      if (!std::getenv("GRADLOOM_UPDATE")) {
        EXPECT_EQ(line, expected[line.substr(0, line.find(':'))]);
      }
      all += line + "\n";
    }
  }
  if (std::getenv("GRADLOOM_UPDATE")) std::ofstream(file) << all;
}

// A kernel whose names are `i` and `x`, or others; `step` is not renamed.
std::vector<std::string> texts(const std::string& i, const std::string& x, int step) {
  std::vector<std::string> all;
  for (const EmitTarget& t : targets()) {
    const std::string nest = fmt::format(
        fmt::runtime(
            t.target.gpu
                ? "for b in 0 .. 2 grid {{ for {i} in 0 .. 32 thread {{ {x}[b * 32 + {i}] += f32({i} * {step}) }} }}"
                : "for {i} in 0 .. 64 {{ {x}[{i}] += f32({i} * {step}) }}"),
        fmt::arg("i", i), fmt::arg("x", x), fmt::arg("step", step));
    const ir::Kernel kernel = ir::parse(fmt::format("kernel k() {{ inout {}: f32[64] {} }}", x, nest));
    all.push_back(canonical(ir::lower(kernel, {.gpu = t.target.gpu, .shared_bytes = t.target.shared_bytes}), t));
  }
  return all;
}

TEST(Emitted, NamesAreNoDifference) {
  const std::vector<std::string> known = texts("i", "x", 3), renamed = texts("some_counter", "values", 3),
                                 changed = texts("i", "x", 5);
  for (size_t t = 0; t < known.size(); ++t) {
    EXPECT_EQ(known[t], renamed[t]);
    EXPECT_NE(known[t], changed[t]);
  }
}

}  // namespace
}  // namespace gradloom
