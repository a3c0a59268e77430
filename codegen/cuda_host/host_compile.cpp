// Compiles kernel text to a shared library and loads it into this process.
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "codegen/cuda/prelude.h"
#include "codegen/cuda_host/host_executor.h"
#include "codegen/cuda_host/sanitizers.h"
#include "gradloom/error.h"

extern char** environ;

#ifdef GRADLOOM_ASAN
// LeakSanitizer crashes at the exit of a process that loaded many libraries built with AddressSanitizer: such a process
// checks accesses, not leaks.
static std::atomic<bool> text_was_loaded{false};
extern "C" int __lsan_is_turned_off() { return text_was_loaded; }
#endif

namespace gradloom::codegen {
namespace {

namespace fs = std::filesystem;

// Private to this user, removed with this object.
struct TemporaryFolder {
  TemporaryFolder() {
    std::error_code failed;
    const fs::path base = fs::temp_directory_path(failed);
    std::string name = ((failed ? fs::path("/tmp") : base) / "gradloom-host-XXXXXX").string();
    if (!mkdtemp(name.data()))
      throw Error(ErrorCode::device_error,
                  fmt::format("cuda-host: cannot make the folder {}: {}", name, std::strerror(errno)));
    path = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  fs::path path;
};

// CXX may include a launcher or options, too.
std::vector<std::string> compiler_words() {
  const char* chosen = std::getenv("CXX");
  std::istringstream words(chosen ? chosen : "");
  std::vector<std::string> list;
  for (std::string word; words >> word;) list.push_back(word);
  if (list.empty()) list.push_back("c++");
  return list;
}

std::string first_error(const fs::path& log) {
  std::ifstream file(log);
  std::string line, first;
  while (std::getline(file, line)) {
    if (first.empty() && !line.empty()) first = line;
    if (line.find("error") != std::string::npos) return line;
  }
  return first.empty() ? "no message" : first;
}

// Returns the wait status; output is redirected to `log`.
int run_program(const std::vector<std::string>& words, const fs::path& log) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed) {
    throw Error(
        ErrorCode::device_error,
        fmt::format("cuda-host needs a C++ compiler: \"{}\" (CXX in the environment, else c++) cannot be run: {}",
                    words[0], std::strerror(failed)));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR)
      throw Error(ErrorCode::device_error,
                  fmt::format("cuda-host: cannot wait for {}: {}", words[0], std::strerror(errno)));
  }
  return status;
}

std::string call_name(size_t module, const std::string& function) {
  return fmt::format("gl_call_{}_{}", module, function);
}

// Each module gets its own namespace: functions of two modules may share a name.
std::string source_of(std::span<const CudaModule* const> modules) {
  std::string text;
  for (size_t m = 0; m < modules.size(); ++m) {
    text += fmt::format("namespace gl_module_{} {{\n#line 1 \"kernel\"\n{}\n", m, modules[m]->text);
    for (const CudaFunction& f : modules[m]->functions) {
      text += fmt::format("extern \"C\" void {}(void** arguments) {{ gl_call<{}>({}, arguments); }}\n",
                          call_name(m, f.name), f.arguments.size(), f.name);
    }
    text += "}\n";
  }
  return host_prelude() + used_helpers(common_prelude(), text) + text;
}

}  // namespace

std::vector<std::shared_ptr<const HostModule>> HostModule::compile(std::span<const CudaModule* const> modules,
                                                                   HostOverflow overflow) {
  const TemporaryFolder folder;
  const fs::path source = folder.path / "kernel.cpp", binary = folder.path / "kernel.so", log = folder.path / "log";
  std::ofstream(source) << source_of(modules);
  std::vector<std::string> words = compiler_words();
  // -nostdlib is a third faster; the few library functions called resolve in this process. -O1 costs 5 ms over -O0.
  for (const char* option : {"-std=c++17", "-O1", "-march=native", "-ffp-contract=off", "-fno-strict-aliasing", "-w",
                             "-shared", "-fPIC", "-pipe", "-nostdlib", "-o"})
    words.emplace_back(option);
  words.push_back(binary.string());
#ifdef GRADLOOM_ASAN
  overflow = HostOverflow::traps;
  words.emplace_back(
      "-fsanitize=address");  // kernels are checked for memory errors as the library is; the runtime is this process's
#endif
  if (overflow == HostOverflow::traps) {
    for (const char* option : {"-fsanitize=signed-integer-overflow,shift", "-fsanitize-undefined-trap-on-error"})
      words.emplace_back(option);
  } else {
    words.emplace_back("-fwrapv");
  }
  words.emplace_back("-fno-ivopts");      // g++ 12 compiles some short loops wrongly with it
  words.emplace_back("-frounding-math");  // else g++ 12 folds 0.0 - (double)i to a negation, which yields -0.0 for 0
  words.push_back(source.string());
  if (run_program(words, log) != 0)
    throw Error(ErrorCode::compile_failed, fmt::format("cuda-host: {}: {}", words[0], first_error(log)));

  void* handle = dlopen(binary.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    throw Error(ErrorCode::device_error, fmt::format("cuda-host: cannot load what {} made: {}", words[0], dlerror()));
#ifdef GRADLOOM_ASAN
  text_was_loaded = true;
#endif
  const std::shared_ptr<void> library(handle, [](void* h) { dlclose(h); });
  std::error_code unknown;
  const auto bytes = static_cast<int64_t>(fs::file_size(binary, unknown));
  std::vector<std::shared_ptr<const HostModule>> loaded;
  for (size_t m = 0; m < modules.size(); ++m) {
    auto module = std::make_shared<HostModule>();
    module->library_ = library;
    module->enter_ = reinterpret_cast<void (*)(GlHostState*)>(dlsym(handle, "gl_enter"));
    for (const CudaFunction& f : modules[m]->functions)
      module->calls_[f.name] = reinterpret_cast<Call>(dlsym(handle, call_name(m, f.name).c_str()));
    module->code_bytes_ = unknown ? 0 : bytes / static_cast<int64_t>(modules.size());
    loaded.push_back(std::move(module));
  }
  return loaded;
}

std::shared_ptr<const HostModule> HostModule::compile(const CudaModule& module) {
  const CudaModule* const one = &module;
  return compile(std::span(&one, 1)).front();
}

}  // namespace gradloom::codegen
