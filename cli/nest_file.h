#pragma once
// Files that commands read: loop nests, and what goes with them. - is standard input.
#include <string>

#include "gradloom/stmt.h"

namespace gradloom::cli {

// Throws UsageError, naming the command and what was expected, where it cannot be read.
std::string read_text(const std::string& file, const char* command, const char* expected);
// A nest that is verified, as authored or scheduled.
ir::Kernel parse_nest(const std::string& file, const char* command);

}  // namespace gradloom::cli
