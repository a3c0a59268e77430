// `gradloom nest`: runs any loop nest on any target.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "cli/command.h"
#include "cli/emit_stage.h"
#include "cli/nest_data.h"
#include "cli/nest_draw.h"
#include "cli/nest_file.h"
#include "cli/nest_run.h"
#include "cli/text.h"
#include "gradloom/text.h"
#include "ir/analysis/verify.h"
#include "ir/analysis/verify_gpu.h"
#include "ir/passes/passes.h"
#include "ir/schedule/schedule_default.h"
#include "runtime/backend/backend.h"

namespace gradloom::cli {
namespace {

struct NestOptions {
  std::string file, target = "automatic", schedule, trace, data;
  std::vector<std::string> scalars;
  std::string seed;
  StageOptions stage{"nest"};
  bool json = false, compare = false;
};

// The option's own integer conversion would wrap.
uint64_t seed_of(const std::string& text) {
  uint64_t seed = 0;
  const char* const end = text.data() + text.size();
  if (const auto read = std::from_chars(text.data(), end, seed); read.ec != std::errc() || read.ptr != end)
    throw UsageError(fmt::format("nest: --seed is {}, expected a whole number from 0 to 2^64 - 1", text));
  return seed;
}

bool gpu_target_named(const std::string& target) { return is_gpu(target_named(target)); }

// The schedule that the options select. Nothing: the Runtime chooses.
struct Scheduled {
  ir::Kernel kernel;
  KernelOptions how;
};

Scheduled scheduled(const ir::Kernel& kernel, const NestOptions& options) {
  if (!options.trace.empty()) {
    std::istringstream lines(read_text(options.trace, "nest", "a schedule's steps, a line each"));
    std::vector<std::string> steps;
    for (std::string line; std::getline(lines, line);)
      if (!line.empty()) steps.push_back(line);
    ir::Schedule schedule(kernel);
    schedule.replay(steps);
    return {schedule.kernel(), {.default_schedule = false}};
  }
  const bool wanted = options.schedule != "none";
  if (!wanted || options.stage.arch.empty()) return {kernel, {.default_schedule = wanted}};
  return {ir::with_default_schedule(kernel, options.stage.target()), {.default_schedule = false}};
}

void print_stage(const ir::Kernel& kernel, const Scheduled& scheduled, const NestOptions& options) {
  const ir::Target target = options.stage.target();
  ir::Kernel made = scheduled.kernel;
  if (options.stage.stage != "authored" && scheduled.how.default_schedule)
    made = ir::with_default_schedule(made, target);
  const bool lower =
      !options.stage.of_passes() && options.stage.stage != "authored" && options.stage.stage != "scheduled";
  fmt::print("{}", stage_text(kernel, made, lower ? ir::lower(made, ir::lowering_for(target)) : made, options.stage));
}

nest::Call call_of(const ir::Kernel& kernel, const NestOptions& options) {
  const auto scalars = nest::read_scalars(kernel, options.scalars);
  if (!options.seed.empty()) return nest::draw(kernel, scalars, seed_of(options.seed));
  nest::Call call(kernel, nest::all_scalars(kernel, scalars));
  if (options.data.empty()) {
    nest::refuse_missing_values(call);
  } else {
    std::istringstream json(read_text(options.data, "nest", "a JSON file: buffer name -> flat list"));
    nest::read_buffers(call, json);
  }
  return call;
}

std::string values_text(const nest::Argument& argument) {
  constexpr int64_t shown = 12;
  std::vector<std::string> values;
  argument.memory.each([&](int64_t position, int64_t offset) {
    if (position < shown) values.push_back(value_text(argument.declared->dtype, argument.memory.get(offset)));
  });
  const int64_t left = argument.memory.elements() - static_cast<int64_t>(values.size());
  return fmt::format("{}{}", fmt::join(values, " "), left > 0 ? fmt::format(" ... {} more", left) : "");
}

void print_table(const nest::Call& call, const std::string& target) {
  const ParameterNames names(call.kernel);
  Table table({"name", "", "type", "shape", "values"});
  for (size_t i = 0; i < names.scalars.size(); ++i) {
    const DType dtype = call.kernel.scalars[i].var.type.dtype;
    const uint64_t mask = size_of(dtype) == 8 ? ~uint64_t{0} : (uint64_t{1} << 8 * size_of(dtype)) - 1;
    table.row({printable(names.scalars[i]), "scalar", to_string(dtype), "",
               value_text(dtype, static_cast<uint64_t>(call.slots[i]) & mask)});
  }
  for (const nest::Argument& argument : call.buffers)
    table.row({printable(argument.name), to_string(argument.declared->role), to_string(argument.declared->dtype),
               to_string(argument.dims), values_text(argument)});
  fmt::print("{}{} by {}\n", table.text(), printable(call.kernel.name), target);
}

void check_options(const NestOptions& options) {
  const auto refuse = [](const std::string& what) { throw UsageError("nest: " + what); };
  const StageOptions& stage = options.stage;
  const bool gpu = gpu_target_named(options.target);
  if (!options.trace.empty() && !options.schedule.empty())
    refuse("got --schedule beside --trace, expected one of them");
  if (!options.data.empty() && !options.seed.empty()) refuse("got --data beside --seed, expected one of them");
  if (stage.prints() && (options.json || options.compare))
    refuse("got --json or --compare beside --stage, --after or --times, which run nothing");
  if (options.json && options.compare) refuse("got --json beside --compare, expected one of them");
  if (options.compare && options.target != "automatic")
    refuse("got --target beside --compare, which runs every target of this build");
  if (!stage.prints() && !stage.arch.empty() && !gpu)
    refuse("got --arch, expected it with --target cuda or cuda-host, or with --stage, --after or --times");
  if (stage.prints() && !stage.arch.empty() && !gpu && options.target != "automatic")
    refuse("got --arch, which is a GPU's, with --target " + options.target);
  if (!options.seed.empty()) seed_of(options.seed);
  if (stage.isa != "host") {
    if (!stage.prints() && options.target != "automatic" && options.target != "llvm")
      refuse("got --isa, which is llvm's, with --target " + options.target);
    stage.check_isa();
  }
  if (options.file == "-" && (options.data == "-" || options.trace == "-"))
    refuse("got - twice, expected one file from standard input");
  if (options.data == "-" && options.trace == "-") refuse("got - twice, expected one file from standard input");
}

int run(NestOptions options) {
  check_options(options);
  options.stage.gpu = gpu_target_named(options.target);
  RuntimeOptions runtime;
  runtime.target = target_named(options.target);
  runtime.threads = options.stage.threads;
  runtime.isa = options.stage.isa;
  const ir::Kernel kernel = parse_nest(options.file, "nest");
  const Scheduled nest = scheduled(kernel, options);
  if (options.stage.prints()) {
    print_stage(kernel, nest, options);
    return 0;
  }
  nest::Call call = call_of(kernel, options);
  if (options.compare) {
    const bool by_trace = !options.trace.empty(), gpu = ir::is_gpu(nest.kernel);
    fmt::print("{}\n", compare_nest({kernel, nest.kernel, nest.how, !gpu, gpu || !by_trace}, call, runtime));
    return 0;
  }
  const std::string target = run_nest(nest.kernel, call, runtime, nest.how);
  if (options.json)
    fmt::print("{}\n", nest::json_buffers(call));
  else
    print_table(call, target);
  return 0;
}

// A failed check and a refusal are expected results, so the message includes the error code.
int answer(const NestOptions& options) {
  const auto fail = [](const std::string& message) {
    to_stderr("gradloom: {}\n", printable(message));
    return exit_failure;
  };
  try {
    return run(options);
  } catch (const DifferentResults& difference) {
    return fail(difference.what());
  } catch (const Error& error) {
    return fail(fmt::format("{}: {}", to_string(error.code()), error.what()));
  } catch (const std::bad_alloc&) {
    return fail("resource_exhausted: out of memory");
  }
}

}  // namespace

void add_nest(CLI::App& app, int& status) {
  auto options = std::make_shared<NestOptions>();
  CLI::App* command = app.add_subcommand("nest", "Run a loop nest (.loop) on any target");
  command->add_option("file", options->file, "a loop nest (ir/README.md has the grammar); - is standard input")
      ->required();
  add_target(*command, options->target);
  options->stage.add_to(
      *command,
      "print the nest instead: authored, scheduled, lowered, llvm-raw, llvm, asm; for a GPU cuda, ptx, sass-report");
  command->add_option("--scalar", options->scalars, "NAME=VALUE, once for each scalar")->allow_extra_args(false);
  command
      ->add_option("--schedule", options->schedule,
                   "default: what Runtime does with a nest that has no schedule; none: the nest as it is")
      ->check(CLI::IsMember({"none", "default"}));
  command->add_option("--trace", options->trace,
                      "replay these schedule steps, a line each, as `gradloom emit --trace` prints them");
  command->add_option("--data", options->data,
                      "JSON: {\"x\": [1, 2.5, \"nan\"], ...}, a flat list for each in and inout buffer");
  command->add_option("--seed", options->seed,
                      "draw the values, and the scalars not given, within what the nest declares");
  command->add_flag("--json", options->json, "print the out and inout buffers as JSON");
  command->add_flag("--compare", options->compare, "run on all targets of this build, and tell the first difference");
  command->footer(
      "An element that the nest never writes is a NaN, -1 or 255 on every target. Exit code 1: a check failed, the "
      "call was refused, or targets differ.\n"
      "Examples:\n  gradloom nest examples/relu_grad.loop --seed 1\n"
      "  gradloom nest examples/relu_grad.loop --scalar n=2 --data relu.json --target interpreter --json\n"
      "  gradloom nest examples/relu_grad.loop --seed 7 --compare\n"
      "  gradloom nest examples/relu_grad.loop --stage cuda --arch sm_80\n"
      "  echo 'kernel k(s: i64) { out y: i64[] y[] = s * s }' | gradloom nest - --scalar s=3");
  command->callback([options, &status] { status = answer(*options); });
}

}  // namespace gradloom::cli
