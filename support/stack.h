#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace gradloom {

// Bytes left on this thread's stack; nothing where that cannot be told: on a stack of the host's own, such as a
// fiber's.
std::optional<int64_t> stack_left() noexcept;

// What it takes to make a call, to build a kernel of an op within it, and to interpret one (tests/runtime/life:
// SmallStacks).
inline constexpr int64_t call_stack_bytes = 24 << 10, compiler_stack_bytes = 80 << 10,
                         interpreter_stack_bytes = 40 << 10;

bool stack_suffices(int64_t bytes) noexcept;
// Throws Error(resource_exhausted) when it does not.
void require_stack(int64_t bytes, std::string_view kernel);

}  // namespace gradloom
