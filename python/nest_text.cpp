// A nest's text at any stage, as `gradloom nest` prints it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>

#include "gradloom/runtime.h"
#include "gradloom/schedule.h"
#include "gradloom/text.h"
#include "ir/passes/passes.h"
#include "ir/schedule/schedule_default.h"
#include "python/errors.h"
#include "python/nest.h"
#include "runtime/backend/gpu_target.h"
#ifdef GRADLOOM_WITH_LLVM
#include "codegen/llvm/compiler.h"
#endif
#ifdef GRADLOOM_WITH_CUDA
#include "codegen/cuda/nvrtc.h"
#endif

namespace gradloom::python {
namespace {

constexpr const char* cpu_stages[] = {"authored", "scheduled", "lowered", "llvm-raw", "llvm", "asm"};
constexpr const char* gpu_stages[] = {"authored", "scheduled", "lowered", "cuda", "ptx", "sass-report"};
constexpr int default_architecture = 90;

bool among(std::string_view stage, std::span<const char* const> stages) {
  return std::find(stages.begin(), stages.end(), stage) != stages.end();
}

// Nothing of a CPU's target.
std::optional<int> architecture_of(const std::string& target) {
  if (!target.starts_with("sm_")) return std::nullopt;
  if (const std::optional<int> number = architecture_named(target)) return number;
  refuse(fmt::format("target is {}; expected a GPU like sm_80, sm_90, sm_100", target));
}

std::string after_pass(const ir::Kernel& scheduled, const ir::Target& target, const std::string& after) {
  const auto [text, names] = ir::text_after(scheduled, ir::lowering_for(target), after);
  if (text) return *text;
  refuse(fmt::format("after is {}; expected a pass that runs for this target: {}", after, fmt::join(names, ", ")));
}

#ifdef GRADLOOM_WITH_CUDA
std::string gpu_text(const ir::Kernel& lowered, const std::string& stage, int architecture) {
  const codegen::CudaModule module = codegen::emit_cuda(lowered);
  if (stage == "cuda") return module.text;
  const codegen::Nvrtc& nvrtc = codegen::Nvrtc::get();
  if (stage == "ptx") return nvrtc.compile_to_ptx(module, architecture).images[0].bytes;
  const codegen::CudaBinary binary = nvrtc.compile_to_machine_code(module, architecture);
  std::string text;
  for (size_t i = 0; i < module.functions.size(); ++i) {
    const codegen::CudaResources& r = binary.resources[i];
    text += fmt::format(
        "{}: {} threads, {} registers, {} spill bytes, {} local bytes, {} shared bytes, {} code bytes\n", r.function,
        module.functions[i].threads, r.registers, r.spill_bytes, r.local_bytes, r.shared_bytes, r.code_bytes);
  }
  return text;
}
#else
std::string gpu_text(const ir::Kernel&, const std::string& stage, int) {
  throw Error(ErrorCode::unsupported, fmt::format("stage is {}: this build has no CUDA", stage));
}
#endif

#ifdef GRADLOOM_WITH_LLVM
codegen::Isa isa_of(const std::string& target) {
  return target.empty() || target == "host" ? codegen::host_isa() : codegen::isa_named(target);
}
ir::Target cpu_target(const std::string& target) { return isa_of(target).target; }
std::string machine_text(const ir::Kernel& lowered, const std::string& stage, const std::string& target) {
  const codegen::Isa isa = isa_of(target);
  return stage == "asm" ? codegen::emit_assembly(lowered, isa) : codegen::emit_llvm(lowered, isa, stage == "llvm");
}
#else
ir::Target cpu_target(const std::string&) { return Runtime().target(); }
std::string machine_text(const ir::Kernel&, const std::string& stage, const std::string&) {
  throw Error(ErrorCode::unsupported, fmt::format("stage is {}: this build has no LLVM", stage));
}
#endif

}  // namespace

std::string text_of(const Nest& nest, const TextOptions& options) {
  if (!among(options.stage, cpu_stages) && !among(options.stage, gpu_stages))
    refuse(fmt::format("stage is {}; allowed are {}, for a GPU {}", options.stage, fmt::join(cpu_stages, ", "),
                       fmt::join(std::span(gpu_stages).subspan(3), ", ")));
  const bool gpu_stage = !among(options.stage, cpu_stages);
  std::optional<int> architecture = architecture_of(options.target);
  if (gpu_stage && options.target.empty()) architecture = default_architecture;
  if (gpu_stage != architecture.has_value() && !(architecture && among(options.stage, gpu_stages)))
    refuse(fmt::format("stage is {} of target {}; allowed are {}", options.stage,
                       options.target.empty() ? "host" : options.target,
                       architecture ? fmt::join(gpu_stages, ", ") : fmt::join(cpu_stages, ", ")));
  ir::Target target = architecture ? gpu_target(*architecture) : cpu_target(options.target);
  if (!architecture) target.threads = Runtime({.threads = options.threads, .disk_cache = "off"}).threads();
  if (options.stage == "authored" && options.after.empty()) return ir::print(*nest.authored);
  ir::Kernel kernel = nest.kernel;
  // What Runtime does with a nest that has no schedule.
  if (nest.trace.empty()) kernel = ir::with_default_schedule(kernel, target);
  if (!options.after.empty()) return after_pass(kernel, target, options.after);
  if (options.stage == "scheduled") return ir::print(kernel);
  const ir::Kernel lowered = ir::lower(kernel, ir::lowering_for(target));
  if (options.stage == "lowered") return ir::print(lowered);
  return gpu_stage ? gpu_text(lowered, options.stage, *architecture)
                   : machine_text(lowered, options.stage, options.target);
}

}  // namespace gradloom::python
