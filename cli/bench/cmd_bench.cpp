// `gradloom bench`: times calls against this machine's memory bandwidth and multiply-add peak.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/bench/bench_accumulate.h"
#include "cli/bench/bench_cache.h"
#include "cli/bench/bench_gemm.h"
#include "cli/bench/bench_gpu_time.h"
#include "cli/bench/bench_gru.h"
#include "cli/bench/bench_latency.h"
#include "cli/bench/bench_measure.h"
#include "cli/bench/bench_nests.h"
#include "cli/command.h"
#include "cli/text.h"

namespace gradloom::cli {
namespace {

struct BenchOptions {
  std::vector<std::string> cases;
  std::string strategy, output = "preallocated", isa = "host", tuned;
  int threads = 1;
  double seconds = 1.5;
  int64_t cycles = 100000;
  int processes = 20;
  bool any_shape = false, json = false, markdown = false;
  std::string level, beside;                   // gpu-time
  std::vector<std::string> dtypes{"float32"};  // gpu-time
};

void print_json(const Measurement& m) {
  const nlohmann::ordered_json line{{"case", m.name},
                                    {"threads", m.threads},
                                    {"output", to_string(m.output)},
                                    {"strategy", m.strategy},
                                    {"tuned", m.tuned},
                                    {"median_ms", m.median_ms},
                                    {"min_ms", m.min_ms},
                                    {"roof_ms", m.roof_ms()},
                                    {"read_ms", m.read_ms},
                                    {"write_ms", m.write_ms},
                                    {"least_roof_ms", m.least_roof_ms},
                                    {"gbs", m.gbs()},
                                    {"n", m.samples},
                                    {"verified", !m.wrong}};
  fmt::print("{}\n", line.dump());
  std::fflush(stdout);
}

std::vector<std::string> cells(const Measurement& m) {
  return {m.name,
          m.strategy + (m.tuned ? ", tuned" : ""),
          std::to_string(m.threads),
          to_string(m.output),
          milliseconds_text(m.median_ms),
          milliseconds_text(m.min_ms),
          milliseconds_text(m.roof_ms()),
          fmt::format("{:.2f}", m.median_ms / m.roof_ms()),
          fmt::format("{:.2f}", m.min_ms / m.least_roof_ms),
          fmt::format("{:.1f}", m.gbs()),
          std::to_string(m.samples),
          m.wrong ? "WRONG" : "yes"};
}

std::vector<OutputMode> modes(const std::string& output) {
  std::vector<OutputMode> chosen;
  for (const OutputMode mode : {OutputMode::preallocated, OutputMode::fresh, OutputMode::rotated})
    if (output == "all" || output == to_string(mode)) chosen.push_back(mode);
  return chosen;
}

RunOptions run_options(const BenchOptions& options) {
  RunOptions run;
  run.strategy = options.strategy;
  run.any_shape = options.any_shape;
  return run;
}

// `tuned`: in the same rounds, where a log is given.
int bench_cases_of(const BenchOptions& options, Runtime& runtime, Runtime* tuned) {
  const auto chosen = chosen_cases(options.cases);
  ProbeTeam team(options.threads);
  const RunOptions run = run_options(options);
  int status = 0;
  const bool progress = isatty(STDERR_FILENO) != 0;
  Table table({"case", "strategy", ">threads", "output", ">median ms", ">min ms", ">roof ms", ">x roof", ">x at best",
               ">GB/s", ">n", "verified"});
  for (const BenchCase* c : chosen) {
    if (progress) to_stderr("\r\x1b[K{} ...", c->name);
    try {
      const BenchOperands operands(*c);
      for (const OutputMode mode : modes(options.output)) {
        std::vector<Runtime*> runtimes{&runtime};
        if (tuned) runtimes.push_back(tuned);
        for (const Measurement& m : operands.measure(runtimes, team, mode, run, options.seconds)) {
          if (options.json)
            print_json(m);
          else
            table.row(cells(m));
          if (!m.wrong) continue;
          status = exit_failure;
          to_stderr("{}{}: {}\n", progress ? "\r\x1b[K" : "", c->name, *m.wrong);
        }
      }
    } catch (const Error& error) {
      status = exit_failure;
      to_stderr("{}{}: {}\n", progress ? "\r\x1b[K" : "", c->name, error.what());
    }
  }
  if (progress) to_stderr("\r\x1b[K");
  if (!options.json) {
    fmt::print("{}, last-level cache {} MiB, {}\n\n{}", cpu_and_threads(options.threads),
               last_level_cache_bytes() >> 20, runtime.target_name(), table.text());
    fmt::print("\nroof: {}; at best: the fastest\ncall beside the fastest such times.\n", what_the_roof_is);
  }
  return status;
}

constexpr const char* alone[] = {"accumulate", "compile",    "dispatch", "roof",        "churn",
                                 "stall",      "throughput", "warm",     "warm_process"};

// Refuses a name that is none of a case, a group or a mode; warm_process is for bench_warm alone.
void check_names(const std::vector<std::string>& names) {
  std::vector<std::string> known{"all", "ge", "gg", "sl", "bg"};
  for (const BenchCase& c : bench_cases()) known.push_back(c.name);
  known.push_back("gemm");
  for (const GemmCase& c : gemm_cases()) known.push_back(c.name);
  known.push_back("gru_grad");
  for (const GruCase& c : gru_cases()) known.push_back(c.name);
  known.insert(known.end(), std::begin(alone), std::end(alone) - 1);
  for (const std::string& name : names) {
    if (name == "warm_process" || std::find(known.begin(), known.end(), name) != known.end()) continue;
    throw UsageError(fmt::format("bench: got case \"{}\", expected {}, or nests or gpu-time and their cases", name,
                                 fmt::join(known, ", ")));
  }
}

int bench(const BenchOptions& options) {
  if (std::isnan(options.seconds))
    throw UsageError("bench: --seconds is nan, expected 0.01 to 600");  // which is in every range to the parser
  const auto named = [&](const char* name) {
    return std::find(options.cases.begin(), options.cases.end(), name) != options.cases.end();
  };
  for (const char* mode : alone)
    if (named(mode) && options.cases.size() > 1)
      throw UsageError(fmt::format("bench: {} stands alone, expected no other case beside it", mode));
  if (!options.tuned.empty()) {
    if (const auto* mode = std::find_if(std::begin(alone), std::end(alone), named); mode != std::end(alone))
      throw UsageError(fmt::format("bench: got --tuned beside {}, expected cases", *mode));
    chosen_cases(options.cases);
    if (access(options.tuned.c_str(), R_OK) != 0)
      throw UsageError(fmt::format("bench: --tuned is {}, expected a tuning log", options.tuned));
  }
  std::vector<DType> dtypes;
  for (const std::string& name : options.dtypes) dtypes.push_back(*dtype_from_string(name));
  if (options.cases[0] == "gpu-time") {
    return bench_gpu_time({.cases = {options.cases.begin() + 1, options.cases.end()},
                           .dtypes = dtypes,
                           .seconds = options.seconds,
                           .determinism = determinism_of(options.level),
                           .beside = options.beside,
                           .json = options.json,
                           .markdown = options.markdown});
  }
  const bool nests = options.cases[0] == "nests";
  const std::vector<std::string> chosen_nests{options.cases.begin() + 1, options.cases.end()};
  if (nests)
    check_nest_names(chosen_nests);
  else
    check_names(options.cases);
  const std::vector<const GemmCase*> gemm = chosen_gemm_cases(options.cases);
  const std::vector<const GruCase*> gru = chosen_gru_cases(options.cases);
  const int threads = options.threads == 0 ? available_threads() : options.threads;
  if (named("churn")) return bench_churn(options.cycles, options.json);
  if (named("stall")) return bench_stall(options.json);
  if (named("throughput")) return bench_throughput(options.seconds, options.json);
  if (named("warm")) return bench_warm(options.processes, options.json);
  if (named("warm_process")) return warm_process();  // started by bench_warm
  const bool others = nests || named("accumulate") || named("compile") || named("dispatch") || named("roof") ||
                      !gemm.empty() || !gru.empty();
  if (!others) chosen_cases(options.cases);  // rejected before any thread or process starts
  pin_process(threads);
  if (named("roof")) return bench_roof(threads, options.json);
  RuntimeOptions runtime_options;
  runtime_options.threads = threads;
  runtime_options.disk_cache = "off";  // a cold compile is cold
  runtime_options.isa = options.isa;
  Runtime runtime(runtime_options);
  std::optional<Runtime> tuned;
  if (!options.tuned.empty()) {
    runtime_options.tuning = Tuning::use;
    runtime_options.tuning_log = options.tuned;
    tuned.emplace(runtime_options);
  }
  BenchOptions resolved = options;
  resolved.threads = threads;
  if (named("accumulate")) return bench_accumulate(runtime, options.seconds, options.json);
  if (named("compile")) return bench_compile(runtime, options.json);
  if (named("dispatch")) return bench_dispatch(runtime, options.json);
  if (nests)
    return bench_nests(
        {.cases = chosen_nests, .seconds = options.seconds, .any_shape = options.any_shape, .json = options.json},
        runtime);
  if (!gemm.empty()) return bench_gemm(gemm, runtime, options.seconds, options.json);
  if (!gru.empty()) return bench_gru(gru, runtime, run_options(options), options.seconds, options.json);
  return bench_cases_of(resolved, runtime, tuned ? &*tuned : nullptr);
}

}  // namespace

void add_bench(CLI::App& app, int& status) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command = app.add_subcommand("bench", "Time calls, compiles and dispatch");
  command
      ->add_option("case", options->cases,
                   "cases (ge_ax0 ... bg_col), groups (ge gg sl bg), all; products (gemm, gemm_1024 ...), gru_grad "
                   "(gru_a, gru_b, gru_c); or one of accumulate, compile, "
                   "dispatch, roof, churn, stall, throughput, warm; or nests or gpu-time, then their cases")
      ->required();
  command->add_option("--threads", options->threads, "threads, pinned; 0: every CPU of this process")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->add_option("--output", options->output, "where outputs go")
      ->check(CLI::IsMember({"preallocated", "fresh", "rotated", "all"}))
      ->capture_default_str();
  command->add_option("--strategy", options->strategy, "the op's strategy; chosen by shape when not given");
  command->add_option("--isa", options->isa, "host, x86-64-v2, x86-64-v3 or x86-64-v4; the probes take the host's")
      ->capture_default_str();
  command->add_option("--tuned", options->tuned,
                      "of cases: also by this tuning log, in turns; a case without an entry is the rules' again");
  command->add_flag("--any-shape", options->any_shape, "time the kernel that serves every shape of the rank");
  command->add_option("--seconds", options->seconds, "time for each measurement")
      ->check(CLI::Range(0.01, 600.0))
      ->capture_default_str();
  command->add_option("--cycles", options->cycles, "kernels that churn compiles")
      ->check(CLI::Range(int64_t{20}, int64_t{1} << 40))
      ->capture_default_str();
  command->add_option("--processes", options->processes, "processes that warm starts")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_flag("--json", options->json, "one JSON object a line");
  command->add_flag("--markdown", options->markdown, "gpu-time: as a table of Markdown");
  command
      ->add_option("--determinism", options->level,
                   "gpu-time: the weakest level allowed, the GPU's own (run-to-run) when not given")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(level_names), std::end(level_names))));
  command
      ->add_option("--dtype", options->dtypes, "gpu-time: of values (float32, float16, bfloat16); GRUGrad is float32")
      ->delimiter(',')
      ->check(CLI::IsMember({"float32", "float16", "bfloat16"}))
      ->capture_default_str();
  command->add_option("--beside", options->beside,
                      "gpu-time: another library's times, JSON lines of case, name, us and dtype (f32 when not given)");
  command->footer(
      "Cases: ge_* GatherElementsGrad, gg_* GatherGrad, sl_* SliceGrad, bg_* BroadcastGrad; float32, int64 indices; "
      "each output is verified.\n"
      "--output: preallocated (a handle, the same operands), fresh (Runtime::run, a new output each call), rotated "
      "(operands cycled through more\n"
      "than three last-level caches).\n"
      "gemm: matrix products, cubes and those of GRU (a, b, c), float32, beside the measured multiply-add peak.\n"
      "gru_grad: GRUGrad, float32, linear before reset, beside its products at that peak.\n"
      "compile: cold compiles. dispatch: latency on tensors of four elements. roof: this machine's read and write "
      "speeds.\n"
      "churn: memory while kernels are compiled and evicted. stall: waits under generic_first. throughput: calls a "
      "second by threads and processes.\n"
      "warm: the first call of a process whose kernel is on disk, by stage. These four say what is wanted and end with "
      "1 when it is missed.\n"
      "nests: loop nests as a user writes them, with the default schedule, beside C++ loops; then their names, or all.\n"
      "gpu-time: calls on target cuda, back to back, beside another library's times (bench/gpu_check); there "
      "ge_ax0_one, ge_ax1_one, gg_one (all\n"
      "indices equal), gg_1m_zipf, gg_32k, bg_mid too. What a kernel takes of a GPU: gradloom emit ... --stage "
      "sass-report.\n"
      "Examples:\n  gradloom bench sl_mid --threads 2\n  gradloom bench all --output all --json\n  gradloom bench "
      "compile\n"
      "  gradloom bench gpu-time gg --dtype bfloat16 --determinism relaxed");
  command->callback([options, &status] { status = bench(*options); });
}

}  // namespace gradloom::cli
