// Gradients of f16 and bf16 are summed in f32: 100,000 terms of one element lose nothing but one rounding (DERIVE.md,
// C6, 11). In f16 itself a sum of 0.1 stops growing at 256.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "gradloom/differentiate.h"
#include "ir/differentiate/zero_gradients.h"
#include "ir/interpret/interpret.h"
#include "ir/scalar_math.h"

namespace gradloom::ir {
namespace {

constexpr int64_t tokens = 100000;

struct Case {
  const char* name;
  const char* text;  // T: the dtype; of w, which every token reads
};
const Case cases[] = {
    {"scattered",
     "kernel k(n: i64 in [0, ]) { in idx: i64[n] in [0, 1] in w: T[2] out y: T[n]\n"
     "for i in 0 .. n { y[i] = w[idx[i]] } }"},
    {"gathered", "kernel k(n: i64 in [0, ]) { in w: T[2] out y: T[n]\nfor i in 0 .. n { y[i] = w[1] } }"},
    {"through_a_temporary",
     "kernel k(n: i64 in [0, ]) { in w: T[2] out y: T[n]\nalloc t: T[1]\nt[0] = w[1]\n"
     "for i in 0 .. n { y[i] = t[0] } }"},
};

class Precision : public ::testing::TestWithParam<std::tuple<Case, DType, SumOrder::Kind>> {};

TEST_P(Precision, ManyTermsLoseNothing) {
  const auto& [each, dtype, sums] = GetParam();
  std::string text = each.text;
  for (size_t at; (at = text.find(": T[")) != std::string::npos;) text.replace(at + 2, 1, to_string(dtype));
  const Kernel gradient = differentiate(parse(text), {.wanted = {"w"}, .sums = sums});
  std::vector<int64_t> idx(tokens, 1);
  std::vector<uint16_t> upstream(tokens), dw(2);
  std::mt19937 random(1);
  std::uniform_real_distribution<double> values(0, 0.2);
  double total = 0;
  for (uint16_t& u : upstream) {
    u = static_cast<uint16_t>(bits_from_double(dtype, values(random)));
    total += double_from_bits(dtype, u);
  }
  std::vector<void*> memory;
  for (const Buffer& b : gradient.buffers)
    memory.push_back(b->name == "idx"   ? static_cast<void*>(idx.data())
                     : b->name == "d_w" ? static_cast<void*>(dw.data())
                                        : static_cast<void*>(upstream.data()));
  ASSERT_TRUE(interpret(gradient, memory, std::vector<int64_t>{tokens}).ok());
  const double spacing = std::exp2(std::floor(std::log2(total)) - (dtype == DType::f16 ? 10 : 7));
  EXPECT_NEAR(double_from_bits(dtype, dw[1]), total, 0.51 * spacing);
  EXPECT_EQ(dw[0], 0);
}
INSTANTIATE_TEST_SUITE_P(Gradients, Precision,
                         ::testing::Combine(::testing::ValuesIn(cases), ::testing::Values(DType::f16, DType::bf16),
                                            ::testing::Values(SumOrder::loop, SumOrder::tree)),
                         [](const auto& each) {
                           return std::string(std::get<0>(each.param).name) + "_" + to_string(std::get<1>(each.param)) +
                                  (std::get<2>(each.param) == SumOrder::tree ? "_tree" : "_loop");
                         });

// Wanted inputs that pass nothing are found, by any way in which nothing comes of them.
TEST(ZeroGradients, AreTold) {
  const auto zeros = [](const std::string& line, Derivation how = {.wanted = {"x", "w"}}) {
    return zero_gradients(differentiate(
        parse(
            "kernel k(n: i64 in [0, ]) { in x: f16[n] in w: f32[n] in j: i64[n] in [0, 0] out y: f32[n] out z: f32[n]\n"
            "for i in 0 .. n { z[i] = w[i] * w[i]\n" +
            line + " } }"),
        how));
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(zeros("y[i] = f32(x[i])"), Names());
  EXPECT_EQ(zeros("y[i] = w[i]"), Names{"d_x"});
  EXPECT_EQ(zeros("y[i] = floor(f32(x[i]))"), Names{"d_x"});
  EXPECT_EQ(zeros("y[i] = select(f32(x[i]) > 0.0f32, w[i], 0.0f32)"), Names{"d_x"});
  EXPECT_EQ(zeros("y[i] = select(w[i] > 0.0f32, f32(x[i]), 0.0f32)"), Names());
  EXPECT_EQ(zeros("y[i] = pow(f32(x[i]), 0.0f32)"), Names{"d_x"});
  EXPECT_EQ(zeros("y[i] = f32(x[i])", {.wanted = {"x", "w"}, .inactive = {"z"}}), Names{"d_w"});
  EXPECT_EQ(zeros("y[i] = f32(x[i])", {.wanted = {"x", "w"}, .seeded = {{"z"}}}), Names{"d_x"});
  EXPECT_EQ(zeros("y[i] = f32(x[j[i]])"), Names());
}

}  // namespace
}  // namespace gradloom::ir
