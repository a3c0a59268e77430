#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/bench/bench_cache.h"
#include "cli/bench/bench_goal.h"
#include "cli/bench/bench_measure.h"
#include "cli/command.h"
#include "cli/text.h"

extern char** environ;

namespace gradloom::cli {
namespace {

namespace fs = std::filesystem;

struct TemporaryFolder {
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "gradloom-warm-XXXXXX").string();
    if (!mkdtemp(name.data())) throw Error(ErrorCode::resource_exhausted, "bench: no temporary folder can be made");
    path = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  fs::path path;
};

// Runs this program once more, as a warm_process on the folder.
nlohmann::json times_of_process(const fs::path& folder) {
  int ends[2];
  if (pipe(ends) != 0) throw Error(ErrorCode::resource_exhausted, "bench: no pipe");
  setenv("GRADLOOM_CACHE_DIR", folder.c_str(), 1);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  const char* const words[] = {"gradloom", "bench", "warm_process", nullptr};
  pid_t child = 0;
  const int failed = posix_spawn(&child, "/proc/self/exe", &actions, nullptr, const_cast<char**>(words), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string text;
  char piece[512];
  for (ssize_t got; (got = read(ends[0], piece, sizeof piece)) > 0;) text.append(piece, static_cast<size_t>(got));
  close(ends[0]);
  int status = 0;
  if (failed || waitpid(child, &status, 0) != child || status != 0)
    throw Error(ErrorCode::internal, "bench: a process on the warm cache failed");
  return nlohmann::json::parse(text);
}

constexpr const char* stages[] = {"runtime_us", "first_call_us", "read_us", "link_us", "rest_us", "second_call_us"};
constexpr const char* meanings[] = {"Runtime's constructor", "first call", "  files read and checked",
                                    "  code linked",         "  the rest", "second call"};

}  // namespace

int warm_process() {
  const std::vector<Tensor> inputs{Tensor::of(DType::i64, {2}, std::vector<int64_t>{64, 16}),
                                   Tensor::of(DType::i64, {3}, std::vector<int64_t>{5, 0, 5}),
                                   Tensor::of(DType::f32, {3, 16}, std::vector<float>(48, 0.5f))};
  const double begin = elapsed_ms();
  Runtime runtime({.threads = 1});
  const double made = elapsed_ms();
  runtime.run("GatherGrad", inputs).value();
  const double first = elapsed_ms();
  runtime.run("GatherGrad", inputs).value();
  const double second = elapsed_ms();
  const Stats stats = runtime.stats();
  const double call = (first - made) * 1e3, read = stats.read_ms * 1e3, link = stats.load_ms * 1e3;
  fmt::print("{}\n", nlohmann::json{{"runtime_us", (made - begin) * 1e3},
                                    {"first_call_us", call},
                                    {"read_us", read},
                                    {"link_us", link},
                                    {"rest_us", call - read - link},
                                    {"second_call_us", (second - first) * 1e3},
                                    {"compiles", stats.compiles},
                                    {"disk_hits", stats.disk_hits}}
                         .dump());
  return 0;
}

int bench_warm(int processes, bool json) {
  constexpr double most_us = 1000;
  const TemporaryFolder folder;
  const nlohmann::json cold = times_of_process(folder.path / "cache");
  if (cold["compiles"] != 1) throw UsageError("bench: warm needs the disk cache, expected a build with LLVM");
  std::vector<nlohmann::json> runs;
  for (int i = 0; i < processes; ++i) {
    runs.push_back(times_of_process(folder.path / "cache"));
    if (runs.back()["compiles"] != 0 || runs.back()["disk_hits"] != 1)
      throw Error(ErrorCode::internal, "bench: a warm process compiled");
  }
  Table table({"stage", ">cold us", ">min us", ">median us", ">max us"});
  double longest = 0;
  nlohmann::ordered_json line{{"processes", processes}};
  for (size_t s = 0; s < std::size(stages); ++s) {
    std::vector<double> us;
    for (const nlohmann::json& run : runs) us.push_back(run[stages[s]]);
    const auto [low, high] = std::minmax_element(us.begin(), us.end());
    if (s == 1) longest = *high;
    line[stages[s]] = {{"min", *low}, {"median", median(us)}, {"max", *high}};
    table.row({meanings[s], fmt::format("{:.0f}", cold[stages[s]].get<double>()), fmt::format("{:.0f}", *low),
               fmt::format("{:.0f}", median(us)), fmt::format("{:.0f}", *high)});
  }
  if (json) {
    fmt::print("{}\n", line.dump());
    return longest <= most_us ? 0 : exit_failure;
  }
  fmt::print("{}\n{} processes, each on a cache that holds its kernel; no compiler was called\n", table.text(),
             processes);
  return verdict({{"longest first call", longest, most_us, true, " us"}});
}

}  // namespace gradloom::cli
