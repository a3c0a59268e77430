// `gradloom emit`: a kernel's text at any stage.
#include <fmt/format.h>

#include <cstdio>

#include "cli/command.h"
#include "cli/emit_call.h"
#include "cli/emit_stage.h"
#include "runtime/build.h"

namespace gradloom::cli {
namespace {

struct EmitOptions {
  EmitShapes shapes;
  StageOptions stage{"emit"};
  std::string case_file, strategy, determinism;
  bool any_shape = false, accumulate = false, trace = false;
};

// The values of --isa, --arch, --threads, --strategy and --determinism; the last goes to the plan.
std::pair<ir::Target, const Strategy*> chosen(const EmitOptions& options, const RunOptions& run, const Op& op,
                                              Plan& plan) {
  try {
    const ir::Target target = options.stage.target();
    plan.determinism = determinism_of(options.determinism).value_or(own_determinism(target));
    return {target, &choose_strategy(op, plan, run, target)};
  } catch (const Error& error) {
    throw UsageError(fmt::format("emit: {}", error.what()));
  }
}

int emit(const EmitOptions& options) {
  cases::Case c;
  if (options.case_file.empty()) {
    if (options.shapes.op.empty()) throw UsageError("emit: expected an op with its shapes, or --case FILE");
    c = emit_call(options.shapes);
  } else {
    if (!options.shapes.op.empty() || !options.shapes.given.empty() || !options.shapes.inputs.empty())
      throw UsageError("emit: got --case beside an op or shapes, expected one of them");
    try {
      c = cases::read_case(options.case_file);
    } catch (const Error& error) {
      throw UsageError(error.what());
    }
  }
  const Op* op = find_op(c.op);
  if (!op) throw Error(ErrorCode::unsupported, fmt::format("op {} is not there (see `gradloom ops`)", c.op));
  const Operands operands(op->schema(), c.inputs);
  Plan plan = op->check(operands.request(c.attributes, ~0u, options.accumulate));
  const RunOptions run{.accumulate = options.accumulate, .strategy = options.strategy, .any_shape = options.any_shape};
  const auto [target, strategy] = chosen(options, run, *op, plan);
  const BuiltKernel built = build_kernel({*op, plan, *strategy, run, ~0u, aligned_outputs}, target);
  if (options.trace)
    for (const std::string& step : built.trace) fmt::print("{}\n", step);
  else
    fmt::print("{}", stage_text(built.authored, built.scheduled, built.lowered, options.stage));
  return 0;
}

}  // namespace

void add_emit(CLI::App& app, int& status) {
  auto options = std::make_shared<EmitOptions>();
  CLI::App* command = app.add_subcommand("emit", "Print a kernel at any stage");
  EmitShapes& shapes = options->shapes;
  const auto shape_option = [&](const std::string& name, auto& value, const char* help) {
    command->add_option("--" + name, value, help)->each([&shapes, name](const std::string&) {
      shapes.given.push_back(name);
    });
  };
  command->add_option("op", shapes.op, "the op's name (see `gradloom ops`)");
  shape_option("dtype", shapes.dtype, "of the gradient: float32, f64, bfloat16, ...");
  shape_option(
      "shape", shapes.shape,
      "scatters and SliceGrad: of the data, so of the output; BroadcastGrad: of dY; BroadcastGradientArgs: the first");
  shape_option("indices-shape", shapes.indices_shape, "scatters");
  shape_option("indices-dtype", shapes.indices_dtype, "scatters: int32 or int64");
  shape_option("axis", shapes.axis, "scatters");
  shape_option("starts", shapes.starts, "SliceGrad");
  shape_option("ends", shapes.ends, "SliceGrad");
  shape_option("axes", shapes.axes, "SliceGrad; 0,1,... when not given");
  shape_option("steps", shapes.steps, "SliceGrad; 1 when not given");
  shape_option("to-shape", shapes.to_shape, "BroadcastGrad: of the output; BroadcastGradientArgs: the second");
  command->add_option("--input", shapes.inputs,
                      "of any op, once an input: its dtype and dims, f32[64,512]; of shapes, starts, ... the values, "
                      "64,512; - for none");
  command->add_option("--attributes", shapes.attributes, "with --input: a JSON object, {\"axis\": 1}")
      ->needs(command->get_option("--input"));
  command->add_option("--case", options->case_file, "take op, shapes and attributes from a case file");
  options->stage.stage = "lowered";
  options->stage.add_to(*command,
                        "authored, scheduled, lowered, llvm-raw, llvm (optimised), asm; for a GPU cuda, ptx, "
                        "sass-report (registers, spills)");
  command->add_option("--strategy", options->strategy, "the op's strategy; chosen by shape when not given");
  command
      ->add_option("--determinism", options->determinism,
                   "the weakest level allowed; the target's own when not given: sequential, for a GPU run-to-run")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(level_names), std::end(level_names))));
  command->add_flag("--any-shape", options->any_shape, "the kernel that serves every shape of the rank");
  command->add_flag("--accumulate", options->accumulate, "the kernel that adds into an existing output");
  command->add_flag("--trace", options->trace, "print the schedule's steps instead")
      ->excludes(command->get_option("--after"))
      ->excludes(command->get_option("--times"));
  command->footer(
      "Examples:\n  gradloom emit GatherGrad --shape 50000,768 --indices-shape 8,512 --stage authored\n"
      "  gradloom emit SliceGrad --dtype f16 --shape 64,512 --starts=-1 --ends=-1000 --axes 1 --steps=-2 --stage asm "
      "--isa x86-64-v3\n"
      "  gradloom emit BroadcastGrad --shape 64,512,768 --to-shape 768 --trace\n"
      "  gradloom emit BroadcastGrad --shape 64,512,768 --to-shape 768 --after vectorize\n"
      "  gradloom emit SoftmaxGrad_13 --input f32[8192,1024] --input f32[8192,1024] --attributes '{\"axis\": 1}'\n"
      "  gradloom emit --case tests/golden/gather_grad__embedding.json --stage llvm\n"
      "  gradloom emit BroadcastGrad --shape 64,512,768 --to-shape 768 --stage sass-report --arch sm_80");
  command->callback([options, &status] { status = emit(*options); });
}

}  // namespace gradloom::cli
