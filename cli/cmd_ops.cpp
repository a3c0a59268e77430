// `gradloom ops`: lists the ops.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "cli/bench/bench_cases.h"
#include "cli/command.h"
#include "cli/text.h"
#include "runtime/backend/backend.h"

namespace gradloom::cli {
namespace {

std::string dtypes_text(const std::vector<DType>& dtypes) {
  if (dtypes.size() == dtype_count) return "any";
  std::vector<std::string> names;
  for (const DType dtype : dtypes) names.push_back(onnx_name(dtype));
  return fmt::format("{}", fmt::join(names, " "));
}

// Strategies depend on the shape: those of the timed cases, in order of first appearance; "direct" is every op's.
std::string strategies_text(const Op& op, const ir::Target& target) {
  std::vector<std::string> all;
  const auto add = [&](const std::string& name) {
    if (std::find(all.begin(), all.end(), name) == all.end()) all.push_back(name);
  };
  for (const BenchCase& c : bench_cases()) {
    if (c.op != op.schema().name) continue;
    std::vector<std::vector<int64_t>> storage;
    const auto operands = bench_operands(c, storage);
    for (const std::string& name : serving_names(op, op.check({operands, c.attributes}), target)) add(name);
  }
  add("direct");
  return fmt::format("{}", fmt::join(all, " "));
}

int ops() {
  const Runtime runtime;
  Table table({"op", "argument", "dtypes", "", "targets", "strategies"});
  for (const Op* op : all_ops()) {
    const OpSchema& schema = op->schema();
    bool first = true;
    const auto row = [&](std::string argument, std::string dtypes, std::string note) {
      table.row({first ? schema.name : "", std::move(argument), std::move(dtypes), std::move(note),
                 !first       ? ""
                 : has_llvm() ? "llvm interpreter"
                              : "interpreter",
                 first ? strategies_text(*op, runtime.target()) : ""});
      first = false;
    };
    for (const ArgumentSchema& input : schema.inputs) {
      std::vector<std::string> notes;
      if (input.optional) notes.push_back("optional");
      if (input.shape_like) notes.push_back("host");
      row(input.name, dtypes_text(input.dtypes), fmt::format("{}", fmt::join(notes, ", ")));
    }
    for (const AttributeSchema& attribute : schema.attributes) row(attribute.name, attribute.type, "attribute");
    for (const ArgumentSchema& output : schema.outputs)
      row(output.name, dtypes_text(output.dtypes), output.optional ? "output, optional" : "output");
  }
  fmt::print("{}", table.text());
  return 0;
}

}  // namespace

void add_ops(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("ops", "List the ops with their arguments, dtypes, targets and strategies");
  command->footer(
      "host: its values are read when the call is checked. Strategies: those that some shape of `gradloom bench` has "
      "on this machine.\nExample:\n  gradloom "
      "ops");
  command->callback([&status] { status = ops(); });
}

}  // namespace gradloom::cli
