#include "codegen/cuda/nvrtc.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <future>

#include "codegen/cuda/prelude.h"
#include "gradloom/error.h"
#include "support/lasting.h"

namespace gradloom::codegen {
namespace {

namespace fs = std::filesystem;
using Program = struct NvrtcProgram*;

constexpr const char* file_names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

// The default toolkit folders in search order; versioned installations newest first.
std::vector<fs::path> usual_folders() {
  std::vector<fs::path> roots;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* value = std::getenv(variable); value && *value) roots.emplace_back(value);
  }
  std::vector<fs::path> versions;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator("/usr/local", missing)) {
    if (entry.path().filename().string().starts_with("cuda-")) versions.push_back(entry.path());
  }
  std::sort(versions.rbegin(), versions.rend());
  roots.emplace_back("/usr/local/cuda");
  roots.insert(roots.end(), versions.begin(), versions.end());
  roots.emplace_back("/opt/cuda");
  return roots;
}

void* open_in(const fs::path& folder) {
  for (const char* name : file_names) {
    if (void* handle = dlopen(folder.empty() ? name : (folder / name).c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
  }
  return nullptr;
}

void* open_toolkit(const fs::path& root) {
  for (const fs::path& folder : {root / "lib64", root / "lib", root / "targets/x86_64-linux/lib", root}) {
    if (void* handle = open_in(folder)) return handle;
  }
  return nullptr;
}

void* open_library(const std::string& folder) {
  const std::string names = fmt::format("{}", fmt::join(file_names, ", "));
  if (!folder.empty()) {
    if (void* handle = open_toolkit(folder)) return handle;
    throw Error(
        ErrorCode::device_error,
        fmt::format("NVRTC was not found: GRADLOOM_CUDA_PATH is {}, and neither it nor its lib64 or lib holds {}",
                    folder, names));
  }
  if (void* handle = open_in({})) return handle;
  std::vector<std::string> tried;
  for (const fs::path& root : usual_folders()) {
    if (void* handle = open_toolkit(root)) return handle;
    tried.push_back(root.string());
  }
  throw Error(ErrorCode::device_error, fmt::format("NVRTC was not found: none of {} is on the loader's path or in "
                                                   "lib64 or lib of {}; GRADLOOM_CUDA_PATH may name its folder",
                                                   names, fmt::join(tried, ", ")));
}

// Parses ptxas's "Function properties for f", then "N bytes spill stores, M bytes spill loads".
void read_spills(const std::string& log, std::vector<CudaResources>& resources) {
  CudaResources* current = nullptr;
  constexpr std::string_view heading = "Function properties for ";
  for (size_t at = 0; at < log.size();) {
    const size_t end = std::min(log.find('\n', at), log.size());
    const std::string line = log.substr(at, end - at);
    at = end + 1;
    if (const size_t name = line.find(heading); name != std::string::npos) {
      current = nullptr;
      for (CudaResources& r : resources)
        if (r.function == line.substr(name + heading.size())) current = &r;
    } else if (const size_t spills = line.find(" bytes spill stores, "); spills != std::string::npos && current) {
      const size_t number = line.find_last_not_of("0123456789", spills - 1) + 1;
      current->spill_bytes = std::atoll(line.c_str() + number) +
                             std::atoll(line.c_str() + spills + std::string_view(" bytes spill stores, ").size());
    }
  }
}

// A subset of a module's functions, preceded by the text above the module's first.
struct Part {
  std::string text;
  int functions = 0;
};

// Splits into parts of about equal compile cost. The fixed cost of a compile equals that of `worth_it` characters.
std::vector<Part> split(const CudaModule& module, int most) {
  constexpr size_t worth_it = 4000;
  const std::string& text = module.text;
  const size_t functions = module.functions.size();
  std::vector<size_t> starts;
  for (size_t at = text.find(function_mark); at != std::string::npos; at = text.find(function_mark, at + 1))
    starts.push_back(at + 1);
  if (starts.size() != functions || functions == 0) return {{text, static_cast<int>(functions)}};
  const size_t above = starts[0];
  starts.push_back(text.size());
  std::vector<size_t> before{0};  // prefix sums of the functions' costs
  for (size_t i = 0; i < functions; ++i)
    before.push_back(before[i] + starts[i + 1] - starts[i] + static_cast<size_t>(module.functions[i].unrolled));
  const size_t all = before[functions],
               count = std::min({static_cast<size_t>(std::max(most, 1)), functions, all / worth_it});
  if (count <= 1) return {{text, static_cast<int>(functions)}};
  std::vector<Part> parts;
  for (size_t first = 0, k = 1; k <= count; ++k) {
    const size_t to = all * k / count;
    size_t end = first + 1;
    while (end < functions - (count - k) && (k == count || (before[end] + before[end + 1]) / 2 <= to)) ++end;
    parts.push_back({text.substr(0, above) + text.substr(starts[first], starts[end] - starts[first]),
                     static_cast<int>(end - first)});
    first = end;
  }
  return parts;
}

}  // namespace

struct Nvrtc::Functions {
  void* handle;
  int (*version)(int* major, int* minor);
  int (*count)(int* count);
  int (*architectures)(int* architectures);
  const char* (*error)(int code);
  int (*create)(Program* program, const char* source, const char* name, int headers, const char* const* texts,
                const char* const* names);
  int (*destroy)(Program* program);
  int (*compile)(Program program, int options, const char* const* list);
  int (*log_size)(Program program, size_t* bytes);
  int (*log)(Program program, char* text);
  int (*cubin_size)(Program program, size_t* bytes);
  int (*cubin)(Program program, char* image);
  int (*ptx_size)(Program program, size_t* bytes);
  int (*ptx)(Program program, char* text);
};

Nvrtc::Nvrtc(const std::string& folder) : functions_(std::make_unique<Functions>()) {
  Functions& f = *functions_;
  f.handle = open_library(folder);
  const auto bind = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(f.handle, name));
    if (!function)
      throw Error(ErrorCode::device_error,
                  fmt::format("NVRTC: the library that was found has no function {}: 11.2 or newer is needed", name));
  };
  bind(f.version, "nvrtcVersion");
  bind(f.count, "nvrtcGetNumSupportedArchs");
  bind(f.architectures, "nvrtcGetSupportedArchs");
  bind(f.error, "nvrtcGetErrorString");
  bind(f.create, "nvrtcCreateProgram");
  bind(f.destroy, "nvrtcDestroyProgram");
  bind(f.compile, "nvrtcCompileProgram");
  bind(f.log_size, "nvrtcGetProgramLogSize");
  bind(f.log, "nvrtcGetProgramLog");
  bind(f.cubin_size, "nvrtcGetCUBINSize");
  bind(f.cubin, "nvrtcGetCUBIN");
  bind(f.ptx_size, "nvrtcGetPTXSize");
  bind(f.ptx, "nvrtcGetPTX");
  int major = 0, minor = 0, count = 0;
  if (const int code = f.version(&major, &minor)) fail("its version", code);
  version_ = fmt::format("{}.{}", major, minor);
  number_ = {major, minor};
  if (const int code = f.count(&count)) fail("its architectures", code);
  architectures_.resize(static_cast<size_t>(count));
  if (const int code = f.architectures(architectures_.data())) fail("its architectures", code);
  std::sort(architectures_.begin(), architectures_.end());
}

Nvrtc::~Nvrtc() = default;  // the library stays loaded: its threads and caches outlive a handle

const Nvrtc& Nvrtc::get() {
  static constinit Lasting<const Nvrtc> nvrtc;
  return nvrtc.get([] {
    const char* folder = std::getenv("GRADLOOM_CUDA_PATH");
    return Nvrtc(folder ? folder : "");
  });
}

void Nvrtc::fail(const char* what, int code) const {
  throw Error(ErrorCode::device_error, fmt::format("NVRTC: {}: {}", what, functions_->error(code)));
}

CudaBinary Nvrtc::compile(const CudaModule& module, int architecture, bool report, int threads) const {
  if (std::binary_search(architectures_.begin(), architectures_.end(), architecture))
    return compile(module, fmt::format("sm_{}", architecture), false, report, threads);
  return compile_to_ptx(module, architecture);
}

CudaBinary Nvrtc::compile_to_ptx(const CudaModule& module, int architecture) const {
  const auto above = std::upper_bound(architectures_.begin(), architectures_.end(), architecture);
  if (above == architectures_.begin()) {
    throw Error(ErrorCode::unsupported,
                fmt::format("NVRTC {} compiles for sm_{} and newer; the device is sm_{}", version_,
                            architectures_.empty() ? 0 : architectures_[0], architecture));
  }
  return compile(module, fmt::format("compute_{}", *std::prev(above)), true, false, 1);
}

CudaBinary Nvrtc::compile_to_machine_code(const CudaModule& module, int architecture) const {
  CudaBinary binary = compile(module, architecture, true);
  if (binary.ptx)
    throw Error(ErrorCode::unsupported,
                fmt::format("NVRTC {} makes no machine code for sm_{}", version_, architecture));
  return binary;
}

CudaBinary Nvrtc::compile(const CudaModule& module, const std::string& architecture, bool ptx, bool report,
                          int threads) const {
  // Older versions serialise concurrent compiles.
  const std::vector<Part> parts = split(module, ptx || number_ < std::pair(12, 3) ? 1 : threads);
  CudaBinary binary{.ptx = ptx};
  std::vector<Compiled> compiled;
  const auto start = std::chrono::steady_clock::now();
  {
    // Falls back to this thread where no thread can be started.
    std::vector<std::future<Compiled>> others;
    for (size_t i = 1; i < parts.size(); ++i)
      others.push_back(std::async(std::launch::async | std::launch::deferred,
                                  [&, i] { return compile_text(parts[i].text, architecture, ptx, report); }));
    compiled.push_back(compile_text(parts[0].text, architecture, ptx, report));
    for (std::future<Compiled>& other : others) compiled.push_back(other.get());
  }
  binary.ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  std::vector<CudaResources> found;
  for (size_t i = 0; i < parts.size(); ++i) {
    Compiled& c = compiled[i];
    if (!c.log.empty()) binary.log += (binary.log.empty() ? "" : "\n") + c.log;
    if (!ptx)
      for (CudaResources& r : cubin_resources(c.image)) found.push_back(std::move(r));
    binary.images.push_back({std::move(c.image), parts[i].functions});
  }
  if (ptx) return binary;

  for (const CudaFunction& function : module.functions) {
    CudaResources r{.function = function.name};
    for (const CudaResources& each : found)
      if (each.function == function.name) r = each;
    r.shared_bytes = function.shared_bytes;
    binary.resources.push_back(std::move(r));
  }
  if (report) read_spills(binary.log, binary.resources);
  return binary;
}

Nvrtc::Compiled Nvrtc::compile_text(const std::string& kernels, const std::string& architecture, bool ptx,
                                    bool report) const {
  const Functions& f = *functions_;
  const std::string text = cuda_prelude(kernels) + kernels;
  const std::string target = "--gpu-architecture=" + architecture;
  std::vector<const char*> options = {target.c_str(),    "--std=c++17",      "--fmad=false",       "--ftz=false",
                                      "--prec-div=true", "--prec-sqrt=true", "--no-source-include"};
  if (number_ >= std::pair(12, 0))
    options.push_back("--modify-stack-limit=false");  // the stack limit is the process's, and other threads compile too
  if (number_ >= std::pair(12, 4))
    options.push_back(
        "--minimal");  // drops declarations that kernels do not use, of textures and CUDA's runtime, from the compile
  if (report) options.push_back("--ptxas-options=-v");
  struct Hold {
    const Functions& f;
    Program program = nullptr;
    ~Hold() {
      if (program) f.destroy(&program);
    }
  } hold{f};
  if (const int code = f.create(&hold.program, text.c_str(), "kernel.cu", 0, nullptr, nullptr)) fail("a program", code);
  const int failed = f.compile(hold.program, static_cast<int>(options.size()), options.data());
  const auto get = [&](const char* what, auto size, auto content) {
    size_t bytes = 0;
    std::string result;
    if (const int code = size(hold.program, &bytes)) fail(what, code);
    result.resize(bytes);
    if (const int code = bytes == 0 ? 0 : content(hold.program, result.data())) fail(what, code);
    return result;
  };
  Compiled compiled{.image = {}, .log = get("its log", f.log_size, f.log)};
  compiled.log.resize(std::min(compiled.log.find('\0'), compiled.log.size()));
  while (!compiled.log.empty() && compiled.log.back() == '\n') compiled.log.pop_back();
  if (failed)
    throw Error(ErrorCode::compile_failed, fmt::format("NVRTC for {}: {}{}{}", architecture, f.error(failed),
                                                       compiled.log.empty() ? "" : "\n", compiled.log));
  compiled.image = ptx ? get("the PTX", f.ptx_size, f.ptx) : get("the cubin", f.cubin_size, f.cubin);
  return compiled;
}

}  // namespace gradloom::codegen
