#pragma once
// A kernel's text at any stage, and the options that say for which machine: shared by `gradloom emit` and `gradloom
// nest`.
#include <CLI/CLI.hpp>
#include <string>

#include "ir/stmt.h"
#include "ir/target.h"

namespace gradloom::cli {

struct StageOptions {
  explicit StageOptions(std::string command) : command(std::move(command)) {}
  std::string command;  // for messages
  std::string stage, isa = "host", arch;
  int threads = 0;
  bool gpu = false;  // whatever the stage and --arch say

  void add_to(CLI::App& app, const std::string& stage_help);  // --stage, --isa, --arch, --threads
  bool for_gpu() const;
  int architecture() const;  // of the GPU: 90 when --arch does not say
  void check_isa() const;    // throws UsageError for an --isa that is none
  // What kernels are scheduled and lowered for. Throws UsageError.
  ir::Target target() const;
};

// The stages of a kernel. A `lowered` one is made for options.target(). Throws UsageError for a stage that the options
// do not have.
std::string stage_text(const ir::Kernel& authored, const ir::Kernel& scheduled, const ir::Kernel& lowered,
                       const StageOptions& options);

}  // namespace gradloom::cli
