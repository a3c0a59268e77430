// `gradloom demo`: real ORT cases, a real text's embedding gradient, and full-sized shapes, in one table.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <unordered_map>

#include "cli/bench/bench_latency.h"
#include "cli/bench/bench_measure.h"
#include "cli/cases.h"
#include "cli/command.h"
#include "cli/text.h"

namespace gradloom::cli {
namespace {

struct DemoOptions {
  std::string golden, text;
  int threads = 0;
};

constexpr const char* ort_cases[] = {"gather_elements_grad__middle", "gather_grad__embedding",
                                     "slice_grad__wide_middle", "broadcast_gradient_args__random03",
                                     "reported__04_negative_same_row"};
constexpr const char* shapes_shown[] = {"ge_ax1", "ge_3d",    "gg_uni", "gg_zipf",
                                        "sl_mid", "sl_step2", "bg_768", "bg_col"};
constexpr double seconds_each = 0.5;
constexpr int64_t embedding_width = 256;

// Beside the sources, in a folder above the executable, or in one above the current folder.
std::string find_golden() {
  namespace fs = std::filesystem;
  std::error_code code;
  std::vector<fs::path> starts{GRADLOOM_SOURCE_DIR, fs::read_symlink("/proc/self/exe", code).parent_path(),
                               fs::current_path(code)};
  for (fs::path folder : starts)
    for (; !folder.empty(); folder = folder.parent_path()) {
      if (fs::is_directory(folder / "tests/golden", code)) return (folder / "tests/golden").string();
      if (folder == folder.root_path()) break;
    }
  throw UsageError("demo: found no tests/golden near the command, expected --golden FOLDER");
}

// Words as ids: numbered by first appearance, letters lower-cased.
std::vector<int64_t> token_ids(const std::string& file) {
  std::ifstream in(file);
  std::unordered_map<std::string, int64_t> vocabulary;
  std::vector<int64_t> ids;
  std::string word;
  for (char c; in.get(c);) {
    if (std::isalpha(static_cast<unsigned char>(c))) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!word.empty()) {
      ids.push_back(vocabulary.try_emplace(word, static_cast<int64_t>(vocabulary.size())).first->second);
      word.clear();
    }
  }
  return ids;
}

// The gradient of an embedding table: each word of the text adds its row of dY to the word's row of the table.
BenchCase embedding_case(const std::vector<int64_t>& ids) {
  const auto tokens = static_cast<int64_t>(ids.size()), vocabulary = *std::max_element(ids.begin(), ids.end()) + 1;
  BenchCase c{"text", "gg", "GatherGrad", {{"axis", int64_t{0}}}};
  c.inputs = {{BenchInput::shape_like, {2}, 0, {vocabulary, embedding_width}},
              {BenchInput::given, {tokens}, 0, ids},
              {BenchInput::values, {tokens, embedding_width}}};
  c.output = {vocabulary, embedding_width};
  c.bytes_read = tokens * (8 + embedding_width * 4);
  c.bytes_written = vocabulary * embedding_width * 4;
  return c;
}

std::string error_text(double error) { return error == 0 ? "0" : fmt::format("{:.1e}", error); }

class Demo {
 public:
  explicit Demo(const DemoOptions& options)
      : golden_(options.golden.empty() ? find_golden() : options.golden),
        text_(options.text),
        threads_(options.threads),
        team_(options.threads),
        runtime_(runtime_options(options)) {}

  int run() {
    for (const char* name : ort_cases) ort_case(name);
    text();
    for (const char* name : shapes_shown) timed(*chosen_cases({name})[0], name);
    fmt::print("{}, {}\n\n{}\n", cpu_and_threads(threads_), runtime_.target_name(), table_.text());
    fmt::print(
        "error: the largest difference, relative above 1, from ONNX Runtime {} for the ORT cases and from a plain loop "
        "for the others.\n",
        "1.19.2");
    fmt::print(
        "roof: how near the call is to reading its inputs and writing its output once at this machine's best measured "
        "speed.\n");
    const char* green = isatty(STDOUT_FILENO) ? "\x1b[32m" : "";
    const char* red = isatty(STDOUT_FILENO) ? "\x1b[31m" : "";
    const char* plain = isatty(STDOUT_FILENO) ? "\x1b[0m" : "";
    if (wrong_ == 0)
      fmt::print("{}all {} gradients are right{}\n", green, shown_, plain);
    else
      fmt::print("{}{} of {} gradients are WRONG{}\n", red, wrong_, shown_, plain);
    return wrong_ == 0 ? 0 : exit_failure;
  }

 private:
  static RuntimeOptions runtime_options(const DemoOptions& options) {
    RuntimeOptions runtime;
    runtime.threads = options.threads;
    runtime.disk_cache = "off";  // a cold compile is cold
    return runtime;
  }

  void row(std::vector<std::string> cells, bool right) {
    cells.push_back(right ? "right" : "WRONG");
    table_.row(std::move(cells));
    ++shown_;
    if (!right) ++wrong_;
  }

  void ort_case(const std::string& name) {
    cases::Case c;
    try {
      c = cases::read_case(std::filesystem::path(golden_) / (name + ".json"));
    } catch (const Error& error) {
      throw UsageError(error.what());
    }
    runtime_.clear_cache();
    const double begin = elapsed_ms();
    const auto outputs = cases::call(runtime_, c, {}).value();
    const double cold = elapsed_ms() - begin;
    double error = 0;
    for (size_t o = 0; o < outputs.size(); ++o) error = std::max(error, cases::largest_error(outputs[o], c.outputs[o]));
    const bool right = !cases::failure(runtime_, c, "", {});
    const Dispatch cached = dispatch(runtime_, c.op, c.inputs, c.attributes, 5);
    row({c.op, "ORT " + c.name.substr(c.name.find('/') + 1), to_string(outputs[0].dims()), error_text(error),
         milliseconds_text(cold), fmt::format("{:.3g}", cached.handle_us), "", ""},
        right);
  }

  void text() {
    std::string file = text_.empty() ? "/usr/share/common-licenses/GPL-3" : text_;
    std::vector<int64_t> ids = token_ids(file);
    if (ids.empty() && text_.empty()) {
      const std::string readme = (std::filesystem::path(golden_).parent_path().parent_path() / "README.md").string();
      fmt::print("{} is not there: the words of {} instead\n", file, readme);
      ids = token_ids(file = readme);
    }
    if (ids.empty()) throw UsageError(fmt::format("demo: {} holds no words, expected --text FILE with some", file));
    timed(embedding_case(ids),
          fmt::format("{} words of {}", ids.size(), std::filesystem::path(file).filename().string()));
  }

  void timed(const BenchCase& c, const std::string& what) {
    const ColdCompile cold = cold_compile(runtime_, c, {}, 3);
    const BenchOperands operands(c);
    const Measurement m = operands.measure(runtime_, team_, OutputMode::preallocated, {}, seconds_each);
    row({c.op, what, to_string(c.output), error_text(m.largest_error), milliseconds_text(cold.total_ms),
         fmt::format("{:.4g}", m.median_ms * 1000), fmt::format("{:.1f}", m.gbs()),
         fmt::format("{:.0f} %", 100 * m.roof_ms() / m.median_ms)},
        !m.wrong);
  }

  std::string golden_, text_;
  int threads_;
  ProbeTeam team_;
  Runtime runtime_;
  Table table_{{"op", "call", "output", ">error", ">cold ms", ">cached us", ">GB/s", ">roof", ""}};
  int shown_ = 0, wrong_ = 0;
};

int demo(DemoOptions options) {
  if (options.threads == 0) options.threads = available_threads();
  pin_process(options.threads);
  return Demo(options).run();
}

}  // namespace

void add_demo(CLI::App& app, int& status) {
  auto options = std::make_shared<DemoOptions>();
  CLI::App* command = app.add_subcommand("demo", "Real cases, a real text and full-sized shapes, checked and timed");
  command->add_option("--golden", options->golden,
                      "the folder of ORT's cases; tests/golden near the command when not given");
  command->add_option("--text", options->text, "the text whose embedding gradient is taken");
  command->add_option("--threads", options->threads, "threads, pinned; 0: every CPU of this process")
      ->check(CLI::Range(0, 1024));
  command->footer("Example:\n  gradloom demo --threads 2");
  command->callback([options, &status] { status = demo(*options); });
}

}  // namespace gradloom::cli
