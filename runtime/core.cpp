#include "runtime/core.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "gradloom/refusal.h"
#include "gradloom/text.h"
#include "runtime/cache/saved_call.h"
#include "runtime/diagnose/dump.h"
#include "runtime/diagnose/log.h"
#include "support/per_thread.h"
#include "support/stack.h"

namespace gradloom {
namespace {

// Empty: none.
std::string cache_folder(const RuntimeOptions& options) {
  if (options.disk_cache == "off") return "";
  return options.disk_cache.empty() ? default_cache_folder() : options.disk_cache;
}

// None if the backend stores no code, or if the cache is off.
std::unique_ptr<KernelStore> open_store(const RuntimeOptions& options, const std::string& folder,
                                        const BackendToolchain& toolchain, const ir::Target& target) {
  if (options.disk_cache == "off" || toolchain.compiler.empty()) return nullptr;
  const std::vector<std::string> read_only =
      options.disk_cache_read_only.empty() ? default_read_only_folders() : options.disk_cache_read_only;
  if (folder.empty() && read_only.empty()) return nullptr;
  auto store = std::make_unique<KernelStore>(DiskCacheOptions{folder, read_only, options.disk_cache_bytes},
                                             toolchain_text(toolchain.compiler),
                                             target_text(target, toolchain.features), toolchain.features);
  return store->usable() ? std::move(store) : nullptr;
}

// None for a target that is not tuned.
std::unique_ptr<TuningLog> open_tuning_log(const RuntimeOptions& options, const std::string& folder,
                                           const Backend& backend, const ir::Target& target) {
  const BackendToolchain toolchain = backend.toolchain();
  if (target.gpu || backend.runs_authored() || toolchain.features.empty()) return nullptr;
  return std::make_unique<TuningLog>(tuning_log_path(options.tuning_log, folder),
                                     machine_text(target, toolchain.features, toolchain.cpu));
}

// Which strategy makes the call's kernel, and why.
void log_choice(const PlannedCall& call, const ir::Target& target) {
  std::vector<std::string> served, other;
  const auto serving = serving_strategies(call.op, call.plan, target, call.any_shape());
  for (const Strategy* one : serving) served.push_back(one->name);
  for (const Strategy& one : call.op.strategies())
    if (std::find(served.begin(), served.end(), one.name) == served.end()) other.push_back(one.name);
  log(LogLevel::debug, "{}: strategy {}{}; serving, the preferred first: {}; not serving: {}", call.name(),
      call.strategy.name, call.options.strategy.empty() ? "" : ", named by the caller", fmt::join(served, ", "),
      other.empty() ? "none" : fmt::format("{}", fmt::join(other, ", ")));
}

constexpr size_t most_used_calls = 10000;

uint64_t next_id() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

// The last call of this thread, on any Runtime.
struct LastCall {
  uint64_t core = 0;
  std::shared_ptr<const KernelReport> report;
  bool compiled = false;
  KernelReport told;  // storage for last_report's result
};

}  // namespace

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

Core::Core(RuntimeOptions options)
    : id_(next_id()),
      backend_(open_backend(options)),
      interpreter_(open_interpreter()),
      threads_(options.threads, std::move(options.parallel_for)),
      target_(backend_->target()),
      recycler_(Recycler::make(options.recycle_bytes)),
      cache_(options.cache_bytes),
      dump_folder_(dump_folder(options.dump_folder)),
      toolchain_(options.disk_cache == "off" ? BackendToolchain{} : backend_->toolchain()),
      policy_(options.policy),
      tuning_(options.tuning),
      specialiser_(*this, options) {
  log_level();  // a misspelt GRADLOOM_LOG is reported now
  target_.threads = threads_.count();
  const std::string folder = cache_folder(options);
  store_ = open_store(options, folder, toolchain_, target_);
  tuning_log_ = open_tuning_log(options, folder, *backend_, target_);
}

Stats Core::stats() const {
  Stats stats;
  cache_.add_to(stats);
  specialiser_.add_to(stats);
  if (store_) store_->add_to(stats);
  stats.launches = launches_.total();
  stats.interpreter_launches = interpreter_launches_.total();
  std::lock_guard lock(mutex_);
  stats.compiles = compiles_;
  stats.interpreted = interpreted_;
  stats.strategies_refused = strategies_refused_;
  stats.tuned = tuned_.total();
  stats.tuning_runs = tuning_runs_.total();
  if (tuning_log_) stats.tuning_ignored = tuning_log_->ignored();
  stats.compile_ms = compile_ms_;
  stats.build_ms = build_ms_;
  stats.stages = stages_;
  stats.load_ms = load_ms_;
  stats.abandoned_compiles = backend_->abandoned_compiles();
  return stats;
}

// False, with a line in the log, when the code does not load: a miss.
bool Core::load_code(KernelEntry& entry, const KernelRecord& record) {
  try {
    const auto start = std::chrono::steady_clock::now();
    entry.loaded = backend_->load(record.kernel_name, record.code);
    entry.from_disk = true;
    store_->hit();
    std::lock_guard lock(mutex_);
    load_ms_ += milliseconds_since(start);
    return true;
  } catch (const Error& error) {
    // Nor memory nor the permission to execute it is a matter of the file.
    if (error.code() == ErrorCode::resource_exhausted || error.code() == ErrorCode::unsupported) throw;
    store_->reject(record, error.what());
  }
  return false;
}

std::shared_ptr<KernelEntry> Core::load(const OpKey& key, bool any_shape) {
  std::optional<KernelStore::Found> found = store_->find(key);
  auto entry = std::make_shared<KernelEntry>();
  if (!found || !load_code(*entry, found->kernel)) return nullptr;
  entry->sources = std::move(found->index.sources);
  KernelReport report{.op = std::move(found->index.op),
                      .strategy = std::move(found->index.strategy),
                      .target = target_name(),
                      .from_disk = true,
                      .any_shape = any_shape};
  report.schedule_trace = std::move(found->index.schedule_trace);
  entry->report = std::make_shared<const KernelReport>(std::move(report));
  return entry;
}

const Backend& Core::backend_for(const OpSchema& schema) const {
  return device_for(schema) == backend_->device() ? *backend_ : *interpreter_;
}

std::optional<ContentId> Core::finish(KernelEntry& entry, KernelReport report, const ir::Kernel& kernel,
                                      const Backend& backend) {
  report.target = target_name();
  std::optional<ContentId> content;
  std::string key;
  const bool kept = store_ && &backend == backend_.get();
  if (kept) {
    key = store_->key_of(ir::print(kernel));
    content = content_id(key);
    if (const std::optional<KernelRecord> record = store_->find(key)) report.from_disk = load_code(entry, *record);
  }
  if (!report.from_disk) {
    CompiledCode compiled = backend.compile(kernel);
    entry.loaded = std::move(compiled.kernel);
    report.compile_ms = compiled.ms;
    report.stages = compiled.stages;
    if (kept)
      store_->put(
          KernelRecord{std::move(key), kernel.name, toolchain_.cpu, std::move(compiled.code), report.compile_ms});
  }
  report.compiled = !report.from_disk;
  std::lock_guard lock(mutex_);
  compiles_ += report.compiled;
  interpreted_ += entry.loaded->interpreted();
  build_ms_ += report.build_ms;
  compile_ms_ += report.compile_ms;
  stages_ += report.stages;
  entry.report = std::make_shared<const KernelReport>(std::move(report));
  return content;
}

void Core::dump(std::string_view op, std::string_view strategy, const BuiltKernel& built) const noexcept {
  if (!dumps()) return;
  try {
    std::vector<DumpFile> files{{"authored.loop", ir::print(built.authored)}};
    if (!interprets() && built.lowered.body) {  // otherwise the interpreter runs the authored nest
      files.push_back({"scheduled.loop", ir::print(built.scheduled)});
      files.push_back({"lowered.loop", ir::print(built.lowered)});
      for (DumpFile& file : backend_->texts(built.lowered)) files.push_back(std::move(file));
    }
    write_dump(dump_folder_, dump_stem(op, strategy, built.authored, files), files);
  } catch (const std::exception& failure) {
    log(LogLevel::warn, "dump: {} is not written: {}", op, failure.what());
  }
}

std::shared_ptr<KernelEntry> Core::build(const PlannedCall& call) {
  const auto start = std::chrono::steady_clock::now();
  std::shared_ptr<KernelEntry> entry = build_or_load(call);
  log_made(*entry, milliseconds_since(start));
  return entry;
}

// An embedder's op is looked up by content alone: its builds cannot be distinguished.
std::optional<OpKey> Core::key_of(const PlannedCall& call) const {
  if (!store_ || backend_for(call.op.schema()).runs_authored() || find_op(call.name()) != &call.op) return std::nullopt;
  return OpKey(call, store_->target(), store_->toolchain());
}

std::shared_ptr<KernelEntry> Core::build_or_load(const PlannedCall& call) {
  if (logs(LogLevel::debug)) log_choice(call, target_);
  const Backend& backend = backend_for(call.op.schema());
  const bool interpreted = backend.runs_authored();
  if (std::shared_ptr<KernelEntry> tuned = build_tuned(call)) return tuned;
  const std::optional<OpKey> key = key_of(call);
  if (key && !dumps()) {
    if (std::shared_ptr<KernelEntry> entry = load(*key, call.options.any_shape)) return entry;
  }
  auto entry = std::make_shared<KernelEntry>();
  entry->own = find_op(call.name()) != &call.op;
  std::optional<ContentId> content;
  const auto use = [&](const BuiltKernel& built, const Strategy& used) {
    dump(call.name(), used.name, built);
    entry->sources = built.sources;
    content = finish(*entry,
                     {.op = call.name(),
                      .strategy = used.name,
                      .determinism = used.level,
                      .any_shape = call.options.any_shape,
                      .build_ms = built.ms,
                      .pass_ms = built.pass_ms,
                      .schedule_trace = built.trace},
                     interpreted ? built.authored : built.lowered, backend);
  };
  if (interpreted) {
    use(author_kernel(call, target_), call.strategy);
  } else {
    build_for(call, use);
  }
  if (key && content) put_index(*key, *content, *entry);
  return entry;
}

void Core::put_index(const OpKey& key, const ContentId& content, const KernelEntry& entry) {
  const KernelReport& report = *entry.report;
  store_->put(IndexRecord{key.text(), content, entry.sources, report.op, report.strategy, report.build_ms,
                          report.schedule_trace});
}

// One line a kernel that is not in memory.
void Core::log_made(const KernelEntry& entry, double ms) const {
  const KernelReport& r = *entry.report;
  log(LogLevel::info, "{} {}{}: {} in {:.2f} ms (nest {:.2f}, code {:.2f}); memory cache: miss, disk cache: {}", r.op,
      r.strategy, r.any_shape ? " for any shape" : "",
      r.from_disk                   ? "loaded"
      : entry.loaded->interpreted() ? "made for the interpreter"
                                    : "compiled",
      ms, r.build_ms, r.compile_ms,
      !store_       ? "off"
      : r.from_disk ? "hit"
                    : "miss");
}

void Core::build_for(const PlannedCall& call, const Finish& finish) {
  if (!call.options.strategy.empty()) {
    try {
      return finish(build_kernel(call, target_), call.strategy);
    } catch (const ir::Refusal& refusal) {
      throw Error(ErrorCode::unsupported, fmt::format("{}: strategy \"{}\" is refused for this call: {}", call.name(),
                                                      call.strategy.name, refusal.what()));
    }
  }
  const ServingKernel serving = build_serving(call, target_, finish);
  for (const GaveWay& one : serving.gave_way)
    log(LogLevel::warn, "{}: strategy {} is refused, {}{} serves: {}", call.name(), one.strategy,
        serving.strategy->name, serving.plain ? " without its schedule" : "", one.why);
  std::lock_guard lock(mutex_);
  strategies_refused_ += static_cast<int64_t>(serving.gave_way.size());
}

void Core::done(const KernelHandle& entry, bool built) {
  LastCall& last_call = per_thread<LastCall>();
  last_call.core = id_;
  last_call.compiled = built && entry->report->compiled;
  if (last_call.report != entry->report) last_call.report = entry->report;
}

void Core::done(const PlannedCall& call, const KernelHandle& entry, bool built) {
  done(entry, built);
  if (!built || !call.request || entry->own || call.in_place) return;  // a saved call has no strides of outputs
  const uint64_t hash = KernelKey(call).hash();
  std::lock_guard lock(mutex_);
  if (used_calls_.size() < most_used_calls) used_calls_.insert_or_assign(hash, save_call(call_key(call)));
}

KernelHandle Core::kernel_for(const PlannedCall& call) {
  bool built = false;
  const KernelKey key = key_in_memory(call);
  const int64_t stack_bytes = interprets() ? interpreter_stack_bytes : compiler_stack_bytes;
  // Before others may wait for this thread's build, and for its error.
  KernelHandle entry;
  if (!stack_suffices(stack_bytes) && !(entry = cache_.find(key))) require_stack(stack_bytes, call.name());
  if (!entry) {
    entry = cache_.get(
        key, [&] { return build(call); }, built);
  }
  require_named(call, *entry);
  done(call, entry, built);
  return entry;
}

// A fallback's kernel is cached under the name of the strategy that was chosen.
void Core::require_named(const PlannedCall& call, const KernelEntry& entry) const {
  if (call.options.strategy.empty() || entry.report->strategy == call.strategy.name) return;
  throw Error(ErrorCode::unsupported, fmt::format("{}: strategy \"{}\" is refused for this call, which {} serves",
                                                  call.name(), call.strategy.name, entry.report->strategy));
}

bool Core::generic_first(const PlannedCall& call) const {
  return !target_.gpu && call.options.policy.value_or(policy_) == Policy::generic_first && !call.options.any_shape;
}

KernelHandle Core::kernel_by_policy(const PlannedCall& call, KeptKernels& kept) {
  if (generic_first(call)) {
    KernelHandle entry = specialiser_.kernel_for(call, kept);
    if (entry->report->tuned && !call.options.strategy.empty()) {  // others' of this key
      entry = kernel_for(call);
      kept = {};
    }
    require_named(call, *entry);
    return entry;
  }
  const uint64_t generation = cache_.generation();
  KernelHandle entry = kernel_for(call);
  kept.own = {entry, generation};
  return entry;
}

KernelHandle Core::kept_kernel(const PlannedCall& call, const KeptKernels& kept) {
  if (generic_first(call)) return specialiser_.kept_kernel(call, kept);
  KernelHandle entry = cache_.find_kept(kept.own);
  if (entry) done(call, entry, false);
  return entry;
}

std::vector<CallKey> Core::used_calls() const {
  std::lock_guard lock(mutex_);
  std::vector<CallKey> calls;
  for (const auto& [hash, call] : used_calls_) calls.push_back(load_call(call));
  return calls;
}

const KernelReport& Core::last_report() const {
  LastCall& last_call = per_thread<LastCall>();
  last_call.told = last_call.core == id_ && last_call.report ? *last_call.report : KernelReport{};
  last_call.told.compiled = last_call.core == id_ && last_call.compiled;
  return last_call.told;
}

int64_t Core::launch(const KernelEntry& entry, void* const* buffers, const int64_t* scalars,
                     const LaunchOptions& options, const Threads& threads, Recycler& recycler) const {
  launches_.add();
  if (entry.loaded->interpreted()) interpreter_launches_.add();
  return entry.loaded->launch(buffers, scalars, {options, threads, recycler, entry.report->op, entry.own});
}

}  // namespace gradloom
