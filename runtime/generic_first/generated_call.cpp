#include "runtime/generic_first/generated_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "codegen/abi.h"

namespace gradloom {
namespace {

constexpr int64_t most_bytes = int64_t{1} << 30;

// Random sign and mantissa, exponents near that of 1.
uint64_t random_float(uint64_t bits, const DTypeInfo& info) {
  const auto exponent = static_cast<uint64_t>(info.exponent_bias()) - 3 + (bits >> 58) % 6;
  return (bits & ((uint64_t{1} << info.mantissa_bits) - 1)) | exponent << info.mantissa_bits |
         (bits >> 57 & 1) << (8 * info.bytes - 1);
}

void fill(GeneratedCall::Bytes memory, DType dtype, int64_t limit, std::mt19937_64& random) {
  const int width = size_of(dtype);
  const int64_t most = width == 1   ? std::numeric_limits<int8_t>::max()
                       : width == 2 ? std::numeric_limits<int16_t>::max()
                                    : std::numeric_limits<int32_t>::max();
  for (int64_t i = 0; i < memory.count / width; ++i) {
    const uint64_t bits = random();
    uint64_t value = 0;
    if (is_float(dtype))
      value = random_float(bits, info_of(dtype));
    else if (dtype == DType::boolean)
      value = bits & 1;
    else
      value = bits % static_cast<uint64_t>(std::min(limit, most));
    std::memcpy(memory.data + i * width, &value, static_cast<size_t>(width));
  }
}

// The limits to try for integers, widest first: an integer used as an index must be below some dim.
std::vector<int64_t> limits(const Plan& plan) {
  std::vector<int64_t> limits{1};
  for (const View& view : plan.views) {
    for (const int64_t dim : view.dims) limits.push_back(std::clamp<int64_t>(dim, 1, int64_t{1} << 30));
  }
  std::sort(limits.rbegin(), limits.rend());
  limits.erase(std::unique(limits.begin(), limits.end()), limits.end());
  return limits;
}

}  // namespace

GeneratedCall::Memory GeneratedCall::memory_of(const View& view, bool aligned) {
  int64_t low = 0, high = 0, elements = 1;
  for (int axis = 0; axis < view.dims.size(); ++axis) {
    elements *= view.dims[axis];
    const int64_t reach = (view.dims[axis] - 1) * view.strides[axis];
    (reach < 0 ? low : high) += reach;
  }
  Memory memory;
  if (elements == 0) low = high = 0;
  const int64_t width = size_of(view.dtype);
  memory.count = elements == 0 ? 0 : (high - low + 1) * width;
  bytes_ += std::min(memory.count, most_bytes + 1);
  if (bytes_ > most_bytes)
    throw Error(ErrorCode::resource_exhausted, fmt::format("calling it takes over {} bytes", most_bytes));
  memory.words.resize(static_cast<size_t>(memory.count / 8 + 18));
  const auto address = reinterpret_cast<uintptr_t>(memory.words.data());
  memory.start = static_cast<int64_t>((64 - address % 64) % 64) + (aligned ? 0 : width);
  memory.first = memory.start - low * width;
  return memory;
}

GeneratedCall::GeneratedCall(const PlannedCall& call, int output_sets) : plan_(call.plan) {
  const bool aligned = call.output_alignment == aligned_outputs;
  for (const View& view : plan_.views) inputs_.push_back(view.output ? Memory{} : memory_of(view, true));
  for (int set = 0; set < output_sets; ++set) {
    std::vector<Memory>& outputs = outputs_[static_cast<size_t>(set)];
    for (const View& view : plan_.views) outputs.push_back(view.output ? memory_of(view, aligned) : Memory{});
    for (size_t v = 0; v < outputs.size(); ++v) {
      Memory& memory = plan_.views[static_cast<int>(v)].output ? outputs[v] : inputs_[v];
      views_[static_cast<size_t>(set)][v] = memory.base() + memory.first;
    }
  }
}

void GeneratedCall::fill_outputs(int set) {
  std::mt19937_64 same(2);
  for (int v = 0; v < plan_.views.size(); ++v)
    if (plan_.views[v].output) fill(output(set, v), plan_.views[v].dtype, 2, same);
}

int64_t GeneratedCall::fill_inputs(const std::function<int64_t(void* const* views)>& launch) {
  int64_t bad_position = 0;
  for (const int64_t limit : limits(plan_)) {
    for (int v = 0; v < plan_.views.size(); ++v)
      if (!plan_.views[v].output) fill(inputs_[static_cast<size_t>(v)].bytes(), plan_.views[v].dtype, limit, random_);
    bad_position = launch(views(0));
    if (bad_position == no_bad_position) break;
  }
  return bad_position;
}

}  // namespace gradloom
