// Compares two kernels of one call on generated inputs. Floats have mixed signs and full mantissas, so that a different
// summation order would show; integers are small enough to be indices.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "codegen/abi.h"
#include "runtime/generic_first/specialise.h"
#include "runtime/memory/recycler.h"
#include "runtime/threads/threads.h"

namespace gradloom {
namespace {

constexpr int64_t most_bytes = int64_t{1} << 30;  // of inputs and both kernels' outputs

// The memory of one view, with its element [0, ..., 0] inside.
struct Memory {
  std::vector<uint64_t> words;
  int64_t start = 0;  // offset of its first byte: all words start at the same alignment
  int64_t first = 0;  // byte offset of that element
  int64_t bytes = 0;
  void* data() { return reinterpret_cast<char*>(words.data()) + first; }
};

Memory memory_of(const View& view, bool aligned) {
  int64_t low = 0, high = 0, elements = 1;
  for (int axis = 0; axis < view.dims.size(); ++axis) {
    elements *= view.dims[axis];
    const int64_t reach = (view.dims[axis] - 1) * view.strides[axis];
    (reach < 0 ? low : high) += reach;
  }
  Memory memory;
  if (elements == 0) low = high = 0;
  const int64_t width = size_of(view.dtype);
  memory.bytes = elements == 0 ? 0 : (high - low + 1) * width;
  if (memory.bytes > most_bytes)
    throw Error(ErrorCode::resource_exhausted, fmt::format("comparing it takes over {} bytes", most_bytes));
  memory.words.resize(static_cast<size_t>(memory.bytes / 8 + 18));
  const auto address = reinterpret_cast<uintptr_t>(memory.words.data());
  memory.start = static_cast<int64_t>((64 - address % 64) % 64) + (aligned ? 0 : width);
  memory.first = memory.start - low * width;
  return memory;
}

// Random sign and mantissa, exponents near that of 1.
uint64_t random_float(uint64_t bits, const DTypeInfo& info) {
  const auto exponent = static_cast<uint64_t>(info.exponent_bias()) - 3 + (bits >> 58) % 6;
  return (bits & ((uint64_t{1} << info.mantissa_bits) - 1)) | exponent << info.mantissa_bits |
         (bits >> 57 & 1) << (8 * info.bytes - 1);
}

void fill(Memory& memory, DType dtype, int64_t limit, std::mt19937_64& random) {
  const int width = size_of(dtype);
  char* const bytes = reinterpret_cast<char*>(memory.words.data()) + memory.start;
  const int64_t count = memory.bytes / width;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bits = random();
    uint64_t value = 0;
    if (is_float(dtype))
      value = random_float(bits, info_of(dtype));
    else if (dtype == DType::boolean)
      value = bits & 1;
    else
      value = bits % static_cast<uint64_t>(std::min<int64_t>(limit, width == 1 ? 127 : 32767));
    std::memcpy(bytes + i * width, &value, static_cast<size_t>(width));
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

std::optional<std::string> different_results(const KernelSource& source, const KernelEntry& own,
                                             const KernelEntry& generic, const PlannedCall& call) {
  const Plan& plan = call.plan;
  const Threads one_thread(1, nullptr);
  Recycler recycler(0);
  std::mt19937_64 random(1);
  const bool aligned = call.output_alignment == aligned_outputs;
  std::vector<Memory> inputs, outputs[2];
  int64_t bytes = 0;
  void* views[2][max_views];
  for (const View& view : plan.views) {
    inputs.push_back(memory_of(view, view.output ? aligned : true));
    bytes += inputs.back().bytes * (view.output ? 2 : 1);
    if (bytes > most_bytes)
      throw Error(ErrorCode::resource_exhausted, fmt::format("comparing it takes over {} bytes", most_bytes));
  }
  for (auto& side : outputs) {
    for (const View& view : plan.views) side.push_back(view.output ? memory_of(view, aligned) : Memory{});
  }
  const auto launch = [&](int side, const KernelEntry& entry) {
    std::mt19937_64 same(2);
    for (int v = 0; v < plan.views.size(); ++v) {
      if (plan.views[v].output) fill(outputs[side][v], plan.views[v].dtype, 2, same);
      views[side][v] = plan.views[v].output ? outputs[side][v].data() : inputs[v].data();
    }
    int64_t scalars[max_scalars];
    fill_scalars(plan, entry.sources, scalars);
    return source.launch(entry, views[side], scalars, {}, one_thread, recycler);
  };
  int64_t bad_position = 0;
  for (const int64_t limit : limits(plan)) {
    for (int v = 0; v < plan.views.size(); ++v) {
      if (!plan.views[v].output) fill(inputs[v], plan.views[v].dtype, limit, random);
    }
    bad_position = launch(0, generic);
    if (bad_position == no_bad_position) break;
  }
  const int64_t own_position = launch(1, own);
  if (own_position != bad_position)
    return fmt::format("its Check failed at {}, the other's at {}", own_position, bad_position);
  if (bad_position != no_bad_position) return std::nullopt;  // outputs are unspecified
  for (int v = 0; v < plan.views.size(); ++v) {
    const View& view = plan.views[v];
    if (!view.output || plan.outputs[view.index].internal || outputs[0][v].bytes == 0) continue;
    if (std::memcmp(views[0][v], views[1][v], static_cast<size_t>(outputs[0][v].bytes)) != 0)
      return fmt::format("output {} differs on generated inputs", view.index);
  }
  return std::nullopt;
}

}  // namespace gradloom
