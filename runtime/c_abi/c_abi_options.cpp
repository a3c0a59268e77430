// The options of the C interface. A struct may come from an older or a newer header than this library's: its size
// identifies the version.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>

#include "runtime/c_abi/c_abi.h"
#include "runtime/memory/borrow_dlpack.h"

namespace gradloom::c_abi {
namespace {

// The size of the structs' first version. A later version adds its size between this one and the newest.
constexpr uint64_t first_size(const gradloom_runtime_options*) {
  return offsetof(gradloom_runtime_options, disk_cache);
}
constexpr uint64_t first_size(const gradloom_run_options*) { return offsetof(gradloom_run_options, policy); }
constexpr uint64_t first_size(const gradloom_launch_options*) { return sizeof(gradloom_launch_options); }
// The second version ended where the third goes on.
constexpr uint64_t second_size(const gradloom_runtime_options*) {
  return offsetof(gradloom_runtime_options, parallel_for);
}
constexpr uint64_t second_size(const gradloom_run_options*) { return offsetof(gradloom_run_options, launch); }
constexpr uint64_t second_size(const gradloom_launch_options* options) { return first_size(options); }
// The third one's end, likewise.
constexpr uint64_t third_size(const gradloom_runtime_options*) {
  return offsetof(gradloom_runtime_options, tuning_log);
}
constexpr uint64_t third_size(const gradloom_run_options* options) { return second_size(options); }
constexpr uint64_t third_size(const gradloom_launch_options* options) { return first_size(options); }

// Whether some header version has a struct of this size: one that ends inside a member, as half a pointer, is invalid.
template <class Options>
bool some_version(const Options* options, uint64_t size) {
  return size == first_size(options) || size == second_size(options) || size == third_size(options) ||
         size >= sizeof(Options);
}

// The defaults overridden by the caller's struct.
template <class Options>
Options known_part(const Options* given, const Options& defaults, const char* function,
                   const char* argument = "options") {
  if (!given) return defaults;
  if (!some_version(given, given->size)) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("{}: {}.size is {}, expected {}, {}, {} or at least {}: initialise it first", function, argument,
                    given->size, first_size(given), second_size(given), third_size(given), sizeof(Options)));
  }
  Options known = defaults;
  std::memcpy(static_cast<void*>(&known), given, std::min<uint64_t>(given->size, sizeof known));
  return known;
}

template <class Options>
void write_defaults(Options* options, uint64_t size, Options defaults, const char* function) {
  require(options, function, "options");
  constexpr uint64_t most = 4096;  // upper limit for any future version
  if (!some_version(options, size) || size > most) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: size is {}, expected {}, {}, {} or {} to {}", function, size, first_size(options),
                            second_size(options), third_size(options), sizeof(Options), most));
  }
  defaults.size = size;
  std::memset(static_cast<void*>(options), 0, size);
  std::memcpy(static_cast<void*>(options), &defaults, std::min<uint64_t>(size, sizeof defaults));
}

gradloom_runtime_options default_runtime_options() {
  const RuntimeOptions defaults;
  gradloom_runtime_options options{};
  options.size = sizeof options;
  options.cache_bytes = defaults.cache_bytes;
  options.recycle_bytes = defaults.recycle_bytes;
  options.disk_cache_bytes = defaults.disk_cache_bytes;
  options.specialise_after = defaults.specialise_after;
  options.specialisations = defaults.specialisations;
  options.compile_threads = defaults.compile_threads;
  return options;
}

gradloom_run_options default_run_options() {
  gradloom_run_options options{};
  options.size = sizeof options;
  options.outputs_wanted = ~uint32_t{0};
  return options;
}

gradloom_launch_options default_launch_options() {
  gradloom_launch_options options{};
  options.size = sizeof options;
  return options;
}

ParallelFor pool_of(gradloom_parallel_for run, void* context) {
  if (!run) return {};
  return [run, context](int64_t n, const std::function<void(int64_t begin, int64_t end)>& fn) {
    run(
        context, n,
        [](void* env, int64_t begin, int64_t end) {
          (*static_cast<const std::function<void(int64_t, int64_t)>*>(env))(begin, end);
        },
        const_cast<std::function<void(int64_t, int64_t)>*>(&fn));
  };
}

std::optional<Determinism> level_of(int32_t level, const char* function) {
  switch (checked<gradloom_determinism>(level, GRADLOOM_RELAXED, function, "options.determinism")) {
    case GRADLOOM_DETERMINISM_DEFAULT:
      return std::nullopt;
    case GRADLOOM_SEQUENTIAL:
      return Determinism::sequential;
    case GRADLOOM_RUN_TO_RUN:
      return Determinism::run_to_run;
    case GRADLOOM_RELAXED:
      return Determinism::relaxed;
  }
  return std::nullopt;
}

std::optional<Policy> policy_of(int32_t policy, const char* function) {
  switch (checked<gradloom_policy>(policy, GRADLOOM_POLICY_GENERIC_FIRST, function, "options.policy")) {
    case GRADLOOM_POLICY_DEFAULT:
      return std::nullopt;
    case GRADLOOM_POLICY_SPECIALISE:
      return Policy::specialise;
    case GRADLOOM_POLICY_GENERIC_FIRST:
      return Policy::generic_first;
  }
  return std::nullopt;
}

}  // namespace

RuntimeOptions runtime_options(const gradloom_runtime_options* given, const char* function) {
  const gradloom_runtime_options options = known_part(given, default_runtime_options(), function);
  RuntimeOptions made;
  constexpr TargetKind targets[] = {TargetKind::automatic, TargetKind::llvm, TargetKind::interpreter, TargetKind::cuda,
                                    TargetKind::cuda_host};
  made.target = targets[checked<int>(options.target, GRADLOOM_TARGET_CUDA_HOST, function, "options.target")];
  made.threads = options.threads;
  if (options.isa) made.isa = options.isa;
  made.cache_bytes = options.cache_bytes;
  made.recycle_bytes = options.recycle_bytes;
  if (options.dump_folder) made.dump_folder = options.dump_folder;
  if (options.disk_cache) made.disk_cache = options.disk_cache;
  check_count(options.disk_cache_read_only, options.disk_cache_read_only_count, function,
              "options.disk_cache_read_only");
  for (int32_t i = 0; i < options.disk_cache_read_only_count; ++i) {
    require(options.disk_cache_read_only[i], function, fmt::format("options.disk_cache_read_only[{}]", i).c_str());
    made.disk_cache_read_only.emplace_back(options.disk_cache_read_only[i]);
  }
  made.disk_cache_bytes = options.disk_cache_bytes;
  made.policy = policy_of(options.policy, function).value_or(made.policy);
  made.specialise_after = options.specialise_after;
  made.specialisations = options.specialisations;
  made.compile_threads = options.compile_threads;
  made.parallel_for = pool_of(options.parallel_for, options.parallel_for_context);
  made.device = options.device;
  if (options.tuning_log) made.tuning_log = options.tuning_log;
  constexpr Tuning tunings[] = {Tuning::off, Tuning::use, Tuning::background};
  made.tuning = tunings[checked<int>(options.tuning, GRADLOOM_TUNING_BACKGROUND, function, "options.tuning")];
  return made;
}

LaunchOptions launch_options(const gradloom_launch_options* given, const char* function, const char* argument) {
  if (!given) return {};
  const gradloom_launch_options options = known_part(given, default_launch_options(), function, argument);
  LaunchOptions made;
  made.stream = options.stream;
  made.check = checked<int>(options.check, GRADLOOM_CHECK_SYNC, function, fmt::format("{}.check", argument).c_str()) ==
                       GRADLOOM_CHECK_SYNC
                   ? CheckMode::sync
                   : CheckMode::deferred;
  made.parallel_for = pool_of(options.parallel_for, options.parallel_for_context);
  if (options.allocate) {
    made.allocate = [allocate = options.allocate, context = options.allocate_context](std::string_view op, int output,
                                                                                      DType dtype, const Dims& dims) {
      return allocate(context, std::string(op).c_str(), output, dlpack_dtype(dtype), dims.size(), dims.data());
    };
  }
  return made;
}

RunOptions run_options(const gradloom_run_options* given, const char* function) {
  const gradloom_run_options options = known_part(given, default_run_options(), function);
  return {.accumulate = options.accumulate != 0,
          .strategy = options.strategy ? options.strategy : "",
          .any_shape = options.any_shape != 0,
          .determinism = level_of(options.determinism, function),
          .outputs_wanted = options.outputs_wanted,
          .launch = launch_options(options.launch, function, "options.launch"),
          .policy = policy_of(options.policy, function)};
}

}  // namespace gradloom::c_abi

using namespace gradloom;
using namespace gradloom::c_abi;

gradloom_status gradloom_runtime_options_init_sized(gradloom_runtime_options* options, uint64_t size) {
  return entry([&] { write_defaults(options, size, default_runtime_options(), "gradloom_runtime_options_init"); });
}

gradloom_status gradloom_launch_options_init_sized(gradloom_launch_options* options, uint64_t size) {
  return entry([&] { write_defaults(options, size, default_launch_options(), "gradloom_launch_options_init"); });
}

gradloom_status gradloom_run_options_init_sized(gradloom_run_options* options, uint64_t size) {
  return entry([&] { write_defaults(options, size, default_run_options(), "gradloom_run_options_init"); });
}
