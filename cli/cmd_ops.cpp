// `gradloom ops`: lists the ops.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "cli/bench/bench_cases.h"
#include "cli/command.h"
#include "cli/text.h"

namespace gradloom::cli {
namespace {

std::string dtypes_text(const std::vector<DType>& dtypes) {
  if (dtypes.size() == dtype_count) return fmt::format("all {}", dtype_count);
  std::vector<std::string> names;
  for (const DType dtype : dtypes) names.push_back(to_string(dtype));
  return fmt::format("{}", fmt::join(names, ", "));
}

// " = 0"; nothing where an absent attribute is no value.
std::string default_text(const AttributeSchema& attribute) {
  if (!attribute.otherwise) return "";
  if (const auto* value = std::get_if<int64_t>(&*attribute.otherwise)) return fmt::format(" = {}", *value);
  if (const auto* value = std::get_if<double>(&*attribute.otherwise)) return fmt::format(" = {}", *value);
  if (const auto* value = std::get_if<std::string>(&*attribute.otherwise)) return " = " + *value;
  if (const auto* values = std::get_if<std::vector<int64_t>>(&*attribute.otherwise))
    return fmt::format(" = {}", fmt::join(*values, " "));
  if (const auto* values = std::get_if<std::vector<double>>(&*attribute.otherwise))
    return fmt::format(" = {}", fmt::join(*values, " "));
  return fmt::format(" = {}", fmt::join(std::get<std::vector<std::string>>(*attribute.otherwise), " "));
}

// "GatherGrad(shape, indices, dY, axis = 0) -> dX"; a question mark: optional.
std::string signature(const OpSchema& schema) {
  const auto names = [](const std::vector<ArgumentSchema>& arguments) {
    std::vector<std::string> all;
    for (const ArgumentSchema& a : arguments) all.push_back(a.name + (a.optional ? "?" : ""));
    return all;
  };
  std::vector<std::string> arguments = names(schema.inputs);
  for (const AttributeSchema& a : schema.attributes)
    arguments.push_back(a.name + (a.otherwise ? default_text(a) : "?"));
  return fmt::format("{}({}) -> {}", schema.name, fmt::join(arguments, ", "), fmt::join(names(schema.outputs), ", "));
}

// "T: f16, bf16, f32, f64; shape: i64": by type, then the arguments of a dtype of their own.
std::string dtypes_of(const OpSchema& schema) {
  std::vector<std::pair<std::string, std::string>> groups;  // dtypes, names
  for (const auto* arguments : {&schema.inputs, &schema.outputs}) {
    for (const ArgumentSchema& a : *arguments) {
      const std::string dtypes = dtypes_text(a.dtypes), name = a.type.empty() ? a.name : a.type;
      const auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == dtypes; });
      if (group == groups.end())
        groups.emplace_back(dtypes, name);
      else if (a.type.empty())
        group->second += ", " + name;
    }
  }
  std::vector<std::string> texts;
  for (const auto& [dtypes, names] : groups) texts.push_back(names + ": " + dtypes);
  return fmt::format("{}", fmt::join(texts, "; "));
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

void print_op(const Op& op, const ir::Target& target) {
  const OpSchema& schema = op.schema();
  fmt::print("{}\n  {}\n", signature(schema), schema.doc);
  Table table({"", "", "", ""});
  const auto row = [&](const char* role, const ArgumentSchema& a) {
    std::vector<std::string> notes;
    if (a.optional) notes.push_back("optional");
    if (a.shape_like) notes.push_back("host");
    if (a.found_size) notes.push_back("size found");
    table.row({fmt::format("  {} {}", role, a.name), (a.type.empty() ? "" : a.type + ": ") + dtypes_text(a.dtypes),
               fmt::format("{}", fmt::join(notes, ", ")), a.doc});
  };
  for (const ArgumentSchema& input : schema.inputs) row("input", input);
  for (const AttributeSchema& a : schema.attributes)
    table.row({"  attribute " + a.name, a.type, a.otherwise ? "default" + default_text(a) : "", a.doc});
  for (const ArgumentSchema& output : schema.outputs) row("output", output);
  const std::string text = table.text();
  fmt::print("{}  strategies: {}\n\n", text.substr(text.find('\n') + 1), strategies_text(op, target));
}

void print_markdown() {
  fmt::print("| op | what it computes | dtypes |\n|---|---|---|\n");
  for (const Op* op : all_ops())
    fmt::print("| `{}` | {} | {} |\n", signature(op->schema()), op->schema().doc, dtypes_of(op->schema()));
}

int ops(bool markdown) {
  if (markdown) {
    print_markdown();
    return 0;
  }
  const Runtime runtime;
  for (const Op* op : all_ops()) print_op(*op, runtime.target());
  return 0;
}

}  // namespace

void add_ops(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("ops", "List the ops: signature, meaning, arguments, dtypes, strategies");
  command->footer(
      "?, optional: may be left out. T: all arguments of that type have one dtype in a call. host: in host memory on "
      "every target; its values are read when the call is checked. size found: by the run. Strategies: those that some "
      "shape of `gradloom bench` has on this machine.\nExample:\n  gradloom ops");
  auto markdown = std::make_shared<bool>(false);
  command->add_flag("--markdown", *markdown, "The README's table");
  command->callback([&status, markdown] { status = ops(*markdown); });
}

}  // namespace gradloom::cli
