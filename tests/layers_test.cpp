// The include rules: a file's folder determines which folders it may include. A public header belongs to a folder, too
// (include/gradloom/README.md).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace gradloom {
namespace {

namespace fs = std::filesystem;
using Folders = std::set<std::string>;

const Folders language{"ir", "support"};
const Folders compiler{"ir", "ir/analysis", "ir/differentiate", "ir/passes", "ir/schedule", "ir/text", "support"};

Folders operator+(Folders a, const Folders& b) {
  a.insert(b.begin(), b.end());
  return a;
}

// A folder, and those that it may include in addition to itself.
const std::map<std::string, Folders>& arrows() {
  static const Folders ops{"ops",        "ops/bags",   "ops/broadcast", "ops/declared", "ops/gather", "ops/gru",
                           "ops/matmul", "ops/patterns", "ops/slice",     "ops/sparse"};
  static const Folders family{"ir", "ir/analysis", "ir/schedule", "ops", "ops/matmul", "ops/patterns", "support"};
  static const Folders emitter{"codegen", "ir", "ir/analysis", "support"};
  static const Folders codegen{"codegen", "codegen/cuda", "codegen/cuda_host", "codegen/llvm"};
  static const Folders runtime{"runtime",        "runtime/backend",  "runtime/cache",
                               "runtime/c_abi",  "runtime/diagnose", "runtime/generic_first",
                               "runtime/memory", "runtime/threads",  "runtime/tuning"};
  static const Folders all = compiler + Folders{"ir/interpret"} + ops + codegen;
  static const std::map<std::string, Folders> known{
      {"support", {}},
      {"ir", {"support"}},
      {"ir/text", language},
      {"ir/interpret", language},
      {"ir/analysis", language + Folders{"ir/text"}},
      {"ir/schedule", language + Folders{"ir/analysis", "ir/text"}},
      {"ir/passes", language + Folders{"ir/analysis", "ir/text"}},
      {"ir/differentiate", language + Folders{"ir/analysis", "ir/text"}},
      {"codegen", {}},
      {"codegen/llvm", emitter},
      {"codegen/cuda", emitter},
      {"codegen/cuda_host", emitter + Folders{"codegen/cuda"}},
      {"ops/patterns", {"ir", "ir/differentiate", "ir/schedule", "ops", "support"}},
      {"ops/matmul", {"ir", "ir/analysis", "ir/schedule", "ops/patterns", "support"}},
      {"ops", {"ir", "ir/schedule", "ops/declared", "ops/patterns", "support"}},
      {"ops/bags", family},
      {"ops/broadcast", family},
      {"ops/declared", family + Folders{"ir/differentiate"}},
      {"ops/gather", family},
      {"ops/gru", family},
      {"ops/slice", family},
      {"ops/sparse", family},
      {"runtime/threads", {"runtime/diagnose", "support"}},
      {"runtime/diagnose", {"codegen/llvm", "ir", "support"}},
      {"runtime/memory", language},
      {"runtime/cache", language + Folders{"ops", "runtime/backend", "runtime/diagnose"}},
      {"runtime/backend", language + Folders{"codegen", "codegen/cuda", "codegen/cuda_host", "codegen/llvm",
                                             "ir/interpret", "runtime/diagnose", "runtime/memory", "runtime/threads"}},
      {"runtime/generic_first",
       {"codegen", "runtime/cache", "runtime/diagnose", "runtime/memory", "runtime/threads", "support"}},
      {"runtime/tuning", {"runtime/cache", "runtime/diagnose", "support"}},
      {"runtime", all + runtime},
      {"runtime/c_abi", {"runtime", "runtime/diagnose", "runtime/memory", "support"}},
      {"cli", all + runtime + Folders{"cli/bench"}},
      {"cli/bench", all + runtime + Folders{"cli"}},
      {"cli/demo", all + runtime + Folders{"cli", "cli/bench"}},
      {"python", all + runtime + Folders{"python/gradloom"}},
      {"python/gradloom", {}},
      {"python/gradloom/jax", {"python/gradloom"}},
      {"python/gradloom/torch", {"python/gradloom"}},
  };
  return known;
}

// Headers of `runtime` that its subfolders may include: the types passed through all of them, and DLPack's own structs.
const std::set<std::string>& ground() {
  static const std::set<std::string> known{"gradloom/dlpack.h", "gradloom/options.h", "gradloom/report.h",
                                           "runtime/planned_call.h"};
  return known;
}

// Headers private to their own folder.
const std::set<std::string>& inside() {
  static const std::set<std::string> known{"codegen/cuda/emitter.h",     "codegen/cuda_host/host_state.h",
                                           "codegen/llvm/emitter.h",     "codegen/llvm/toolchain.h",
                                           "codegen/llvm/code_memory.h", "codegen/llvm/llvm_handlers.h",
                                           "ir/interpret/code.h",        "ir/schedule/site.h",
                                           "ir/text/parser.h",           "runtime/c_abi/c_abi.h"};
  return known;
}

fs::path root() { return fs::path(GRADLOOM_TEST_DIR).parent_path(); }

// The public headers, and the folder that each belongs to: rows "| `runtime.h` | `runtime` | ..." of their README.
std::map<std::string, std::string> public_headers() {
  std::map<std::string, std::string> known;
  std::ifstream in(root() / "include/gradloom/README.md");
  static const std::regex row(R"(\| `([a-z_]+\.h)` \| `([a-z_/]+)` \|.*)");
  std::smatch parts;
  for (std::string line; std::getline(in, line);)
    if (std::regex_match(line, parts, row)) known["gradloom/" + parts[1].str()] = parts[2];
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
  const std::map<std::string, std::string> headers = public_headers();
  const auto folder_of = [&](const std::string& file) {
    const auto header = headers.find(file);
    return header == headers.end() ? fs::path(file).parent_path().string() : header->second;
  };
  size_t files = 0;
  for (const char* top : {"include", "support", "ir", "codegen", "ops", "runtime", "cli", "python"})
    for (const auto& entry : fs::recursive_directory_iterator(root() / top)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".h" && extension != ".cpp" && extension != ".c") continue;
      ++files;
      const bool is_public = std::string(top) == "include";
      const std::string file = fs::relative(entry.path(), root() / (is_public ? top : "")).string(),
                        folder = folder_of(file);
      ASSERT_TRUE(arrows().contains(folder)) << file << ": " << folder << " has no line in this test";
      for (std::string included : includes_of(entry.path())) {
        if (included.starts_with("../"))
          included = (fs::path(file).parent_path() / included).lexically_normal().string();
        const std::string other = folder_of(included), arrow = file + " includes " + included;
        if (included == "gradloom/runtime.h") {
          EXPECT_TRUE(file == "runtime/runtime.cpp" || folder == "runtime/c_abi" || folder.starts_with("cli") ||
                      folder == "python")
              << arrow << ": the top of runtime/, which nothing of it stands on";
        }
        if (is_public) {
          EXPECT_TRUE(headers.contains(included)) << arrow << ", which is not public";
        }
        if (other.empty() || other == folder) continue;
        if (arrows().at(folder).contains(other) && !inside().contains(included)) continue;
        if (folder.starts_with("runtime/") && ground().contains(included)) continue;
        ADD_FAILURE() << arrow;
      }
    }
  EXPECT_GT(files, 300u);
}

TEST(Layers, PublicHeadersAreListed) {
  std::set<std::string> listed, found;
  for (const auto& [header, folder] : public_headers()) listed.insert(header);
  for (const auto& entry : fs::directory_iterator(root() / "include/gradloom"))
    if (entry.path().extension() == ".h") found.insert("gradloom/" + entry.path().filename().string());
  EXPECT_EQ(listed, found);
}

TEST(Layers, EveryFolderHasAReadme) {
  for (const auto& [folder, others] : arrows()) EXPECT_TRUE(fs::exists(root() / folder / "README.md")) << folder;
}

}  // namespace
}  // namespace gradloom
