#include "cli/command.h"

namespace gradloom::cli {

bool built_with_cuda() {
#ifdef GRADLOOM_WITH_CUDA
  return true;
#else
  return false;
#endif
}

std::optional<Determinism> determinism_of(const std::string& name) {
  for (size_t level = 0; level < std::size(level_names); ++level)
    if (name == level_names[level]) return static_cast<Determinism>(level);
  return std::nullopt;
}

TargetKind target_named(const std::string& name) {
  return name == "interpreter" ? TargetKind::interpreter
         : name == "llvm"      ? TargetKind::llvm
         : name == "cuda"      ? TargetKind::cuda
         : name == "cuda-host" ? TargetKind::cuda_host
                               : TargetKind::automatic;
}

void add_target(CLI::App& app, std::string& target) {
  app.add_option("--target", target, "interpreter, llvm, cuda, or cuda-host (the text of GPU kernels, run by the CPU)")
      ->check(CLI::IsMember({"automatic", "interpreter", "llvm", "cuda", "cuda-host"}))
      ->capture_default_str();
}

void ServeOptions::add_to(CLI::App& app) {
  add_target(app, target);
  app.add_option("--strategy", strategy, "the op's strategy (see `gradloom ops`); chosen by shape when not given");
  app.add_flag("--any-shape", any_shape, "use the kernel that serves every shape of the rank");
  app.add_option("--threads", threads, "threads to run on; 0: as many as this process may use")
      ->check(CLI::Range(0, 1024));
}

RuntimeOptions ServeOptions::runtime() const {
  RuntimeOptions options;
  options.target = target_named(target);
  options.threads = threads;
  return options;
}

RunOptions ServeOptions::run() const {
  RunOptions options;
  options.strategy = strategy;
  options.any_shape = any_shape;
  return options;
}

}  // namespace gradloom::cli
