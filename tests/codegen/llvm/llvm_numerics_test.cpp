// Numeric semantics of compiled code: every operator and conversion on every dtype, scalar and vector, against the
// definition in ir/scalar_math.h.
#include "tests/support/llvm_run.h"

namespace gradloom {
namespace {

using namespace ir;
using testing::agree;
using testing::elements;

// z[i] = f(x[i], y[i]) for n elements, `lanes` at a time.
Kernel elementwise(const std::string& name, DType from, DType to, int64_t n, int lanes,
                   const std::function<Expr(Expr, Expr)>& f) {
  KernelBuilder b(name + "_" + to_string(from) + "_" + to_string(to) + "_" + std::to_string(lanes));
  const Buffer x = b.input("x", from, {n}), y = b.input("y", from, {n}), z = b.output("z", to, {n});
  b.loop("i", 0, n / lanes, [&](Expr i) {
    const Expr at = lanes == 1 ? i : ramp(i * lanes, 1, lanes);
    b.store(z, {at}, f(load(x, {at}), load(y, {at})));
  });
  return b.build();
}

void check_elementwise(const std::string& name, DType from, DType to, const std::function<Expr(Expr, Expr)>& f,
                       bool nonzero_y = false) {
  constexpr int64_t n = 40 * 40;
  // Every pair of the first 40 elements, which include the special values.
  const testing::Bytes column = elements(from, 40, 7);
  const int size = size_of(from);
  testing::Bytes x(n * size), y(n * size);
  for (int64_t i = 0; i < n; ++i) {
    std::memcpy(&x[i * size], &column[i / 40 * size], size);
    std::memcpy(&y[i * size], &column[i % 40 * size], size);
    uint64_t bits = 0;
    std::memcpy(&bits, &y[i * size], size);
    if (nonzero_y && bits == 0) y[i * size] = 3;
  }
  for (const int lanes : {1, 4, 16})
    agree(elementwise(name, from, to, n, lanes, f), {x, y, testing::Bytes(n * size_of(to))});
}

class OfDType : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(All, OfDType, ::testing::ValuesIn(testing::all_dtypes),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST_P(OfDType, Binary) {
  const DType t = GetParam();
  if (is_storage_float(t)) GTEST_SKIP() << "no arithmetic";
  std::vector<BinaryOp> ops{BinaryOp::eq, BinaryOp::ne};
  if (t != DType::boolean) {
    ops.insert(ops.end(), {BinaryOp::add, BinaryOp::sub, BinaryOp::mul, BinaryOp::min, BinaryOp::max});
    ops.insert(ops.end(), {BinaryOp::lt, BinaryOp::le, BinaryOp::gt, BinaryOp::ge});
  }
  if (!is_float(t)) ops.insert(ops.end(), {BinaryOp::bit_and, BinaryOp::bit_or, BinaryOp::bit_xor});
  if (is_float(t)) ops.push_back(BinaryOp::div);
  for (const BinaryOp op : ops)
    check_elementwise(to_string(op), t, is_comparison(op) ? DType::boolean : t,
                      [&](Expr x, Expr y) { return binary(op, x, y); });
}

TEST_P(OfDType, IntegerDivisionAndShifts) {
  const DType t = GetParam();
  if (!is_int(t)) GTEST_SKIP() << "integers only";
  for (const BinaryOp op : {BinaryOp::floor_div, BinaryOp::floor_mod}) {
    check_elementwise(
        to_string(op), t, t, [&](Expr x, Expr y) { return binary(op, x, y); }, true);
    for (const int64_t c : {1, 2, 3, 7, 64, -1, -2, -5})
      if (c > 0 || is_signed_int(t))
        check_elementwise(to_string(op) + std::string("_") + (c < 0 ? "m" : "") + std::to_string(std::abs(c)), t, t,
                          [&](Expr x, Expr) { return binary(op, x, constant_int(t, c)); });
  }
  const Expr mask = constant_int(t, size_of(t) * 8 - 1);
  for (const BinaryOp op : {BinaryOp::shl, BinaryOp::shr})
    check_elementwise(to_string(op), t, t, [&](Expr x, Expr y) { return binary(op, x, y & mask); });
}

TEST_P(OfDType, Unary) {
  const DType t = GetParam();
  if (is_storage_float(t)) GTEST_SKIP() << "no arithmetic";
  std::vector<UnaryOp> ops;
  if (t != DType::boolean) ops = {UnaryOp::neg, UnaryOp::abs};
  if (!is_float(t)) ops.push_back(UnaryOp::bit_not);
  if (is_float(t)) ops.insert(ops.end(), {UnaryOp::sqrt, UnaryOp::floor, UnaryOp::ceil, UnaryOp::trunc});
  for (const UnaryOp op : ops) check_elementwise(to_string(op), t, t, [&](Expr x, Expr) { return unary(op, x); });
  check_elementwise("select", t, t, [&](Expr x, Expr y) { return select(x != y, y, x); });
}

TEST_P(OfDType, Casts) {
  for (const DType to : testing::all_dtypes)
    if (to != GetParam()) check_elementwise("cast", GetParam(), to, [&](Expr x, Expr) { return cast(to, x); });
}

TEST(Numerics, FmaRoundsOnce) {
  for (const DType t : {DType::f32, DType::f64}) {
    check_elementwise("fma", t, t, [&](Expr x, Expr y) { return fma(x, y, constant(t, -1)); });
    check_elementwise("muladd", t, t, [&](Expr x, Expr y) {
      return x * y + constant(t, -1);
    });  // rounded twice, on machines with fma as well
  }
}

// All 65536 values of the 16-bit floats, to f32 and back.
TEST(Numerics, SixteenBitFloatsExhaustively) {
  constexpr int64_t n = 65536;
  testing::Bytes all(n * 2);
  for (int64_t i = 0; i < n; ++i) {
    const uint16_t bits = static_cast<uint16_t>(i);
    std::memcpy(&all[i * 2], &bits, 2);
  }
  for (const DType t : {DType::f16, DType::bf16})
    for (const DType to : {DType::f32, DType::f64, DType::i32, DType::u8, DType::boolean})
      agree(elementwise("all", t, to, n, 16, [&](Expr x, Expr) { return cast(to, x); }),
            {all, all, testing::Bytes(n * size_of(to))});
}

// Around every rounding boundary of f16 and bf16: the midpoint between neighbours, and its neighbours in the source
// type.
TEST(Numerics, RoundsOnceFromWideTypes) {
  for (const DType to : {DType::f16, DType::bf16}) {
    for (const DType from : {DType::f32, DType::f64, DType::i64, DType::u64, DType::i32, DType::u32}) {
      std::vector<uint64_t> values;
      for (uint64_t bits = 0; bits + 1 < 0x8000; bits += 37) {
        const double mid = (double_from_bits(to, bits) + double_from_bits(to, bits + 1)) / 2;
        if (!std::isfinite(mid)) continue;
        for (const int sign : {1, -1}) {
          if (is_float(from)) {
            const uint64_t at = bits_from_double(from, sign * mid);
            for (const int64_t d : {-1, 0, 1}) values.push_back(at + d);
          } else if (std::abs(mid) < 9e18 && mid == std::floor(mid)) {
            for (const int64_t d : {-1, 0, 1})
              values.push_back(bits_from_int(from, sign * static_cast<int64_t>(mid) + d));
          }
        }
      }
      while (values.size() % 16) values.push_back(0);
      const int64_t n = static_cast<int64_t>(values.size());
      testing::Bytes x(n * size_of(from));
      for (int64_t i = 0; i < n; ++i) std::memcpy(&x[i * size_of(from)], &values[i], size_of(from));
      for (const int lanes : {1, 16})
        agree(elementwise("once", from, to, n, lanes, [&](Expr v, Expr) { return cast(to, v); }),
              {x, x, testing::Bytes(n * 2)});
    }
  }
}

}  // namespace
}  // namespace gradloom
