#pragma once
// Writes a kernel's texts to files, for reading and bug reports: GRADLOOM_DUMP=<folder>, or
// RuntimeOptions::dump_folder.
#include <string>
#include <string_view>
#include <vector>

#include "gradloom/stmt.h"

namespace gradloom {

struct DumpFile {
  std::string_view extension;  // "lowered.loop", "ll"
  std::string text;
};

// `chosen`, or GRADLOOM_DUMP's when it is empty, or "" when neither is set.
std::string dump_folder(const std::string& chosen);

// "<op>_<strategy>_<the buffers' dtypes, each once>_<hash of the texts>": one name per kernel, the same in every
// process. Only characters valid in any file system.
std::string dump_stem(std::string_view op, std::string_view strategy, const ir::Kernel& kernel,
                      const std::vector<DumpFile>& files);

// Writes folder/stem.extension for each; creates the folder. A failure is logged.
void write_dump(const std::string& folder, const std::string& stem, const std::vector<DumpFile>& files) noexcept;

}  // namespace gradloom
