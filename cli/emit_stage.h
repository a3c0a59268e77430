#pragma once
// A kernel's text at any stage, and the options that select the machine: shared by `gradloom emit` and `gradloom nest`.
#include <CLI/CLI.hpp>
#include <string>

#include "gradloom/stmt.h"
#include "gradloom/target.h"

namespace gradloom::cli {

struct StageOptions {
  explicit StageOptions(std::string command) : command(std::move(command)) {}
  std::string command;  // for messages
  std::string stage, after, isa = "host", arch;
  int threads = 0;
  bool times = false;
  bool gpu = false;  // regardless of the stage and --arch

  // --stage, --after, --times, --isa, --arch, --threads
  void add_to(CLI::App& app, const std::string& stage_help);
  bool of_passes() const { return !after.empty() || times; }     // output of passes, not of a stage
  bool prints() const { return !stage.empty() || of_passes(); }  // anything
  bool for_gpu() const;
  int architecture() const;  // of the GPU: 90 without --arch
  void check_isa() const;    // throws UsageError for an unknown --isa
  // The target that kernels are scheduled and lowered for. Throws UsageError.
  ir::Target target() const;
};

// The stages of a kernel, or what --after and --times print of its lowering. A `lowered` one is made for
// options.target(). Throws UsageError for a stage that the options do not have, and for a pass that did not run.
std::string stage_text(const ir::Kernel& authored, const ir::Kernel& scheduled, const ir::Kernel& lowered,
                       const StageOptions& options);

}  // namespace gradloom::cli
