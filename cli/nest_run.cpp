#include "cli/nest_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "cli/command.h"
#include "cli/nest_compare.h"
#include "runtime/backend/backend.h"

namespace gradloom::cli {
namespace {

// Of the in buffers.
std::vector<uint64_t> checksums(const nest::Call& call) {
  std::vector<uint64_t> sums;
  for (const nest::Argument& argument : call.buffers)
    sums.push_back(argument.written() ? 0 : argument.memory.checksum());
  return sums;
}

void refuse_stray_writes(const nest::Call& call, const std::vector<uint64_t>& before) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::internal, fmt::format("kernel {}: it wrote {}", call.kernel.name, what));
  };
  const std::vector<uint64_t> after = checksums(call);
  for (size_t b = 0; b < call.buffers.size(); ++b) {
    const nest::Argument& argument = call.buffers[b];
    if (const auto at = argument.memory.stray_write())
      refuse(fmt::format("outside the elements of buffer {}, {} bytes from element {}", argument.name, *at,
                         argument.element_name(0)));
    if (after[b] != before[b]) refuse(fmt::format("to buffer {}, which is in", argument.name));
  }
}

void copy_back(nest::Argument& argument, const Tensor& result) {
  const int width = size_of(argument.declared->dtype);
  argument.memory.each([&](int64_t, int64_t offset) {
    uint64_t bits = 0;
    std::memcpy(&bits, static_cast<const char*>(result.data()) + offset * width, static_cast<size_t>(width));
    argument.memory.set(offset, bits);
  });
}

nest::Ran ran_on(const std::string& target, const ir::Kernel& kernel, const nest::Call& call, RuntimeOptions options,
                 const KernelOptions& how) {
  nest::Ran ran{target, call, {}};
  options.target = target_named(target);
  try {
    run_nest(kernel, ran.call, options, how);
  } catch (const Error& error) {
    ran.error = error;
  }
  return ran;
}

// Targets other than the interpreter do not check the nest, so an invalid one may crash: a line reports that before the
// process ends.
volatile sig_atomic_t crashed_target = 0;
constexpr const char* crash_lines[] = {
    "gradloom: the nest crashed; --target interpreter checks every access\n",
    "gradloom: the nest crashed on llvm; --target interpreter checks every access\n",
    "gradloom: the nest crashed on interpreter\n",
    "gradloom: the nest crashed on cuda; --target interpreter checks every access\n",
    "gradloom: the nest crashed on cuda-host; --target interpreter checks every access\n"};

void tell_crash(int signal) {
  const char* const line = crash_lines[crashed_target];
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line, std::strlen(line));
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// Active for its lifetime; under a sanitizer the sanitizer's own, more detailed report is used.
class CrashLine {
 public:
  explicit CrashLine(TargetKind target) {
    crashed_target = static_cast<int>(target);
#ifndef __SANITIZE_ADDRESS__
    for (size_t i = 0; i < std::size(signals); ++i) before_[i] = std::signal(signals[i], tell_crash);
#endif
  }
  ~CrashLine() {
#ifndef __SANITIZE_ADDRESS__
    for (size_t i = 0; i < std::size(signals); ++i) std::signal(signals[i], before_[i]);
#endif
  }
  CrashLine(const CrashLine&) = delete;
  CrashLine& operator=(const CrashLine&) = delete;

 private:
  static constexpr int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
  sighandler_t before_[std::size(signals)] = {};
};

bool has_gpu() {
  if (!built_with_cuda()) return false;
  RuntimeOptions options;
  options.target = TargetKind::cuda;
  try {
    const Runtime runtime(options);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::string run_nest(const ir::Kernel& kernel, nest::Call& call, const RuntimeOptions& options,
                     const KernelOptions& how) {
  const CrashLine crash_line(options.target);
  Runtime runtime(options);
  const KernelExecutable executable = runtime.compile(kernel, how).value();
  std::vector<Tensor> tensors;
  for (const nest::Argument& argument : call.buffers)
    tensors.push_back(runtime.to_device(argument.memory.tensor(argument.written())).value());
  const LaunchOptions launch{.check = CheckMode::sync};
  const std::vector<uint64_t> before = checksums(call);
  const Result<std::monostate> done = executable(tensors, call.slots, launch);
  const bool on_host = runtime.device() < 0;
  if (on_host) refuse_stray_writes(call, before);  // after a failed check too
  done.value();
  runtime.synchronize().value();
  for (size_t b = 0; b < tensors.size() && !on_host; ++b)
    if (call.buffers[b].written()) copy_back(call.buffers[b], runtime.to_host(tensors[b]).value());
  return runtime.target_name();
}

std::string compare_nest(const NestsToCompare& nests, const nest::Call& call, const RuntimeOptions& options) {
  std::vector<nest::Ran> all{ran_on("interpreter", nests.authored, call, options, {})};
  const std::optional<Error> definition = all[0].error;
  // Only the interpreter checks accesses and facts: where it refuses, the results of other targets are undefined.
  if (definition && definition->code() != ErrorCode::out_of_range) throw *definition;
  std::vector<std::string> targets;
  if (nests.on_cpu && has_llvm()) targets.push_back("llvm");
  if (nests.on_gpu && built_with_cuda()) targets.push_back("cuda-host");
  if (nests.on_gpu && has_gpu()) targets.push_back("cuda");
  for (const std::string& target : targets) all.push_back(ran_on(target, nests.scheduled, call, options, nests.how));
  if (const auto difference = nest::difference(all)) throw DifferentResults(*difference);
  std::vector<std::string> names;
  for (const nest::Ran& ran : all) names.push_back(ran.target);
  if (definition)
    throw Error(definition->code(), fmt::format("{} (on {})", definition->what(), fmt::join(names, ", ")));
  return fmt::format("equal on {}", fmt::join(names, ", "));
}

}  // namespace gradloom::cli
