#pragma once
// tests/text/**/*.loop, read and written: a file is a list of cases, a case its comments, a kernel and an output
// (tests/text/README.md).
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <string>
#include <vector>

namespace gradloom::ir {

struct LoopCase {
  std::filesystem::path path;
  std::string title;                // after "// === "; empty in a file of one case
  std::vector<std::string> header;  // comment lines above the kernel
  std::string kernel;               // as in the file, or that of the previous case
  int kernel_line = 1;              // in the file
  bool own_kernel = false, has_output = false;
  std::string output;  // below "// ---", without comment marks

  friend void PrintTo(const LoopCase& c, std::ostream* out) { *out << c.path.filename().string() << " " << c.title; }
};

inline std::vector<LoopCase> read_loop_file(const std::filesystem::path& path) {
  std::vector<LoopCase> cases{{.path = path}};
  std::ifstream file(path, std::ios::binary);
  int number = 0, gap = 0;  // blank lines separate cases, but for those inside a kernel
  for (std::string line; std::getline(file, line);) {
    ++number;
    LoopCase& last = cases.back();
    if (line.empty()) {
      ++gap;
      continue;
    }
    if (line.starts_with("// === ")) {
      if (number > 1) cases.push_back({.path = path, .kernel = last.kernel, .kernel_line = last.kernel_line});
      cases.back().title = line.substr(7);
    } else if (line == "// ---") {
      last.has_output = true;
    } else if (last.has_output) {
      last.output += (line.size() > 3 ? line.substr(3) : "") + "\n";
    } else if (!last.own_kernel && line.starts_with("//")) {
      last.header.push_back(line);
    } else {
      if (!last.own_kernel) last.kernel.clear(), last.kernel_line = number, last.own_kernel = true, gap = 0;
      last.kernel += std::string(static_cast<size_t>(gap), '\n') + line + "\n";
    }
    gap = 0;
  }
  return cases;
}

inline void write_loop_file(const std::vector<LoopCase>& cases) {
  std::ofstream file(cases.front().path, std::ios::binary);
  for (const LoopCase& c : cases) {
    if (&c != &cases.front()) file << "\n";
    if (!c.title.empty()) file << "// === " << c.title << "\n";
    for (const std::string& line : c.header) file << line << "\n";
    if (c.own_kernel) file << c.kernel;
    if (!c.has_output) continue;
    file << "// ---\n";
    for (size_t at = 0, end; at < c.output.size(); at = end + 1) {
      end = c.output.find('\n', at);
      file << (end == at ? "//" : "// ") << c.output.substr(at, end - at) << "\n";
    }
  }
}

// Of all files, in order.
inline std::vector<LoopCase> loop_cases() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(GRADLOOM_TEST_DIR "/text"))
    if (entry.path().extension() == ".loop") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<LoopCase> cases;
  for (const auto& path : paths)
    for (LoopCase& c : read_loop_file(path)) cases.push_back(std::move(c));
  return cases;
}

}  // namespace gradloom::ir
