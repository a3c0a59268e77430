#include "cli/emit_stage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/command.h"
#include "cli/emit_gpu.h"
#include "cli/text.h"
#include "gradloom/text.h"
#include "ir/passes/passes.h"
#include "runtime/backend/gpu_target.h"
#ifdef GRADLOOM_WITH_LLVM
#include "codegen/llvm/compiler.h"
#endif

namespace gradloom::cli {
namespace {

std::string machine_text([[maybe_unused]] const ir::Kernel& lowered, const StageOptions& options) {
#ifdef GRADLOOM_WITH_LLVM
  const codegen::Isa isa = options.isa == "host" ? codegen::host_isa() : codegen::isa_named(options.isa);
  return options.stage == "asm" ? codegen::emit_assembly(lowered, isa)
                                : codegen::emit_llvm(lowered, isa, options.stage == "llvm");
#else
  throw UsageError(fmt::format("{}: --stage is {}, expected authored, scheduled or lowered: this build has no LLVM",
                               options.command, options.stage));
#endif
}

std::string passes_text(const ir::Kernel& scheduled, const StageOptions& options) {
  ir::LowerOptions lowering = ir::lowering_for(options.target());
  ir::PassTimes times;
  lowering.times = &times;
  const auto [text, names] = ir::text_after(scheduled, lowering, options.after);
  if (!options.times && !text)
    throw UsageError(fmt::format("{}: --after is {}, expected a pass that runs for this target: {}", options.command,
                                 options.after, fmt::join(names, ", ")));
  if (text) return *text;
  Table table({"pass", ">ms"});
  double total = 0;
  for (size_t i = 0; i < times.size(); ++i) {
    table.row({names[i], milliseconds_text(times[i].second)});
    total += times[i].second;
  }
  table.row({"all", milliseconds_text(total)});
  return table.text();
}

}  // namespace

void StageOptions::add_to(CLI::App& app, const std::string& stage_help) {
  CLI::Option* option = app.add_option("--stage", stage, stage_help)
                            ->check(CLI::IsMember({"authored", "scheduled", "lowered", "llvm-raw", "llvm", "asm",
                                                   "cuda", "ptx", "sass-report"}));
  if (!stage.empty()) option->capture_default_str();
  CLI::Option* passes =
      app.add_option("--after", after, "print the kernel after this pass of its lowering instead, such as vectorize")
          ->excludes(option);
  app.add_flag("--times", times, "print how long each pass of its lowering took instead")
      ->excludes(option)
      ->excludes(passes);
  app.add_option("--isa", isa, "host, x86-64-v2, x86-64-v3 or x86-64-v4")->capture_default_str();
  app.add_option("--arch", arch, "for this GPU, such as sm_80; sm_90 for the stages of a GPU when not given");
  app.add_option("--threads", threads, "threads that the schedule is for; 0: as many as this process may use")
      ->check(CLI::Range(0, 1024));
}

bool StageOptions::for_gpu() const { return gpu || !arch.empty() || is_gpu_stage(stage); }

int StageOptions::architecture() const { return arch.empty() ? 90 : architecture_of(command, arch); }

void StageOptions::check_isa() const {
  if (isa == "host") return;
#ifdef GRADLOOM_WITH_LLVM
  try {
    codegen::isa_named(isa);
  } catch (const Error& error) {
    throw UsageError(fmt::format("{}: {}", command, error.what()));
  }
#else
  throw UsageError(fmt::format("{}: --isa is {}, expected host: this build has no LLVM", command, isa));
#endif
}

ir::Target StageOptions::target() const {
  if (for_gpu()) return gpu_target(architecture());
  check_isa();
  RuntimeOptions runtime;
  runtime.threads = threads;
#ifdef GRADLOOM_WITH_LLVM
  ir::Target target = isa == "host" ? codegen::host_isa().target : codegen::isa_named(isa).target;
  target.threads = Runtime(runtime).threads();
  return target;
#else
  return Runtime(runtime).target();
#endif
}

std::string stage_text(const ir::Kernel& authored, const ir::Kernel& scheduled, const ir::Kernel& lowered,
                       const StageOptions& options) {
  if (options.of_passes()) return passes_text(scheduled, options);
  if (options.stage == "authored" || options.stage == "scheduled" || options.stage == "lowered")
    return ir::print(options.stage == "authored" ? authored : options.stage == "scheduled" ? scheduled : lowered);
  if (is_gpu_stage(options.stage)) return gpu_text(lowered, options.stage, options.architecture());
  if (options.for_gpu()) {
    throw UsageError(
        fmt::format("{}: --stage is {}, expected authored, scheduled, lowered, cuda, ptx or sass-report {}",
                    options.command, options.stage, options.arch.empty() ? "for a GPU" : "with --arch"));
  }
  return machine_text(lowered, options);
}

}  // namespace gradloom::cli
