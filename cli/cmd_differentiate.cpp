// `gradloom differentiate`: prints the nest of a nest's gradient.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "cli/command.h"
#include "cli/nest_file.h"
#include "cli/text.h"
#include "gradloom/differentiate.h"
#include "gradloom/text.h"
#include "ir/differentiate/zero_gradients.h"

namespace gradloom::cli {
namespace {

struct DifferentiateOptions {
  std::string file, tie = "halves", sums = "loop";
  std::vector<std::string> wanted, kept, inactive, seeded, known;
  bool keeps = false, seeds = false;
};

int answer(const DifferentiateOptions& options) {
  ir::Derivation how{.wanted = options.wanted, .inactive = options.inactive};
  if (options.keeps) how.kept = options.kept;
  if (options.seeds) how.seeded = options.seeded;
  for (const ir::Tie tie : ir::all_ties)
    if (options.tie == to_string(tie)) how.tie = tie;
  how.sums = options.sums == "tree" ? ir::SumOrder::tree : ir::SumOrder::loop;
  const ir::Kernel forward = parse_nest(options.file, "differentiate");
  for (const std::string& text : options.known) {
    try {
      how.known.push_back(ir::parse_element_value(forward, text));
    } catch (const Error& error) {
      throw UsageError(fmt::format("differentiate: --known is \"{}\": {}", text, error.what()));
    }
  }
  const ir::Kernel gradient = ir::differentiate(forward, how);
  fmt::print("{}", ir::print(gradient));
  for (const std::string& line : ir::zero_gradient_warnings(forward, gradient))
    to_stderr("gradloom: warning: {}\n", printable(line));
  return 0;
}

}  // namespace

void add_differentiate(CLI::App& app, int& status) {
  auto options = std::make_shared<DifferentiateOptions>();
  CLI::App* command =
      app.add_subcommand("differentiate", "Print the nest of a loop nest's gradient, proved or refused");
  command->add_option("file", options->file, "a loop nest (ir/README.md has the grammar); - is standard input")
      ->required();
  command->add_option("--wanted", options->wanted, "inputs whose gradient is an output: d_x of x")
      ->required()
      ->delimiter(',');
  CLI::Option* kept =
      command
          ->add_option("--kept", options->kept, "inputs and outputs that the gradient gets; all of them when not given")
          ->delimiter(',')
          ->expected(0, -1);
  CLI::Option* seeded =
      command
          ->add_option("--seeded", options->seeded,
                       "outputs whose adjoint is given, all of them when not given; that of others is zero")
          ->delimiter(',')
          ->expected(0, -1);
  command->add_option("--inactive", options->inactive, "buffers that pass no gradient")->delimiter(',');
  command->add_option("--known", options->known,
                      "once a buffer: what the gradient reads in place of its value, \"e[j] = y[i, j]\"");
  command
      ->add_option("--tie", options->tie,
                   "which of equal operands of min and max get the gradient: halves, first, second or none")
      ->check(CLI::IsMember({"halves", "first", "second", "none"}));
  command
      ->add_option(
          "--sums", options->sums,
          "the order of sums that an element gathers: loop, that of the nest's iterations, or tree (docs/sums.md)")
      ->check(CLI::IsMember({"loop", "tree"}));
  command->footer(
      "The gradient's inputs are what is kept and the adjoint d_y of each float output y. A nest that is refused gives "
      "one line that says what to change, and exit code 1.\n"
      "Examples:\n  gradloom differentiate examples/softmax.loop --wanted x\n"
      "  gradloom differentiate examples/softmax.loop --wanted x | gradloom nest - --seed 1\n"
      "  gradloom differentiate softmax.loop --wanted x --kept y --inactive top --known 'e[j] = y[i, j]' "
      "--known 'total[0] = 1.0f32'");
  command->callback([options, kept, seeded, &status] {
    options->keeps = kept->count() > 0;
    options->seeds = seeded->count() > 0;
    status = answer(*options);
  });
}

}  // namespace gradloom::cli
