#pragma once
// GPUs by their names, where none is asked what it is: for emitted text, and for text that runs on the host.
#include <optional>
#include <string_view>

#include "gradloom/target.h"

namespace gradloom {

std::optional<int> architecture_named(std::string_view name);  // 90 of "sm_90"; nothing of another name
ir::Target gpu_target(int architecture);

}  // namespace gradloom
