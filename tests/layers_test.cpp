// Which folder may include which: what a line may touch follows from the folder it stands in. Both ways: an include
// that is not allowed fails, and so does an exception that is not needed any more.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace gradloom {
namespace {

namespace fs = std::filesystem;
using Folders = std::set<std::string>;

const Folders language{"ir", "support"};
const Folders compiler{"ir", "ir/analysis", "ir/passes", "ir/schedule", "ir/text", "support"};

Folders operator+(Folders a, const Folders& b) {
  a.insert(b.begin(), b.end());
  return a;
}

// A folder, and those that it may include beside itself.
const std::map<std::string, Folders>& arrows() {
  static const Folders ops{"ops", "ops/broadcast", "ops/gather", "ops/gru", "ops/matmul", "ops/patterns", "ops/slice"};
  static const Folders family{"ir", "ir/analysis", "ir/schedule", "ops", "ops/matmul", "ops/patterns", "support"};
  static const Folders emitter{"codegen", "ir", "ir/analysis", "support"};
  static const Folders codegen{"codegen", "codegen/cuda", "codegen/cuda_host", "codegen/llvm"};
  static const Folders runtime{"runtime",          "runtime/backend",       "runtime/cache",  "runtime/c_abi",
                               "runtime/diagnose", "runtime/generic_first", "runtime/memory", "runtime/threads"};
  static const Folders all = compiler + Folders{"ir/interpret"} + ops + codegen;
  static const std::map<std::string, Folders> known{
      {"support", {}},
      {"ir", {"support"}},
      {"ir/text", language},
      {"ir/interpret", language},
      {"ir/analysis", language + Folders{"ir/text"}},
      {"ir/schedule", language + Folders{"ir/analysis", "ir/text"}},
      {"ir/passes", language + Folders{"ir/analysis", "ir/text"}},
      {"codegen", {}},
      {"codegen/llvm", emitter},
      {"codegen/cuda", emitter},
      {"codegen/cuda_host", emitter + Folders{"codegen/cuda"}},
      {"ops/patterns", {"ir", "ir/schedule", "support"}},
      {"ops/matmul", {"ir", "ir/analysis", "ir/schedule", "ops/patterns", "support"}},
      {"ops", {"ir", "ir/schedule", "ops/patterns", "support"}},
      {"ops/broadcast", family},
      {"ops/gather", family},
      {"ops/gru", family},
      {"ops/slice", family},
      {"runtime/threads", {"support"}},
      {"runtime/diagnose", {"codegen/llvm", "ir", "support"}},
      {"runtime/memory", language},
      {"runtime/cache", language + Folders{"ops", "runtime/backend", "runtime/diagnose"}},
      {"runtime/backend", language + Folders{"codegen", "codegen/cuda", "codegen/cuda_host", "codegen/llvm",
                                             "ir/interpret", "runtime/diagnose", "runtime/memory", "runtime/threads"}},
      {"runtime/generic_first",
       {"codegen", "runtime/cache", "runtime/diagnose", "runtime/memory", "runtime/threads", "support"}},
      {"runtime", all + runtime},
      {"runtime/c_abi", {"runtime", "runtime/diagnose", "runtime/memory", "support"}},
      {"cli", all + runtime + Folders{"cli/bench"}},
      {"cli/bench", all + runtime + Folders{"cli"}},
      {"cli/demo", all + runtime + Folders{"cli", "cli/bench"}},
  };
  return known;
}

// Headers of `runtime` that the folders inside it stand on: what travels through all of them, and DLPack's own structs.
const std::set<std::string>& ground() {
  static const std::set<std::string> known{"runtime/options.h", "runtime/planned_call.h", "runtime/report.h",
                                           "runtime/c_abi/dlpack.h"};
  return known;
}

// Headers for their own folder only.
const std::set<std::string>& inside() {
  static const std::set<std::string> known{"codegen/cuda/emitter.h", "codegen/cuda_host/host_state.h",
                                           "codegen/llvm/emitter.h", "codegen/llvm/toolchain.h",
                                           "ir/interpret/code.h",    "ir/schedule/site.h",
                                           "ir/text/parser.h",       "runtime/c_abi/c_abi.h"};
  return known;
}

// What is there for now, "file includes file": each is to go.
const std::set<std::string>& exceptions() {
  static const std::set<std::string> known{
  };
  return known;
}

std::vector<std::string> includes_of(const fs::path& file) {
  std::vector<std::string> all;
  std::ifstream in(file);
  const std::string mark = "#include \"";
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(mark)) all.push_back(line.substr(mark.size(), line.find('"', mark.size()) - mark.size()));
  return all;
}

TEST(Layers, IncludesPointDown) {
  const fs::path root = fs::path(GRADLOOM_TEST_DIR).parent_path();
  std::set<std::string> used;
  size_t files = 0;
  for (const char* top : {"support", "ir", "codegen", "ops", "runtime", "cli"})
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".h" && extension != ".cpp" && extension != ".c") continue;
      ++files;
      const std::string file = fs::relative(entry.path(), root).string(),
                        folder = fs::path(file).parent_path().string();
      ASSERT_TRUE(arrows().contains(folder)) << folder << " has no line in this test";
      for (const std::string& included : includes_of(entry.path())) {
        const std::string other = fs::path(included).parent_path().string();
        if (other.empty() || other == folder) continue;
        if (arrows().at(folder).contains(other) && !inside().contains(included)) continue;
        if (folder.starts_with("runtime/") && ground().contains(included)) continue;
        const std::string arrow = file + " includes " + included;
        EXPECT_TRUE(exceptions().contains(arrow)) << arrow;
        used.insert(arrow);
      }
    }
  EXPECT_GT(files, 300u);
  for (const std::string& arrow : exceptions()) EXPECT_TRUE(used.contains(arrow)) << "not needed any more: " << arrow;
}

TEST(Layers, EveryFolderHasAReadme) {
  const fs::path root = fs::path(GRADLOOM_TEST_DIR).parent_path();
  for (const auto& [folder, others] : arrows()) EXPECT_TRUE(fs::exists(root / folder / "README.md")) << folder;
}

}  // namespace
}  // namespace gradloom
