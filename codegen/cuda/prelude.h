#pragma once
// The helpers that kernel text calls (their names start with gl_): conversions, exact arithmetic, lane-ordered updates
// of a warp. Each has a device and a host implementation, so that the kernel text itself is portable.
#include <string>
#include <string_view>

namespace gradloom::codegen {

const char* common_prelude();  // the part of both that is plain C++
const char* host_prelude();    // for the host's C++ compiler, before the common part: primitives that call the executor
// For NVRTC, without includes: the helpers that this kernel text uses. Parsing all of them would cost a fifth of a
// small kernel's compile time.
std::string cuda_prelude(std::string_view kernel_text);

// The sections of `helpers` that the text needs: those that define a name which the text, or a kept section, mentions.
// Sections are separated by empty lines and use only preceding ones; those that define no gl_ name are always kept.
std::string used_helpers(std::string_view helpers, std::string_view text);

}  // namespace gradloom::codegen
