// The text form: the parser's error messages, and lossless round trips. loop_file_test runs the files of tests/text.
#include "gradloom/text.h"

#include <gtest/gtest.h>

#include <functional>
#include <iterator>
#include <random>
#include <sstream>

#include "gradloom/builder.h"
#include "ir/rewrite.h"
#include "tests/support/error_of.h"
#include "tests/support/loop_file.h"

namespace gradloom::ir {
namespace {

std::string parse_error(const std::string& text) {
  return error_of([&] { parse(text); });
}

// Nearly valid texts reach deep into the parser; it throws nothing but Error, and what it accepts prints stably.
TEST(Text, SurvivesMutations) {
  const std::vector<LoopCase> cases = loop_cases();
  std::istringstream words(
      "( ) [ ] { } - ~ .. + where else if let alloc inf( bits(f32,0x 99999999999999999999 f32 \" ` #1 in[ ramp( i64");
  const std::vector<std::string> tokens{std::istream_iterator<std::string>(words), {}};
  std::mt19937 random(20);
  int accepted = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string text = cases[random() % cases.size()].kernel;
    for (unsigned n = 1 + random() % 4; n > 0; --n) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text.erase(at, 1 + random() % 8);
          break;
        case 1:
          text[at] = static_cast<char>(random());
          break;
        case 2:
          text.insert(at, tokens[random() % tokens.size()]);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 40));
      }
    }
    try {
      const std::string printed = print(parse(text));
      ASSERT_EQ(print(parse(printed)), printed) << text;
      ++accepted;
    } catch (const Error& error) {
      ASSERT_NE(std::string(error.what()).find(": "), std::string::npos) << text;
    }
  }
  EXPECT_GT(accepted, 50);
}

TEST(Text, LimitsNesting) {
  EXPECT_EQ(parse_error("kernel k() {\n" + std::string(300, '{') + "}"),
            "2:201: expected at most 200 levels of nesting");
  std::string sum = "1", minus(10000, '-'), lets;
  for (int i = 0; i < 10000; ++i) sum += " + 1", lets += "let a = 1\n";
  for (const std::string& value : {std::string(100000, '('), sum, minus})
    EXPECT_NE(parse_error("kernel k() {\nlet a = " + value).find("expected at most 200 levels"), std::string::npos);
  EXPECT_EQ(parse_error("kernel k() {\n" + lets + "}"), "2002:5: expected at most 2000 names in scope");
}

TEST(Text, SaysWhatWasExpected) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "1:1: expected kernel, got the end of the text"},
      {"kernel k() {} x", "1:15: expected the end of the text, got x"},
      {"kernel k() { in x: f33[1] }", "1:20: expected a dtype, got f33"},
      {"kernel k() { in x: f32[1] align 3 }", "1:17: ir: buffer x: alignment must be a power of two"},
      {"kernel k() { in x: f32[1] align 0 }", "1:33: expected an alignment in bytes, got 0"},
      {"kernel k() { in x: f32[2, 2] strides [1] }", "1:17: ir: buffer x: one stride a dim"},
      {"kernel k() { x[0] = 1 }", "1:14: expected a name in scope, got x"},
      {"kernel k(n: i64) { n[0] = 1 }", "1:20: expected a buffer, got the variable n"},
      {"kernel k() { out y: i64[1] y[0] = y }", "1:35: expected an index after the buffer y"},
      {"kernel k() { out y: i64[1] y[0, 0] = 1 }", "1:28: ir: store: buffer y has rank 1, the index 2"},
      {"kernel k() { out y: i64[1] y[0] = 1.0f32 }", "1:28: ir: store: f32 into buffer y of i64"},
      {"kernel k() { out y: i64[1] y[0] -= 1 }", "1:33: expected =, +=, *=, min=, max= or fma=, got -"},
      {"kernel k() { out y: i64[1] y[0] fma= 1 }", "1:38: expected (, got 1"},
      {"kernel k() { let a = 1 + 2i32 }", "1:24: ir: add: operands of i64 and i32"},
      {"kernel k() { let a: i32 = 1 }", "1:21: expected the value's type i64, got i32"},
      {"kernel k() { let a: i32x1 = 1 }", "1:21: expected a type, got i32x1"},
      {"kernel k() { let a = 1.5 }", "1:22: expected a number followed by its dtype, as in 1.5f32, got 1.5"},
      {"kernel k() { let a = 1bool }", "1:22: expected a number followed by its dtype, as in 1.5f32, got 1bool"},
      {"kernel k() { let a = 1.5i32 }", "1:22: expected an integer for i32, got 1.5i32"},
      {"kernel k() { let a = 0x10 }", "1:22: expected a decimal number (hexadecimal: bits(dtype, 0x...)), got 0x10"},
      {"kernel k() { let a = 256u8 }", "1:22: expected a number in the range of u8, got 256u8"},
      {"kernel k() { let a = -129i8 }", "1:23: expected a number in the range of i8, got -129i8"},
      {"kernel k() { let a = -1u64 }", "1:23: expected a number in the range of u64, got -1u64"},
      {"kernel k() { let a = 9223372036854775808 }",
       "1:22: expected a number in the range of i64, got 9223372036854775808"},
      {"kernel k() { let a = 65520f16 }", "1:22: expected a number in the range of f16, got 65520f16"},
      {"kernel k() { let a = bits(i8, 0x100) }", "1:31: expected the bits of one i8 as 0x..., got 0x100"},
      {"kernel k() { let a = inf(i8) }", "1:26: expected a float dtype, got i8"},
      {"kernel k() { let a = 1 < 2 < 3 }", "1:28: expected parentheses around one of two comparisons, got <"},
      {"kernel k() { let a = foo(1) }", "1:22: expected a function, got foo"},
      {"kernel k() { let a = ramp(0, 1, 1) }", "1:33: expected a number of lanes from 2 to 4096, got 1"},
      {"kernel k() { let a = shuffle(ramp(0, 1, 4), [4]) }", "1:22: ir: shuffle: lane 4 of 4"},
      {"kernel k() { for i in 0 .. 4 y }", "1:30: expected {, got y"},
      {"kernel k() { check true at 0 x { } }", "1:30: expected the argument's name in double quotes, got x"},
      {"kernel k() { evaluate 1 }", "1:14: ir: evaluate takes an intrinsic"},
      {"kernel k() { $ }", "1:14: expected a token, got the character '$'"},
      {"kernel k() { check true at 0 \"x { } }", "1:30: expected a closing \" on the same line"},
      {"kernel `a\\n`() { }", "1:10: expected an escape \\x and two hexadecimal digits"},
  };
  for (const auto& [text, message] : cases) EXPECT_EQ(parse_error(text), message) << text;
}

TEST(Text, ConstantsKeepTheirBits) {
  std::mt19937_64 random(7);
  for (int t = 0; t < dtype_count; ++t) {
    const DType dtype = static_cast<DType>(t);
    const int bits = dtype == DType::boolean ? 1 : 8 * size_of(dtype);
    const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1, sign = uint64_t{1} << (bits - 1);
    // 16 bits: all of them. Else zeros, extremes, denormals, infinities, NaNs with payloads, and random ones.
    std::vector<uint64_t> patterns{0,
                                   1,
                                   mask,
                                   mask >> 1,
                                   sign,
                                   sign + 1,
                                   uint64_t{0x7f800000},
                                   uint64_t{0xff800000},
                                   uint64_t{0x7f800001},
                                   uint64_t{0x7ff} << 52,
                                   (uint64_t{0x7ff} << 52) + 1,
                                   uint64_t{0x3c23d70a}};
    for (int i = 0; i < (bits <= 16 ? 1 << bits : 20000); ++i) patterns.push_back(bits <= 16 ? i : random());
    for (uint64_t pattern : patterns) {
      const Expr value = constant_bits(dtype, pattern & mask);
      const Kernel kernel = parse("kernel k() { let a = " + print(value) + " }");
      ASSERT_TRUE(equal(kernel.body.as<Let>()->value, value)) << print(value);
    }
  }
}

TEST(Text, NamesAreKeptAndToldApart) {
  for (const std::string name :
       {"for", "a b", "", "x#1", "\xc3\xa9", "`", "\\", "min", "f32", "a.b", "a.", "9", "_", "line\nbreak"}) {
    KernelBuilder b(name);
    const Expr n = b.scalar(name);
    const Buffer y = b.output(name, DType::i64, {n});
    b.loop(name, 1, n, [&](Expr i) { b.store(y, {i}, n + i * unary(UnaryOp::neg, i)); });
    b.loop("other", n, n, [&](Expr i) { b.store(y, {i}, n); });
    const Kernel kernel = b.build();
    const Kernel again = parse(print(kernel));
    EXPECT_EQ(print(again), print(kernel));
    EXPECT_EQ(again.name, name);
    EXPECT_EQ(again.scalars[0].var.name, name);
    EXPECT_EQ(again.buffers[0]->name, name);
    const For& loop = *again.body.as<Block>()->stmts[0].as<For>();
    EXPECT_EQ(loop.var.name, name);
    const Binary& sum = *loop.body.as<Store>()->value.as<Binary>();
    EXPECT_EQ(sum.a.as<Var>()->id, again.scalars[0].var.id);
    EXPECT_EQ(sum.b.as<Binary>()->a.as<Var>()->id, loop.var.id);
  }
}

// Precedence and associativity in infix notation: random trees survive a round trip.
TEST(Text, TreesKeepTheirShape) {
  std::mt19937 random(3);
  const Var n = make_var("n"), c = make_var("c", {DType::boolean, 1});
  std::function<Expr(DType, int)> tree = [&](DType dtype, int depth) -> Expr {
    const bool boolean = dtype == DType::boolean;
    if (depth == 0)
      return random() % 2 ? var(boolean ? c : n)
                          : constant_bits(dtype, boolean ? random() % 2 : random() - (uint64_t{1} << 31));
    const auto sub = [&](DType t) { return tree(t, depth - 1); };
    if (random() % 5 == 0) return unary(boolean || random() % 2 ? UnaryOp::bit_not : UnaryOp::neg, sub(dtype));
    static constexpr BinaryOp arithmetic[] = {BinaryOp::add, BinaryOp::sub, BinaryOp::mul, BinaryOp::floor_div,
                                              BinaryOp::min, BinaryOp::shl, BinaryOp::shr};
    static constexpr BinaryOp logic[] = {BinaryOp::bit_and, BinaryOp::bit_or, BinaryOp::bit_xor};
    if (random() % 3 == 0) return binary(logic[random() % 3], sub(dtype), sub(dtype));
    if (boolean)
      return binary(static_cast<BinaryOp>(static_cast<int>(BinaryOp::eq) + random() % 6), sub(DType::i64),
                    sub(DType::i64));
    return binary(arithmetic[random() % 7], sub(dtype), sub(dtype));
  };
  for (int round = 0; round < 2000; ++round) {
    const Expr e = tree(random() % 2 ? DType::boolean : DType::i64, 1 + random() % 6);
    const Kernel kernel = parse("kernel k(n: i64, c: bool) { let a = " + print(e) + " }");
    const Expr read = substitute(kernel.body.as<Let>()->value,
                                 {{kernel.scalars[0].var.id, var(n)}, {kernel.scalars[1].var.id, var(c)}});
    ASSERT_TRUE(equal(read, e)) << print(e) << "\n" << print(read);
  }
}

TEST(Text, FragmentsPrint) {
  const Var i = make_var("i"), other = make_var("i");
  EXPECT_EQ(print(var(i) + var(other) * 2), "i + i#1 * 2");
  EXPECT_EQ(print(let(i, 1, for_loop(other, var(i), 8, ForKind::serial, block({})))),
            "let i: i64 = 1\nfor i#1 in i .. +8 {\n}\n");
  EXPECT_EQ(print(Expr()), "<none>");
}

}  // namespace
}  // namespace gradloom::ir
