#include "cli/nest_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <unordered_map>

#include "ir/interpret/memory.h"

namespace gradloom::nest {
namespace {

constexpr int64_t guard_bytes = 256;
constexpr unsigned char guard_byte = 0xa5, unset_byte = 0xff;

struct Extent {
  __int128 elements = 1, low = 0, high = 0;  // low, high: bytes from element [0, ..., 0]; both 0 without elements
};

Extent extent_of(DType dtype, const Dims& dims, const Dims& strides) {
  Extent extent;
  for (const int64_t dim : dims) {
    if (dim == 0) return {.elements = 0};
    extent.elements = std::min<__int128>(extent.elements * dim, __int128{1} << 100);
  }
  const int width = size_of(dtype);
  for (int d = 0; d < dims.size(); ++d) {
    const __int128 reach = static_cast<__int128>(dims[d] - 1) * strides[d] * width;
    (reach < 0 ? extent.low : extent.high) += reach;
  }
  extent.high += width;
  return extent;
}

int64_t lead_of(const Extent& extent, int64_t alignment) {
  const int64_t before = static_cast<int64_t>(-extent.low) + guard_bytes;
  return (before + alignment - 1) / alignment * alignment;
}

int64_t block_alignment(int64_t declared) { return std::max<int64_t>(declared, 64); }

std::shared_ptr<char> allocate(int64_t bytes, int64_t alignment) {
  const std::align_val_t align{static_cast<size_t>(alignment)};
  return {static_cast<char*>(::operator new(static_cast<size_t>(bytes), align)),
          [align](char* data) { ::operator delete(data, align); }};
}

[[noreturn]] void refuse(const ir::Kernel& kernel, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, fmt::format("kernel {}: {}", kernel.name, what));
}

}  // namespace

std::optional<int64_t> Memory::bytes_of(DType dtype, const Dims& dims, const Dims& strides, int64_t alignment) {
  const Extent extent = extent_of(dtype, dims, strides);
  if (extent.elements > most_bytes || extent.high - extent.low > most_bytes || alignment > most_bytes)
    return std::nullopt;
  const int64_t bytes = lead_of(extent, block_alignment(alignment)) + static_cast<int64_t>(extent.high) + guard_bytes;
  return bytes <= most_bytes ? std::optional(bytes) : std::nullopt;
}

// Precondition: bytes_of returns a number.
Memory::Memory(DType dtype, const Dims& dims, const Dims& strides, int64_t alignment)
    : dtype_(dtype), dims_(dims), strides_(strides), alignment_(block_alignment(alignment)) {
  const Extent extent = extent_of(dtype, dims, strides);
  elements_ = static_cast<int64_t>(extent.elements);
  low_ = static_cast<int64_t>(extent.low);
  high_ = static_cast<int64_t>(extent.high);
  lead_ = lead_of(extent, alignment_);
  size_ = high_ + guard_bytes;
  block_ = allocate(lead_ + size_, alignment_);
  first_ = block_.get() + lead_;
  std::memset(first_ + low_ - guard_bytes, guard_byte, static_cast<size_t>(high_ - low_ + 2 * guard_bytes));
  each([&](int64_t, int64_t offset) { std::memset(first_ + offset * size_of(dtype_), unset_byte, size_of(dtype_)); });
}

Memory::Memory(const Memory& other)
    : dtype_(other.dtype_),
      dims_(other.dims_),
      strides_(other.strides_),
      alignment_(other.alignment_),
      elements_(other.elements_),
      lead_(other.lead_),
      size_(other.size_),
      low_(other.low_),
      high_(other.high_),
      block_(allocate(lead_ + size_, alignment_)),
      first_(block_.get() + lead_) {
  std::memcpy(first_ + low_ - guard_bytes, other.first_ + low_ - guard_bytes,
              static_cast<size_t>(high_ - low_ + 2 * guard_bytes));
}

Memory& Memory::operator=(Memory other) {
  std::swap(dtype_, other.dtype_), std::swap(dims_, other.dims_), std::swap(strides_, other.strides_),
      std::swap(alignment_, other.alignment_);
  std::swap(elements_, other.elements_), std::swap(lead_, other.lead_), std::swap(size_, other.size_),
      std::swap(low_, other.low_);
  std::swap(high_, other.high_), std::swap(block_, other.block_), std::swap(first_, other.first_);
  return *this;
}

uint64_t Memory::get(int64_t offset) const {
  uint64_t bits = 0;
  std::memcpy(&bits, first_ + offset * size_of(dtype_),
              static_cast<size_t>(size_of(dtype_)));  // little endian: the low bytes are the value
  return bits;
}

void Memory::set(int64_t offset, uint64_t bits) {
  std::memcpy(first_ + offset * size_of(dtype_), &bits, static_cast<size_t>(size_of(dtype_)));
}

Tensor Memory::tensor(bool writable) const { return Tensor::share(block_, first_, dtype_, dims_, strides_, writable); }

std::optional<int64_t> Memory::stray_write() const {
  const int width = size_of(dtype_);
  const bool gaps = !is_dense(dims_, strides_);
  std::vector<bool> owned(gaps ? static_cast<size_t>((high_ - low_) / width) : 0);
  if (gaps) each([&](int64_t, int64_t offset) { owned[static_cast<size_t>(offset - low_ / width)] = true; });
  for (int64_t at = low_ - guard_bytes; at < high_ + guard_bytes; ++at) {
    if (at == low_ && !gaps) at = high_;
    const bool element = at >= low_ && at < high_ && owned[static_cast<size_t>((at - low_) / width)];
    if (!element && static_cast<unsigned char>(first_[at]) != guard_byte) return at;
  }
  return std::nullopt;
}

uint64_t Memory::checksum() const {
  uint64_t sum = 0xcbf29ce484222325;
  each([&](int64_t, int64_t offset) { sum = (sum ^ get(offset)) * 0x100000001b3; });
  return sum;
}

std::string Argument::element_name(int64_t position) const {
  Dims index;
  index.resize(dims.size());
  for (int d = dims.size(); d-- > 0; position /= dims[d]) index[d] = position % dims[d];
  return name + to_string(index);
}

Call::Call(const ir::Kernel& kernel_in, std::span<const int64_t> scalars, int64_t bytes)
    : kernel(kernel_in), slots(scalar_slots(kernel, scalars)) {
  const DeclaredArguments arguments(kernel);
  arguments.check_scalars(slots);
  const ParameterNames names(kernel);
  int64_t left = bytes;
  for (size_t b = 0; b < kernel.buffers.size(); ++b) {
    const ir::Buffer& declared = kernel.buffers[b];
    const Dims dims = arguments.dims(b, slots);
    const Dims declared_strides = arguments.strides(b, slots);
    // The strides of dense dims that exceed any memory would wrap.
    const auto dense = Memory::bytes_of(
        declared->dtype, dims, Dims(std::vector<int64_t>(static_cast<size_t>(dims.size()), 0)), declared->alignment);
    const Dims strides = declared->strides.empty() && dense ? dense_strides(dims) : declared_strides;
    const auto size = dense ? Memory::bytes_of(declared->dtype, dims, strides, declared->alignment) : std::nullopt;
    if (!size || *size > left) {
      throw Error(
          ErrorCode::resource_exhausted,
          fmt::format(
              "kernel {}: buffer {} of shape {}{} needs more than the {} MiB that all buffers of a call may take",
              kernel.name, names.buffers[b], to_string(dims),
              declared->strides.empty() ? "" : fmt::format(" and strides {}", to_string(declared_strides)),
              bytes >> 20));
    }
    left -= *size;
    buffers.push_back({declared, names.buffers[b], dims, strides,
                       DeclaredRange(kernel, declared->facts.min, declared->facts.max, slots),
                       Memory(declared->dtype, dims, strides, declared->alignment)});
  }
}

void Call::check_facts() const {
  for (const Argument& a : buffers) {
    const ir::Facts& facts = a.declared->facts;
    const DType dtype = a.declared->dtype;
    if (!a.given()) continue;
    const auto refuse_element = [&](int64_t position, uint64_t bits, const std::string& what) {
      refuse(kernel, fmt::format("buffer {} is {}{}", a.element_name(position), value_text(dtype, bits), what));
    };
    const int64_t row = a.dims.empty() ? 1 : a.dims.back();
    std::unordered_map<uint64_t, int64_t> seen;
    uint64_t previous = 0;
    a.memory.each([&](int64_t position, int64_t offset) {
      const uint64_t bits = a.memory.get(offset);
      if (!a.range.contains(dtype, bits))
        refuse_element(position, bits, fmt::format("; it must be {}", a.range.text()));
      if (facts.nondecreasing && position % row != 0 && ir::interp::less(dtype, bits, dtype, previous))
        refuse_element(
            position, bits,
            fmt::format(" after {}; it must be nondecreasing along its last dim", value_text(dtype, previous)));
      previous = bits;
      if (!facts.injective) return;
      if (const auto [first, added] = seen.try_emplace(bits, position); !added)
        refuse_element(
            position, bits,
            fmt::format(" as {} is; no two elements may be equal (injective)", a.element_name(first->second)));
    });
  }
}

}  // namespace gradloom::nest
