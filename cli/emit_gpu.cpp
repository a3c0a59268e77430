#include "cli/emit_gpu.h"

#include <fmt/format.h>

#include <charconv>

#include "cli/command.h"
#include "cli/text.h"
#include "gradloom/error.h"
#ifdef GRADLOOM_WITH_CUDA
#include "codegen/cuda/nvrtc.h"
#endif

namespace gradloom::cli {

bool is_gpu_stage(const std::string& stage) { return stage == "cuda" || stage == "ptx" || stage == "sass-report"; }

int architecture_of(const std::string& command, const std::string& text) {
  int number = 0;
  const char* const end = text.data() + text.size();
  if (!text.starts_with("sm_") || std::from_chars(text.data() + 3, end, number).ptr != end || number < 50)
    throw UsageError(fmt::format("{}: --arch is {}, expected one like sm_80, sm_90, sm_100", command, text));
  return number;
}

ir::Target gpu_target(int architecture) {
  // Maximum shared memory per block: 163 KiB on 8.0, 99 on the smaller chips of 8.6, 8.9 and 12.0, 227 on 9.0 and 10.0.
  const int64_t shared = architecture == 80 || architecture == 87   ? 163
                         : architecture >= 90 && architecture < 120 ? 227
                                                                    : 99;
  return {.name = fmt::format("sm_{}", architecture),
          .vector_bytes = 16,
          .gpu = true,
          .multiprocessors = architecture == 80 ? 108 : 132,
          .shared_bytes = shared << 10,
          .matrix_units = architecture >= 80};
}

#ifdef GRADLOOM_WITH_CUDA
std::string gpu_text(const ir::Kernel& lowered, const std::string& stage, int architecture) {
  const codegen::CudaModule module = codegen::emit_cuda(lowered);
  if (stage == "cuda") return module.text;
  const codegen::Nvrtc& nvrtc = codegen::Nvrtc::get();
  if (stage == "ptx") return nvrtc.compile_to_ptx(module, architecture).images[0].bytes;
  const codegen::CudaBinary binary = nvrtc.compile(module, architecture, true);
  if (binary.ptx)
    throw Error(ErrorCode::unsupported,
                fmt::format("NVRTC {} makes no machine code for sm_{}", nvrtc.version(), architecture));
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
