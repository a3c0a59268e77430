// `gradloom nest`, file by file: each tests/nest/*.loop has a nest below comment lines with its options and its
// expected output, on every target of this build. tests/README.md documents the format.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace {

struct Expected {
  enum Kind { output, error, equal, shows, lacks } kind;
  std::string text;
};

struct Case {
  int line = 1;
  std::string args, data;
  std::vector<std::string> trace, targets;
  std::vector<Expected> expected;
};

struct Answer {
  std::string text;  // stdout and stderr
  int code = 0;
};

Answer run(const std::string& command) {
  Answer answer;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (!pipe) throw std::runtime_error("popen failed: " + command);
  char buffer[4096];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) answer.text.append(buffer, n);
  const int status = pclose(pipe);
  answer.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return answer;
}

std::vector<std::string> all_targets() {
  std::vector<std::string> targets{"interpreter"};
#ifdef GRADLOOM_WITH_LLVM
  targets.push_back("llvm");
#endif
#ifdef GRADLOOM_WITH_CUDA
  targets.push_back("cuda-host");
#endif
  return targets;
}

// Outside of strings.
std::string without_spaces(const std::string& text) {
  std::string out;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"' && (i == 0 || text[i - 1] != '\\')) in_string = !in_string;
    if (in_string || !std::isspace(static_cast<unsigned char>(text[i]))) out += text[i];
  }
  return out;
}

class NestFile {
 public:
  explicit NestFile(std::filesystem::path path)
      : path_(std::move(path)), temporary_(std::filesystem::temp_directory_path()) {
    temporary_ /= "gradloom_nest_test_" + std::to_string(getpid()) + "_" + path_.stem().string();
    std::ifstream in(path_);
    int number = 0;
    for (std::string line; std::getline(in, line) && line.starts_with("//");) header(line, ++number);
    if (cases_.empty() || std::any_of(cases_.begin(), cases_.end(), [](const Case& c) { return c.expected.empty(); }))
      throw std::runtime_error(path_.string() +
                               ": expected an expectation (expect, error, equal, shows, lacks) for each case");
  }
  ~NestFile() {
    std::error_code code;
    for (const char* suffix : {".json", ".trace"}) std::filesystem::remove(temporary_.string() + suffix, code);
  }

  void check() const {
    for (const Case& c : cases_) {
      SCOPED_TRACE(path_.string() + ":" + std::to_string(c.line));
      const std::string command = command_of(c);
      for (const Expected& e : c.expected) check(c, command, e);
    }
  }

 private:
  void header(const std::string& line, int number) {
    const auto value = [&](const std::string& key) -> std::optional<std::string> {
      const std::string start = "// " + key;
      if (line == start) return "";
      if (!line.starts_with(start + ":")) return std::nullopt;
      const size_t at = line.find_first_not_of(' ', start.size() + 1);
      return at == std::string::npos ? "" : line.substr(at);
    };
    const auto here = [&]() -> Case& {
      if (cases_.empty()) cases_.push_back({number});
      return cases_.back();
    };
    if (const auto args = value("args")) {
      cases_.push_back({number});
      here().args = *args;
    }
    if (const auto data = value("data")) here().data += *data;
    if (const auto step = value("trace")) here().trace.push_back(*step);
    if (const auto targets = value("targets")) {
      std::istringstream words(*targets);
      for (std::string word; words >> word;) here().targets.push_back(word);
    }
    const std::pair<const char*, Expected::Kind> kinds[] = {{"expect", Expected::output},
                                                            {"error", Expected::error},
                                                            {"equal", Expected::equal},
                                                            {"shows", Expected::shows},
                                                            {"lacks", Expected::lacks}};
    for (const auto& [key, kind] : kinds)
      if (const auto text = value(key)) {
        std::vector<Expected>& expected = here().expected;
        if (kind == Expected::output && !expected.empty() && expected.back().kind == kind)
          expected.back().text += *text;  // continuation line
        else
          expected.push_back({kind, *text});
      }
  }

  std::string command_of(const Case& c) const {
    std::string command = std::string("'") + GRADLOOM_COMMAND + "' nest '" + path_.string() + "' " + c.args;
    const auto with_file = [&](const std::string& option, const std::string& suffix, const std::string& text) {
      std::ofstream(temporary_.string() + suffix) << text;
      command += " " + option + " '" + temporary_.string() + suffix + "'";
    };
    if (!c.data.empty()) with_file("--data", ".json", c.data);
    std::string steps;
    for (const std::string& step : c.trace) steps += step + "\n";
    if (!c.trace.empty()) with_file("--trace", ".trace", steps);
    return command;
  }

  void check(const Case& c, const std::string& command, const Expected& e) const {
    if (e.kind == Expected::equal) {
      const Answer answer = run(command + " --compare");
      EXPECT_TRUE(answer.code == 0 && answer.text.starts_with("equal on interpreter")) << answer.text;
    } else if (e.kind == Expected::shows || e.kind == Expected::lacks) {
      const Answer answer = run(command);
      EXPECT_EQ(answer.code, 0) << answer.text;
      EXPECT_EQ(answer.text.find(e.text) != std::string::npos, e.kind == Expected::shows) << e.text << "\n"
                                                                                          << answer.text;
    } else {
      const std::vector<std::string> all = all_targets();
      for (const std::string& target : c.targets.empty() ? all : c.targets) {
        if (std::find(all.begin(), all.end(), target) == all.end()) continue;
        SCOPED_TRACE("target " + target);
        const Answer answer = run(command + " --json --target " + target);
        if (e.kind == Expected::output)
          EXPECT_EQ(without_spaces(answer.text), without_spaces(e.text));
        else
          EXPECT_EQ(answer.text, "gradloom: " + e.text + "\n");
        EXPECT_EQ(answer.code, e.kind == Expected::error ? 1 : 0);
      }
    }
  }

  const std::filesystem::path path_;
  std::filesystem::path temporary_;  // without the suffix
  std::vector<Case> cases_;
};

std::vector<std::filesystem::path> files() {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(GRADLOOM_TEST_DIR) / "nest"))
    if (entry.path().extension() == ".loop") found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

// A page of docs/: its first nest, in a file of the nest's name, the commands after "$ " and their output.
void expect_page(const std::string& name, const std::string& kernel, int expected_commands) {
  std::ifstream page(std::filesystem::path(GRADLOOM_TEST_DIR) / ".." / "docs" / name);
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("gradloom_page_" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  std::filesystem::create_symlink(GRADLOOM_COMMAND, folder / "gradloom");
  std::string nest, command, wanted;
  int commands = 0;
  const auto finish = [&] {
    if (command.empty()) return;
    const Answer answer = run("cd '" + folder.string() + "' && PATH=.:$PATH && { " + command + "; }");
    EXPECT_EQ(answer.code, 0) << command << "\n" << answer.text;
    EXPECT_TRUE(wanted.empty() || answer.text == wanted) << command << "\n" << answer.text;
    ++commands;
    command.clear(), wanted.clear();
  };
  bool inside = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("```")) {
      finish();
      if (inside && !nest.empty()) std::ofstream(folder / (kernel + ".loop")) << nest;
      inside = !inside;
      nest.clear();
    } else if (inside && line.starts_with("$ ")) {
      finish();
      command = line.substr(2);
    } else if (inside && !command.empty()) {
      wanted += line + "\n";
    } else if (inside && (!nest.empty() || line.starts_with("kernel " + kernel))) {
      nest += line + "\n";
    }
  }
  EXPECT_EQ(commands, expected_commands);
  std::filesystem::remove_all(folder);
}

#if defined(GRADLOOM_WITH_LLVM) && defined(GRADLOOM_WITH_CUDA)
TEST(Docs, nest_prints_what_the_page_says) { expect_page("nest.md", "relu_grad", 6); }
#endif
TEST(Docs, declared_ops_prints_what_the_page_says) { expect_page("declared_ops.md", "none", 2); }
TEST(Docs, differentiate_prints_what_the_page_says) { expect_page("differentiate.md", "softmax", 12); }

class Nest : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(Nest, gives_what_the_file_says) { NestFile(GetParam()).check(); }

INSTANTIATE_TEST_SUITE_P(files, Nest, testing::ValuesIn(files()), [](const auto& info) {
  std::string name = info.param.stem().string();
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
});

}  // namespace
