// `gradloom demo`: correctness of gradients, their cost, and a model that trains, in about a minute.
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <unordered_map>

#include "cli/bench/bench_latency.h"
#include "cli/bench/bench_measure.h"
#include "cli/cases.h"
#include "cli/command.h"
#include "cli/demo/demo_calls.h"
#include "cli/demo/plain_loops.h"

namespace gradloom::cli {
namespace {

namespace fs = std::filesystem;

struct DemoOptions {
  std::string golden, text;
  int threads = 0;
  bool quick = false;
};

constexpr const char* ort_cases[] = {"gather_elements_grad__middle", "gather_grad__embedding",
                                     "slice_grad__wide_middle", "broadcast_gradient_args__random03",
                                     "reported__04_negative_same_row"};
struct Shown {
  const char *name, *call;
};
constexpr Shown shapes_shown[] = {{"gg_uni", "[50000,768], 4096 rows"}, {"gg_zipf", "[50000,768], 4096 words"},
                                  {"ge_ax1", "[4096,4096], axis 1"},    {"ge_3d", "[64,1024,256], axis 1"},
                                  {"sl_mid", "[64,512,768], middle"},   {"sl_step2", "[8192,8192], steps of 2"},
                                  {"bg_768", "[64,512,768] -> [768]"},  {"bg_col", "[64,512,768] -> [64,512,1]"}};
constexpr int64_t embedding_width = 256;

fs::path program_folder() {
  std::error_code code;
  return fs::read_symlink("/proc/self/exe", code).parent_path();
}

// Next to the sources, in a folder above the executable, or in one above the current folder.
std::string find_golden() {
  std::error_code code;
  const std::vector<fs::path> starts{GRADLOOM_SOURCE_DIR, program_folder(), fs::current_path(code)};
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

class Demo {
 public:
  explicit Demo(const DemoOptions& options)
      : quick_(options.quick),
        seconds_(options.quick ? 0.02 : 0.5),
        golden_(options.golden.empty() ? find_golden() : options.golden),
        text_(options.text),
        threads_(options.threads),
        team_(options.threads),
        runtime_(runtime_options(options)) {
    fmt::print("gradloom {}: {}, {}\n\n", GRADLOOM_VERSION, cpu_and_threads(threads_), runtime_.target_name());
  }

  int run() {
    DemoTable table;
    for (const char* name : ort_cases) table.row(ort_case(name));
    table.working("looking for numpy and PyTorch");
    Peers peers(threads_, seconds_);
    find_text(table);
    table.row(timed(embedding_case(ids_),
                    fmt::format("{} words of {}", ids_.size(), fs::path(text_).filename().string()), peers));
    for (const Shown& shown : shapes_shown) {
      if (quick_ && &shown != &shapes_shown[3]) continue;
      table.working(shown.call);
      table.row(timed(*chosen_cases({shown.name})[0], shown.call, peers));
    }
    gru_rows(gru_cases()[quick_ ? 2 : 0], runtime_, team_, peers, seconds_, table);
    own_kernel_row(quick_ ? 1 << 16 : 1 << 24, runtime_, peers, seconds_, table);
    table.text(fmt::format(
        "\nerror: the largest difference, relative above 1, from ONNX Runtime 1.19.2 (ORT) and from plain loops "
        "(others).\n"
        "cold: check, build and compile. x roof: the call beside {}\n(GRU: its products at the multiply-add peak); "
        "`gradloom bench` has more.\n"
        "loop, numpy, PyTorch: how many times as long they take; loop: plain C++, one thread.\n{}.\n",
        what_the_roof_is, peers.versions()));
    verdict(table);
    return write_text(table) && table.wrong() == 0 ? 0 : exit_failure;
  }

 private:
  static RuntimeOptions runtime_options(const DemoOptions& options) {
    RuntimeOptions runtime;
    runtime.threads = options.threads;
    runtime.disk_cache = "off";  // a cold compile is cold
    return runtime;
  }

  DemoRow ort_case(const std::string& name) {
    cases::Case c;
    try {
      c = cases::read_case(fs::path(golden_) / (name + ".json"));
    } catch (const Error& error) {
      throw UsageError(error.what());
    }
    DemoRow row{c.op, "ORT: " + c.name.substr(c.name.find('/') + 1)};
    runtime_.clear_cache();
    const double begin = elapsed_ms();
    const auto outputs = cases::call(runtime_, c, {}).value();
    row.cold_ms = elapsed_ms() - begin;
    for (size_t o = 0; o < outputs.size(); ++o)
      row.error = std::max(row.error, cases::largest_error(outputs[o], c.outputs[o]));
    row.right = !cases::failure(runtime_, c, "", {});
    row.ms = handle_us(runtime_, c.op, c.inputs, c.attributes, 5) / 1000;
    return row;
  }

  void find_text(DemoTable& table) {
    const bool given = !text_.empty();
    if (!given) text_ = "/usr/share/common-licenses/GPL-3";
    ids_ = token_ids(text_);
    if (ids_.empty() && !given) {
      const std::string readme = (fs::path(golden_).parent_path().parent_path() / "README.md").string();
      table.text(fmt::format("{} is not there: {} instead\n", text_, readme));
      ids_ = token_ids(text_ = readme);
    }
    if (ids_.empty()) throw UsageError(fmt::format("demo: {} holds no words, expected --text FILE with some", text_));
  }

  DemoRow timed(const BenchCase& c, const std::string& call, Peers& peers) {
    DemoRow row{c.op, call};
    row.cold_ms = cold_compile(runtime_, c, {}, 3).total_ms;
    const BenchOperands operands(c);
    const Measurement m = operands.measure(runtime_, team_, OutputMode::preallocated, {}, seconds_);
    row.error = m.largest_error;
    row.right = !m.wrong;
    row.ms = m.median_ms;
    row.roof_ms = m.roof_ms();
    const Tensor plain = Tensor::empty(DType::f32, c.output);
    row.loop_ms = call_ms([&] { plain_gradient(c, operands.inputs(), plain); }, seconds_);
    if (operands.reference().largest_error(plain) > 1e-3)
      throw Error(ErrorCode::internal, fmt::format("demo: the plain loop of {} is wrong", c.name));
    row.peers = peers.time(c, operands.inputs());
    return row;
  }

  static void verdict(DemoTable& table) {
    const bool color = isatty(STDOUT_FILENO) != 0;
    const std::string words = table.wrong() == 0
                                  ? fmt::format("all {} results are right", table.rows())
                                  : fmt::format("{} of {} results are WRONG", table.wrong(), table.rows());
    table.text(color ? fmt::format("\x1b[{}m{}\x1b[0m\n", table.wrong() == 0 ? 32 : 31, words) : words + "\n");
  }

  // Sample text of a model trained with these ops and a few kernels of its own: examples/train_gru.
  bool write_text(DemoTable& table) const {
    const std::string program = (program_folder() / "train_gru").string();
    if (access(program.c_str(), X_OK) != 0) {
      table.text(fmt::format("\n{} is not built, so no model is trained\n", program));
      return true;
    }
    std::vector<std::string> words{program, "--text", text_, "--threads", std::to_string(threads_)};
    for (const char* word : {"--seed", "2", "--steps", quick_ ? "20" : "600", "--sample", quick_ ? "60" : "400"})
      words.emplace_back(word);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    table.text("\nA character-level GRU learns the text, with these ops and kernels alone, and then writes some:\n");
    pid_t process = 0;
    int status = 0;
    return posix_spawn(&process, program.c_str(), nullptr, nullptr, arguments.data(), environ) == 0 &&
           waitpid(process, &status, 0) == process && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

  bool quick_;
  double seconds_;
  std::string golden_, text_;
  std::vector<int64_t> ids_;
  int threads_;
  ProbeTeam team_;
  Runtime runtime_;
};

int demo(DemoOptions options) {
  if (options.threads == 0) options.threads = available_threads();
  pin_process(options.threads);
  return Demo(options).run();
}

}  // namespace

void add_demo(CLI::App& app, int& status) {
  auto options = std::make_shared<DemoOptions>();
  CLI::App* command =
      app.add_subcommand("demo", "Real cases and full-sized calls, checked and timed, and a model that trains");
  command->add_option("--golden", options->golden,
                      "the folder of ORT's cases; tests/golden near the command when not given");
  command->add_option("--text", options->text, "the text whose embedding gradient is taken, and that the model learns");
  command->add_option("--threads", options->threads, "threads, pinned; 0: every CPU of this process")
      ->check(CLI::Range(0, 1024));
  command->add_flag("--quick", options->quick, "a few small calls, each timed for a moment, and hardly any training");
  command->footer("Example:\n  gradloom demo --threads 2");
  command->callback([options, &status] { status = demo(*options); });
}

}  // namespace gradloom::cli
