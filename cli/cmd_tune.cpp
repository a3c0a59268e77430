// `gradloom tune`: measures the kernels of calls and writes the fastest to the tuning log.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/bench/bench_cases.h"
#include "cli/bench/bench_probe.h"
#include "cli/cases.h"
#include "cli/command.h"
#include "cli/nest_call.h"
#include "cli/nest_data.h"
#include "cli/nest_draw.h"
#include "cli/text.h"
#include "gradloom/text.h"

namespace gradloom::cli {
namespace {

struct TuneCommand {
  std::vector<std::string> cases, scalars;
  std::string isa = "host", log;
  int threads = 0, budget = TuneOptions{}.candidates;
  double seconds = TuneOptions{}.seconds;
  bool json = false, verbose = false;
};

// A call by name, and what tunes it.
struct Tuned {
  std::string name;
  std::function<TuneReport(Runtime& runtime, const TuneOptions& how)> tune;
};

Tuned tuned_file(const std::string& file) {
  const cases::Case c = cases::read_case(file);
  if (!find_op(c.op)) throw UsageError(fmt::format("tune: {}: there is no op \"{}\"", file, c.op));
  uint32_t wanted = 0;
  for (size_t o = 0; o < c.outputs.size(); ++o) wanted |= static_cast<uint32_t>(c.outputs[o].present()) << o;
  return {c.name, [c, wanted](Runtime& runtime, const TuneOptions& how) {
            return runtime.tune(c.op, c.inputs, c.attributes, {.outputs_wanted = wanted}, how).value();
          }};
}

Tuned tuned_nest(const std::string& file, const std::vector<std::string>& scalars) {
  std::ifstream in(file);
  std::stringstream text;
  if (!in || !(text << in.rdbuf()))
    throw UsageError(fmt::format("tune: {}: cannot be read, expected a loop nest", file));
  const ir::Kernel kernel = ir::parse(text.str());
  constexpr uint64_t seed = 1;
  const auto call = std::make_shared<nest::Call>(nest::draw(kernel, nest::read_scalars(kernel, scalars), seed));
  return {kernel.name, [call](Runtime& runtime, const TuneOptions& how) {
            std::vector<Tensor> buffers;
            for (const nest::Argument& argument : call->buffers)
              buffers.push_back(argument.memory.tensor(argument.written()));
            return runtime.tune(call->kernel, buffers, call->slots, how).value();
          }};
}

Tuned tuned_case(const BenchCase& c) {
  return {c.name, [&c](Runtime& runtime, const TuneOptions& how) {
            return runtime.tune(c.op, bench_inputs(c), c.attributes, {}, how).value();
          }};
}

std::vector<const BenchCase*> bench_cases_named(const std::string& name) {
  try {
    return chosen_cases({name});
  } catch (const UsageError& error) {
    const std::string_view what = error.what();  // "bench: got ..."
    throw UsageError(fmt::format("tune{}, or a file (.json, .loop)", what.substr(what.find(':'))));
  }
}

std::vector<Tuned> tuned_calls(const TuneCommand& command) {
  std::vector<Tuned> calls;
  for (const std::string& name : command.cases) {
    if (name.ends_with(".json"))
      calls.push_back(tuned_file(name));
    else if (name.ends_with(".loop"))
      calls.push_back(tuned_nest(name, command.scalars));
    else
      for (const BenchCase* c : bench_cases_named(name)) calls.push_back(tuned_case(*c));
  }
  return calls;
}

std::string ratio_text(const TuneReport& r) { return fmt::format("{:.2f}", r.rules.ms / r.best.ms); }

void print_json(const std::string& name, const TuneReport& r) {
  const auto kernel = [](const TunedKernel& k) {
    return nlohmann::ordered_json{{"strategy", k.strategy}, {"ms", k.ms}, {"trace", k.trace}};
  };
  const nlohmann::ordered_json line{{"case", name},         {"rules", kernel(r.rules)}, {"best", kernel(r.best)},
                                    {"adopted", r.adopted}, {"changes", r.changes},     {"measured", r.measured},
                                    {"dropped", r.dropped}, {"wrong", r.wrong}};
  fmt::print("{}\n", line.dump());
  std::fflush(stdout);
}

int tune(const TuneCommand& command) {
  if (std::isnan(command.seconds)) throw UsageError("tune: --seconds is nan, expected 0.1 to 86400");
  const std::vector<Tuned> calls = tuned_calls(command);
  const int threads = command.threads == 0 ? available_threads() : command.threads;
  pin_process(threads);
  RuntimeOptions options;
  options.target = TargetKind::llvm;
  options.threads = threads;
  options.isa = command.isa;
  options.tuning_log = command.log;
  Runtime runtime(options);
  const bool over = isatty(STDERR_FILENO) != 0 && !command.verbose;  // each line of progress over the last
  const char* const begin = over ? "\r\x1b[K" : "";
  Table table({"case", "rules", ">ms", "best", ">ms", ">times as fast", ">tried", "what changed"});
  int status = 0;
  std::string log;
  bool tuned = false;
  for (const Tuned& call : calls) {
    TuneOptions how{.candidates = command.budget, .seconds = command.seconds};
    if (over || command.verbose)
      how.progress = [&](int candidate, std::string_view what) {
        const std::string line = fmt::format("{} {}: {}", call.name, candidate, what);
        to_stderr("{}{}{}", begin, over ? line.substr(0, 100) : line, over ? "" : "\n");
      };
    try {
      const TuneReport r = call.tune(runtime, how);
      log = r.log, tuned = true;
      if (command.json)
        print_json(call.name, r);
      else
        table.row({call.name, r.rules.strategy, milliseconds_text(r.rules.ms), r.best.strategy,
                   milliseconds_text(r.best.ms), ratio_text(r), std::to_string(r.measured),
                   r.adopted ? fmt::format("{}", fmt::join(r.changes, "; ")) : "-"});
      for (const std::string& wrong : r.wrong) {
        status = exit_failure;
        to_stderr("{}gradloom: {}: other bits than the rules' kernel, please report it: {}\n", begin, call.name,
                  printable(wrong));
      }
    } catch (const Error& error) {
      status = exit_failure;
      to_stderr("{}gradloom: {}: {}\n", begin, call.name, printable(error.what()));
    }
  }
  if (over) to_stderr("{}", begin);
  if (!command.json && tuned)
    fmt::print("{}, {}\n\n{}\n{}\n", cpu_and_threads(threads), runtime.target_name(), table.text(),
               log.empty() ? "kept nowhere: the disk cache is off, and no --log is given" : "kept in " + log);
  return status;
}

}  // namespace

void add_tune(CLI::App& app, int& status) {
  auto options = std::make_shared<TuneCommand>();
  CLI::App* command = app.add_subcommand("tune", "Measure which kernel of a call is the fastest, and remember it");
  command
      ->add_option("case", options->cases,
                   "cases of `gradloom bench` (ge_ax0 ...), groups (ge gg sl bg), all; case files (.json); loop nests "
                   "(.loop), with values drawn by seed")
      ->required();
  command->add_option("--threads", options->threads, "threads, pinned; 0: every CPU of this process")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->add_option("--isa", options->isa, "host, x86-64-v2, x86-64-v3 or x86-64-v4")->capture_default_str();
  command->add_option("--budget", options->budget, "candidates of a call that are measured, at most")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command->add_option("--seconds", options->seconds, "time for a call; the candidate begun before is finished")
      ->check(CLI::Range(0.1, 86400.0))
      ->capture_default_str();
  command->add_option("--log", options->log,
                      "the tuning log; GRADLOOM_TUNING_LOG's, else tuning.log in the disk cache's folder");
  command->add_option("--scalar", options->scalars, "of a nest: NAME=VALUE, once for each scalar that is not drawn")
      ->allow_extra_args(false);
  command->add_flag("--json", options->json, "one JSON object a line");
  command->add_flag("--verbose", options->verbose, "a line for each candidate");
  command->footer(
      "All candidates give the same bits. One is adopted that is over 5 % faster than what the op's rules choose; the "
      "log gets an entry for this\n"
      "call, instruction set, caches and number of threads. A runtime reads it with RuntimeOptions::tuning (docs/"
      "tuning.md). Exit code 1: a case\n"
      "could not be tuned, or a candidate had other bits.\n"
      "Examples:\n  gradloom tune ge_ax0 --log my.log\n  gradloom tune all --threads 2 --isa x86-64-v3\n  gradloom "
      "tune "
      "histogram.loop --scalar n=16777216\n  gradloom bench ge_ax0 --tuned my.log");
  command->callback([options, &status] { status = tune(*options); });
}

}  // namespace gradloom::cli
