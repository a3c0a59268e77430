#pragma once
// The stages of a GPU kernel: the text, NVRTC's output, and each function's resource usage per multiprocessor.
#include <string>

#include "gradloom/stmt.h"
#include "gradloom/target.h"

namespace gradloom::cli {

bool is_gpu_stage(const std::string& stage);  // cuda, ptx, sass-report
int architecture_of(const std::string& command,
                    const std::string& text);  // "sm_90" is 90; throws UsageError in the name of `command`
// Throws Error(unsupported) in a build without CUDA, Error(device_error) where NVRTC is missing.
std::string gpu_text(const ir::Kernel& lowered, const std::string& stage, int architecture);

}  // namespace gradloom::cli
