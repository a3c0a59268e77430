#include "ir/scalar_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "gradloom/expr.h"

namespace gradloom::ir {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

uint64_t f32(float value) { return std::bit_cast<uint32_t>(value); }
float as_f32(uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }
uint64_t i(DType dtype, int64_t value) { return bits_from_int(dtype, value); }
int64_t fold(BinaryOp op, DType dtype, int64_t a, int64_t b) {
  return int_from_bits(dtype, eval_binary(op, dtype, i(dtype, a), i(dtype, b)));
}

TEST(ScalarMath, EveryStorageFloatSurvivesARoundTripThroughWiderTypes) {
  for (DType storage : dtypes_where(is_storage_float))
    for (DType wide : {DType::f32, DType::f64})
      for (uint64_t bits = 0; bits < 0x10000; ++bits) {
        const uint64_t back = eval_cast(wide, storage, eval_cast(storage, wide, bits));
        if (std::isnan(double_from_bits(storage, bits)))
          EXPECT_TRUE(std::isnan(double_from_bits(storage, back))) << bits;
        else
          ASSERT_EQ(back, bits) << to_string(storage) << " through " << to_string(wide);
      }
}

// Between any two neighbours, a tie rounds to even and anything off the tie to the nearer one: from f64, where f32
// would already lose the difference.
TEST(ScalarMath, EveryTieOfStorageFloatsGoesToEven) {
  for (DType storage : dtypes_where(is_storage_float)) {
    const uint64_t infinite = storage == DType::f16 ? 0x7c00 : 0x7f80;
    for (uint64_t low = 0; low + 1 < infinite; ++low) {
      const double a = double_from_bits(storage, low), b = double_from_bits(storage, low + 1), tie = a + (b - a) / 2;
      ASSERT_EQ(bits_from_double(storage, tie), low + (low & 1)) << to_string(storage);
      ASSERT_EQ(bits_from_double(storage, std::nextafter(tie, infinity)), low + 1);
      ASSERT_EQ(bits_from_double(storage, std::nextafter(tie, 0)), low);
      ASSERT_EQ(bits_from_double(storage, -std::nextafter(tie, infinity)), 0x8000 | (low + 1));
    }
  }
}

TEST(ScalarMath, CastsToStorageFloatsRoundOnceFromTheSource) {
  // 1 + 2^-11 is a tie of f16; 2^-40 above it is lost in f32 and must still decide.
  const double above_tie = 1 + std::ldexp(1, -11) + std::ldexp(1, -40);
  EXPECT_EQ(bits_from_double(DType::f16, above_tie), 0x3c01u);
  EXPECT_EQ(eval_cast(DType::f32, DType::f16, f32(static_cast<float>(above_tie))), 0x3c00u);
  const int64_t bf16_tie = (int64_t{1} << 40) + (int64_t{1} << 32);
  EXPECT_EQ(bits_from_int(DType::bf16, bf16_tie + 1),
            bits_from_double(DType::bf16, std::ldexp(1, 40) + std::ldexp(1, 33)));
  EXPECT_EQ(bits_from_int(DType::bf16, bf16_tie), bits_from_double(DType::bf16, std::ldexp(1, 40)));
  EXPECT_EQ(eval_cast(DType::u64, DType::bf16, ~uint64_t{0}), bits_from_double(DType::bf16, std::ldexp(1, 64)));
  EXPECT_EQ(eval_cast(DType::i64, DType::bf16, ~uint64_t{0}), bits_from_double(DType::bf16, -1));
  EXPECT_EQ(eval_cast(DType::u64, DType::f32, ~uint64_t{0}), f32(18446744073709551616.0f));
  EXPECT_EQ(bits_from_int(DType::f32, (int64_t{1} << 53) + (int64_t{1} << 29) + 1),
            f32(9007200328482816.0f));  // through f64 it would be a tie
}

TEST(ScalarMath, StorageFloatsOverflowToInfinityAndKeepDenormals) {
  EXPECT_EQ(bits_from_double(DType::f16, 65504), 0x7bffu);
  EXPECT_EQ(bits_from_double(DType::f16, 65519.999), 0x7bffu);
  EXPECT_EQ(bits_from_double(DType::f16, 65520), 0x7c00u);
  EXPECT_EQ(bits_from_double(DType::f16, -1e300), 0xfc00u);
  EXPECT_EQ(bits_from_double(DType::f16, std::ldexp(1, -24)), 1u);
  EXPECT_EQ(bits_from_double(DType::f16, std::ldexp(1, -25)), 0u);
  EXPECT_EQ(bits_from_double(DType::f16, std::nextafter(std::ldexp(1, -25), 1)), 1u);
  EXPECT_EQ(bits_from_double(DType::f16, -std::numeric_limits<double>::denorm_min()), 0x8000u);
  EXPECT_EQ(bits_from_double(DType::bf16, std::ldexp(1, -133)), 1u);
  EXPECT_EQ(bits_from_double(DType::bf16, static_cast<double>(std::numeric_limits<float>::max())), 0x7f80u);
  EXPECT_EQ(eval_cast(DType::f16, DType::f32, 0x8000), f32(-0.0f));
  EXPECT_EQ(bits_from_int(DType::f16, 65536), 0x7c00u);
}

TEST(ScalarMath, NansStayQuietNans) {
  const uint64_t signalling = 0x7f800001;  // its payload does not reach bf16
  EXPECT_EQ(eval_cast(DType::f32, DType::bf16, signalling), 0x7fc0u);
  EXPECT_EQ(eval_cast(DType::f32, DType::f16, signalling), 0x7e00u);
  EXPECT_EQ(eval_cast(DType::f16, DType::f32, 0x7c01) & 0x400000u, 0x400000u);
  EXPECT_EQ(bits_from_double(DType::f16, infinity), 0x7c00u);
}

TEST(ScalarMath, FloatToIntTruncatesSaturatesAndMapsNanToZero) {
  struct Case {
    DType to;
    double value;
    int64_t expected;
  };
  const Case cases[] = {{DType::i8, 127.9, 127},
                        {DType::i8, 128, 127},
                        {DType::i8, -128.9, -128},
                        {DType::i8, -1e30, -128},
                        {DType::i8, -1.9, -1},
                        {DType::u8, -0.9, 0},
                        {DType::u8, -5, 0},
                        {DType::u8, 255.5, 255},
                        {DType::u8, 256, 255},
                        {DType::i16, 1e9, 32767},
                        {DType::u16, 65535.9, 65535},
                        {DType::i32, 2147483647.5, 2147483647},
                        {DType::i32, 2147483648.0, 2147483647},
                        {DType::i32, -2147483649.0, std::numeric_limits<int32_t>::min()},
                        {DType::u32, 4294967296.0, 4294967295},
                        {DType::i64, 9223372036854775808.0, std::numeric_limits<int64_t>::max()},
                        {DType::i64, 9223372036854774784.0, 9223372036854774784},
                        {DType::i64, -infinity, std::numeric_limits<int64_t>::min()},
                        {DType::u64, 18446744073709551616.0, -1},
                        {DType::u64, 9223372036854775808.0, std::numeric_limits<int64_t>::min()},
                        {DType::i32, nan_value, 0},
                        {DType::u64, nan_value, 0},
                        {DType::i8, -nan_value, 0},
                        {DType::i16, infinity, 32767}};
  for (const Case& c : cases)
    EXPECT_EQ(int_from_bits(c.to, bits_from_double(c.to, c.value)), c.expected) << to_string(c.to) << " of " << c.value;
  EXPECT_EQ(eval_cast(DType::f32, DType::boolean, f32(-0.0f)), 0u);
  EXPECT_EQ(eval_cast(DType::f32, DType::boolean, f32(std::numeric_limits<float>::denorm_min())), 1u);
  EXPECT_EQ(bits_from_double(DType::boolean, nan_value), 1u);
  EXPECT_EQ(eval_cast(DType::f16, DType::i32, 0x7c00), 0x7fffffffu);
}

TEST(ScalarMath, IntCastsWrapAndBitsAreZeroExtended) {
  EXPECT_EQ(i(DType::i8, -1), 0xffu);
  EXPECT_EQ(int_from_bits(DType::i8, 0x80), -128);
  EXPECT_EQ(eval_cast(DType::i8, DType::u32, 0xff), 0xffffffffu);
  EXPECT_EQ(eval_cast(DType::u8, DType::i32, 0xff), 255u);
  EXPECT_EQ(eval_cast(DType::i32, DType::i8, 0x17f), 0x7fu);
  EXPECT_EQ(eval_cast(DType::u32, DType::boolean, 0x100), 1u);
  EXPECT_EQ(eval_cast(DType::boolean, DType::f32, 1), f32(1));
  EXPECT_EQ(i(DType::boolean, 256), 1u);
}

TEST(ScalarMath, IntegersWrap) {
  for (DType dtype : {DType::i8, DType::i16, DType::i32, DType::i64}) {
    const int bits = size_of(dtype) * 8;
    const int64_t least = -1 - static_cast<int64_t>((~uint64_t{0} >> (65 - bits))), most = ~least;
    EXPECT_EQ(fold(BinaryOp::add, dtype, most, 1), least);
    EXPECT_EQ(fold(BinaryOp::sub, dtype, least, 1), most);
    EXPECT_EQ(fold(BinaryOp::mul, dtype, least, -1), least);
    EXPECT_EQ(fold(BinaryOp::floor_div, dtype, least, -1), least);
    EXPECT_EQ(fold(BinaryOp::floor_mod, dtype, least, -1), 0);
    EXPECT_EQ(fold(BinaryOp::shr, dtype, least, bits - 1), -1);
    EXPECT_EQ(fold(BinaryOp::shl, dtype, 1, bits - 1), least);
    EXPECT_EQ(eval_unary(UnaryOp::abs, dtype, i(dtype, least)), i(dtype, least));
    EXPECT_EQ(eval_unary(UnaryOp::neg, dtype, i(dtype, least)), i(dtype, least));
    EXPECT_EQ(eval_unary(UnaryOp::neg, dtype, i(dtype, 5)), i(dtype, -5));
    EXPECT_EQ(fold(BinaryOp::lt, dtype, -1, 0) & 1, 1);
    EXPECT_EQ(fold(BinaryOp::min, dtype, -1, 0), -1);
  }
  EXPECT_EQ(eval_binary(BinaryOp::mul, DType::u16, 0xffff, 0xffff), 1u);
  EXPECT_EQ(eval_binary(BinaryOp::lt, DType::u64, ~uint64_t{0}, 0), 0u);
  EXPECT_EQ(eval_binary(BinaryOp::shr, DType::u8, 0x80, 7), 1u);
  EXPECT_EQ(eval_unary(UnaryOp::bit_not, DType::u8, 1), 0xfeu);
  EXPECT_EQ(eval_unary(UnaryOp::bit_not, DType::boolean, 1), 0u);
}

TEST(ScalarMath, FloorDivisionRoundsTowardsMinusInfinity) {
  for (int a = -128; a < 128; ++a)
    for (int b = -128; b < 128; ++b) {
      if (b == 0) continue;
      const int quotient = static_cast<int>(std::floor(static_cast<double>(a) / b));
      ASSERT_EQ(fold(BinaryOp::floor_div, DType::i8, a, b), static_cast<int8_t>(quotient)) << a << " / " << b;
      ASSERT_EQ(fold(BinaryOp::floor_mod, DType::i8, a, b), a - quotient * b) << a << " mod " << b;
    }
  EXPECT_EQ(eval_binary(BinaryOp::floor_div, DType::u64, ~uint64_t{0}, 2), ~uint64_t{0} >> 1);
  EXPECT_THROW(eval_binary(BinaryOp::floor_mod, DType::i32, 1, 0), Error);
}

TEST(ScalarMath, MinimumAndMaximumAreThoseOfIeee2019) {
  for (DType dtype : {DType::f32, DType::f64}) {
    const auto bits = [&](double value) { return bits_from_double(dtype, value); };
    const auto apply = [&](BinaryOp op, double a, double b) { return eval_binary(op, dtype, bits(a), bits(b)); };
    EXPECT_EQ(apply(BinaryOp::min, 0.0, -0.0), bits(-0.0));
    EXPECT_EQ(apply(BinaryOp::min, -0.0, 0.0), bits(-0.0));
    EXPECT_EQ(apply(BinaryOp::max, 0.0, -0.0), bits(0.0));
    EXPECT_EQ(apply(BinaryOp::max, -0.0, 0.0), bits(0.0));
    EXPECT_EQ(apply(BinaryOp::max, -infinity, 3), bits(3));
    EXPECT_EQ(apply(BinaryOp::min, -infinity, 3), bits(-infinity));
    for (BinaryOp op : {BinaryOp::min, BinaryOp::max}) {
      EXPECT_TRUE(std::isnan(double_from_bits(dtype, apply(op, nan_value, 1))));
      EXPECT_TRUE(std::isnan(double_from_bits(dtype, apply(op, -infinity, nan_value))));
    }
    for (BinaryOp op : {BinaryOp::eq, BinaryOp::lt, BinaryOp::le, BinaryOp::gt, BinaryOp::ge})
      EXPECT_EQ(apply(op, nan_value, nan_value), 0u);
    EXPECT_EQ(apply(BinaryOp::ne, nan_value, nan_value), 1u);
    EXPECT_EQ(apply(BinaryOp::eq, 0.0, -0.0), 1u);
  }
}

TEST(ScalarMath, FloatsRoundOnceAndKeepDenormals) {
  const float tiny = std::numeric_limits<float>::min();
  EXPECT_EQ(as_f32(eval_binary(BinaryOp::mul, DType::f32, f32(tiny), f32(0.5f))), std::ldexp(1.0f, -127));
  EXPECT_EQ(eval_binary(BinaryOp::div, DType::f32, f32(1), f32(-0.0f)), f32(-std::numeric_limits<float>::infinity()));
  const float a =
      1 + std::ldexp(1.0f, -12);  // a * a = 1 + 2^-11 + 2^-24: the last term only survives in a fused multiply-add
  EXPECT_EQ(as_f32(eval_fma(DType::f32, f32(a), f32(a), f32(-(1 + std::ldexp(1.0f, -11))))), std::ldexp(1.0f, -24));
  EXPECT_EQ(as_f32(eval_binary(BinaryOp::mul, DType::f32, f32(a), f32(a))), 1 + std::ldexp(1.0f, -11));
  EXPECT_EQ(eval_unary(UnaryOp::neg, DType::f32, 0x7fc00000), 0xffc00000u);
  EXPECT_EQ(eval_unary(UnaryOp::abs, DType::f32, 0xffc00000), 0x7fc00000u);
  EXPECT_EQ(eval_unary(UnaryOp::sqrt, DType::f32, f32(2)), f32(1.41421356f));
  EXPECT_EQ(eval_unary(UnaryOp::ceil, DType::f32, f32(-0.5f)), f32(-0.0f));
  EXPECT_EQ(eval_unary(UnaryOp::floor, DType::f64, bits_from_double(DType::f64, -0.5)),
            bits_from_double(DType::f64, -1));
  EXPECT_EQ(eval_unary(UnaryOp::trunc, DType::f64, bits_from_double(DType::f64, -1.5)),
            bits_from_double(DType::f64, -1));
}

TEST(ScalarMath, OperatorsOutsideTheirDtypesAreRefused) {
  EXPECT_THROW(eval_binary(BinaryOp::add, DType::f16, 0, 0), Error);
  EXPECT_THROW(eval_binary(BinaryOp::add, DType::boolean, 1, 1), Error);
  EXPECT_THROW(eval_binary(BinaryOp::floor_div, DType::f32, 0, 0), Error);
  EXPECT_THROW(eval_binary(BinaryOp::div, DType::i32, 1, 1), Error);
  EXPECT_THROW(eval_unary(UnaryOp::sqrt, DType::i32, 1), Error);
  EXPECT_THROW(eval_fma(DType::bf16, 0, 0, 0), Error);
}

}  // namespace
}  // namespace gradloom::ir
