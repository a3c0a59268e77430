// tests/text/**/*.loop: kernels, and the results of the parser, the verifier, schedule steps and passes on them.
// tests/text/README.md documents the format. GRADLOOM_UPDATE=1 rewrites messages and outputs.
#include "tests/support/loop_file.h"

#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <functional>
#include <map>
#include <regex>
#include <sstream>

#include "gradloom/differentiate.h"
#include "gradloom/schedule.h"
#include "gradloom/text.h"
#include "ir/analysis/verify.h"
#include "ir/analysis/verify_gpu.h"
#include "ir/passes/passes.h"
#include "ir/schedule/schedule_default.h"
#include "tests/support/error_of.h"
#include "tests/support/gradient_check.h"
#include "tests/support/gradient_values.h"
#include "tests/support/schedule_support.h"

namespace gradloom::ir {
namespace {

const std::map<std::string, Stage> stages{
    {"authored", Stage::authored}, {"scheduled", Stage::scheduled}, {"lowered", Stage::lowered}};

// The lines above the body.
std::string head(Kernel kernel) {
  kernel.body = block({});
  return print(kernel);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, separator);)
    if (!word.empty()) words.push_back(word);
  return words;
}

class CaseCheck {
 public:
  explicit CaseCheck(LoopCase& c) : case_(c) {}

  // Whether the case was updated to the actual result.
  bool run() {
    bool passed = false;
    int expectations = 0;
    for (std::string& line : case_.header) {
      static const std::regex form(R"(// (\w+)(?: (.*?))?(?:: (.*))?)");
      std::smatch parts;
      if (!std::regex_match(line, parts, form)) continue;
      const std::string verb = parts[1], what = parts[2], message = parts[3];
      const auto expect = [&](const std::string& found) {
        if (compare(found, message)) return;
        line = "// " + verb + (what.empty() ? "" : " " + what) + (found.empty() ? "" : ": " + found);
      };
      if (verb == "roundtrip") {
        compare(print(kernel()), case_.kernel);
      } else if (verb == "error") {
        const std::string above(static_cast<size_t>(case_.kernel_line - 1), '\n');
        expect(error_of([&] { parse(above + case_.kernel); }));
      } else if (verb == "verify") {
        expect(error_of([&] { verify(kernel(), stages.at(what)); }));
      } else if (verb == "interpret") {
        expect(error_of([&] { ir::run(kernel(), usual_runs(kernel())[0], 1, {.explicit_barriers = true}); }));
      } else if (verb == "target") {
        read_target(what);
        continue;
      } else if (verb == "level") {
        level_ = what == "relaxed" ? Determinism::relaxed : Determinism::run_to_run;
        continue;
      } else if (verb == "run") {
        runs_ = read_runs(what);
        continue;
      } else if (verb == "step") {
        schedule().replay({what});
        EXPECT_EQ(schedule().trace().back(), what);
        SCOPED_TRACE(line);
        check_same(schedule().kernel());
      } else if (verb == "default") {
        expect(default_steps(what));
        SCOPED_TRACE(line);
        check_same(schedule().kernel());
      } else if (verb == "gradient" && !message.empty()) {
        expect(error_of([&] { differentiate(kernel(), derivation_of(what)); }));
      } else if (verb == "gradient") {
        SCOPED_TRACE(line);
        check_gradient(derivation_of(what));
        passed = true;
      } else if (verb == "values") {
        const std::string found = testing::gradient_at(kernel(), derivation_, what);
        if (!testing::same_numbers(found, message)) EXPECT_EQ(found, message);
      } else if (verb == "refused") {
        expect(unchanged([&] { return refusal([&] { schedule().replay({what}); }); }));
      } else if (verb == "wrong") {
        expect(unchanged([&] { return wrong([&] { schedule().replay({what}); }); }));
      } else if (verb == "pass" && !message.empty()) {
        expect(error_of([&] { apply(what); }));
      } else if (verb == "pass") {
        SCOPED_TRACE(line);
        check_output(apply(what));
        passed = true;
      } else if (verb == "unchanged" && what.starts_with("by ")) {
        compare(print(apply(what.substr(3))), print(schedule().kernel()));
      } else {
        continue;
      }
      ++expectations;
    }
    if (case_.has_output && !passed) check_output(schedule().kernel()), ++expectations;
    EXPECT_GT(expectations, 0) << "nothing is expected";
    return changed_;
  }

 private:
  Kernel kernel() const { return parse(case_.kernel); }
  Schedule& schedule() {
    if (!schedule_.kernel().body) schedule_ = Schedule(kernel(), level_);
    return schedule_;
  }

  void read_target(const std::string& words) {
    for (const std::string& word : split(words, ' ')) {
      if (word == "gpu")
        options_.gpu = true;
      else if (word == "fast_scatter")
        options_.fast_scatter = true;
      else if (word.starts_with("shared="))
        options_.shared_bytes = std::stoll(word.substr(7));
      else
        FAIL() << "no target: " << word;
    }
  }

  // The trace of the default schedule for this many threads, bytes of a vector and, if given, of the second-level
  // cache: "THREADS VECTOR_BYTES [L2_BYTES]".
  std::string default_steps(const std::string& numbers) {
    Target target{.gpu = options_.gpu};
    std::istringstream words(numbers);
    words >> target.threads >> target.vector_bytes;
    if (int64_t l2 = 0; words >> l2) target.l2_bytes = l2;
    const Kernel before = schedule().kernel();
    schedule().replay(schedule_default(before, target).trace);
    EXPECT_EQ(print(with_default_schedule(before, target)), print(schedule().kernel()))
        << "the trace gives another nest";
    std::string steps;
    for (const std::string& step : schedule().trace()) steps += (steps.empty() ? "" : "; ") + step;
    return steps;
  }

  // "x,w kept=x,y inactive=m tie=first"
  static Derivation derivation_of(const std::string& words) {
    Derivation how;
    for (const std::string& word : split(words, ' ')) {
      const size_t equals = word.find('=');
      const std::string name = equals == std::string::npos ? "wanted" : word.substr(0, equals);
      const std::vector<std::string> values = split(word.substr(equals == std::string::npos ? 0 : equals + 1), ',');
      if (name == "wanted") how.wanted = values;
      if (name == "kept") how.kept = values;
      if (name == "inactive") how.inactive = values;
      if (name == "seeded") how.seeded = values;
      if (name == "sums" && values[0] == "tree") how.sums = SumOrder::tree;
      for (const Tie tie : all_ties)
        if (name == "tie" && values[0] == to_string(tie)) how.tie = tie;
    }
    return how;
  }
  // The gradient is the tangent's transpose, and lowers; what is inactive passes none by the author's word.
  void check_gradient(const Derivation& how) {
    derivation_ = how;
    const Kernel gradient = differentiate(kernel(), how);
    verify(lower(gradient, options_), Stage::lowered);
    for (const ScalarValues& run : runs_.empty() ? usual_runs(kernel()) : runs_)
      for (const uint32_t seed : {1u, 2u}) {
        EXPECT_EQ(testing::gradient_difference(kernel(), how, run, seed), "");
        EXPECT_EQ(testing::quotient_difference(kernel(), how, run, seed), "");
      }
    if (case_.has_output && !compare(print(gradient.body), case_.output)) case_.output = print(gradient.body);
  }

  // "n=0,5 m=1,2": n=0 m=1, n=0 m=2, n=5 m=1, n=5 m=2.
  static std::vector<ScalarValues> read_runs(const std::string& words) {
    std::vector<ScalarValues> runs{{}};
    for (const std::string& word : split(words, ' ')) {
      const size_t equals = word.find('=');
      std::vector<ScalarValues> longer;
      for (const ScalarValues& run : runs)
        for (const std::string& value : split(word.substr(equals + 1), ',')) {
          longer.push_back(run);
          longer.back()[word.substr(0, equals)] = std::stoll(value);
        }
      runs = longer;
    }
    return runs;
  }
  // Several sizes within the scalars' ranges.
  static std::vector<ScalarValues> usual_runs(const Kernel& kernel) {
    if (kernel.scalars.empty()) return {{}};
    std::vector<ScalarValues> runs;
    for (const int64_t size : {0, 1, 5, 12}) runs.push_back(scalars_near(kernel, size));
    return runs;
  }

  // A nest after steps or passes verifies, lowers, and interprets to the same bits, also as lowered.
  void check_same(const Kernel& after) {
    const Kernel authored = kernel();
    ASSERT_EQ(error_of([&] { verify(after, Stage::scheduled); }), "") << print(after);
    const Kernel lowered = lower(after, options_);
    ASSERT_EQ(error_of([&] { verify(lowered, Stage::lowered); }), "") << print(lowered);
    if (options_.gpu) {
      EXPECT_TRUE(is_gpu(lowered)) << print(lowered);
      EXPECT_EQ(gpu_structure_error(lowered), "") << print(lowered);
    }
    for (const ScalarValues& run : runs_.empty() ? usual_runs(authored) : runs_) {
      expect_same(authored, after, run);
      expect_same(authored, lowered, run, options_.gpu);
    }
  }

  Kernel apply(const std::string& names) {
    Kernel result = schedule().kernel();
    for (std::string name : split(names, ',')) {
      name.erase(0, name.find_first_not_of(' '));
      result = name == "lower" ? lower(result, options_) : run_pass(name, result, options_);
      if (name == "simplify") {
        EXPECT_TRUE(simplify(result).body.same_as(result.body)) << "not settled: " << print(result);
      }
    }
    return result;
  }
  void check_output(const Kernel& result) {
    check_same(result);
    EXPECT_EQ(head(result), head(kernel()));
    if (case_.has_output && !compare(print(result.body), case_.output)) case_.output = print(result.body);
  }

  // A refused step leaves the schedule unchanged.
  std::string unchanged(const std::function<std::string()>& step) {
    const std::string before = print(schedule().kernel()), message = step();
    EXPECT_EQ(print(schedule().kernel()), before);
    return message;
  }

  bool compare(const std::string& found, const std::string& expected) {
    if (found == expected) return true;
    if (!std::getenv("GRADLOOM_UPDATE")) {
      EXPECT_EQ(found, expected);
    }
    changed_ = true;
    return false;
  }

  LoopCase& case_;
  LowerOptions options_{.shared_bytes = 1 << 10};
  std::vector<ScalarValues> runs_;
  Determinism level_ = Determinism::sequential;
  Schedule schedule_{{}};
  Derivation derivation_;  // the last one
  bool changed_ = false;
};

class LoopFile : public ::testing::TestWithParam<LoopCase> {};

TEST_P(LoopFile, HoldsWhatItSays) {
  LoopCase c = GetParam();
  const bool changed = CaseCheck(c).run();
  if (!changed || !std::getenv("GRADLOOM_UPDATE")) return;
  std::vector<LoopCase> file = read_loop_file(c.path);
  *std::find_if(file.begin(), file.end(), [&](const LoopCase& old) { return old.title == c.title; }) = c;
  write_loop_file(file);
}

std::string test_name(const ::testing::TestParamInfo<LoopCase>& info) {
  std::string name = info.param.path.lexically_relative(GRADLOOM_TEST_DIR "/text").replace_extension().string();
  if (!info.param.title.empty()) name += " " + info.param.title;
  for (char& letter : name)
    if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Text, LoopFile, ::testing::ValuesIn(loop_cases()), test_name);

}  // namespace
}  // namespace gradloom::ir
