// gradloom: runs, checks, inspects and times the library from a shell.
#include <fmt/format.h>

#include <cstdio>

#include "cli/command.h"
#include "gradloom/error.h"

namespace {

int fail(int status, const std::string& message) {
  fmt::print(stderr, "gradloom: {}\n", gradloom::printable(message.substr(0, message.find_last_not_of('\n') + 1)));
  return status;
}

// The error in the words before the first option, which all name commands; nothing when they are valid.
std::string unknown_command(const CLI::App& app, int argc, char** argv) {
  const CLI::App* at = &app;
  std::string path;
  for (int i = 1; i < argc && argv[i][0] != '-' && !at->get_subcommands({}).empty(); ++i) {
    std::vector<std::string> commands;
    const CLI::App* next = nullptr;
    for (const CLI::App* command : at->get_subcommands({})) {
      commands.push_back(command->get_name());
      if (commands.back() == argv[i]) next = command;
    }
    if (!next)
      return fmt::format("got command \"{}{}\", expected one of {} (see `gradloom {}--help`)", path, argv[i],
                         fmt::join(commands, ", "), path);
    at = next;
    path += at->get_name() + " ";
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  using namespace gradloom;
  int status = 0;
  CLI::App app("gradloom compiles gradient ops at run time.", "gradloom");
  app.set_version_flag("--version", "gradloom " GRADLOOM_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Examples:\n  gradloom ops\n  gradloom check tests/golden --target llvm --skip 'GRU*'\n  gradloom COMMAND "
      "--help");
  cli::add_ops(app, status);
  cli::add_check(app, status);
  cli::add_run(app, status);
  cli::add_emit(app, status);
  cli::add_nest(app, status);
  cli::add_bench(app, status);
  cli::add_demo(app, status);
  cli::add_cache(app, status);
  try {
    app.parse(argc, argv);
    if (std::fflush(stdout) != 0 || std::ferror(stdout))
      return fail(cli::exit_failure, "the output cannot be written, expected an open stdout with room");
    return status;
  } catch (const CLI::ParseError& error) {
    // Checked before --help too: the help of another command would hide a misspelt one.
    if (const std::string unknown = unknown_command(app, argc, argv); !unknown.empty())
      return fail(cli::exit_usage, unknown);
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    const auto chosen = app.get_subcommands();
    return fail(cli::exit_usage, fmt::format("{} (see `gradloom {}--help`)", error.what(),
                                             chosen.empty() ? "" : chosen[0]->get_name() + " "));
  } catch (const cli::UsageError& error) {
    return fail(cli::exit_usage, error.what());
  } catch (const Error& error) {
    return fail(cli::exit_failure, error.what());
  } catch (const std::bad_alloc&) {
    return fail(cli::exit_failure, "out of memory");
  } catch (const std::exception& error) {
    return fail(cli::exit_failure, error.what());
  }
}
