#include "cli/nest_compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "ir/scalar_math.h"

namespace gradloom::nest {
namespace {

std::string outcome(const Ran& ran) {
  return ran.error ? fmt::format("{}: {}", to_string(ran.error->code()), ran.error->what()) : "no error";
}

bool same_value(DType dtype, uint64_t a, uint64_t b) {
  return a == b ||
         (is_float(dtype) && std::isnan(ir::double_from_bits(dtype, a)) && std::isnan(ir::double_from_bits(dtype, b)));
}

std::string with_bits(DType dtype, uint64_t bits) {
  return fmt::format("{} (0x{:0{}x})", value_text(dtype, bits), bits, 2 * size_of(dtype));
}

}  // namespace

std::optional<std::string> difference(std::span<const Ran> all) {
  std::vector<std::string> texts;
  for (const Ran& ran : all) texts.push_back(fmt::format("on {}: {}", ran.target, outcome(ran)));
  const Ran& first = all[0];
  if (!std::all_of(all.begin(), all.end(), [&](const Ran& ran) { return outcome(ran) == outcome(first); }))
    return fmt::format("{}", fmt::join(texts, "; "));
  if (first.error) return std::nullopt;
  for (size_t b = 0; b < first.call.buffers.size(); ++b) {
    const Argument& argument = first.call.buffers[b];
    const DType dtype = argument.declared->dtype;
    std::optional<std::string> found;
    if (!argument.written()) continue;
    argument.memory.each([&](int64_t position, int64_t offset) {
      const auto bits = [&](const Ran& ran) { return ran.call.buffers[b].memory.get(offset); };
      if (found || std::all_of(all.begin(), all.end(),
                               [&](const Ran& ran) { return same_value(dtype, bits(first), bits(ran)); }))
        return;
      texts.clear();
      for (const Ran& ran : all) texts.push_back(fmt::format("{} on {}", with_bits(dtype, bits(ran)), ran.target));
      found = fmt::format("kernel {}: buffer {} is {}", first.call.kernel.name, argument.element_name(position),
                          fmt::join(texts, ", "));
    });
    if (found) return found;
  }
  return std::nullopt;
}

}  // namespace gradloom::nest
