// `gradloom cache`: lists and verifies a disk cache, and explains why a call misses it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <set>

#include "cli/cases.h"
#include "cli/command.h"
#include "cli/text.h"
#include "gradloom/text.h"
#include "runtime/build.h"
#include "runtime/cache/kernel_store.h"
#include "runtime/outputs.h"
#ifdef GRADLOOM_WITH_LLVM
#include "codegen/llvm/compiler.h"
#endif
#ifdef GRADLOOM_WITH_CUDA
#include "runtime/backend/cuda_code.h"
#endif

namespace gradloom::cli {
namespace {

struct CacheOptions {
  std::string folder, case_file;
  int64_t megabytes = -1;
  ServeOptions serve;
};

std::string folder_of(const CacheOptions& options) {
  const std::string folder = options.folder.empty() ? default_cache_folder() : options.folder;
  if (folder.empty()) throw UsageError("cache: there is no folder, expected --dir, GRADLOOM_CACHE_DIR or a home");
  if (!std::filesystem::is_directory(folder))
    throw UsageError(fmt::format("cache: there is no folder {}", printable(folder)));  // opening it would create it
  return folder;
}

DiskCache open(const CacheOptions& options) {
  return DiskCache({folder_of(options), {}, std::numeric_limits<int64_t>::max()});
}

bool is_kernel(const DiskFile& file) { return file.name.starts_with("k-"); }
bool is_index(const DiskFile& file) { return file.name.starts_with("i-"); }

int stat(const CacheOptions& options) {
  const DiskCache cache = open(options);
  if (!cache.usable()) return exit_failure;
  int64_t counts[3] = {}, bytes[3] = {};
  int64_t oldest = std::time(nullptr);
  for (const DiskFile& file : cache.list()) {
    const int kind = is_kernel(file) ? 0 : is_index(file) ? 1 : 2;
    ++counts[kind];
    bytes[kind] += file.bytes;
    oldest = std::min(oldest, file.used_seconds);
  }
  Table table({"what", ">files", ">bytes"});
  const char* const names[] = {"kernels", "index", "unfinished or foreign"};
  for (int kind = 0; kind < 3; ++kind)
    table.row({names[kind], std::to_string(counts[kind]), std::to_string(bytes[kind])});
  fmt::print("folder: {}\n{}longest unused: {} s\n", printable(folder_of(options)), table.text(),
             std::time(nullptr) - oldest);
  return 0;
}

int list(const CacheOptions& options) {
  DiskCache cache = open(options);
  if (!cache.usable()) return exit_failure;
  Table table({"op", "strategy", "dtypes", "dims", "target", ">bytes", ">unused s"});
  std::vector<DiskFile> files = cache.list();
  std::sort(files.begin(), files.end(),
            [](const DiskFile& a, const DiskFile& b) { return a.used_seconds > b.used_seconds; });
  for (const DiskFile& file : files) {
    if (!is_index(file)) continue;
    const auto bytes = cache.read(CacheFile::index, file.name);
    if (!bytes) continue;
    try {
      const IndexRecord index = decode_index(*bytes);
      const OpKey key(index.key);
      const std::string kernel = kernel_file_name(index.content);
      const auto at = std::find_if(files.begin(), files.end(), [&](const DiskFile& f) { return f.name == kernel; });
      const std::string& target = key.part(KeyPart::target);
      table.row({printable(index.op), printable(index.strategy), key.part(KeyPart::dtypes), key.part(KeyPart::dims),
                 target.substr(0, target.find(' ')), at == files.end() ? "gone" : std::to_string(at->bytes),
                 std::to_string(std::time(nullptr) - file.used_seconds)});
    } catch (const Error& error) {
      to_stderr("{}: {}\n", printable(file.name), error.what());
    }
  }
  fmt::print("{}", table.text());
  return 0;
}

int shrink(const CacheOptions& options, int64_t bytes) {
  DiskCache cache = open(options);
  if (!cache.usable()) return exit_failure;
  const std::string problem = cache.prune(bytes);
  fmt::print("{} files removed\n", cache.stats().evictions);
  if (!problem.empty()) to_stderr("gradloom: cache: not pruned: {}\n", problem);
  return problem.empty() ? 0 : exit_failure;
}

int prune(const CacheOptions& options) { return shrink(options, options.megabytes << 20); }
int clear(const CacheOptions& options) { return shrink(options, 0); }

#ifdef GRADLOOM_WITH_CUDA
// For GPU code: recompiled by the NVRTC of this machine; nothing where it is missing or another version.
std::optional<std::string> cuda_code_again(const KernelRecord& record, std::string_view text,
                                           std::string_view features) {
  try {
    if (record.key != content_key(toolchain_text(cuda_toolchain()), features, text)) return std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
  double ms = 0;
  return encode(compile_cuda(ir::parse(text), std::stoi(std::string(features.substr(3))), 1, ms));
}
#endif

// The defect in a kernel file's content; nothing when it is valid. `foreign` is set where it cannot be compiled here:
// made by another build of the library, or another compiler.
std::string wrong_kernel(const std::string& name, std::string_view bytes, bool& foreign) {
  const KernelRecord record = decode_kernel(bytes);
  if (kernel_file_name(content_id(record.key)) != name) return "its name is not that of its key";
  const std::string_view text = ir_of_content_key(record.key), features = features_of_content_key(record.key);
  std::optional<std::string> again;
  if (features.starts_with("sm_")) {
#ifdef GRADLOOM_WITH_CUDA
    again = cuda_code_again(record, text, features);
#endif
  } else {
#ifdef GRADLOOM_WITH_LLVM
    if (record.key == content_key(toolchain_text(codegen::toolchain_text()), features, text)) {
      again = codegen::compile_object(ir::parse(text), codegen::isa_of(record.tuned_for, std::string(features))).bytes;
    }
#endif
  }
  foreign = !again;
  return again && *again != record.code ? "compiled again it gives other code" : "";
}

int verify(const CacheOptions& options) {
  DiskCache cache = open(options);
  if (!cache.usable()) return exit_failure;
  int64_t same = 0, foreign = 0, wrong = 0, orphans = 0;
  const std::vector<DiskFile> files = cache.list();
  std::set<std::string> names;
  for (const DiskFile& file : files) names.insert(file.name);
  for (const DiskFile& file : files) {
    if (!is_kernel(file) && !is_index(file)) continue;
    std::string why;
    bool other_build = false;
    try {
      const auto bytes = cache.read(is_kernel(file) ? CacheFile::kernel : CacheFile::index, file.name);
      if (!bytes) {
        why = "it is torn, foreign or gone";
      } else if (is_kernel(file)) {
        why = wrong_kernel(file.name, *bytes, other_build);
      } else {
        const IndexRecord index = decode_index(*bytes);
        if (OpKey(index.key).file_name() != file.name) why = "its name is not that of its key";
        const std::string kernel = kernel_file_name(index.content);
        if (why.empty() && !names.contains(kernel)) {  // evicted, or lost: a call misses it and writes it again
          ++orphans;
          fmt::print("{}: its kernel {} is gone\n", printable(file.name), kernel);
          continue;
        }
      }
    } catch (const Error& error) {
      why = error.what();
    }
    if (!why.empty()) fmt::print("WRONG {}: {}\n", printable(file.name), printable(why));
    ++(!why.empty() ? wrong : other_build ? foreign : same);
  }
  fmt::print("{} as compiled now, {} of other builds or compilers, {} index entries without a kernel, {} wrong\n", same,
             foreign, orphans, wrong);
  return wrong == 0 ? 0 : exit_failure;
}

#ifdef GRADLOOM_WITH_LLVM
// Exit code 1 means that the case exists and misses.
cases::Case case_of(const std::string& file) {
  try {
    return cases::read_case(file);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}
#endif

int explain(const CacheOptions& options) {
#ifdef GRADLOOM_WITH_LLVM
  DiskCache cache = open(options);
  if (!cache.usable()) return exit_failure;
  const cases::Case c = case_of(options.case_file);
  const Op* op = find_op(c.op);
  if (!op) throw UsageError(fmt::format("cache: there is no op \"{}\" (see `gradloom ops`)", printable(c.op)));
  RuntimeOptions runtime_options = options.serve.runtime();
  runtime_options.disk_cache = "off";
  const Runtime runtime(runtime_options);
  const Plan plan = cases::plan_of(c);
  RunOptions run = options.serve.run();
  uint32_t wanted = 0;
  for (size_t o = 0; o < op->schema().outputs.size(); ++o)
    wanted |= static_cast<uint32_t>(o >= c.outputs.size() || c.outputs[o].present()) << o;
  const Strategy& strategy = choose_strategy(*op, plan, run, runtime.target());
  const OpKey key({*op, plan, strategy, run, wanted, aligned_outputs},
                  target_text(runtime.target(), codegen::host_isa().features),
                  toolchain_text(codegen::toolchain_text()));
  std::vector<std::string> names;
  for (const DiskFile& file : cache.list()) names.push_back(file.name);
  if (std::find(names.begin(), names.end(), key.file_name()) != names.end()) {
    const auto index = cache.read(CacheFile::index, key.file_name());
    const std::string kernel = index ? kernel_file_name(decode_index(*index).content) : "";
    if (index && cache.read(CacheFile::kernel, kernel)) {
      fmt::print("hit: {}\n", key.file_name());
      return 0;
    }
    fmt::print("miss: {} is {}\n", index ? "the kernel " + kernel + " of " + key.file_name() : key.file_name(),
               "gone or torn");
    return exit_failure;
  }
  const auto nearest = nearest_key(key.file_name(), names);
  if (!nearest) {
    fmt::print("miss: no entry is of {}\n", printable(c.op));
    return exit_failure;
  }
  fmt::print("miss: nearest is {}\n", nearest->file_name);
  const auto bytes = cache.read(CacheFile::index, nearest->file_name);
  std::optional<OpKey> other;
  if (bytes) other.emplace(decode_index(*bytes).key);
  for (const KeyPart part : nearest->differing) {
    fmt::print("  {}: wanted {}, there is {}\n", to_string(part), key.part(part),
               other ? printable(other->part(part)) : "(gone)");
  }
  return exit_failure;
#else
  (void)options;
  throw UsageError("cache: this build has no LLVM, so it keeps no kernels");
#endif
}

}  // namespace

void add_cache(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("cache", "Look into the disk cache of kernels");
  command->require_subcommand(1);
  const auto add = [&](const std::string& name, const char* what, int (*run)(const CacheOptions&),
                       const char* more = "") {
    auto options = std::make_shared<CacheOptions>();
    CLI::App* sub = command->add_subcommand(name, what);
    sub->add_option("--dir", options->folder, "the folder; by default the one that a Runtime would use");
    sub->footer(fmt::format("Example:\n  gradloom cache {}{}", name, more));
    sub->callback([options, run, &status] { status = run(*options); });
    return std::pair{sub, options};
  };
  add("stat", "name the folder, count files and bytes", stat);
  add("list", "one line a kernel, of ops and of one's own, the last used first", list);
  const auto [prune_command, prune_options] =
      add("prune", "remove the longest unused entries, and what killed processes left", prune, " --mib 100");
  prune_command->add_option("--mib", prune_options->megabytes, "how much may stay, in MiB; 0 removes all")
      ->required()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  add("clear", "remove all entries, as prune --mib 0 does", clear);
  add("verify", "compile every entry again and compare", verify);
  const auto [explain_command, explain_options] =
      add("explain", "say whether a case's kernel is there, else what differs from the nearest entry", explain,
          " tests/golden/gather_grad__embedding.json");
  explain_command->add_option("case", explain_options->case_file, "a case file")->required();
  explain_options->serve.add_to(*explain_command);
  command->footer(
      "Exit codes: verify 1 when an entry is wrong, explain 1 for a miss; 2 for a wrong argument, such as a case that "
      "cannot be read.\n"
      "Examples:\n  gradloom cache list\n  gradloom cache prune --mib 100\n  gradloom cache explain "
      "tests/golden/gather_grad__embedding.json");
}

}  // namespace gradloom::cli
