#include "tests/support/random_program_parameters.h"

#include <cstring>

namespace gradloom::ir::testing {

void ProgramParameters::scalar() {
  const DType t = chance(75) ? DType::i64 : element();
  int64_t value = chance(60) ? edge() : small();
  if (t == DType::boolean) {
    scope_.scalars.push_back({scope_.builder.scalar(scope_.name("s"), {}, {}, t), pick(2), false});
    return;
  }
  if (is_float(t)) {
    const uint64_t bits = float_bits(t);
    scope_.scalars.push_back({scope_.builder.scalar(scope_.name("s"), {}, {}, t), static_cast<int64_t>(bits), false});
    return;
  }
  const uint64_t bits = bits_from_int(t, value);
  value = int_from_bits(t, bits);
  Expr min, max;
  bool positive = false;
  const auto at = [&](int64_t v) { return constant_int(t, v); };
  const int64_t below = wrapped_add(value, -pick(4)), above = wrapped_add(value, pick(4));
  const bool fits = t == DType::i64 || t == DType::i32 || t == DType::i16 || t == DType::i8;
  if (fits && chance(60) && below <= value && int_from_bits(t, bits_from_int(t, below)) == below)
    min = at(below), positive = below > 0;
  if (fits && chance(60) && above >= value && int_from_bits(t, bits_from_int(t, above)) == above) max = at(above);
  if (t == DType::i64 && !scope_.scalars.empty() && chance(25)) {  // a range that refers to another scalar
    const ScalarValue& other = any(scope_.scalars);
    int64_t distance;
    if (other.e.dtype() == DType::i64 && !__builtin_sub_overflow(value, other.slot, &distance)) {
      if (distance >= 0 && chance(50)) min = other.e, positive = false;
      if (distance >= -8 && distance <= 8 && other.slot <= highest - 16 && chance(50))
        max = other.e + (distance + pick(3));
    }
  }
  scope_.scalars.push_back({scope_.builder.scalar(scope_.name("s"), min, max, t), value, positive});
}

void ProgramParameters::dimension() {
  if (chance(60)) {
    const int64_t size = chance(5) ? 0 : 1 + pick(chance(80) ? 9 : 20);
    scope_.dims.push_back({size, size});
    return;
  }
  const bool positive = chance(70);
  const int64_t size = positive ? 1 + pick(9) : pick(6);
  const Expr n = chance(60) ? scope_.builder.scalar(scope_.name("n"), positive ? 1 : 0, 64)
                            : scope_.builder.scalar(scope_.name("n"), positive ? 1 : 0);
  scope_.scalars.push_back({n, size, positive});
  scope_.dims.push_back({n, size});
}

Array ProgramParameters::shape() {
  Array array;
  for (int d = chance(8) ? 0 : 1 + pick(2); d > 0; --d) {
    const Within& dim = any(scope_.dims);
    array.dims.push_back(dim.e), array.sizes.push_back(dim.size);
  }
  return array;
}

Array ProgramParameters::parameter(DType t, Role role) {
  Array array = shape();
  BufferNode node{
      .name = scope_.name(role == Role::out ? "y" : "g"), .dtype = t, .dims = array.dims, .role = role, .alignment = 1};
  array.buffer = scope_.builder.parameter(make_buffer(node));
  array.writable = true;
  scope_.parameters.push_back(array);
  return array;
}

void ProgramParameters::input() {
  const DType t = chance(30) ? DType::i64 : element();
  Array array = shape();
  BufferNode node{.name = scope_.name("x"), .dtype = t, .dims = array.dims, .role = Role::in, .alignment = 1};
  if (array.sizes.size() == 2 && chance(20)) {  // padded rows, reversed rows, or all the same row
    const int how = pick(3);
    const int64_t row = how == 0 ? array.sizes[1] + 2 : how == 1 ? -array.sizes[1] : 0;
    const Expr width = array.dims[1];
    node.strides = {how == 0 ? width + 2 : how == 1 ? Expr(0) - width : Expr(0), 1};
    array.strides = {row, 1};
  }
  if (is_int(t) && t != DType::u64 && chance(50)) {
    const int bits = 8 * size_of(t) - (is_signed_int(t) ? 1 : 0);
    const int64_t top = bits >= 63 ? highest : (int64_t{1} << bits) - 1, bottom = is_signed_int(t) ? -top - 1 : 0;
    const int how = pick(4);
    array.values = Array::Values::within;
    if (how < 2 || array.sizes.empty()) {  // values that serve as indices
      const Within& dim = any(scope_.dims);
      if (dim.size > 0) {
        array.low = 0, array.high = dim.size - 1;
        node.facts.min = 0, node.facts.max = dim.e - 1;
      } else {
        array.values = Array::Values::any;
      }
    } else if (how == 2) {
      array.low = chance(50) ? bottom : top - 5, array.high = array.low + pick(5);
      if (chance(70)) node.facts.min = array.low;
      if (chance(70)) node.facts.max = array.high;
    } else if (array.sizes.size() == 1 && chance(60)) {
      array.values = Array::Values::permutation, array.low = 0, array.high = std::max<int64_t>(array.sizes[0] - 1, 0);
      node.facts.injective = true;
      if (chance(70)) node.facts.min = 0;
      if (chance(70) && array.sizes[0] > 0) node.facts.max = array.dims[0] - 1;
    } else if (array.strides.empty()) {
      array.values = Array::Values::sorted, array.low = 0, array.high = 9;
      node.facts.nondecreasing = true;
      if (chance(50)) node.facts.min = 0;
      if (chance(50)) node.facts.max = 9;
    } else {
      array.values = Array::Values::any;
    }
  }
  array.buffer = scope_.builder.parameter(make_buffer(node));
  scope_.parameters.push_back(array);
  scope_.readable.push_back(array);
}

void ProgramParameters::contents(const Array& array, RandomProgram& to) {
  const DType t = array.buffer->dtype;
  const int64_t size = size_of(t);
  int64_t first = 0, last = 0, count = 1, row = 1;  // elements from [0, ..., 0]
  for (size_t d = array.sizes.size(); d-- > 0;) {
    const int64_t stride = array.strides.empty() ? row : array.strides[d], reach = (array.sizes[d] - 1) * stride;
    (reach < 0 ? first : last) += reach;
    row *= array.sizes[d], count *= array.sizes[d];
  }
  const int64_t elements = count == 0 ? 0 : last - first + 1;
  std::vector<uint8_t> bytes(static_cast<size_t>(elements * size));
  std::vector<int64_t> order;
  for (int64_t k = 0; k < elements; ++k) order.push_back(k);
  std::shuffle(order.begin(), order.end(), random_);
  for (int64_t k = 0; k < elements; ++k) {
    uint64_t bits = 0;
    if (array.values == Array::Values::permutation) {
      bits = bits_from_int(t, order[static_cast<size_t>(k)]);
    } else if (array.values != Array::Values::any) {
      const int64_t span = array.high - array.low;
      const int64_t step = array.values == Array::Values::sorted ? (k % array.sizes.back()) * span / array.sizes.back()
                                                                 : pick(static_cast<int>(span) + 1);
      bits = bits_from_int(t, array.low + step);
    } else if (is_float(t)) {
      bits = float_bits(t);
    } else if (t == DType::boolean) {
      bits = static_cast<uint64_t>(pick(2));
    } else {
      bits = bits_from_int(t, chance(40) ? edge() : small());
    }
    std::memcpy(&bytes[static_cast<size_t>(k * size)], &bits, static_cast<size_t>(size));
  }
  to.buffers.push_back(std::move(bytes));
  to.origins.push_back(count == 0 ? 0 : static_cast<size_t>(-first * size));
}

}  // namespace gradloom::ir::testing
