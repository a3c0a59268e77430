#include "cli/emit_gpu.h"

#include <fmt/format.h>

#include "cli/command.h"
#include "cli/text.h"
#include "gradloom/error.h"
#include "runtime/backend/gpu_target.h"
#ifdef GRADLOOM_WITH_CUDA
#include "codegen/cuda/nvrtc.h"
#endif

namespace gradloom::cli {

bool is_gpu_stage(const std::string& stage) { return stage == "cuda" || stage == "ptx" || stage == "sass-report"; }

int architecture_of(const std::string& command, const std::string& text) {
  if (const std::optional<int> number = architecture_named(text)) return *number;
  throw UsageError(fmt::format("{}: --arch is {}, expected one like sm_80, sm_90, sm_100", command, text));
}

#ifdef GRADLOOM_WITH_CUDA
std::string gpu_text(const ir::Kernel& lowered, const std::string& stage, int architecture) {
  const codegen::CudaModule module = codegen::emit_cuda(lowered);
  if (stage == "cuda") return module.text;
  const codegen::Nvrtc& nvrtc = codegen::Nvrtc::get();
  if (stage == "ptx") return nvrtc.compile_to_ptx(module, architecture).images[0].bytes;
  const codegen::CudaBinary binary = nvrtc.compile_to_machine_code(module, architecture);
  Table table({"function", ">threads", ">registers", ">spill bytes", ">local bytes", ">shared bytes", ">code bytes"});
  for (size_t i = 0; i < module.functions.size(); ++i) {
    const codegen::CudaResources& r = binary.resources[i];
    table.row({r.function, fmt::format("{}", module.functions[i].threads), fmt::format("{}", r.registers),
               fmt::format("{}", r.spill_bytes), fmt::format("{}", r.local_bytes), fmt::format("{}", r.shared_bytes),
               fmt::format("{}", r.code_bytes)});
  }
  return fmt::format("NVRTC {}, sm_{}, {:.0f} ms\n\n{}", nvrtc.version(), architecture, binary.ms, table.text());
}
#else
std::string gpu_text(const ir::Kernel&, const std::string& stage, int) {
  throw Error(ErrorCode::unsupported, fmt::format("--stage is {}: this build has no CUDA", stage));
}
#endif

}  // namespace gradloom::cli
