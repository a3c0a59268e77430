// The text form, file by file: tests/text/*.loop hold a kernel and, in comments, what is expected of it.
//
//   // roundtrip                     print(parse(file)) is the file without its expectations
//   // error: 3:7: expected ...      parse refuses the file with this message (lines count from the file's top)
//   // verify authored: message      verify refuses the kernel at this stage; no message: verify accepts it
//   // pass simplify                 the pass's output is what stands in comments after the line "// ---"
//
// GRADLOOM_UPDATE=1 rewrites the expectations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "ir/builder.h"
#include "ir/print.h"

namespace gradloom::ir {
namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string error_of(const std::string& text) {
  try {
    parse(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class TextFile : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(TextFile, Roundtrip) {
  const std::string text = read(GetParam());
  std::string kernel;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("//")) kernel += line + "\n";
  EXPECT_EQ(print(parse(text)), kernel);
}

std::vector<std::filesystem::path> files() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(GRADLOOM_TEST_DIR "/text"))
    if (entry.path().extension() == ".loop") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

INSTANTIATE_TEST_SUITE_P(Text, TextFile, testing::ValuesIn(files()), [](const auto& info) { return info.param.stem().string(); });

// Texts that are nearly right reach deep into the parser; whatever it makes of them, it throws nothing but Error, and what it accepts prints stably.
TEST(Text, SurvivesMutations) {
  std::vector<std::string> seeds;
  for (const auto& path : files()) seeds.push_back(read(path));
  const std::vector<std::string> tokens{
      "(",   ")",  "[", "]",  "{",    "}",     "-",  "~", "..", "+", "where", "else", "if", "let", "alloc", "inf(", "bits(f32, 0x", "99999999999999999999",
      "f32", "\"", "`", "#1", "in [", "ramp(", "i64"};
  std::mt19937 random(20);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = seeds[random() % seeds.size()];
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
  EXPECT_GT(accepted, 100);
}

TEST(Text, LimitsNesting) {
  EXPECT_EQ(error_of("kernel k() {\n" + std::string(300, '{') + "}"), "2:201: expected at most 200 levels of nesting");
  std::string sum = "1", minus(10000, '-'), lets;
  for (int i = 0; i < 10000; ++i) sum += " + 1", lets += "let a = 1\n";
  for (const std::string& value : {std::string(100000, '('), sum, minus})
    EXPECT_NE(error_of("kernel k() {\nlet a = " + value).find("expected at most 200 levels"), std::string::npos);
  EXPECT_EQ(error_of("kernel k() {\n" + lets + "}"), "2002:5: expected at most 2000 names in scope");
}

}  // namespace
}  // namespace gradloom::ir
