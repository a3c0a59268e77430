#include "tests/support/random_program.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <string>

#include "ir/analysis/verify.h"
#include "ir/builder.h"
#include "ir/interpret/interpret.h"
#include "ir/rewrite.h"
#include "ir/scalar_math.h"

namespace gradloom::ir::testing {
namespace {

constexpr int64_t lowest = std::numeric_limits<int64_t>::min(), highest = std::numeric_limits<int64_t>::max();

int64_t wrapped_add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

class Generator {
 public:
  Generator(uint64_t seed, const ProgramShape& shape) : random_(seed), shape_(shape), builder_("program") {}

  RandomProgram build() {
    declare();
    budget_ = shape_.statements;
    while (budget_ > 0) statement(0);
    RandomProgram result;
    for (const Array& array : parameters_) contents(array, result);
    for (const ScalarValue& scalar : scalars_) result.scalars.push_back(scalar.slot);
    result.kernel = builder_.build();
    return result;
  }

 private:
  struct ScalarValue {
    Expr e;
    int64_t slot;   // its bits, sign-extended
    bool positive;  // by its declared range
  };
  struct Array {
    Buffer buffer;
    std::vector<Expr> dims;
    std::vector<int64_t> sizes, strides;  // in this run; strides are empty for a dense one
    bool writable = false;
    enum class Values : uint8_t { any, within, sorted, permutation } values = Values::any;
    int64_t low = 0, high = 0;  // of values that are not `any`
    bool empty() const { return std::find(sizes.begin(), sizes.end(), 0) != sizes.end(); }
  };
  struct Within {  // e is in [0, size)
    Expr e;
    int64_t size;
  };

  int pick(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  bool chance(int percent) { return pick(100) < percent; }
  template <class T>
  const T& any(const std::vector<T>& list) {
    return list[static_cast<size_t>(pick(static_cast<int>(list.size())))];
  }
  std::string name(const char* stem) { return stem + std::to_string(names_++); }

  DType number() {
    static const std::vector<DType> dtypes{DType::i64, DType::i64, DType::i64, DType::f32, DType::f64, DType::i32,
                                           DType::u32, DType::u64, DType::i16, DType::u16, DType::i8,  DType::u8};
    return any(dtypes);
  }
  DType element() {
    static const std::vector<DType> storage{DType::f16, DType::bf16, DType::boolean};
    return chance(20) ? any(storage) : number();
  }

  // A number where arithmetic likes to go wrong.
  int64_t edge() {
    static const std::vector<int64_t> places{
        0,       0,       0,     1, 8, 64, int64_t{1} << 31, int64_t{1} << 32, int64_t{1} << 60, int64_t{1} << 62,
        highest, highest, lowest};
    const int64_t at = any(places), by = pick(17) - 8;
    return wrapped_add(chance(30) ? static_cast<int64_t>(-static_cast<uint64_t>(at)) : at, by);
  }
  int64_t small() { return pick(25) - 8; }

  // Declarations.

  void declare() {
    for (int k = pick(3); k >= 0; --k) scalar();
    for (int k = 1 + pick(2); k >= 0; --k) dimension();
    for (int k = 1 + pick(3); k > 0; --k) input();
    for (int k = pick(2); k >= 0; --k) readable_.push_back(parameter(number(), Role::inout));
    for (int k = pick(2); k >= 0; --k) {
      const Array array = parameter(element(), Role::out);
      if (chance(60)) fill(array), readable_.push_back(array);
      writable_.push_back(array);
    }
    for (const Array& array : readable_)
      if (array.writable) writable_.push_back(array);
  }

  void scalar() {
    const DType t = chance(75) ? DType::i64 : element();
    int64_t value = chance(60) ? edge() : small();
    if (t == DType::boolean) {
      scalars_.push_back({builder_.scalar(name("s"), {}, {}, t), pick(2), false});
      return;
    }
    if (is_float(t)) {
      const uint64_t bits = float_bits(t);
      scalars_.push_back({builder_.scalar(name("s"), {}, {}, t), static_cast<int64_t>(bits), false});
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
    if (t == DType::i64 && !scalars_.empty() && chance(25)) {  // a range that mentions another scalar
      const ScalarValue& other = any(scalars_);
      int64_t distance;
      if (other.e.dtype() == DType::i64 && !__builtin_sub_overflow(value, other.slot, &distance)) {
        if (distance >= 0 && chance(50)) min = other.e, positive = false;
        if (distance >= -8 && distance <= 8 && other.slot <= highest - 16 && chance(50))
          max = other.e + (distance + pick(3));
      }
    }
    scalars_.push_back({builder_.scalar(name("s"), min, max, t), value, positive});
  }

  void dimension() {
    if (chance(60)) {
      const int64_t size = chance(5) ? 0 : 1 + pick(chance(80) ? 9 : 20);
      dims_.push_back({size, size});
      return;
    }
    const bool positive = chance(70);
    const int64_t size = positive ? 1 + pick(9) : pick(6);
    const Expr n =
        chance(60) ? builder_.scalar(name("n"), positive ? 1 : 0, 64) : builder_.scalar(name("n"), positive ? 1 : 0);
    scalars_.push_back({n, size, positive});
    dims_.push_back({n, size});
  }

  Array shape() {
    Array array;
    for (int d = chance(8) ? 0 : 1 + pick(2); d > 0; --d) {
      const Within& dim = any(dims_);
      array.dims.push_back(dim.e), array.sizes.push_back(dim.size);
    }
    return array;
  }

  Array parameter(DType t, Role role) {
    Array array = shape();
    BufferNode node{
        .name = name(role == Role::out ? "y" : "g"), .dtype = t, .dims = array.dims, .role = role, .alignment = 1};
    array.buffer = builder_.parameter(make_buffer(node));
    array.writable = true;
    parameters_.push_back(array);
    return array;
  }

  void input() {
    const DType t = chance(30) ? DType::i64 : element();
    Array array = shape();
    BufferNode node{.name = name("x"), .dtype = t, .dims = array.dims, .role = Role::in, .alignment = 1};
    if (array.sizes.size() == 2 && chance(20)) {  // rows apart, or from the last to the first, or all the same one
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
      if (how < 2 || array.sizes.empty()) {  // values that index
        const Within& dim = any(dims_);
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
    array.buffer = builder_.parameter(make_buffer(node));
    parameters_.push_back(array);
    readable_.push_back(array);
  }

  uint64_t float_bits(DType t) {
    static const std::vector<double> special{
        0.0, -0.0, 1e-42, -1e300, 1e-310, 65519.0, 1.0 / 0.0, -1.0 / 0.0, 0.0 / 0.0, 3e9, 9223372036854775807.0, -1.5};
    return bits_from_double(t, chance(15) ? any(special) : (pick(4001) - 2000) / 64.0);
  }

  void contents(const Array& array, RandomProgram& to) {
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
        const int64_t step = array.values == Array::Values::sorted
                                 ? (k % array.sizes.back()) * span / array.sizes.back()
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

  // Expressions.

  Expr scalar_constant(DType t) {
    if (t == DType::boolean) return constant_bits(t, static_cast<uint64_t>(pick(2)));
    if (is_float(t)) return constant_bits(t, float_bits(t));
    return constant_int(t, chance(40) ? edge() : small());
  }
  Expr lanes_of(Expr e, int lanes) { return broadcast(std::move(e), lanes); }

  Expr leaf(DType t, int lanes) {
    if (chance(25)) return lanes_of(scalar_constant(t), lanes);
    if (!values_.empty() && chance(50)) {
      for (int tries = 0; tries < 4; ++tries) {
        const Expr& v = any(values_);
        if (v.lanes() == lanes || v.lanes() == 1) return lanes_of(cast(t, v), lanes);
        if (v.lanes() > 1 && chance(50)) {
          std::vector<int> order(static_cast<size_t>(lanes));
          for (int& lane : order) lane = pick(v.lanes());
          return cast(t, shuffle(v, {}, order));
        }
      }
    }
    if (!scalars_.empty() && chance(45)) return lanes_of(cast(t, any(scalars_).e), lanes);
    if (lanes > 1 && is_int(t) && chance(50))
      return ramp(cast(t, leaf(DType::i64, 1)), constant_int(t, chance(60) ? 1 : pick(7) - 3), lanes);
    if (depth_ > 4) return lanes_of(scalar_constant(t), lanes);
    depth_ += 2;
    const Expr e = read(t, lanes);
    depth_ -= 2;
    return e;
  }

  Expr read(DType t, int lanes) {
    for (int tries = 0; tries < 4; ++tries) {
      const Array& array = any(readable_);
      if (chance(35)) {
        if (array.dims.empty()) continue;
        std::vector<Expr> index;
        Expr inside;
        const bool vector_guard = lanes > 1 && chance(60);
        bool vector = false;
        for (size_t d = 0; d < array.dims.size(); ++d) {
          const int here = lanes > 1 && chance(60) ? lanes : 1;
          vector |= here > 1;
          if (!array.empty() && chance(30)) {
            index.push_back(within(array.sizes[d], array.dims[d], here));
            continue;
          }
          const Expr at = chance(40) && !array.empty()
                              ? within(array.sizes[d], array.dims[d], here) + lanes_of(Expr(int64_t{pick(7)} - 3), here)
                              : value(DType::i64, here, 1);
          const Expr ok = in_range(at, array.dims[d]);
          inside = inside ? inside & ok : ok;
          index.push_back(at);
        }
        if (array.empty())
          inside = inside ? inside & lanes_of(constant_bits(DType::boolean, 0), inside.lanes())
                          : constant_bits(DType::boolean, 0);
        if (!inside || chance(20)) {
          const Expr more = condition(vector_guard ? lanes : 1, 1);
          inside = inside ? inside & more : more;
        }
        const int otherwise = lanes > 1 && (vector || inside.lanes() > 1) && chance(50) ? lanes : 1;
        Expr e = load(array.buffer, index, inside, value(array.buffer->dtype, otherwise, chance(60) ? 0 : 1));
        return lanes_of(cast(t, e), lanes);
      }
      if (array.empty()) continue;
      std::vector<Expr> index;
      for (size_t d = 0; d < array.dims.size(); ++d)
        index.push_back(within(array.sizes[d], array.dims[d], lanes > 1 && chance(60) ? lanes : 1));
      return lanes_of(cast(t, load(array.buffer, index)), lanes);
    }
    return lanes_of(scalar_constant(t), lanes);
  }

  // 0 <= at < dim, in one of the ways of writing it.
  Expr in_range(const Expr& at, const Expr& dim) {
    switch (pick(4)) {
      case 0:
        return unary(UnaryOp::bit_not, (at < Expr(0)) | (at >= dim));
      case 1:
        return (at > Expr(-1)) & (at <= dim - 1);
      case 2:
        return (at < dim) & (Expr(0) <= at);
      default:
        return (at >= Expr(0)) & (at < dim);
    }
  }

  // An index in [0, size); in code that never runs, any.
  Expr within(int64_t size, const Expr& dim, int lanes = 1) {
    if (dead_ && chance(50)) return value(DType::i64, lanes, 1);
    std::vector<Expr> fitting;
    for (const Within& w : within_)
      if (w.size <= size && (w.e.lanes() == 1 || w.e.lanes() == lanes)) fitting.push_back(w.e);
    if (!fitting.empty() && chance(65)) {
      Expr e = any(fitting);
      if (chance(15)) e = dim - 1 - e;
      return lanes_of(e, lanes);
    }
    if (lanes > 1 && size >= lanes && chance(60))
      return ramp(Expr(int64_t{pick(static_cast<int>(size) - lanes + 1)}), 1, lanes);
    const Expr last = dim - 1, none = lanes_of(Expr(0), lanes);
    const Expr e = value(DType::i64, lanes, 1);
    switch (pick(7)) {
      case 0:
        return lanes_of(Expr(int64_t{pick(static_cast<int>(size))}), lanes);
      case 1:
        return max(min(e, lanes_of(last, lanes)), none);
      case 2:
        return size >= 8 ? (e & lanes_of(Expr(7), lanes))
                         : (e & lanes_of(Expr(size >= 4   ? 3
                                              : size >= 2 ? 1
                                                          : 0),
                                         lanes));
      case 3:
        return select(in_range(e, lanes_of(dim, lanes)), e, none);
      case 4:
        for (const Array& array : readable_)
          if (array.values == Array::Values::within && array.low >= 0 && array.high < size && !array.empty() &&
              depth_ < 4) {
            ++depth_;
            std::vector<Expr> index;
            for (size_t d = 0; d < array.dims.size(); ++d)
              index.push_back(within(array.sizes[d], array.dims[d], lanes));
            --depth_;
            return lanes_of(cast(DType::i64, load(array.buffer, index)), lanes);
          }
        [[fallthrough]];
      case 5:
        if (as_int(dim)) return floor_mod(e, lanes_of(dim, lanes));
        [[fallthrough]];
      default:
        return min(max(e, none), lanes_of(last, lanes));
    }
  }

  Expr condition(int lanes, int depth) {
    static const std::vector<BinaryOp> comparisons{BinaryOp::lt, BinaryOp::le, BinaryOp::gt,
                                                   BinaryOp::ge, BinaryOp::eq, BinaryOp::ne};
    if (chance(8)) return leaf(DType::boolean, lanes);
    if (depth > 0 && chance(25)) {
      static const std::vector<BinaryOp> both{BinaryOp::bit_and, BinaryOp::bit_or, BinaryOp::bit_xor};
      return binary(any(both), condition(lanes, depth - 1), condition(lanes, depth - 1));
    }
    if (chance(8)) return unary(UnaryOp::bit_not, condition(lanes, depth - 1));
    if (lanes == 1 && shape_.vectors && chance(4)) {
      const Expr many = condition(vector_lanes(), 0);
      return chance(50) ? all_lanes(many) : any_lane(many);
    }
    const DType t = chance(70) ? DType::i64 : number();
    const Expr a = value(t, lanes, depth);
    if (chance(20) && t == DType::i64)
      return binary(any(comparisons), a + lanes_of(scalar_constant(t), lanes), a);  // true or false where it wraps
    return binary(any(comparisons), a, chance(50) ? lanes_of(scalar_constant(t), lanes) : value(t, lanes, depth - 1));
  }

  int vector_lanes() {
    static const std::vector<int> list{2, 4, 4, 8, 3, 16};
    return any(list);
  }

  Expr divisor(DType t, int lanes) {
    static const std::vector<int> list{1, 2, 3, 7, 8, 64, -1, -3, -8};
    if (t == DType::i64 && !positive_.empty() && chance(50)) return lanes_of(any(positive_), lanes);
    if (t == DType::i64 && chance(15))
      for (const ScalarValue& s : scalars_)
        if (s.positive && s.e.dtype() == t) return lanes_of(s.e, lanes);
    if (t != DType::u64 && chance(30)) {
      const Expr e = value(t, lanes, 1), limit = lanes_of(constant_int(t, 1 + pick(3)), lanes);
      if (is_signed_int(t) && chance(30)) return min(e, unary(UnaryOp::neg, limit));
      if (chance(30)) return select(e == zero(e.type()), limit, e);
      return max(e, limit);
    }
    if (chance(10))
      return lanes_of(constant_int(t, is_signed_int(t) ? lowest >> (64 - 8 * size_of(t)) : highest), lanes);
    return lanes_of(constant_int(t, any(list)), lanes);
  }
  Expr shift_count(DType t, int lanes) {
    const int bits = 8 * size_of(t);
    if (chance(50)) return lanes_of(constant_int(t, pick(bits)), lanes);
    const Expr e = value(t, lanes, 0);
    if (is_signed_int(t) && chance(40)) return min(max(e, zero(e.type())), lanes_of(constant_int(t, bits - 1), lanes));
    if (chance(50)) return floor_mod(e, lanes_of(constant_int(t, bits), lanes));
    return e & lanes_of(constant_int(t, bits - 1), lanes);
  }

  Expr value(DType t, int lanes, int depth) {
    if (depth <= 0 || depth_ > 5 || chance(12)) return leaf(t, lanes);
    ++depth_;
    Expr e = node(t, lanes, depth);
    --depth_;
    return e;
  }
  Expr node(DType t, int lanes, int depth) {
    if (t == DType::boolean) return condition(lanes, depth - 1);
    if (is_storage_float(t)) {
      if (chance(10)) return bitcast(t, value(DType::u16, lanes, depth - 1));
      return cast(t, value(chance(70) ? DType::f32 : number(), lanes, depth - 1));
    }
    const auto operand = [&] { return value(t, lanes, depth - 1); };
    const int what = pick(100);
    if (what < 8) return cast(t, value(element(), lanes, depth - 1));
    if (what < 10 && t == DType::f32) return bitcast(t, value(DType::i32, lanes, depth - 1));
    if (what < 10 && t == DType::i64) {
      const Expr e = value(chance(50) ? DType::f64 : DType::u64, lanes, depth - 1);
      // Executors may differ in the bits of a NaN.
      return bitcast(t, is_float(e.dtype()) ? select(e == e, e, zero(e.type())) : e);
    }
    if (what < 18) return select(condition(chance(40) ? 1 : lanes, depth - 1), operand(), operand());
    if (what < 21 && lanes > 1) {
      const Expr a = operand(), b = operand();
      std::vector<int> order(static_cast<size_t>(lanes));
      for (int& lane : order) lane = pick(2 * lanes);
      return shuffle(a, b, order);
    }
    if (what < 23 && lanes == 1 && shape_.vectors) {
      const int many = vector_lanes();
      return extract(value(t, many, depth - 1), pick(many));
    }
    if (is_float(t)) {
      static const std::vector<BinaryOp> two{BinaryOp::add, BinaryOp::sub, BinaryOp::mul,
                                             BinaryOp::div, BinaryOp::min, BinaryOp::max};
      static const std::vector<UnaryOp> one{UnaryOp::neg,   UnaryOp::abs,  UnaryOp::sqrt,
                                            UnaryOp::floor, UnaryOp::ceil, UnaryOp::trunc};
      if (what < 35) return fma(operand(), operand(), operand());
      return what < 50 ? unary(any(one), operand()) : binary(any(two), operand(), operand());
    }
    static const std::vector<BinaryOp> two{BinaryOp::add,    BinaryOp::add,    BinaryOp::sub, BinaryOp::sub,
                                           BinaryOp::mul,    BinaryOp::min,    BinaryOp::max, BinaryOp::bit_and,
                                           BinaryOp::bit_or, BinaryOp::bit_xor};
    static const std::vector<UnaryOp> one{UnaryOp::neg, UnaryOp::bit_not, UnaryOp::abs};
    if (what < 38) return binary(chance(50) ? BinaryOp::floor_div : BinaryOp::floor_mod, operand(), divisor(t, lanes));
    if (what < 44) return binary(chance(50) ? BinaryOp::shl : BinaryOp::shr, operand(), shift_count(t, lanes));
    if (what < 52) return unary(any(one), operand());
    if (what < 66) return binary(any(two), operand(), lanes_of(scalar_constant(t), lanes));
    return binary(any(two), operand(), operand());
  }
  // Of scalars and variables alone: the same wherever it stands.
  Expr pure() {
    Expr e = chance(30) ? Expr(edge()) : Expr(small());
    std::vector<Expr> known;
    for (const ScalarValue& s : scalars_) known.push_back(cast(DType::i64, s.e));
    for (const Expr& v : values_)
      if (v.lanes() == 1 && !is_float(v.dtype())) known.push_back(cast(DType::i64, v));
    if (known.empty()) return e;
    static const std::vector<BinaryOp> two{BinaryOp::add, BinaryOp::sub, BinaryOp::mul, BinaryOp::min, BinaryOp::max};
    const Expr v = any(known);
    if (chance(30)) return v;
    if (chance(10)) return unary(UnaryOp::neg, v + v);
    return chance(70) ? binary(any(two), v, e) : binary(any(two), v, any(known));
  }

  // Statements.

  // What a body brings into scope goes with it.
  void scoped(const std::function<void()>& body) {
    const size_t values = values_.size(), inside = within_.size(), readable = readable_.size(),
                 writable = writable_.size(), positive = positive_.size();
    ++nesting_;
    body();
    --nesting_;
    values_.resize(values), within_.resize(inside), readable_.resize(readable), writable_.resize(writable),
        positive_.resize(positive);
  }
  void body() {
    for (int k = 1 + pick(3); k > 0 && budget_ > 0; --k) statement(nesting_);
  }

  void statement(int depth) {
    --budget_;
    const int what = pick(100);
    if (depth < 4 && what < 22) return loop();
    if (depth < 5 && what < 32) return branch();
    if (depth < 5 && what < 38) return contradiction();
    if (depth < 5 && what < 44) return checked();
    if (what < 58) return value_let();
    if (depth < 3 && what < 63) return local();
    if (what < 64) return chain();
    if (what < 66 && shape_.vectors) return evaluated();
    if (what < 82) return accumulate_somewhere();
    store_somewhere();
  }

  void value_let() {
    const int lanes = shape_.vectors && chance(20) ? vector_lanes() : 1;
    if (chance(30)) {
      const Within& dim = any(dims_);
      if (dim.size > 0) {
        const Expr v = builder_.let(name("at"), within(dim.size, dim.e, lanes));
        values_.push_back(v);
        if (!dead_) within_.push_back({v, dim.size});
        return;
      }
    }
    values_.push_back(builder_.let(name("v"), value(chance(60) ? DType::i64 : element(), lanes, 3)));
  }

  // Lets that each use the one before.
  void chain() {
    int length = shape_.statements >= 100 && chance(50) ? 150 : 3 + pick(12);
    Expr e = value(DType::i64, 1, 1);
    const Expr other = pure();
    for (; length > 0; --length)
      e = builder_.let(name("c"), chance(50) ? min(e, other + pick(5)) : floor_mod(e, 5 + pick(9)) + pick(3));
    values_.push_back(e);
  }

  void evaluated() {
    const Array& array = any(readable_);
    std::vector<Expr> index;
    for (size_t d = 0; d < array.dims.size(); ++d) index.push_back(value(DType::i64, 1, 1));
    if (chance(70)) return builder_.prefetch(array.buffer, index, 1 + pick(3));
    const Expr some = condition(vector_lanes(), 1);
    builder_.append(evaluate(chance(50) ? all_lanes(some) : any_lane(some)));
  }

  // An extent of at most `most`, whatever its operands are.
  struct Extent {
    Expr e;
    int64_t most;
  };
  Extent extent() {
    const int64_t most = iterations_ > 200 ? 3 : iterations_ > 40 ? 6 : 12;
    if (dead_ && chance(30)) return {pure(), most};
    const int64_t few = 1 + pick(static_cast<int>(most));
    switch (pick(12)) {
      case 0:
        return {Expr(-int64_t{pick(20)} * pick(20)), 0};
      case 1:
        return {min(pure(), few), few};
      case 2:
        return {floor_mod(value(DType::i64, 1, 1), few), few};
      case 3: {
        const Expr e = pure();
        return {(e + few) - e, few};
      }
      case 4:
        for (const ScalarValue& s : scalars_)
          if (s.e.dtype() == DType::i64 && chance(60)) return {s.e - wrapped_add(s.slot, -few), few};
        [[fallthrough]];
      case 5:
        for (const ScalarValue& s : scalars_)
          if (s.e.dtype() == DType::i64 && s.slot <= most && chance(60)) return {s.e, std::max<int64_t>(s.slot, 0)};
        [[fallthrough]];
      case 6:
      case 7: {
        const Within& dim = any(dims_);
        if (dim.size <= most) return {dim.e, dim.size};
        [[fallthrough]];
      }
      case 8:
        if (most >= 6 && chance(30)) return {Expr(int64_t{16} << pick(2)), 32};
        [[fallthrough]];
      default:
        return {Expr(few), few};
    }
  }

  void loop() {
    const Extent count = extent();
    const Expr begin = chance(50) ? Expr(0) : chance(60) ? pure() : chance(50) ? Expr(edge()) : Expr(small());
    const int64_t before = iterations_;
    iterations_ *= std::max<int64_t>(count.most, 1);
    builder_.loop(name("i"), begin, count.e, [&](Expr i) {
      scoped([&] {
        values_.push_back(i);
        within_.push_back({is_const(begin, 0) ? i : i - begin, std::max<int64_t>(count.most, 1)});
        body();
      });
    });
    iterations_ = before;
  }

  void branch() {
    const auto inner = [&] { scoped([&] { body(); }); };
    const int what = pick(10);
    if (what < 3) {  // an index that its guard puts in range
      const Within& dim = any(dims_);
      const Expr e = builder_.let(name("e"), value(DType::i64, 1, 2));
      builder_.if_then(in_range(e, dim.e), [&] {
        scoped([&] {
          within_.push_back({e, dim.size});
          body();
        });
      });
      return;
    }
    if (what < 5) {  // a divisor that its guard proves
      const Expr e = pure();
      builder_.if_then(chance(50) ? e > Expr(int64_t{pick(3)}) : e >= Expr(int64_t{1 + pick(3)}), [&] {
        scoped([&] {
          positive_.push_back(e);
          body();
        });
      });
      return;
    }
    const Expr c = condition(1, 2);
    if (chance(35)) return builder_.if_then(c, inner, inner);
    builder_.if_then(c, inner);
  }

  // Guards that exclude each other, so that their body never runs.
  void contradiction() {
    const Expr e = pure();
    const int64_t at = chance(50) ? edge() : small();
    const bool was = dead_;
    const auto inner = [&] {
      dead_ = true;
      scoped([&] { body(); });
      dead_ = was;
    };
    switch (pick(5)) {
      case 0:
        return builder_.if_then(constant_bits(DType::boolean, 0), inner);
      case 1:
        return builder_.if_then((e > Expr(at)) & (e < Expr(at)), inner);
      case 2:
        return builder_.if_then(e == Expr(at), [&] { builder_.if_then(e != Expr(at), inner); });
      case 3:
        return builder_.if_then(e < e, inner);
      default:
        return builder_.if_then(e > Expr(at), [&] { builder_.if_then(e <= Expr(at), inner); });
    }
  }

  void checked() {
    const Expr position = chance(50) ? value(DType::i64, 1, 1) : chance(50) ? Expr(edge()) : Expr(small());
    const std::string argument = chance(80) ? "indices" : "x";
    if (chance(50)) {
      const Within& dim = any(dims_);
      const Expr e =
          builder_.let(name("e"), chance(50) ? value(DType::i64, 1, 2) : pure() * Expr(int64_t{1 + pick(9)}));
      return builder_.check(in_range(e, dim.e), position, argument, [&] {
        scoped([&] {
          within_.push_back({e, dim.size});
          store_somewhere();
          body();
        });
      });
    }
    const int lanes = shape_.vectors && chance(20) ? vector_lanes() : 1;
    builder_.append(check(condition(lanes, 1), lanes > 1 && chance(50) ? value(DType::i64, lanes, 1) : position,
                          argument, statements([&] { body(); })));
  }
  // What `body` writes, as a statement of its own.
  Stmt statements(const std::function<void()>& body) {
    KernelBuilder outer = std::move(builder_);
    builder_ = KernelBuilder("part");
    scoped(body);
    Stmt stmt = builder_.build().body;
    builder_ = std::move(outer);
    return stmt;
  }

  void local() {
    Array array;
    const bool registers = chance(30);
    const int rank = 1 + pick(2);
    for (int d = 0; d < rank; ++d) {
      const Within dim = registers || chance(50) ? Within{Expr(int64_t{1 + pick(5)}), 0} : any(dims_);
      array.dims.push_back(dim.e), array.sizes.push_back(as_int(dim.e).value_or(dim.size));
    }
    int64_t elements = 1;
    for (int64_t size : array.sizes) elements *= size;
    if (elements * iterations_ > 2000) return store_somewhere();
    Facts facts;
    const DType t = chance(25) ? DType::i64 : element();
    if (t == DType::i64 && chance(50)) {
      array.values = Array::Values::within, array.low = 0, array.high = pick(5);
      facts.min = 0, facts.max = array.high;
    }
    array.buffer = builder_.alloc(name("t"), t, array.dims, facts, registers ? Space::registers : Space::global);
    array.writable = array.values == Array::Values::any;
    fill(array);
    readable_.push_back(array);
    if (array.writable) writable_.push_back(array);
  }
  void fill(const Array& array) {
    const std::function<void(size_t, std::vector<Expr>)> dim = [&](size_t d, std::vector<Expr> at) {
      if (d == array.dims.size()) {
        const DType t = array.buffer->dtype;
        Expr e = value(t, 1, 2);
        if (array.values == Array::Values::within) e = min(max(e, array.low), array.high);
        return builder_.store(array.buffer, at, e);
      }
      builder_.loop(name("f"), 0, array.dims[d], [&](Expr i) {
        scoped([&] {
          values_.push_back(i), within_.push_back({i, array.sizes[d]});
          at.push_back(i);
          dim(d + 1, at);
        });
      });
    };
    const int64_t before = iterations_;
    for (int64_t size : array.sizes) iterations_ *= std::max<int64_t>(size, 1);
    dim(0, {});
    iterations_ = before;
  }

  // Where to write; with a guard, lanes that are out of range are off.
  struct Place {
    Array array;
    std::vector<Expr> index;
    Expr guard;
    int lanes = 1;
  };
  std::optional<Place> place(bool accumulates) {
    std::vector<Array> fitting;
    for (const Array& array : writable_) {
      const DType t = array.buffer->dtype;
      bool readable = false;
      for (const Array& r : readable_) readable |= r.buffer.same_as(array.buffer);
      if (!accumulates || (readable && t != DType::boolean && !is_storage_float(t))) fitting.push_back(array);
    }
    if (fitting.empty()) return std::nullopt;
    Place at{any(fitting), {}, {}, shape_.vectors && chance(20) ? vector_lanes() : 1};
    if (at.array.empty() && at.array.dims.empty()) return std::nullopt;
    const bool guarded = at.array.empty() || chance(25);
    for (size_t d = 0; d < at.array.dims.size(); ++d) {
      const int lanes = at.lanes > 1 && chance(70) ? at.lanes : 1;
      if (!guarded || (!at.array.empty() && chance(40))) {
        at.index.push_back(within(at.array.sizes[d], at.array.dims[d], lanes));
        continue;
      }
      const Expr e = value(DType::i64, lanes, 1), ok = in_range(e, at.array.dims[d]);
      at.guard = at.guard ? at.guard & ok : ok;
      at.index.push_back(e);
    }
    if (at.array.empty()) {
      const Expr off = constant_bits(DType::boolean, 0);
      at.guard = at.guard ? at.guard & off : off;
    } else if (guarded && (!at.guard || chance(20))) {
      const Expr more = condition(chance(50) ? at.lanes : 1, 1);
      at.guard = at.guard ? at.guard & more : more;
    }
    return at;
  }
  void store_somewhere() {
    const std::optional<Place> at = place(false);
    if (!at) return;
    const Expr e = value(at->array.buffer->dtype, chance(60) ? at->lanes : 1, 3);
    builder_.append(store(at->array.buffer, at->index, e, at->guard, shape_.vectors && chance(10)));
  }
  void accumulate_somewhere() {
    const std::optional<Place> at = place(true);
    if (!at) return store_somewhere();
    const DType t = at->array.buffer->dtype;
    static const std::vector<AccumulateOp> ops{AccumulateOp::add, AccumulateOp::add, AccumulateOp::min,
                                               AccumulateOp::max};
    const auto e = [&] { return value(t, chance(60) ? at->lanes : 1, 2); };
    const bool fused = (t == DType::f32 || t == DType::f64) && chance(40);
    const Expr a = e();
    const Expr factor = fused ? value(t, 1, 1) : Expr();
    // Of floats it would leave the order open; a GPU adds to 32 and 64 bits only.
    const bool atomic = is_int(t) && size_of(t) >= 4 && chance(15);
    const AccumulateOp op = fused ? AccumulateOp::fma : atomic ? AccumulateOp::add : any(ops);
    builder_.append(accumulate(at->array.buffer, at->index, op, a, factor, at->guard, atomic));
  }

  std::mt19937_64 random_;
  const ProgramShape shape_;
  KernelBuilder builder_;
  std::vector<ScalarValue> scalars_;
  std::vector<Within> dims_;  // a dim's expression and its size in this run
  std::vector<Array> parameters_, readable_, writable_;
  std::vector<Expr> values_;    // lets and loop variables in scope, of any type
  std::vector<Within> within_;  // indices in scope
  std::vector<Expr> positive_;  // proved by a guard
  bool dead_ = false;           // this code never runs
  int64_t iterations_ = 1;      // of the loops around
  int budget_ = 0, nesting_ = 0, depth_ = 0, names_ = 0;
};

bool verifies(const Kernel& kernel, const ProgramShape& shape) {
  if (shape.before_verify) shape.before_verify(kernel);
  try {
    verify(kernel, Stage::scheduled);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// The loop of this number (in the order of a walk) with another kind.
class SetKind : public Rewriter {
 public:
  SetKind(int number, ForKind kind) : left_(number), kind_(kind) {}

 private:
  Stmt rewrite(const For& n, const Stmt& self) override {
    if (left_-- != 0) return Rewriter::rewrite(n, self);
    return for_loop(n.var, n.begin, n.extent, kind_, n.body);
  }
  int left_;
  ForKind kind_;
};

// Kinds at random, where they are proved.
Kernel with_kinds(Kernel kernel, std::mt19937_64& random, const ProgramShape& shape) {
  std::vector<std::optional<int64_t>> extents;
  walk(kernel.body, [&](const Stmt& s) {
    if (const For* loop = s.as<For>()) extents.push_back(as_int(loop->extent));
  });
  for (size_t k = 0; k < extents.size(); ++k) {
    const uint64_t what = random() % 8;
    const std::optional<int64_t> extent = extents[k];
    ForKind kind = ForKind::parallel;
    if (what < 3 && extent && *extent >= 2 && *extent <= 64)
      kind = ForKind::vector;
    else if (what == 3 && extent && *extent <= 64)
      kind = ForKind::unroll;
    else if (what > 5)
      continue;
    const Kernel trial = SetKind(static_cast<int>(k), kind)(kernel);
    if (verifies(trial, shape)) kernel = trial;
  }
  return kernel;
}

class ChecksToIfs : public Rewriter {
  Stmt rewrite(const Check& n, const Stmt&) override { return if_then(all_lanes(n.condition), (*this)(n.body)); }
};

}  // namespace

RandomProgram random_program(uint64_t seed, const ProgramShape& shape) {
  std::mt19937_64 random(seed);
  for (int tries = 0;; ++tries) {
    RandomProgram program = Generator(random(), shape).build();
    if (tries < 60 && !verifies(program.kernel, shape)) continue;
    if (tries == 60) verify(program.kernel, Stage::scheduled);  // says why
    // After a failed check nothing is compared but its position: most programs have none.
    if (seed % 4 != 0) program.kernel = ChecksToIfs()(program.kernel);
    if (shape.vectors) program.kernel = with_kinds(program.kernel, random, shape);
    program.kernel.name = "program" + std::to_string(seed);
    return program;
  }
}

}  // namespace gradloom::ir::testing
