#pragma once
// The helpers that kernel text calls (their names start with gl_): conversions, exact arithmetic, ordered adds of a
// warp. Each has a device form and a host twin, so that the kernel text itself is portable.
#include <string>
#include <string_view>

namespace gradloom::codegen {

const char* common_prelude();  // part of both: what is plain C++
const char* host_prelude();    // for the host's C++ compiler, before the common part: the words that ask the executor
// For NVRTC, without includes: the helpers that this kernel text uses. Parsing all of them would cost a fifth of a
// small kernel's compile time.
std::string cuda_prelude(std::string_view kernel_text);

// The pieces of `helpers` (parted by empty lines; a piece uses only what stands above it) that define a name which the
// text, or a kept piece, mentions. Pieces that define no gl_ name are always kept.
std::string used_helpers(std::string_view helpers, std::string_view text);

}  // namespace gradloom::codegen
