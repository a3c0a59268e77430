// The case reader and the comparison: rejected inputs and reported differences.
#include "cli/cases.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "ir/scalar_math.h"
#include "tests/support/error_of.h"

namespace gradloom {
namespace {

class CaseFile : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& text) {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    file_ = std::filesystem::path(testing::TempDir()) / (std::string("case_") + info->name() + ".json");
    std::ofstream(file_) << text;
    return file_;
  }
  std::string refusal(const std::string& text) {
    const std::string message = error_of([&] { cases::read_case(write(text)); });
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message;
  }
  void TearDown() override { std::filesystem::remove(file_); }
  std::filesystem::path file_;
};

Tensor floats(const Dims& dims, std::vector<float> values) {
  Tensor t = Tensor::empty(DType::f32, dims);
  std::copy(values.begin(), values.end(), static_cast<float*>(t.data()));
  return t;
}

TEST_F(CaseFile, ReadsEveryPart) {
  const cases::Case c =
      cases::read_case(write(R"({"name":"a/b","op":"Op","attributes":{"i":3,"f":0.5,"s":"x","l":["p","q"]},
    "inputs":[{"dtype":"float16","shape":[2,2],"tile":[1,"inf",-2]},null,{"dtype":"uint64","shape":[1],"data":[18446744073709551615]},
              {"dtype":"bool","shape":[2],"data":[false,true]},{"dtype":"float32","shape":[],"data":["nan"]},{"dtype":"int64","shape":[0,4],"data":[]}],
    "outputs":[null,{"dtype":"int8","shape":[1],"data":[-1]}],"tolerance":{"rtol":0.25,"atol":0.5},"exact":["llvm"]})"));
  EXPECT_EQ(c.name, "a/b");
  EXPECT_EQ(std::get<int64_t>(c.attributes.at("i")), 3);
  EXPECT_EQ(std::get<double>(c.attributes.at("f")), 0.5);
  EXPECT_EQ(std::get<std::string>(c.attributes.at("s")), "x");
  EXPECT_EQ(std::get<std::vector<std::string>>(c.attributes.at("l")), (std::vector<std::string>{"p", "q"}));
  ASSERT_EQ(c.inputs.size(), 6u);
  EXPECT_EQ(cases::element_text(c.inputs[0], 1), "inf");
  EXPECT_EQ(cases::element_text(c.inputs[0], 2), "-2");
  EXPECT_EQ(cases::element_text(c.inputs[0], 3), "1");
  EXPECT_FALSE(c.inputs[1].present());
  EXPECT_EQ(cases::element_text(c.inputs[2], 0), "18446744073709551615");
  EXPECT_EQ(cases::element_text(c.inputs[3], 1), "true");
  EXPECT_TRUE(std::isnan(cases::element_value(c.inputs[4], 0)));
  EXPECT_EQ(c.inputs[5].elements(), 0);
  EXPECT_TRUE(c.inputs[5].present());
  EXPECT_FALSE(c.outputs[0].present());
  EXPECT_EQ(cases::element_text(c.outputs[1], 0), "-1");
  EXPECT_EQ(c.rtol, 0.25);
  EXPECT_EQ(c.atol, 0.5);
  EXPECT_TRUE(c.exact_on("llvm"));
  EXPECT_FALSE(c.exact_on("interpreter"));
}

TEST_F(CaseFile, RefusesWhatIsNoCase) {
  EXPECT_NE(refusal("{").find("expected a case in JSON"), std::string::npos);
  EXPECT_NE(refusal(R"({"name":"a"})").find("\"op\""), std::string::npos);
  const std::string tail = R"("outputs":[],"tolerance":{"rtol":0,"atol":0}})";
  EXPECT_NE(refusal(R"({"name":"a","op":"b","inputs":[{"dtype":"complex","shape":[1],"data":[1]}],)" + tail)
                .find("\"complex\""),
            std::string::npos);
  EXPECT_NE(refusal(R"({"name":"a","op":"b","inputs":[{"dtype":"int8","shape":[2],"data":[1]}],)" + tail)
                .find("has 1 values, expected 2"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"name":"a","op":"b","inputs":[{"dtype":"int8","shape":[1],"data":[1.5]}],)" + tail)
                .find("expected an integer"),
            std::string::npos);
  EXPECT_NE(
      refusal(R"({"name":"a","op":"b","inputs":[{"dtype":"int8","shape":[-1],"data":[]}],)" + tail).find("a dim is -1"),
      std::string::npos);
  EXPECT_NE(refusal(R"({"name":"a","op":"b","inputs":[],"error":"bad"})").find("none of the error codes"),
            std::string::npos);
}

TEST_F(CaseFile, RefusalsNameTheMemberAndWhatWasExpected) {
  const std::string head = R"({"name":"a","op":"b",)", tolerance = R"("tolerance":{"rtol":0,"atol":0})";
  const std::string tensor = R"({"dtype":"int8","shape":[1],"data":[1]})";
  for (const auto& [text, said] : std::vector<std::pair<std::string, std::string>>{
           {R"({"name":1,"op":"b","inputs":[],"error":"internal"})", R"("name" is of type number, expected a string)"},
           {R"({"name":"a","op":["b"],"inputs":[],"error":"internal"})", R"("op" is of type array, expected a string)"},
           {head + R"("inputs":[],"error":5})", R"("error" is of type number, expected a string)"},
           {head + R"("input":[],"inputs":[],"error":"internal"})",
            R"(got a member "input", expected one of name, op, source, attributes, inputs)"},
           {head + R"("inputs":[)" + tensor + R"(,{"dtype":"int8","shape":[1],"date":[1]}],"error":"internal"})",
            R"(inputs[1]: got a member "date", expected one of dtype, shape)"},
           {head + R"("inputs":[{"shape":[1],"data":[1]}],"error":"internal"})",
            R"(inputs[0]: expected a member "dtype")"},
           {head + R"("inputs":[{"dtype":7,"shape":[1],"data":[1]}],"error":"internal"})",
            R"(inputs[0]: "dtype" is of type number, expected a string)"},
           {head + R"("attributes":{"axis":{"a":1}},"inputs":[],"error":"internal"})",
            "attributes.axis: an attribute is"},
           {head + R"("inputs":[],"outputs":[[]],)" + tolerance + "}",
            "outputs[0]: a tensor is array, expected an object or null"},
           {head + R"("inputs":[],"outputs":[],"tolerance":[0]})",
            "tolerance: it is of type array, expected an object"},
           {head + R"("inputs":[],"outputs":[],"tolerance":{"rtol":"0","atol":0}})",
            R"(tolerance: "rtol" is of type string, expected a number)"},
           {head + R"("inputs":[],"outputs":[],"tolerance":{"rtol":0,"atol":0,"abs":1}})",
            R"(tolerance: got a member "abs", expected one of rtol, atol)"},
           {head + R"("inputs":[],"outputs":[],"exact":[1],)" + tolerance + "}",
            R"("exact" holds 1, expected interpreter, llvm, cuda-host or cuda)"},
           {head + R"("inputs":[],"outputs":[],"exact":["llmv"],)" + tolerance + "}",
            R"("exact" holds "llmv", expected interpreter, llvm, cuda-host or cuda)"}})
    EXPECT_NE(refusal(text).find(said), std::string::npos) << text << " gave " << refusal(text);
}

TEST_F(CaseFile, IntegersThatDoNotFitAreRefusedAndNotWrapped) {
  const auto with = [&](const std::string& dtype, const std::string& value) {
    return refusal(R"({"name":"a","op":"b","inputs":[{"dtype":")" + dtype + R"(","shape":[1],"data":[)" + value +
                   R"(]}],"error":"internal"})");
  };
  for (const auto& [dtype, value] : std::vector<std::pair<std::string, std::string>>{{"int64", "9223372036854775808"},
                                                                                     {"int32", "4294967297"},
                                                                                     {"int8", "128"},
                                                                                     {"uint8", "-1"},
                                                                                     {"uint64", "-1"},
                                                                                     {"bool", "2"}})
    EXPECT_NE(with(dtype, value).find(value), std::string::npos) << dtype << ": " << with(dtype, value);
  for (const auto& [dtype, value] : std::vector<std::pair<std::string, std::string>>{{"int64", "-9223372036854775808"},
                                                                                     {"uint64", "18446744073709551615"},
                                                                                     {"int8", "-128"},
                                                                                     {"uint32", "4294967295"},
                                                                                     {"bool", "1"}})
    EXPECT_EQ(with(dtype, value), "") << dtype << " " << value;
  EXPECT_NE(
      refusal(R"({"name":"a","op":"b","attributes":{"axis":18446744073709551615},"inputs":[],"error":"internal"})")
          .find("64 bits"),
      std::string::npos);
}

TEST_F(CaseFile, ListsAreLists) {
  const std::string tail = R"("error":"internal"})";
  EXPECT_NE(refusal(R"({"name":"a","op":"b","inputs":{"x":null},)" + tail).find("expected a list"), std::string::npos);
  EXPECT_NE(refusal(R"({"name":"a","op":"b","inputs":[{"dtype":"int8","shape":{"x":1},"data":[1]}],)" + tail)
                .find("expected a list"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"name":"a","op":"b","attributes":[1],"inputs":[],)" + tail).find("expected an object"),
            std::string::npos);
}

TEST_F(CaseFile, DeepNestingIsRefusedBeforeItRunsOutOfStack) {
  const std::string deep = std::string(200000, '[') + std::string(200000, ']'), tail = R"("error":"internal"})";
  EXPECT_NE(refusal(R"({"name":"a","op":"b","attributes":{"axis":)" + deep + R"(},"inputs":[],)" + tail).find("deeper"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"name":"a","op":"b","name":"c","inputs":[],)" + tail).find("key \"name\" is given twice"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"name":"a","op":"b","inputs":[{"dtype":"int8","shape":[)" + deep + R"(],"data":[]}],)" + tail)
                .find("deeper"),
            std::string::npos);
}

TEST_F(CaseFile, AFolderIsRefused) { EXPECT_THROW(cases::read_case(testing::TempDir()), Error); }

TEST(FindCases, RefusesAPathThatIsNotThere) { EXPECT_THROW(cases::find_cases({"/no/such/folder"}), Error); }

TEST(Difference, NamesTheFirstPosition) {
  const Tensor want = floats({2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(cases::difference(floats({2, 2}, {1, 2, 5, 6}), want, 0, 0), "position [1,0]: got 5, want 3");
  EXPECT_EQ(cases::difference(floats({4}, {1, 2, 3, 4}), want, 0, 0), "shape: got [4], want [2,2]");
  EXPECT_EQ(cases::difference(Tensor::empty(DType::f64, {2, 2}), want, 0, 0), "dtype: got float64, want float32");
  EXPECT_EQ(cases::difference(want, want, 0, 0), std::nullopt);
}

TEST(Difference, KeepsToTheTolerance) {
  const Tensor want = floats({2}, {100, -100});
  EXPECT_EQ(cases::difference(floats({2}, {101, -101}), want, 0.01, 0), std::nullopt);
  EXPECT_NE(cases::difference(floats({2}, {101.5, -100}), want, 0.01, 0), std::nullopt);
  EXPECT_EQ(cases::difference(floats({2}, {101.5, -100}), want, 0.01, 0.5), std::nullopt);
  EXPECT_NE(cases::difference(floats({2}, {std::nextafter(100.0f, 200.0f), -100}), want, 0, 0), std::nullopt);
}

TEST(Difference, SpecialValues) {
  const float nan = NAN, inf = INFINITY;
  EXPECT_EQ(cases::difference(floats({4}, {nan, inf, -inf, -0.0f}), floats({4}, {nan, inf, -inf, 0.0f}), 0, 0),
            std::nullopt);
  EXPECT_NE(cases::difference(floats({1}, {nan}), floats({1}, {1}), 1, 1), std::nullopt);
  EXPECT_NE(cases::difference(floats({1}, {1}), floats({1}, {nan}), 1, 1), std::nullopt);
  EXPECT_NE(cases::difference(floats({1}, {1e30f}), floats({1}, {inf}), 1, 1), std::nullopt);
  EXPECT_NE(cases::difference(floats({1}, {-inf}), floats({1}, {inf}), 1, 1), std::nullopt);
}

TEST(LargestError, IsRelativeAboveOne) {
  EXPECT_DOUBLE_EQ(cases::largest_error(floats({3}, {1, 100, 0.5}), floats({3}, {1, 200, 0.25})), 0.5);
  EXPECT_EQ(cases::largest_error(floats({1}, {NAN}), floats({1}, {NAN})), 0);
  EXPECT_TRUE(std::isinf(cases::largest_error(floats({1}, {NAN}), floats({1}, {1}))));
}

}  // namespace
}  // namespace gradloom
