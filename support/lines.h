#pragma once
// Text that is read a line at a time.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace gradloom {

// Without those of blanks alone, such as the steps of a schedule.
inline std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) lines.emplace_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace gradloom
