// `gradloom check`: runs the calls of cases and compares their outputs.
#include <fmt/format.h>
#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "cli/cases.h"
#include "cli/command.h"
#include "cli/text.h"
#include "runtime/backend/backend.h"

namespace gradloom::cli {
namespace {

struct CheckOptions {
  std::vector<std::string> paths, skip;
  ServeOptions serve;
};

bool matches(const std::string& pattern, const cases::Case& c) {
  return fnmatch(pattern.c_str(), c.name.c_str(), 0) == 0 || fnmatch(pattern.c_str(), c.op.c_str(), 0) == 0;
}

// Whether the case's op offers the strategy. Nothing for a rejected call or an unknown op: the case defines the
// expected outcome.
std::optional<bool> offers_strategy(const Runtime& runtime, const cases::Case& c, const RunOptions& run) {
  try {
    if (!find_op(c.op)) return std::nullopt;
    const Plan plan = cases::plan_of(c);
    return find_serving(*find_op(c.op), plan, run.strategy, runtime.target(),
                        run.any_shape && serves_any_shape(plan)) != nullptr;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// A status line rewritten in place, on a terminal only.
class Progress {
 public:
  explicit Progress(size_t total) : total_(total), shown_(isatty(STDERR_FILENO) != 0) {}
  void step(size_t done) const {
    if (shown_) to_stderr("\r{}/{}", done, total_);
  }
  void clear() const {
    if (shown_) to_stderr("\r\x1b[K");
  }

 private:
  size_t total_;
  bool shown_;
};

// Calls per executor: one line each, so that an executor that ran nothing is visible.
void print_executors(const Runtime& runtime) {
  const Stats stats = runtime.stats();
  const std::string name = runtime.target_name(), target = name.substr(0, name.find(' '));
  for (const std::string executor : {"interpreter", "llvm", "cuda-host", "cuda"}) {
    const bool interprets = executor == "interpreter", serves = executor == target && !interprets;
    const int64_t compiled = interprets ? stats.interpreted : serves ? stats.compiles - stats.interpreted : 0;
    const int64_t launched = interprets ? stats.interpreter_launches
                             : serves   ? stats.launches - stats.interpreter_launches
                                        : 0;
    fmt::print("{}: {} kernels compiled, {} launched\n", serves ? name : executor, compiled, launched);
  }
}

int check(const CheckOptions& options) {
  std::vector<std::filesystem::path> files;
  try {
    files = cases::find_cases(options.paths);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  if (files.empty())
    throw UsageError(fmt::format("no case in {}, expected .json files", fmt::join(options.paths, ", ")));

  Runtime runtime(options.serve.runtime());
  const std::string target = options.serve.target != "automatic" ? options.serve.target
                             : has_llvm()                        ? "llvm"
                                                                 : "interpreter";
  RunOptions run = options.serve.run();
  run.determinism = Determinism::sequential;  // the summation order of the cases' expected bits
  int64_t passed = 0, failed = 0, skipped = 0;
  bool served = false, lacking = false;  // whether any case's op offers --strategy, or lacks it
  const Progress progress(files.size());
  const auto fail = [&](const std::string& what) {
    progress.clear();
    fmt::print("FAIL {}\n", printable(what));
    ++failed;
  };
  for (size_t i = 0; i < files.size(); ++i) {
    progress.step(i);
    cases::Case c;
    try {
      c = cases::read_case(files[i]);
    } catch (const Error& error) {
      fail(error.what());
      continue;
    }
    const bool skip = std::any_of(options.skip.begin(), options.skip.end(),
                                  [&](const std::string& pattern) { return matches(pattern, c); });
    const std::optional<bool> offers = skip || run.strategy.empty() ? std::nullopt : offers_strategy(runtime, c, run);
    served = served || offers.value_or(false);
    lacking = lacking || !offers.value_or(true);
    if (skip || !offers.value_or(true)) {
      ++skipped;
      continue;
    }
    if (const auto what = cases::failure(runtime, c, target, run))
      fail(c.name + ": " + *what);
    else
      ++passed;
  }
  progress.clear();
  if (skipped > 0) fmt::print("{} skipped\n", skipped);
  if (lacking && !served)
    throw UsageError(
        fmt::format("check: got strategy \"{}\", expected one that serves a case (see `gradloom ops`)", run.strategy));
  print_executors(runtime);
  fmt::print("{} passed, {} failed\n", passed, failed);
  return failed == 0 ? 0 : exit_failure;
}

}  // namespace

void add_check(CLI::App& app, int& status) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* command = app.add_subcommand("check", "Run cases and compare with what they expect");
  command->add_option("path", options->paths, "case files, or folders of them (tests/golden/FORMAT.md describes them)")
      ->required();
  command->add_option("--skip", options->skip, "leave out cases whose name or op matches, such as 'GRU*'")
      ->allow_extra_args(false);
  options->serve.add_to(*command);
  command->footer(
      "One line a case that fails or cannot be read. Cases whose op does not offer --strategy for their shape are "
      "skipped.\n"
      "Exit code: 0 all passed, 1 some failed, 2 wrong usage.\n"
      "Examples:\n  gradloom check tests/golden --target interpreter\n  gradloom check tests/golden --target llvm "
      "--threads 2 --skip 'GRU*'\n"
      "  gradloom check tests/golden/gather_grad__embedding.json --strategy direct --any-shape");
  command->callback([options, &status] { status = check(*options); });
}

}  // namespace gradloom::cli
