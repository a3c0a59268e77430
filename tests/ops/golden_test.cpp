// The cases in golden/, each on each target of this build: the results of the real ORT kernels, or those that a user
// would expect where ORT fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "cli/cases.h"
#include "tests/support/sampled.h"

namespace gradloom {
namespace {

struct Parameter {
  std::filesystem::path file;
  std::string target;
};

std::vector<Parameter> parameters() {
  std::vector<Parameter> all;
  for (const auto& file : cases::find_cases({GRADLOOM_TEST_DIR "/golden"})) {
    all.push_back({file, "interpreter"});
#ifdef GRADLOOM_WITH_LLVM
    all.push_back({file, "llvm"});
#endif
  }
  return all;
}

// GRU's any-shape kernels take seconds each in sanitizer builds.
std::vector<Parameter> any_shape_parameters() {
  std::vector<Parameter> kept;
  size_t gru = 0;
  for (Parameter& p : parameters())
    if (p.file.stem().string().find("gru_") != 0 || sampled(gru++)) kept.push_back(std::move(p));
  return kept;
}

std::string name_of(const testing::TestParamInfo<Parameter>& info) {
  std::string name = info.param.file.stem().string() + "_" + info.param.target;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
}

class Golden : public testing::TestWithParam<Parameter> {
 protected:
  static RuntimeOptions options(const std::string& target) {
    RuntimeOptions options;
    options.target = target == "llvm" ? TargetKind::llvm : TargetKind::interpreter;
    options.threads = 2;
    return options;
  }
};

TEST_P(Golden, GivesWhatTheCaseSays) {
  const cases::Case c = cases::read_case(GetParam().file);
  Runtime runtime(options(GetParam().target));
  EXPECT_EQ(cases::failure(runtime, c, GetParam().target).value_or(""), "") << c.name << " (" << c.source << ")";
}

class GoldenAnyShape : public Golden {};

TEST_P(GoldenAnyShape, GivesWhatTheCaseSays) {
  const cases::Case c = cases::read_case(GetParam().file);
  Runtime runtime(options(GetParam().target));
  EXPECT_EQ(cases::failure(runtime, c, GetParam().target, {.any_shape = true}).value_or(""), "")
      << c.name << " (" << c.source << ")";
}

INSTANTIATE_TEST_SUITE_P(Cases, Golden, testing::ValuesIn(parameters()), name_of);
INSTANTIATE_TEST_SUITE_P(Cases, GoldenAnyShape, testing::ValuesIn(any_shape_parameters()), name_of);

}  // namespace
}  // namespace gradloom
