// gradloom: try, check, look into and time the library from a shell.
#include <fmt/format.h>

#include <cstdio>

#include "cli/cases.h"
#include "cli/command.h"

namespace {

int fail(int status, const std::string& message) {
  fmt::print(stderr, "gradloom: {}\n", gradloom::cases::printable(message.substr(0, message.find_last_not_of('\n') + 1)));
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace gradloom;
  int status = 0;
  CLI::App app("gradloom compiles gradient ops at run time.", "gradloom");
  app.set_version_flag("--version", "gradloom " GRADLOOM_VERSION);
  app.require_subcommand(1);
  app.footer("Examples:\n  gradloom ops\n  gradloom check tests/golden --target llvm --skip 'GRU*'\n  gradloom COMMAND --help");
  cli::add_ops(app, status);
  cli::add_check(app, status);
  cli::add_run(app, status);
  cli::add_emit(app, status);
  cli::add_bench(app, status);
  cli::add_demo(app, status);
  cli::add_cache(app, status);
  try {
    app.parse(argc, argv);
    if (std::fflush(stdout) != 0 || std::ferror(stdout)) return fail(cli::exit_failure, "the output cannot be written, expected an open stdout with room");
    return status;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    const auto chosen = app.get_subcommands();
    if (chosen.empty() && argc > 1 && argv[1][0] != '-') {
      std::vector<std::string> commands;
      for (const CLI::App* command : app.get_subcommands({})) commands.push_back(command->get_name());
      return fail(cli::exit_usage, fmt::format("got command \"{}\", expected one of {} (see `gradloom --help`)", argv[1], fmt::join(commands, ", ")));
    }
    return fail(cli::exit_usage, fmt::format("{} (see `gradloom {}--help`)", error.what(), chosen.empty() ? "" : chosen[0]->get_name() + " "));
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
