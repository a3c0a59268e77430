#include "cli/nest_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "cli/usage_error.h"
#include "gradloom/text.h"
#include "ir/analysis/verify.h"

namespace gradloom::cli {

std::string read_text(const std::string& file, const char* command, const char* expected) {
  std::ostringstream text;
  if (file == "-") {
    text << std::cin.rdbuf();
    return text.str();
  }
  std::error_code code;
  const bool folder = std::filesystem::is_directory(file, code);
  std::ifstream in(folder ? std::string() : file, std::ios::binary);
  if (in) text << in.rdbuf();
  if (!in || in.bad()) throw UsageError(fmt::format("{}: {}: cannot be read, expected {}", command, file, expected));
  return text.str();
}

ir::Kernel parse_nest(const std::string& file, const char* command) {
  const std::string text = read_text(file, command, "a loop nest (.loop), or - for standard input");
  try {
    ir::Kernel kernel = ir::parse(text);
    try {
      ir::verify(kernel, ir::Stage::authored);
    } catch (const Error&) {
      ir::verify(kernel, ir::Stage::scheduled);  // its error takes precedence
    }
    return kernel;
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", file == "-" ? "standard input" : file, error.what()));
  }
}

}  // namespace gradloom::cli
