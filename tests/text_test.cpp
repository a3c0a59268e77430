// The text form, file by file. tests/text/*.loop hold a kernel between what is expected of it, in comments:
//
//   // roundtrip                     print(parse(kernel)) is the kernel's text
//   // error: 3:7: expected ...      parse refuses the file with this message (lines count from the file's top)
//   // verify authored               verify accepts the kernel at this stage
//   // verify authored: message      verify refuses it with this message
//   // pass unroll, simplify         these passes, in order, give what stands in comments after the line "// ---" below the kernel
//
// Other comments above the kernel are for the reader. GRADLOOM_UPDATE=1 rewrites the expectations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <sstream>

#include "ir/builder.h"
#include "ir/print.h"
#include "ir/verify.h"

namespace gradloom::ir {
namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}
std::string parse_error(const std::string& text) {
  return error_of([&] { parse(text); });
}

const std::map<std::string, Kernel (*)(const Kernel&)> passes{};
const std::map<std::string, Stage> stages{{"authored", Stage::authored}, {"scheduled", Stage::scheduled}, {"lowered", Stage::lowered}};

std::vector<std::string> split(const std::string& text, const std::string& separators) {
  std::vector<std::string> words;
  for (size_t at = 0; (at = text.find_first_not_of(separators, at)) != std::string::npos;) {
    const size_t end = std::min(text.find_first_of(separators, at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

// A file in its three parts: comments above, the kernel, the commented output of its passes.
class LoopFile {
 public:
  explicit LoopFile(const std::filesystem::path& path) : path_(path), text_(read(path)) {
    std::istringstream lines(text_);
    bool output = false;
    for (std::string line; std::getline(lines, line);) {
      if (line == "// ---")
        output = true;
      else if (output)
        output_ += line.size() > 3 ? line.substr(3) + "\n" : "\n";
      else if (kernel_.empty() && line.starts_with("//"))
        header_.push_back(line);
      else
        kernel_ += line + "\n";
    }
  }

  void check() {
    int expectations = 0;
    for (std::string& line : header_) {
      const std::vector<std::string> words = split(line, " ,:");
      if (words.size() < 2) continue;
      const std::string& word = words[1];
      const size_t colon = line.find(": ");
      const std::string message = colon == std::string::npos ? "" : line.substr(colon + 2);
      if (line == "// roundtrip") {
        compare(print(parse(kernel_)), kernel_);
      } else if (line.starts_with("// error: ")) {
        std::string actual = message;
        compare(parse_error(text_), actual);
        line = "// error: " + actual;
      } else if (word == "verify" && words.size() > 2 && stages.contains(words[2])) {
        std::string actual = message;
        compare(error_of([&] { verify(parse(text_), stages.at(words[2])); }), actual);
        line = "// verify " + words[2] + (actual.empty() ? "" : ": " + actual);
      } else if (word == "pass") {
        Kernel kernel = parse(text_);
        for (size_t i = 2; i < words.size(); ++i) {
          ASSERT_TRUE(passes.contains(words[i])) << "no pass " << words[i];
          kernel = passes.at(words[i])(kernel);
        }
        compare(print(kernel), output_);
      } else {
        continue;
      }
      ++expectations;
    }
    EXPECT_GT(expectations, 0) << "the file expects nothing";
    if (changed_) write();
  }

 private:
  void compare(const std::string& actual, std::string& expected) {
    if (actual == expected) return;
    if (!std::getenv("GRADLOOM_UPDATE")) {
      EXPECT_EQ(actual, expected);
      return;
    }
    expected = actual;
    changed_ = true;
  }
  void write() const {
    std::ofstream file(path_, std::ios::binary);
    for (const std::string& line : header_) file << line << "\n";
    file << kernel_;
    if (output_.empty()) return;
    file << "// ---\n";
    std::istringstream lines(output_);
    for (std::string line; std::getline(lines, line);) file << (line.empty() ? "//" : "// " + line) << "\n";
  }

  const std::filesystem::path path_;
  const std::string text_;
  std::vector<std::string> header_;
  std::string kernel_, output_;
  bool changed_ = false;
};

class TextFile : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(TextFile, MeetsItsExpectations) { LoopFile(GetParam()).check(); }

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
  EXPECT_EQ(parse_error("kernel k() {\n" + std::string(300, '{') + "}"), "2:201: expected at most 200 levels of nesting");
  std::string sum = "1", minus(10000, '-'), lets;
  for (int i = 0; i < 10000; ++i) sum += " + 1", lets += "let a = 1\n";
  for (const std::string& value : {std::string(100000, '('), sum, minus})
    EXPECT_NE(parse_error("kernel k() {\nlet a = " + value).find("expected at most 200 levels"), std::string::npos);
  EXPECT_EQ(parse_error("kernel k() {\n" + lets + "}"), "2002:5: expected at most 2000 names in scope");
}

}  // namespace
}  // namespace gradloom::ir
