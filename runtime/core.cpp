#include "runtime/core.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>

#include "ir/gpu_form.h"
#include "ir/interpret.h"
#include "ir/passes/passes.h"
#include "ir/print.h"
#include "ir/schedule_gpu.h"
#include "ir/verify.h"
#include "runtime/dump.h"
#include "runtime/log.h"

namespace gradloom {
namespace {

bool choose_interpreter(TargetKind kind) {
  if (is_gpu(kind)) return false;
#ifdef GRADLOOM_WITH_LLVM
  return kind == TargetKind::interpreter;
#else
  if (kind == TargetKind::llvm) throw Error(ErrorCode::unsupported, "target llvm: this build has no LLVM; available: interpreter");
  return true;
#endif
}

codegen::Isa choose_isa([[maybe_unused]] const std::string& name) {
#ifdef GRADLOOM_WITH_LLVM
  codegen::Isa isa = name == "host" ? codegen::host_isa() : codegen::isa_named(name);
  if (!codegen::runs_here(isa)) throw Error(ErrorCode::unsupported, fmt::format("isa {} does not run on this machine, which has {}", name, codegen::host_isa().target.name));
  return isa;
#else
  return {};
#endif
}

// What generated code calls back through.
struct Launch {
  LaunchContext context;
  const Threads& threads;
  Recycler& recycler;
  std::exception_ptr failure;  // of the embedder's pool; nothing may be thrown through generated code

  static Launch& of(LaunchContext* context) { return *static_cast<Launch*>(context->owner); }
};


void parallel_for(LaunchContext* context, int64_t n, void (*fn)(void* env, int64_t begin, int64_t end), void* env) {
  Launch& launch = Launch::of(context);
  try {
    launch.threads.parallel_for(n, fn, env);
  } catch (...) {
    static std::mutex mutex;  // regions may nest, so several may fail at once
    std::lock_guard lock(mutex);
    launch.failure = std::current_exception();
  }
}

void* acquire_scratch(LaunchContext* context, int64_t bytes) { return Launch::of(context).recycler.try_allocate(std::max<int64_t>(bytes, 1)); }

void release_scratch(LaunchContext* context, void* data, int64_t bytes) { Launch::of(context).recycler.release(data, std::max<int64_t>(bytes, 1)); }


// A user's nest may come without a schedule: a GPU has one for every nest.
ir::Kernel lower_own(const ir::Kernel& kernel, const ir::Target& target) {
  if (!target.gpu || ir::is_gpu(kernel)) return ir::lower(kernel, {.gpu = target.gpu, .shared_bytes = target.shared_bytes});
  ir::Schedule schedule(kernel);
  ir::schedule_gpu(schedule, target);
  return ir::lower(schedule.kernel(), {.gpu = true, .shared_bytes = target.shared_bytes});
}

uint64_t next_id() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

// The last call of this thread, whichever Runtime it was on.
struct LastCall {
  uint64_t core = 0;
  std::shared_ptr<const KernelReport> report;
  bool compiled = false;
};
thread_local LastCall last_call;

}  // namespace

Core::Core(RuntimeOptions options)
    : id_(next_id()),
      interprets_(choose_interpreter(options.target)),
      gpu_(open_gpu(options)),
      isa_(interprets_ || gpu_ ? codegen::Isa{} : choose_isa(options.isa)),
      threads_(options.threads, std::move(options.parallel_for)),
      recycler_(std::make_shared<Recycler>(options.recycle_bytes)),
      cache_(options.cache_bytes),
      dump_folder_(dump_folder(options.dump_folder)) {
  if (!interprets_) target_ = gpu_ ? gpu_->target() : isa_.target;
  target_.threads = threads_.count();
}

std::string Core::target_name() const { return interprets_ ? "interpreter" : gpu_ ? gpu_->name() : "llvm " + target_.name; }

Stats Core::stats() const {
  Stats stats;
  cache_.add_to(stats);
  stats.launches = launches_.total();
  std::lock_guard lock(mutex_);
  stats.compiles = compiles_;
  stats.compile_ms = compile_ms_;
  stats.stages = stages_;
  return stats;
}

void Core::finish(KernelEntry& entry, KernelReport report, const ir::Kernel& lowered, bool interpreted) {
  report.target = target_name();
  report.compiled = true;
  if (interpreted) {
    entry.kernel = lowered;
  } else if (gpu_) {
    entry.gpu = gpu_->load(lowered, report.compile_ms);
    entry.code_bytes = entry.gpu->code_bytes();
  } else {
#ifdef GRADLOOM_WITH_LLVM
    codegen::CompiledKernel compiled = codegen::compile(lowered, isa_);
    entry.function = compiled.function;
    entry.code_bytes = compiled.code_bytes;
    entry.code = std::move(compiled.code);
    report.compile_ms = compiled.times.total();
    report.stages = {compiled.times.emit_ms, compiled.times.optimize_ms, compiled.times.codegen_ms, compiled.times.link_ms};
#endif
  }
  std::lock_guard lock(mutex_);
  ++compiles_;
  compile_ms_ += report.compile_ms;
  stages_ += report.stages;
  entry.report = std::make_shared<const KernelReport>(std::move(report));
}

void Core::dump(std::string_view op, std::string_view strategy, const BuiltKernel& built) const noexcept {
  if (dump_folder_.empty()) return;
  try {
    std::vector<DumpFile> files{{"authored.loop", ir::print(built.authored)}};
    if (!interprets_ && built.lowered.body) {  // else the interpreter runs what was authored
      files.push_back({"scheduled.loop", ir::print(built.scheduled)});
      files.push_back({"lowered.loop", ir::print(built.lowered)});
      if (gpu_) files.push_back({"cu", gpu_->text(built.lowered)});
#ifdef GRADLOOM_WITH_LLVM
      if (!gpu_) files.push_back({"ll", codegen::emit_llvm(built.lowered, isa_, /*optimized=*/true)});
      if (!gpu_) files.push_back({"s", codegen::emit_assembly(built.lowered, isa_)});
#endif
    }
    write_dump(dump_folder_, dump_stem(op, strategy, built.authored, files), files);
  } catch (const std::exception& failure) {
    log(LogLevel::warn, "dump: {} is not written: {}", op, failure.what());
  }
}

std::shared_ptr<KernelEntry> Core::build(const Op& op, const Plan& plan, const std::string& strategy, const RunOptions& options, int64_t output_alignment) {
  // The interpreter runs the definition itself; so does a device's host, for the small tensors that are the host's.
  const bool interpreted = interprets_ || (gpu_ && device_for(op.schema()) != gpu_->device());
  BuiltKernel built = interpreted ? author_kernel(op, plan, strategy, target_, options.any_shape, output_alignment, options.accumulate)
                                  : build_kernel(op, plan, strategy, target_, options.any_shape, output_alignment, options.accumulate);
  auto entry = std::make_shared<KernelEntry>();
  dump(op.schema().name, strategy, built);
  entry->sources = std::move(built.sources);
  finish(*entry, {.op = op.schema().name, .strategy = strategy, .build_ms = built.ms, .schedule_trace = std::move(built.trace)},
         interpreted ? built.authored : built.lowered, interpreted);
  return entry;
}

std::shared_ptr<KernelEntry> Core::build_own(const ir::Kernel& kernel) {
  const auto start = std::chrono::steady_clock::now();
  try {
    ir::verify(kernel, ir::Stage::authored);
  } catch (const Error&) {
    ir::verify(kernel, ir::Stage::scheduled);  // its error counts
  }
  const ir::Kernel lowered = interprets_ ? kernel : lower_own(kernel, target_);
  dump(kernel.name, "own", {.authored = kernel, .scheduled = kernel, .lowered = lowered, .sources = {}, .trace = {}});
  auto entry = std::make_shared<KernelEntry>();
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  finish(*entry, {.op = kernel.name, .strategy = "own", .build_ms = ms}, lowered, interprets_);
  return entry;
}

KernelHandle Core::kernel_for(const Op& op, const Plan& plan, const std::string& strategy, const RunOptions& options, uint32_t outputs_wanted,
                              int64_t output_alignment) {
  const KernelKey key(op, plan, strategy, options, outputs_wanted, output_alignment);
  bool built = false;
  KernelHandle entry = cache_.get(key, [&] { return build(op, plan, strategy, options, output_alignment); }, built);
  last_call.core = id_;
  last_call.compiled = built;
  if (last_call.report != entry->report) last_call.report = entry->report;
  return entry;
}

const KernelReport& Core::last_report() const {
  thread_local KernelReport report;
  report = last_call.core == id_ && last_call.report ? *last_call.report : KernelReport{};
  report.compiled = last_call.core == id_ && last_call.compiled;
  return report;
}

int64_t Core::launch(const KernelEntry& entry, void* const* buffers, const int64_t* scalars, const LaunchOptions& options) const {
  launches_.add();
  if (entry.gpu) return entry.gpu->launch(buffers, scalars, options);
  if (!entry.function) {
    return ir::interpret(entry.kernel, {buffers, entry.kernel.buffers.size()}, {scalars, entry.kernel.scalars.size()}).bad_position;
  }
  Launch launch{.context = {.parallel_for = parallel_for, .acquire_scratch = acquire_scratch, .release_scratch = release_scratch},
                .threads = threads_,
                .recycler = *recycler_,
                .failure = {}};
  launch.context.owner = &launch;
  entry.function(&launch.context, buffers, scalars);
  if (launch.failure) {
    try {
      std::rethrow_exception(launch.failure);
    } catch (const std::exception& error) {
      throw Error(ErrorCode::internal, fmt::format("{}: the pool that runs parallel loops threw: {}", entry.report->op, error.what()));
    } catch (...) {
      throw Error(ErrorCode::internal, fmt::format("{}: the pool that runs parallel loops threw", entry.report->op));
    }
  }
  if (launch.context.out_of_scratch) throw Error(ErrorCode::resource_exhausted, fmt::format("{}: no memory for the kernel's scratch", entry.report->op));
  return launch.context.bad_position;
}

}  // namespace gradloom
