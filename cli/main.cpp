// gradloom: runs, checks, inspects and times the library from a shell.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "cli/command.h"
#include "cli/text.h"
#include "gradloom/error.h"
#include "gradloom/log.h"

namespace {

using namespace gradloom;

int fail(int status, const std::string& message) {
  cli::to_stderr("gradloom: {}\n", printable(message.substr(0, message.find_last_not_of('\n') + 1)));
  return status;
}

// Files that are opened later must not become a standard stream that was closed. Each gets a file that it cannot use.
void hold_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(fd, F_GETFD) == -1) (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);  // the lowest: fd
}

int finished(int status) {
  std::cout.flush();
  if (std::cout && std::fflush(stdout) == 0 && !std::ferror(stdout)) return status;
  return fail(cli::exit_failure, "the output cannot be written, expected an open stdout with room");
}

// `help` and `help COMMAND` as `--help` and `COMMAND --help`.
std::vector<std::string> words_of(int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (words.empty() || words[0] != "help") return words;
  words.erase(words.begin());
  words.push_back("--help");
  return words;
}

// The error in the words before the first option, which all name commands; nothing when they are valid.
std::string unknown_command(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* at = &app;
  std::string path;
  for (const std::string& word : words) {
    if (word.starts_with('-') || at->get_subcommands({}).empty()) break;
    std::vector<std::string> commands;
    const CLI::App* next = nullptr;
    for (const CLI::App* command : at->get_subcommands({})) {
      commands.push_back(command->get_name());
      if (commands.back() == word) next = command;
    }
    if (!next)
      return fmt::format("got command \"{}{}\", expected one of {} (see `gradloom {}--help`)", path, word,
                         fmt::join(commands, ", "), path);
    at = next;
    path += at->get_name() + " ";
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  hold_standard_streams();
  log_level();  // a misspelt GRADLOOM_LOG is reported whatever the command
  int status = 0;
  CLI::App app("gradloom compiles gradient ops at run time.", "gradloom");
  app.set_version_flag("--version", "gradloom " GRADLOOM_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Examples:\n  gradloom ops\n  gradloom check tests/golden --target llvm --skip 'GRU*'\n  help "
      "[COMMAND]");
  cli::add_ops(app, status);
  cli::add_check(app, status);
  cli::add_run(app, status);
  cli::add_emit(app, status);
  cli::add_nest(app, status);
  cli::add_differentiate(app, status);
  cli::add_bench(app, status);
  cli::add_tune(app, status);
  cli::add_demo(app, status);
  cli::add_cache(app, status);
  const std::vector<std::string> words = words_of(argc, argv);
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11 takes them from the back
    return finished(status);
  } catch (const CLI::ParseError& error) {
    // Checked before --help too: the help of another command would hide a misspelt one.
    if (const std::string unknown = unknown_command(app, words); !unknown.empty())
      return fail(cli::exit_usage, unknown);
    if (error.get_exit_code() == 0) return finished(app.exit(error));  // --help, --version
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
