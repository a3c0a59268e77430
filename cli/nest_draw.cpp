#include "cli/nest_draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_set>

#include "ir/analysis/interval.h"
#include "ir/interpret/memory.h"
#include "ir/rewrite.h"
#include "ir/scalar_math.h"

namespace gradloom::nest {
namespace {

using Wide = __int128;  // the range of every integer dtype

// splitmix64: the standard library's distributions are implementation-defined.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t bits() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  Wide between(Wide low, Wide high) {  // inclusive; of at most 2^64 values
    const unsigned __int128 count = static_cast<unsigned __int128>(high - low) + 1;
    return low + static_cast<Wide>(static_cast<unsigned __int128>(bits()) * count >> 64);
  }
  bool one_in(int n) { return between(1, n) == 1; }
  double unit() { return static_cast<double>(bits() >> 11) * 0x1p-53; }  // [0, 1)

 private:
  uint64_t state_;
};

[[noreturn]] void refuse(const ir::Kernel& kernel, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, fmt::format("kernel {}: {}", kernel.name, what));
}

struct Interval {
  Wide low, high;
  bool empty() const { return low > high; }
  Interval within(Wide least, Wide most) const { return {std::max(low, least), std::min(high, most)}; }
};

Wide integer_of(const DeclaredRange::Limit& limit, bool up) {
  if (limit.dtype == DType::u64) return limit.bits;
  if (!is_float(limit.dtype)) return ir::int_from_bits(limit.dtype, limit.bits);
  const double value = ir::double_from_bits(limit.dtype, limit.bits);
  const double most = 0x1p100;
  return static_cast<Wide>(std::clamp(std::isnan(value) ? 0 : up ? std::ceil(value) : std::floor(value), -most, most));
}

Interval integers_of(DType dtype, const DeclaredRange& range) {
  const Interval all{ir::limits(dtype).low, ir::limits(dtype).high};
  return all.within(range.min() ? integer_of(*range.min(), true) : all.low,
                    range.max() ? integer_of(*range.max(), false) : all.high);
}

// The `count` values nearest to 0; with `from_zero`, the smallest non-negative ones if there are any.
Interval near_zero(const Interval& all, Wide count, bool from_zero) {
  if (all.low > 0 || (from_zero && all.high >= 0)) {
    const Wide low = std::max<Wide>(all.low, 0);
    return {low, std::min(all.high, low + count - 1)};
  }
  if (all.high < 0) return {std::max(all.low, all.high - count + 1), all.high};
  return all.within(-(count / 2), (count - 1) / 2);
}

uint64_t bits_of(DType dtype, Wide value) {
  return dtype == DType::u64 ? static_cast<uint64_t>(value) : ir::bits_from_int(dtype, static_cast<int64_t>(value));
}

// Sign and mantissa at random, an exponent near that of 1.
uint64_t any_float(DType dtype, Random& random) {
  const double magnitude = std::ldexp(1 + random.unit(), static_cast<int>(random.between(-4, 2)));
  return ir::bits_from_double(dtype, random.one_in(2) ? -magnitude : magnitude);
}

uint64_t special_float(DType dtype, Random& random) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double values[] = {0.0, -0.0, infinity, -infinity, std::numeric_limits<double>::quiet_NaN(), 1.0, -1.0};
  const int64_t which = static_cast<int64_t>(random.between(0, 8));
  if (which >= 7) return which - 6;  // the smallest denormals
  return ir::bits_from_double(dtype, values[which]);
}

// How one buffer's values are drawn. Most buffers get small ones, so that a buffer used as an index is often in bounds.
class Source {
 public:
  Source(const ir::Kernel& kernel, const std::string& what, DType dtype, const DeclaredRange& range, int64_t distinct,
         Random& random)
      : dtype_(dtype), range_(range), specials_(random.one_in(4)), random_(random) {
    if (is_float(dtype)) {
      const double least = range.min() ? ir::double_from_bits(range.min()->dtype, range.min()->bits)
                                       : -std::numeric_limits<double>::infinity();
      const double most = range.max() ? ir::double_from_bits(range.max()->dtype, range.max()->bits)
                                      : std::numeric_limits<double>::infinity();
      low_ = std::isfinite(least) ? least : std::isfinite(most) ? most - 16 : -16;
      high_ = std::isfinite(most) ? most : std::max(low_, -16.0) + 32;
      if (!contains_any())
        refuse(kernel, fmt::format("{}: no value of {} is {}", what, to_string(dtype), range.text()));
      return;
    }
    const Interval all = integers_of(dtype, range);
    if (all.empty()) refuse(kernel, fmt::format("{}: no value of {} is {}", what, to_string(dtype), range.text()));
    const Wide count = all.high - all.low + 1;
    if (distinct > count)
      refuse(kernel, fmt::format("{}: {} values that differ are wanted, only {} are there", what, distinct,
                                 static_cast<int64_t>(count)));
    const bool limited = range.min() && range.max();
    const bool whole = limited || random.one_in(4);
    integers_ = whole ? all : near_zero(all, std::max<Wide>(17, Wide{4} * distinct), !random.one_in(4));
    if (integers_.high - integers_.low + 1 < distinct) integers_ = all;
  }

  uint64_t draw() {
    if (!is_float(dtype_)) {
      if (random_.one_in(8)) return bits_of(dtype_, random_.one_in(2) ? integers_.low : integers_.high);
      return bits_of(dtype_, random_.between(integers_.low, integers_.high));
    }
    if (range_.unlimited())
      return specials_ && random_.one_in(16) ? special_float(dtype_, random_) : any_float(dtype_, random_);
    const double unit = random_.unit();
    const uint64_t bits = ir::bits_from_double(dtype_, low_ * (1 - unit) + high_ * unit);
    return range_.contains(dtype_, bits) ? bits : inside_;
  }

  // Distinct values.
  std::vector<uint64_t> draw_distinct(int64_t count) {
    std::vector<uint64_t> values;
    const Wide there = integers_.high - integers_.low + 1;
    if (!is_float(dtype_) && there <= Wide{4} * count) {
      for (Wide value = integers_.low; value <= integers_.high; ++value) values.push_back(bits_of(dtype_, value));
      for (size_t i = 0; i < static_cast<size_t>(count); ++i)
        std::swap(values[i], values[static_cast<size_t>(random_.between(i, values.size() - 1))]);
      values.resize(static_cast<size_t>(count));
      return values;
    }
    std::unordered_set<uint64_t> taken;
    for (int64_t tries = 0; tries < 64 * count && static_cast<int64_t>(values.size()) < count; ++tries) {
      const uint64_t bits = is_float(dtype_) ? draw() : bits_of(dtype_, random_.between(integers_.low, integers_.high));
      if (taken.insert(bits).second) values.push_back(bits);
    }
    return values;
  }

 private:
  // Searches a value of the dtype in a range of floats, which may be narrower than the dtype's spacing.
  bool contains_any() {
    if (range_.unlimited()) return true;
    for (const double value : {low_, high_, low_ / 2 + high_ / 2, 0.0}) {
      inside_ = ir::bits_from_double(dtype_, value);
      if (range_.contains(dtype_, inside_)) return true;
    }
    return false;
  }

  const DType dtype_;
  const DeclaredRange& range_;
  const bool specials_;
  Random& random_;
  Interval integers_{0, 0};
  double low_ = 0, high_ = 0;
  uint64_t inside_ = 0;
};

void draw_buffer(const ir::Kernel& kernel, Argument& argument, Random& random) {
  const ir::Facts& facts = argument.declared->facts;
  const DType dtype = argument.declared->dtype;
  const int64_t count = argument.memory.elements();
  if (count == 0) return;
  Source source(kernel, "buffer " + argument.name, dtype, argument.range, facts.injective ? count : 1, random);
  std::vector<uint64_t> distinct;
  if (facts.injective) {
    distinct = source.draw_distinct(count);
    if (static_cast<int64_t>(distinct.size()) < count)
      refuse(kernel, fmt::format("buffer {}: {} values that differ were not found", argument.name, count));
  }
  const auto less = [dtype](uint64_t a, uint64_t b) {  // NaNs, which the fact does not constrain, come last
    const auto nan = [dtype](uint64_t bits) {
      return is_float(dtype) && std::isnan(ir::double_from_bits(dtype, bits));
    };
    return nan(a) || nan(b) ? !nan(a) && nan(b) : ir::interp::less(dtype, a, dtype, b);
  };
  std::vector<uint64_t> row(static_cast<size_t>(argument.dims.empty() ? 1 : argument.dims.back()));
  argument.memory.each([&](int64_t position, int64_t offset) {
    const size_t at = static_cast<size_t>(position) % row.size();
    if (at == 0) {
      for (size_t i = 0; i < row.size(); ++i)
        row[i] = facts.injective ? distinct[static_cast<size_t>(position) + i] : source.draw();
      if (facts.nondecreasing) std::sort(row.begin(), row.end(), less);
    }
    argument.memory.set(offset, row[at]);
  });
}

bool in_dims(const ir::Kernel& kernel, const ir::Var& scalar) {
  for (const ir::Buffer& buffer : kernel.buffers)
    for (const auto* list : {&buffer->dims, &buffer->strides})
      for (const ir::Expr& e : *list)
        if (ir::mentions(e, scalar.id)) return true;
  return false;
}

std::vector<int64_t> draw_scalars(const ir::Kernel& kernel, std::span<const std::optional<int64_t>> given,
                                  int64_t window, Random& random) {
  std::vector<int64_t> slots(kernel.scalars.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    const ir::Scalar& scalar = kernel.scalars[i];
    const DType dtype = scalar.var.type.dtype;
    if (given[i]) {
      slots[i] = *given[i];
      continue;
    }
    const DeclaredRange range(kernel, scalar.min, scalar.max, slots);  // it refers to earlier scalars only
    const std::string what = "scalar " + ParameterNames(kernel).scalars[i];
    if (is_float(dtype)) {
      slots[i] = static_cast<int64_t>(Source(kernel, what, dtype, range, 1, random).draw());
      continue;
    }
    const Interval all = integers_of(dtype, range);
    if (all.empty()) refuse(kernel, fmt::format("{}: no value of {} is {}", what, to_string(dtype), range.text()));
    const Interval near = near_zero(all, window, in_dims(kernel, scalar.var));
    slots[i] = static_cast<int64_t>(random.between(near.low, near.high));
  }
  return slots;
}

}  // namespace

Call draw(const ir::Kernel& kernel, std::span<const std::optional<int64_t>> scalars, uint64_t seed) {
  const bool all_given =
      std::all_of(scalars.begin(), scalars.end(), [](const auto& scalar) { return scalar.has_value(); });
  std::optional<Error> failure;
  int attempt = 0;
  for (int64_t window = 65; window > 0; ++attempt, window = attempt % 8 ? window : window / 2) {
    Random random(seed + static_cast<uint64_t>(attempt) * 0xd1342543de82ef95);
    try {
      Call call(kernel, draw_scalars(kernel, scalars, window, random), all_given ? most_bytes : most_drawn_bytes);
      for (Argument& argument : call.buffers) {
        Random own(random.bits());
        if (argument.given()) draw_buffer(kernel, argument, own);
      }
      call.check_facts();
      return call;
    } catch (const Error& error) {
      failure = error;
    }
    if (all_given) break;
  }
  throw *failure;
}

}  // namespace gradloom::nest
