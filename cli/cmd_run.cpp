// `gradloom run`: runs one case and prints its outputs.
#include <fmt/format.h>

#include <cstdio>

#include "cli/cases.h"
#include "cli/command.h"
#include "cli/text.h"

namespace gradloom::cli {
namespace {

int run(const std::string& file, const ServeOptions& serve) {
  cases::Case c;
  try {
    c = cases::read_case(file);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  Runtime runtime(serve.runtime());
  const auto outputs = cases::call(runtime, c, serve.run());
  if (!outputs) {
    fmt::print("{}: {}\n", to_string(outputs.error().code()), outputs.error().what());
    return c.error == outputs.error().code() ? 0 : exit_failure;
  }
  const Op* op = find_op(c.op);
  for (size_t o = 0; o < outputs.value().size(); ++o) {
    const Tensor& t = outputs.value()[o];
    if (!t.present()) continue;
    const bool named = op && o < op->schema().outputs.size();
    fmt::print("{} {} {}\n{}\n", named ? op->schema().outputs[o].name : fmt::format("output {}", o),
               onnx_name(t.dtype()), to_string(t.dims()), tensor_text(t));
  }
  const KernelReport& report = runtime.last_report();
  fmt::print("{} by {}{}{}\n", c.op, report.target, report.strategy.empty() ? "" : ", strategy ", report.strategy);
  return 0;
}

}  // namespace

void add_run(CLI::App& app, int& status) {
  auto file = std::make_shared<std::string>();
  auto serve = std::make_shared<ServeOptions>();
  CLI::App* command = app.add_subcommand("run", "Run one case and print its outputs");
  command->add_option("case", *file, "a case file")->required();
  serve->add_to(*command);
  command->footer(
      "Exit code 1 when the call gives an error that the case does not expect.\nExample:\n  gradloom run "
      "tests/golden/reported__04_negative_same_row.json");
  command->callback([file, serve, &status] { status = run(*file, *serve); });
}

}  // namespace gradloom::cli
