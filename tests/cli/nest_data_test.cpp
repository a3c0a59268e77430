// The values of `gradloom nest`: read from JSON and the command line, drawn by seed, checked, printed.
#include "cli/nest_data.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>
#include <sstream>

#include "cli/nest_compare.h"
#include "cli/nest_draw.h"
#include "gradloom/text.h"
#include "ir/scalar_math.h"

namespace gradloom::nest {
namespace {

ir::Kernel kernel_of(const std::string& parameters, const std::string& scalars = "n: i64 in [0, ]") {
  return ir::parse("kernel k(" + scalars + ") { " + parameters + " }");
}

template <class Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "no error";
}

std::string read_error(const ir::Kernel& kernel, int64_t n, const std::string& json) {
  return error_of([&] {
    Call call(kernel, std::vector<int64_t>{n});
    std::istringstream in(json);
    read_buffers(call, in);
  });
}

TEST(NestData, refuses_buffers_in_one_line) {
  const ir::Kernel k = kernel_of("in x: u8[n] inout z: f32[n, 2] out y: i64[n]");
  const std::pair<const char*, const char*> refused[] = {
      {"{\"x\": [1]}", "buffer z is missing in the data"},
      {"{\"x\": [1], \"z\": [1, 2], \"q\": []}", "it has no buffer q; those with values: x, z"},
      {"{\"x\": [1], \"z\": [1, 2], \"y\": [0]}", "buffer y is out, so it takes no values; those with values: x, z"},
      {"{\"x\": [1, 2], \"z\": [1, 2]}", "buffer x is given 2 values, expected 1: its shape is [1]"},
      {"{\"x\": [], \"z\": [1, 2]}", "buffer x is given 0 values, expected 1: its shape is [1]"},
      {"{\"x\": 1, \"z\": [1, 2]}", "buffer x is given 1, expected a flat list of 1 values"},
      {"{\"x\": [[1]], \"z\": [1, 2]}", "buffer x[0] is given a list, expected an integer within u8"},
      {"{\"x\": [256], \"z\": [1, 2]}", "buffer x[0] is given 256, expected an integer within u8"},
      {"{\"x\": [-1], \"z\": [1, 2]}", "buffer x[0] is given -1, expected an integer within u8"},
      {"{\"x\": [1.0], \"z\": [1, 2]}", "buffer x[0] is given 1.0, expected an integer within u8"},
      {"{\"x\": [null], \"z\": [1, 2]}", "buffer x[0] is given null, expected an integer within u8"},
      {"{\"x\": [true], \"z\": [1, 2]}", "buffer x[0] is given true, expected an integer within u8"},
      {"{\"x\": [1], \"z\": [1, 3.5e38]}",
       "buffer z[0,1] is given 3.5e+38, expected a number within f32, \"nan\", \"inf\" or \"-inf\""},
      {"{\"x\": [1], \"z\": [1, \"NaN\"]}",
       "buffer z[0,1] is given \"NaN\", expected a number within f32, \"nan\", \"inf\" or \"-inf\""},
      {"{\"x\": [1], \"x\": [2], \"z\": [1, 2]}", "key \"x\" is given twice, expected once"},
      {"[]", "the data is a list, expected an object: buffer name -> flat list"},
      {"{\"x\": [1], \"z\": [1, 2", "the data is no JSON: "},
      {"", "the data is no JSON: "},
      {"{\"x\": [1e999], \"z\": [1, 2]}", "the data is no JSON: "},
  };
  for (const auto& [json, what] : refused) {
    const std::string error = read_error(k, 1, json);
    EXPECT_NE(error.find(what), std::string::npos) << json << ": " << error;
    EXPECT_TRUE(error.starts_with("invalid_argument: ")) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
  EXPECT_EQ(read_error(k, 1, "{\"x\": [1], \"z\": [1, 2]}"), "no error");
  EXPECT_EQ(read_error(k, 0, "{\"x\": [], \"z\": []}"), "no error");
}

TEST(NestData, refuses_what_breaks_a_fact) {
  const std::tuple<const char*, const char*, const char*> refused[] = {
      {"in x: i64[n] in [0, n - 1]", "[0, 1, 3]", "buffer x[2] is 3; it must be in [0, n - 1 (2)]"},
      {"in x: i64[n] in [, 7]", "[7, 8, 0]", "buffer x[1] is 8; it must be at most 7"},
      {"in x: u64[n] in [0, 9223372036854775808u64]", "[9223372036854775808, 9223372036854775809, 0]",
       "buffer x[1] is 9223372036854775809; it must be in [0, 9223372036854775808]"},
      {"in x: u64[n] in [-1, ]", "[18446744073709551615, 0, 1]", "no error"},
      {"in x: f32[n] in [0, 1]", "[-0.0, 1, 1.0000001]", "buffer x[2] is 1.0000001; it must be in [0, 1]"},
      {"in x: f32[n] in [0, 1]", "[0, \"nan\", 1]", "buffer x[1] is nan; it must be in [0, 1]"},
      {"in x: f32[n]", "[0, \"nan\", 1]", "no error"},
      {"in x: i32[n] nondecreasing", "[1, 1, 0]",
       "buffer x[2] is 0 after 1; it must be nondecreasing along its last dim"},
      {"inout x: i32[n] injective", "[4, 1, 4]",
       "buffer x[2] is 4 as x[0] is; no two elements may be equal (injective)"},
      {"in x: f32[n] injective", "[0, -0.0, 1]", "no error"},  // compared by bits, as the interpreter does
      {"in x: i32[3, n] nondecreasing", "[1, 2, 3, 0, 0, 0, 5, 6, 7]", "no error"},
      {"in x: i32[n] strides [0]", "[4, 4, 4]", "no error"},
      {"in x: i32[n] strides [0]", "[4, 5, 4]",
       "buffer x[0] is given 4; by its strides [0] it shares memory with an element that is given 5"},
  };
  for (const auto& [parameter, values, what] : refused) {
    // With overlapping elements the last write wins, so the error may name either of the two.
    const std::string error = read_error(kernel_of(parameter), 3, std::string("{\"x\": ") + values + "}");
    if (std::string(parameter).find("strides") != std::string::npos && error != "no error")
      EXPECT_NE(error.find("by its strides [0] it shares memory"), std::string::npos) << error;
    else
      EXPECT_NE(error.find(what), std::string::npos) << parameter << ": " << error;
  }
}

TEST(NestData, refuses_scalars_in_one_line) {
  const ir::Kernel k =
      kernel_of("", "n: i64 in [0, ], m: i64 in [n, n * 2], h: f16, b: bool, n: u64 in [1, ], f: f32 in [0.5f32, 1]");
  const auto error = [&](const std::vector<std::string>& given) {
    return error_of([&] { Call call(k, all_scalars(k, read_scalars(k, given))); });
  };
  const std::vector<std::string> good{"n=3", "m=6", "h=0.1", "b=true", "n#1=18446744073709551615", "f=1"};
  const auto with = [&](std::vector<std::string> given, size_t at, const std::string& value) {
    given[at] = value;
    return error(given);
  };
  EXPECT_EQ(error(good), "no error");
  EXPECT_EQ(error({"n=3"}), "invalid_argument: kernel k: scalar m is not given, expected --scalar m=VALUE or --seed N");
  EXPECT_EQ(with(good, 0, "q=3"), "invalid_argument: kernel k: it has no scalar q; its scalars: n, m, h, b, n#1, f");
  EXPECT_EQ(with(good, 1, "n=4"), "invalid_argument: kernel k: scalar n is given twice, expected once");
  EXPECT_EQ(with(good, 0, "n"), "invalid_argument: kernel k: scalar \"n\" has no value, expected NAME=VALUE");
  EXPECT_EQ(with(good, 0, "n="), "invalid_argument: kernel k: scalar n is given , expected an integer within i64");
  EXPECT_EQ(with(good, 0, "n=9223372036854775808"),
            "invalid_argument: kernel k: scalar n is given 9223372036854775808, expected an integer within i64");
  EXPECT_EQ(with(good, 0, "n=0x10"),
            "invalid_argument: kernel k: scalar n is given 0x10, expected an integer within i64");
  EXPECT_EQ(with(good, 2, "h=65520"),
            "invalid_argument: kernel k: scalar h is given 65520, expected a number within f16, \"nan\", \"inf\" or "
            "\"-inf\"");
  EXPECT_EQ(with(good, 3, "b=2"), "invalid_argument: kernel k: scalar b is given 2, expected 0 or 1");
  EXPECT_EQ(with(good, 0, "n=-1"), "invalid_argument: kernel k: scalar n is -1; it must be at least 0");
  EXPECT_EQ(with(good, 1, "m=7"), "invalid_argument: kernel k: scalar m is 7; it must be in [n (3), n * 2 (6)]");
  EXPECT_EQ(with(good, 4, "n#1=0"), "invalid_argument: kernel k: scalar n is 0; it must be at least 1");
  EXPECT_EQ(with(good, 5, "f=0.25"), "invalid_argument: kernel k: scalar f is 0.25; it must be in [0.5, 1]");
  EXPECT_EQ(with(good, 5, "f=nan"), "invalid_argument: kernel k: scalar f is nan; it must be in [0.5, 1]");
  EXPECT_EQ(with(good, 0, "n=4611686018427387904"),
            "invalid_argument: kernel k: the declared limit n * 2 cannot be evaluated from the scalars given");
}

TEST(NestData, refuses_buffers_that_no_memory_holds) {
  const auto error = [](const std::string& parameters, int64_t n) {
    return error_of([&] { Call call(kernel_of(parameters, "n: i64"), std::vector<int64_t>{n}); });
  };
  EXPECT_EQ(error("in x: f32[n]", -1), "invalid_argument: kernel k: buffer x has shape [-1]; no dim may be negative");
  EXPECT_EQ(error("in x: f32[n]", int64_t{1} << 48),
            "resource_exhausted: kernel k: buffer x of shape [281474976710656] needs more than the 4096 MiB that "
            "all buffers of a call may take");
  EXPECT_EQ(error("in x: f32[n]", (int64_t{1} << 48) + 1),
            "invalid_argument: kernel k: buffer x has shape [281474976710657]; dims, those of 0 left out, may multiply "
            "to 2^48 at most");
  EXPECT_EQ(error("out x: f32[n, n, n]", int64_t{1} << 16).substr(0, 18), "resource_exhausted");
  EXPECT_EQ(error("out x: f32[n, n, n]", int64_t{1} << 40).substr(0, 16), "invalid_argument");
  EXPECT_EQ(error("out x: f32[0, n, n]", int64_t{1} << 24), "no error");  // it has no elements
  EXPECT_EQ(error("out x: f32[0, n, n]", int64_t{1} << 25).substr(0, 16), "invalid_argument");
  EXPECT_EQ(error("in x: f32[n] strides [0]", int64_t{1} << 40).substr(0, 18), "resource_exhausted");
  EXPECT_EQ(error("in x: f32[2] strides [n]", -(int64_t{1} << 40)).substr(0, 18), "resource_exhausted");
  EXPECT_EQ(error("in x: f32[n * 2]", int64_t{1} << 62),
            "invalid_argument: kernel k: buffer x: its dim n * 2 cannot be evaluated from the scalars given");
  EXPECT_EQ(error("in x: f32[floor_div(8, n)]", 0).substr(0, 16), "invalid_argument");
  EXPECT_EQ(error("in x: f32[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]", 0),
            "unsupported: kernel k: buffer x has 17 dims; a parameter has at most 16");
  EXPECT_EQ(error("in x: f32[1] align 4294967296", 0).substr(0, 18), "resource_exhausted");
  EXPECT_EQ(error("in x: f32[] inout y: f64[2, 3] strides [-3, 1] align 4096", 0), "no error");
}

TEST(NestData, shows_writes_outside_of_elements) {
  const ir::Kernel k = kernel_of("out x: i32[2, 2] strides [-4, 2]");
  const auto first_stray = [&](int64_t byte) {
    Call call(k, std::vector<int64_t>{0});
    static_cast<char*>(call.buffers[0].memory.tensor(true).data())[byte] = 1;
    return call.buffers[0].memory.stray_write();
  };
  // Elements are at bytes -16, -8, 0 and 8.
  for (const int64_t byte : {-272, -17, -12, -1, 4, 12, 267}) EXPECT_EQ(first_stray(byte), byte);
  for (const int64_t byte : {-16, -5, 0, 3, 8, 11}) EXPECT_EQ(first_stray(byte), std::nullopt);
}

TEST(NestData, prints_what_reads_back) {
  uint64_t state = 1;
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64, DType::u64, DType::i64}) {
    const ir::Kernel k = kernel_of(std::string("inout x: ") + to_string(dtype) + "[n]");
    constexpr int64_t count = 5000;
    Call call(k, std::vector<int64_t>{count});
    call.buffers[0].memory.each([&](int64_t, int64_t offset) {
      call.buffers[0].memory.set(offset, state = state * 6364136223846793005 + 1442695040888963407);
    });
    Call again(k, std::vector<int64_t>{count});
    std::istringstream json(json_buffers(call));
    read_buffers(again, json);
    call.buffers[0].memory.each([&](int64_t, int64_t offset) {
      const uint64_t bits = call.buffers[0].memory.get(offset), back = again.buffers[0].memory.get(offset);
      if (is_float(dtype) && std::isnan(ir::double_from_bits(dtype, bits)))
        EXPECT_TRUE(std::isnan(ir::double_from_bits(dtype, back)));
      else
        EXPECT_EQ(bits, back) << to_string(dtype) << " " << json_element(dtype, bits);
    });
  }
}

TEST(NestCompare, tells_the_first_difference_with_its_bits) {
  const ir::Kernel k = kernel_of("in x: f32[2] out y: f32[2, 2] inout z: u16[1]");
  const auto differ = [&](const std::function<void(Call&)>& change) {
    Call same(k, std::vector<int64_t>{1});
    for (Argument& argument : same.buffers)
      argument.memory.each([&](int64_t, int64_t offset) { argument.memory.set(offset, 0x3f80); });
    Call other = same;
    change(other);
    return difference(std::vector<Ran>{{"a", same, {}}, {"b", same, {}}, {"c", other, {}}}).value_or("equal");
  };
  EXPECT_EQ(differ([](Call&) {}), "equal");
  EXPECT_EQ(differ([](Call& call) { call.buffers[0].memory.set(1, 1); }), "equal");  // an in buffer is not compared
  EXPECT_EQ(
      differ([](Call& call) { call.buffers[1].memory.set(3, 0xbf800000), call.buffers[2].memory.set(0, 9); }),
      "kernel k: buffer y[1,1] is 2.278e-41 (0x00003f80) on a, 2.278e-41 (0x00003f80) on b, -1.0 (0xbf800000) on c");
  EXPECT_EQ(differ([](Call& call) { call.buffers[2].memory.set(0, 9); }),
            "kernel k: buffer z[0] is 16256 (0x3f80) on a, 16256 (0x3f80) on b, 9 (0x0009) on c");
  const auto two = [&](uint64_t a, uint64_t b) {
    Call one(k, std::vector<int64_t>{1}), other = one;
    one.buffers[1].memory.set(0, a), other.buffers[1].memory.set(0, b);
    return difference(std::vector<Ran>{{"a", one, {}}, {"b", other, {}}}).value_or("equal");
  };
  EXPECT_EQ(two(0x7fc00000, 0xffc12345), "equal");
  EXPECT_EQ(two(0, 0x80000000), "kernel k: buffer y[0,0] is 0.0 (0x00000000) on a, -0.0 (0x80000000) on b");
  const Call call(k, std::vector<int64_t>{1});
  const Error at_1(ErrorCode::out_of_range, "at 1"), at_2(ErrorCode::out_of_range, "at 2");
  EXPECT_EQ(difference(std::vector<Ran>{{"a", call, at_1}, {"b", call, at_1}}).value_or("equal"), "equal");
  EXPECT_EQ(difference(std::vector<Ran>{{"a", call, at_1}, {"b", call, at_2}}).value_or("equal"),
            "on a: out_of_range: at 1; on b: out_of_range: at 2");
  EXPECT_EQ(difference(std::vector<Ran>{{"a", call, {}}, {"b", call, at_2}}).value_or("equal"),
            "on a: no error; on b: out_of_range: at 2");
}

std::string drawn(const ir::Kernel& kernel, uint64_t seed) {
  const Call call = draw(kernel, read_scalars(kernel, {}), seed);
  std::string text;
  for (const int64_t slot : call.slots) text += std::to_string(slot) + " ";
  return text + json_buffers(call);
}

// The values of a seed are fixed across builds and versions: bug reports refer to seeds.
TEST(NestDraw, is_the_same_everywhere) {
  EXPECT_EQ(drawn(kernel_of("inout a: i64[n] in [0, n] inout b: f32[2] in [-1, 1] inout c: u8[2]",
                            "n: i64 in [2, 4], m: i64"),
                  7),
            "3 -31 {\"a\": [1, 2, 0], \"b\": [-0.5370118, -0.13992965], \"c\": [0, 8]}");
}

TEST(NestDraw, keeps_every_fact) {
  const ir::Kernel k = kernel_of(
      "in a: i64[n] in [0, n - 1] nondecreasing in b: i32[m, n] in [0, m * n - 1] injective in c: f16[n] in [0.25f16, "
      "0.5f16] nondecreasing "
      "in d: u64[n] in [18446744073709551600u64, ] in e: f64[n] in [0, ] injective in f: bool[n] in [1, ] in g: i8[n] "
      "in [-3, -3] "
      "in h: i16[3, n] nondecreasing injective in i: i64[n] strides [0] in [5, 9] in j: f32[n]",
      "n: i64 in [1, ], m: i64 in [n, n + 2], s: i64, t: u8 in [200, ], v: f32 in [0, 1]");
  std::set<int64_t> sizes, others;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Call call = draw(k, read_scalars(k, {}), seed);  // draw checks the facts
    sizes.insert(call.slots[0]);
    others.insert(call.slots[2]);
    EXPECT_GE(call.slots[3], 200);
  }
  EXPECT_GT(sizes.size(), 30u);
  EXPECT_EQ(*sizes.begin(), 1);
  EXPECT_LT(*others.begin(), 0);
  EXPECT_GT(*others.rbegin(), 0);
}

TEST(NestDraw, takes_what_is_given_and_fits_memory) {
  const ir::Kernel cube = kernel_of("in x: f64[n, n, n, n, n, n]");
  const Call call = draw(cube, read_scalars(cube, {}), 1);
  EXPECT_LE(call.buffers[0].memory.elements() * 8, most_drawn_bytes);
  const ir::Kernel far = kernel_of("out x: f64[n]", "n: i64 in [0, ], m: i64 in [1000000, ]");
  const Call far_call = draw(far, read_scalars(far, std::vector<std::string>{"n=12345"}), 1);
  EXPECT_EQ(far_call.slots[0], 12345);
  EXPECT_GE(far_call.slots[1], 1000000);
  EXPECT_LE(far_call.slots[1], 1000064);
}

TEST(NestDraw, refuses_what_nothing_fits) {
  const auto error = [](const std::string& parameters, const std::string& scalars) {
    const ir::Kernel k = kernel_of(parameters, scalars);
    return error_of([&] { draw(k, read_scalars(k, {}), 1); });
  };
  EXPECT_EQ(error("in x: i64[3] in [2, n]", "n: i64 in [0, 1]"),
            "invalid_argument: kernel k: buffer x: no value of i64 is in [2, n (0)]");
  EXPECT_EQ(error("in x: bool[3] injective", ""),
            "invalid_argument: kernel k: buffer x: 3 values that differ are wanted, only 2 are there");
  EXPECT_EQ(error("in x: f32[3] in [1, 0]", ""), "invalid_argument: kernel k: buffer x: no value of f32 is in [1, 0]");
  EXPECT_EQ(error("out x: f32[n]", "n: i64 in [8589934592, ]"),
            "resource_exhausted: kernel k: buffer x of shape [8589934592] needs more than the 32 MiB that all buffers "
            "of a call may take");
  EXPECT_EQ(error("", "n: i64 in [3, 2]"), "invalid_argument: kernel k: scalar n: no value of i64 is in [3, 2]");
}

}  // namespace
}  // namespace gradloom::nest
