#pragma once
// The commands of `gradloom`, one file each. Each adds its subcommand to the app and sets `status` (the exit code) when
// it runs.
#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "cli/usage_error.h"
#include "gradloom/runtime.h"

namespace gradloom::cli {

void add_ops(CLI::App& app, int& status);
void add_check(CLI::App& app, int& status);
void add_run(CLI::App& app, int& status);
void add_bench(CLI::App& app, int& status);
void add_tune(CLI::App& app, int& status);
void add_emit(CLI::App& app, int& status);
void add_nest(CLI::App& app, int& status);
void add_differentiate(CLI::App& app, int& status);
void add_demo(CLI::App& app, int& status);
void add_cache(CLI::App& app, int& status);

inline constexpr int exit_failure = 1, exit_usage = 2;

// The options that select a call's executor, shared by several commands.
struct ServeOptions {
  std::string target = "automatic";
  std::string strategy;
  bool any_shape = false;
  int threads = 0;

  void add_to(CLI::App& app);
  RuntimeOptions runtime() const;
  RunOptions run() const;
};
bool built_with_cuda();
TargetKind target_named(const std::string& name);     // automatic for an unknown name
void add_target(CLI::App& app, std::string& target);  // --target

inline constexpr const char* level_names[] = {"sequential", "run-to-run", "relaxed"};  // by Determinism
// The level of a name; none for "".
std::optional<Determinism> determinism_of(const std::string& name);

}  // namespace gradloom::cli
