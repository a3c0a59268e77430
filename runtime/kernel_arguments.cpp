#include "runtime/kernel_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "gradloom/text.h"
#include "ir/analysis/interval.h"
#include "ir/interpret/memory.h"
#include "ir/scalar_math.h"

namespace gradloom {
namespace {

int64_t slot_of(const ir::Kernel& kernel, const ir::Var& v) {
  for (size_t i = 0; i < kernel.scalars.size(); ++i)
    if (kernel.scalars[i].var.id == v.id) return static_cast<int64_t>(i);
  throw Error(ErrorCode::internal, fmt::format("{} is no scalar of kernel {}", v.name, kernel.name));
}

ir::ScalarProgram program_of(const ir::Kernel& kernel, const ir::Expr& e) {
  if (!e) return {};
  return ir::scalar_program(e, [&](const ir::Var& v) { return slot_of(kernel, v); });
}

[[noreturn]] void refuse(const ir::Kernel& kernel, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, fmt::format("kernel {}: {}", kernel.name, what));
}

// The declared expression, with its value when it is not a constant.
std::string limit_text(const ir::Expr& declared, const DeclaredRange::Limit& limit) {
  const std::string value = value_text(limit.dtype, limit.bits);
  return declared.as<ir::Const>() ? value : fmt::format("{} ({})", ir::print(declared), value);
}

// A limit that overflows cannot be satisfied.
std::optional<DeclaredRange::Limit> limit_of(const ir::Kernel& kernel, const ir::Expr& e,
                                             const ir::ScalarProgram& program, std::span<const int64_t> slots) {
  if (!e) return std::nullopt;
  const auto bits = ir::evaluate(program, slots, ir::Overflow::has_no_value);
  if (!bits)
    refuse(kernel, fmt::format("the declared limit {} cannot be evaluated from the scalars given", ir::print(e)));
  return DeclaredRange::Limit{e.dtype(), *bits};
}

bool within(DType dtype, uint64_t bits, const std::optional<DeclaredRange::Limit>& min,
            const std::optional<DeclaredRange::Limit>& max) {
  if (!min && !max) return true;
  if (is_float(dtype) && std::isnan(ir::double_from_bits(dtype, bits))) return false;
  if (min && ir::interp::less(dtype, bits, min->dtype, min->bits)) return false;
  return !max || !ir::interp::less(max->dtype, max->bits, dtype, bits);
}

DType scalar_dtype(const ir::Kernel& kernel, size_t i) { return kernel.scalars[i].var.type.dtype; }

uint64_t slot_bits(DType dtype, int64_t slot) {
  const int bits = size_of(dtype) * 8;
  return static_cast<uint64_t>(slot) & (bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1);
}

struct Axis {
  __int128 stride, most;  // an index difference is within [-most, most]
};

// Whether some index differences, not all 0 unless `differs` already, sum from `offset` to 0. Axes are visited by
// decreasing stride, so that the reach of the remaining ones leaves few differences to try.
bool meets_zero(std::span<const Axis> axes, __int128 offset, bool differs) {
  if (axes.empty()) return offset == 0 && differs;
  __int128 rest = 0;
  for (const Axis& axis : axes.subspan(1)) rest += axis.stride * axis.most;
  const Axis& first = axes[0];
  // |offset + stride * d| <= rest
  const __int128 low = std::max(-first.most, -ir::floor_divide(rest + offset, first.stride)),
                 high = std::min(first.most, ir::floor_divide(rest - offset, first.stride));
  for (__int128 d = low; d <= high; ++d)
    if (meets_zero(axes.subspan(1), offset + first.stride * d, differs || d != 0)) return true;
  return false;
}

}  // namespace

bool elements_overlap(const Dims& dims, const Dims& strides) {
  std::vector<Axis> axes;
  for (int d = 0; d < dims.size(); ++d) {
    if (dims[d] == 0) return false;
    const __int128 stride = strides[d];
    if (dims[d] > 1) axes.push_back({stride < 0 ? -stride : stride, dims[d] - 1});
  }
  std::sort(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) { return a.stride > b.stride; });
  if (!axes.empty() && axes.back().stride == 0) return true;
  return meets_zero(axes, 0, false);
}

std::string value_text(DType dtype, uint64_t bits) {
  if (dtype == DType::u64) return fmt::format("{}", bits);
  if (!is_float(dtype)) return fmt::format("{}", ir::int_from_bits(dtype, bits));
  const double value = ir::double_from_bits(dtype, bits);
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text = dtype == DType::f64 ? fmt::format("{}", value) : fmt::format("{}", static_cast<float>(value));
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::span<const int64_t> scalar_slots(const ir::Kernel& kernel, std::span<const int64_t> scalars,
                                      std::vector<int64_t>& storage) {
  if (scalars.size() != kernel.scalars.size())
    refuse(kernel, fmt::format("{} scalars given; it takes {}", scalars.size(), kernel.scalars.size()));
  bool same = true;
  const auto normal = [&](size_t i) {
    const DType dtype = scalar_dtype(kernel, i);
    const uint64_t bits = dtype == DType::boolean ? scalars[i] != 0 : slot_bits(dtype, scalars[i]);
    return is_int(dtype) ? ir::int_from_bits(dtype, bits) : static_cast<int64_t>(bits);
  };
  for (size_t i = 0; i < scalars.size(); ++i) same = same && normal(i) == scalars[i];
  if (same) return scalars;
  for (size_t i = 0; i < scalars.size(); ++i) storage.push_back(normal(i));
  return storage;
}

std::vector<int64_t> scalar_slots(const ir::Kernel& kernel, std::span<const int64_t> scalars) {
  std::vector<int64_t> storage;
  const std::span<const int64_t> slots = scalar_slots(kernel, scalars, storage);
  return {slots.begin(), slots.end()};
}

DeclaredRange::DeclaredRange(const ir::Kernel& kernel, const ir::Expr& min, const ir::Expr& max,
                             std::span<const int64_t> slots)
    : min_(limit_of(kernel, min, program_of(kernel, min), slots)),
      max_(limit_of(kernel, max, program_of(kernel, max), slots)),
      declared_min_(min),
      declared_max_(max) {}

std::string DeclaredRange::text() const {
  if (min_ && max_) {
    return fmt::format("in [{}, {}]", limit_text(declared_min_, *min_), limit_text(declared_max_, *max_));
  }
  if (min_) return fmt::format("at least {}", limit_text(declared_min_, *min_));
  return max_ ? fmt::format("at most {}", limit_text(declared_max_, *max_)) : "any value";
}

bool DeclaredRange::contains(DType dtype, uint64_t bits) const { return within(dtype, bits, min_, max_); }

DeclaredArguments::DeclaredArguments(const ir::Kernel& kernel) : kernel_(kernel) {
  const auto value = [&](const ir::Expr& e) { return Value{e, program_of(kernel, e)}; };
  for (const ir::Scalar& s : kernel.scalars) scalars_.push_back({value(s.min), value(s.max)});
  for (const ir::Buffer& b : kernel.buffers) {
    Shape& shape = buffers_.emplace_back();
    for (const ir::Expr& dim : b->dims) {
      shape.dims.push_back(value(dim));
      shape.by_scalars |= !ir::as_int(dim);
    }
    for (const ir::Expr& stride : b->strides) shape.strides.push_back(value(stride));
  }
}

void DeclaredArguments::check_scalars(std::span<const int64_t> slots) const {
  for (size_t i = 0; i < kernel_.scalars.size(); ++i) {
    const ir::Scalar& scalar = kernel_.scalars[i];
    if (!scalar.min && !scalar.max) continue;
    const DType dtype = scalar_dtype(kernel_, i);
    const uint64_t bits = slot_bits(dtype, slots[i]);
    const auto min = limit_of(kernel_, scalar.min, scalars_[i].min.program, slots);
    const auto max = limit_of(kernel_, scalar.max, scalars_[i].max.program, slots);
    if (within(dtype, bits, min, max)) continue;
    refuse(kernel_, fmt::format("scalar {} is {}; it must be {}", scalar.var.name, value_text(dtype, bits),
                                DeclaredRange(kernel_, scalar.min, scalar.max, slots).text()));
  }
}

Dims DeclaredArguments::all(size_t buffer, const std::vector<Value>& list, const char* what,
                            std::span<const int64_t> slots) const {
  const std::string& name = kernel_.buffers[buffer]->name;
  if (list.size() > static_cast<size_t>(max_rank)) {
    throw Error(ErrorCode::unsupported, fmt::format("kernel {}: buffer {} has {} dims; a parameter has at most {}",
                                                    kernel_.name, name, list.size(), max_rank));
  }
  Dims values;
  for (const Value& v : list) {
    const auto bits = ir::evaluate(v.program, slots, ir::Overflow::has_no_value);
    if (!bits)
      refuse(kernel_, fmt::format("buffer {}: its {} {} cannot be evaluated from the scalars given", name, what,
                                  ir::print(v.expr)));
    values.push_back(static_cast<int64_t>(*bits));
  }
  return values;
}

Dims DeclaredArguments::dims(size_t buffer, std::span<const int64_t> slots) const {
  const Shape& shape = buffers_[buffer];
  const Dims dims = all(buffer, shape.dims, "dim", slots);
  if (!shape.by_scalars) return dims;
  int64_t elements = 1;
  for (const int64_t dim : dims) {
    const std::string& name = kernel_.buffers[buffer]->name;
    if (dim < 0) refuse(kernel_, fmt::format("buffer {} has shape {}; no dim may be negative", name, to_string(dims)));
    if (dim > ir::max_elements / elements)
      refuse(kernel_, fmt::format("buffer {} has shape {}; dims, those of 0 left out, may multiply to 2^48 at most",
                                  name, to_string(dims)));
    elements *= std::max<int64_t>(dim, 1);
  }
  return dims;
}

Dims DeclaredArguments::strides(size_t buffer, std::span<const int64_t> slots) const {
  return all(buffer, buffers_[buffer].strides, "stride", slots);
}

ParameterNames::ParameterNames(const ir::Kernel& kernel) {
  std::unordered_set<std::string> taken;
  const auto unique = [&](const std::string& name) {
    std::string text = name;
    for (int i = 1; !taken.insert(text).second; ++i) text = fmt::format("{}#{}", name, i);
    return text;
  };
  for (const ir::Scalar& scalar : kernel.scalars) scalars.push_back(unique(scalar.var.name));
  for (const ir::Buffer& buffer : kernel.buffers) buffers.push_back(unique(buffer->name));
}

}  // namespace gradloom
