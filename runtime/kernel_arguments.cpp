#include "runtime/kernel_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/interpret_memory.h"
#include "ir/print.h"
#include "ir/scalar_math.h"

namespace gradloom {
namespace {

constexpr uint64_t most_negative = uint64_t{1} << 63;

bool wraps(ir::BinaryOp op, int64_t x, int64_t y) {
  int64_t result = 0;
  if (op == ir::BinaryOp::add) return __builtin_add_overflow(x, y, &result);
  if (op == ir::BinaryOp::sub) return __builtin_sub_overflow(x, y, &result);
  if (op == ir::BinaryOp::floor_div) return y == -1 && static_cast<uint64_t>(x) == most_negative;
  return op == ir::BinaryOp::mul && __builtin_mul_overflow(x, y, &result);
}

// A scalar expression's bits over the kernel's scalars; nullopt for what a dim or bound may not contain (a load, a
// vector), and for a size that wraps.
std::optional<uint64_t> evaluate(const ir::Expr& e, const ir::Kernel& kernel, std::span<const int64_t> slots) {
  const auto next = [&](const ir::Expr& operand) { return evaluate(operand, kernel, slots); };
  const bool i64 = e.dtype() == DType::i64;
  if (const auto* c = e.as<ir::Const>()) return c->bits;
  if (const auto* v = e.as<ir::Var>()) {
    for (size_t i = 0; i < kernel.scalars.size(); ++i) {
      if (kernel.scalars[i].var.id != v->id) continue;
      const int bits = size_of(e.dtype()) * 8;
      return static_cast<uint64_t>(slots[i]) & (bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1);
    }
    return std::nullopt;
  }
  if (const auto* cast = e.as<ir::Cast>()) {
    const auto value = next(cast->value);
    return value ? std::optional(ir::eval_cast(cast->value.dtype(), e.dtype(), *value)) : std::nullopt;
  }
  if (const auto* bitcast = e.as<ir::Bitcast>()) return next(bitcast->value);
  if (const auto* u = e.as<ir::Unary>()) {
    const auto a = next(u->a);
    if (i64 && a == most_negative && (u->op == ir::UnaryOp::neg || u->op == ir::UnaryOp::abs)) return std::nullopt;
    return a ? std::optional(ir::eval_unary(u->op, u->a.dtype(), *a)) : std::nullopt;
  }
  if (const auto* f = e.as<ir::Fma>()) {
    const auto a = next(f->a), b = next(f->b), c = next(f->c);
    return a && b && c && is_float(e.dtype()) ? std::optional(ir::eval_fma(e.dtype(), *a, *b, *c)) : std::nullopt;
  }
  if (const auto* s = e.as<ir::Select>()) {
    const auto condition = next(s->condition);
    return condition ? next(*condition ? s->a : s->b) : std::nullopt;
  }
  if (const auto* b = e.as<ir::Binary>()) {
    const auto x = next(b->a), y = next(b->b);
    if (!x || !y) return std::nullopt;
    const bool divides = b->op == ir::BinaryOp::floor_div || b->op == ir::BinaryOp::floor_mod;
    const bool shifts = b->op == ir::BinaryOp::shl || b->op == ir::BinaryOp::shr;
    if ((divides && *y == 0) || (shifts && *y >= 8u * size_of(b->a.dtype()))) return std::nullopt;
    if (b->a.dtype() == DType::i64 && wraps(b->op, static_cast<int64_t>(*x), static_cast<int64_t>(*y)))
      return std::nullopt;
    return ir::eval_binary(b->op, b->a.dtype(), *x, *y);
  }
  return std::nullopt;
}

[[noreturn]] void refuse(const ir::Kernel& kernel, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, fmt::format("kernel {}: {}", kernel.name, what));
}

// What was declared, and its value where that does not show.
std::string limit_text(const ir::Expr& declared, const DeclaredRange::Limit& limit) {
  const std::string value = value_text(limit.dtype, limit.bits);
  return declared.as<ir::Const>() ? value : fmt::format("{} ({})", ir::print(declared), value);
}

std::optional<DeclaredRange::Limit> limit_of(const ir::Kernel& kernel, const ir::Expr& e,
                                             std::span<const int64_t> slots) {
  if (!e) return std::nullopt;
  const auto bits = evaluate(e, kernel, slots);
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

Dims evaluate_all(const ir::Kernel& kernel, const ir::Buffer& buffer, const std::vector<ir::Expr>& list,
                  const char* what, std::span<const int64_t> slots) {
  Dims values;
  if (list.size() > static_cast<size_t>(max_rank)) {
    throw Error(ErrorCode::unsupported, fmt::format("kernel {}: buffer {} has {} dims; a parameter has at most {}",
                                                    kernel.name, buffer->name, list.size(), max_rank));
  }
  for (const ir::Expr& e : list) {
    const auto bits = evaluate(e, kernel, slots);
    if (!bits)
      refuse(kernel, fmt::format("buffer {}: its {} {} cannot be evaluated from the scalars given", buffer->name, what,
                                 ir::print(e)));
    values.push_back(static_cast<int64_t>(*bits));
  }
  return values;
}

struct Axis {
  __int128 stride, most;  // an index difference is within -most to most
};

// Whether index differences, not all 0 unless `differs` already, reach from `offset` back to 0. The axes go from the
// largest stride to the smallest, so that what the rest can reach leaves few differences to try.
bool meets_zero(std::span<const Axis> axes, __int128 offset, bool differs) {
  if (axes.empty()) return offset == 0 && differs;
  __int128 rest = 0;
  for (const Axis& axis : axes.subspan(1)) rest += axis.stride * axis.most;
  const Axis& first = axes[0];
  // |offset + stride * d| <= rest
  const auto floor_div = [](__int128 a, __int128 b) { return a / b - (a % b < 0); };
  const __int128 low = std::max(-first.most, -floor_div(rest + offset, first.stride)),
                 high = std::min(first.most, floor_div(rest - offset, first.stride));
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
    : min_(limit_of(kernel, min, slots)), max_(limit_of(kernel, max, slots)), declared_min_(min), declared_max_(max) {}

std::string DeclaredRange::text() const {
  if (min_ && max_) {
    return fmt::format("in [{}, {}]", limit_text(declared_min_, *min_), limit_text(declared_max_, *max_));
  }
  if (min_) return fmt::format("at least {}", limit_text(declared_min_, *min_));
  return max_ ? fmt::format("at most {}", limit_text(declared_max_, *max_)) : "any value";
}

bool DeclaredRange::contains(DType dtype, uint64_t bits) const { return within(dtype, bits, min_, max_); }

void check_scalars(const ir::Kernel& kernel, std::span<const int64_t> slots) {
  for (size_t i = 0; i < kernel.scalars.size(); ++i) {
    const ir::Scalar& scalar = kernel.scalars[i];
    if (!scalar.min && !scalar.max) continue;
    const DType dtype = scalar_dtype(kernel, i);
    const uint64_t bits = slot_bits(dtype, slots[i]);
    const auto min = limit_of(kernel, scalar.min, slots), max = limit_of(kernel, scalar.max, slots);
    if (within(dtype, bits, min, max)) continue;
    refuse(kernel, fmt::format("scalar {} is {}; it must be {}", scalar.var.name, value_text(dtype, bits),
                               DeclaredRange(kernel, scalar.min, scalar.max, slots).text()));
  }
}

Dims evaluate_dims(const ir::Kernel& kernel, const ir::Buffer& buffer, std::span<const int64_t> slots) {
  return evaluate_all(kernel, buffer, buffer->dims, "dim", slots);
}

Dims evaluate_strides(const ir::Kernel& kernel, const ir::Buffer& buffer, std::span<const int64_t> slots) {
  return evaluate_all(kernel, buffer, buffer->strides, "stride", slots);
}

}  // namespace gradloom
