#pragma once
// A kernel's texts as files, to read and to report: GRADLOOM_DUMP=<folder>, or RuntimeOptions::dump_folder.
#include <string>
#include <string_view>
#include <vector>

#include "gradloom/stmt.h"

namespace gradloom {

struct DumpFile {
  std::string_view extension;  // "lowered.loop", "ll"
  std::string text;
};

// `chosen`, or GRADLOOM_DUMP's when it is empty, or "" for neither.
std::string dump_folder(const std::string& chosen);

// "<op>_<strategy>_<the buffers' dtypes, each once>_<hash of the texts>": one name a kernel, the same in every process.
// Only characters that any file system has.
std::string dump_stem(std::string_view op, std::string_view strategy, const ir::Kernel& kernel,
                      const std::vector<DumpFile>& files);

// Writes folder/stem.extension for each; makes the folder. What fails is a line in the log.
void write_dump(const std::string& folder, const std::string& stem, const std::vector<DumpFile>& files) noexcept;

}  // namespace gradloom
