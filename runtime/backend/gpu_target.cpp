#include "runtime/backend/gpu_target.h"

#include <fmt/format.h>

#include <charconv>

namespace gradloom {

std::optional<int> architecture_named(std::string_view name) {
  int number = 0;
  const char* const end = name.data() + name.size();
  if (!name.starts_with("sm_") || std::from_chars(name.data() + 3, end, number).ptr != end || number < 50)
    return std::nullopt;
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

}  // namespace gradloom
