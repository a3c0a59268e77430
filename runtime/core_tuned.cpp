// Kernels as the tuning log says, and the measuring that fills it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "codegen/abi.h"
#include "gradloom/refusal.h"
#include "gradloom/schedule.h"
#include "ir/passes/passes.h"
#include "runtime/call.h"
#include "runtime/core.h"
#include "runtime/diagnose/log.h"
#include "runtime/generic_first/generated_call.h"
#include "runtime/tune_call.h"

namespace gradloom {
namespace {

constexpr double background_seconds = 2;

}  // namespace

void Core::require_tunable(const std::string& name) const {
  if (tuning_log_) return;
  throw Error(ErrorCode::unsupported,
              fmt::format("{}: only target llvm is tuned, this runtime's is {}", name, target_name()));
}

std::shared_ptr<const KernelEntry> Core::compile_apart(const BuiltKernel& built, const std::string& name) const {
  auto entry = std::make_shared<KernelEntry>();
  entry->loaded = backend_->compile(built.lowered).kernel;
  entry->sources = built.sources;
  entry->report = std::make_shared<const KernelReport>(KernelReport{.op = name, .target = target_name()});
  return entry;
}

void Core::end_tuning(const KernelKey& key) {
  tuning_runs_.add();
  if (tuning_ != Tuning::off) cache_.forget(key);
}

std::optional<TuningEntry> Core::tuning_entry(const std::string& op, const std::string& nest) const {
  if (tuning_ == Tuning::off || !tuning_log_) return std::nullopt;
  std::optional<TuningEntry> entry = tuning_log_->find(op, nest);
  return entry && entry->adopted() ? std::move(entry) : std::nullopt;
}

std::shared_ptr<KernelEntry> Core::build_tuned(const PlannedCall& call) {
  if (tuning_ == Tuning::off || !may_tune(call)) return nullptr;
  const std::optional<TuningEntry> entry = tuning_entry(tuning_op(call), tuning_call(call));
  if (!entry) return nullptr;
  const Strategy* const strategy = find_serving(call.op, call.plan, entry->best, target_);
  if (!strategy) {
    tuning_log_->ignore(*entry, fmt::format("no strategy {} serves the call", entry->best));
    return nullptr;
  }
  const PlannedCall chosen = call.with(*strategy);
  return build_as(*entry, key_of(call), {.op = call.name(), .strategy = strategy->name, .determinism = strategy->level},
                  [&] {
                    return replay_kernel(chosen, target_, entry->trace, [&](const ir::Kernel& authored) {
                      if (nest_hash(authored) != entry->nest)
                        throw ir::ScheduleRefusal("its nest is not the one that was measured");
                    });
                  });
}

std::shared_ptr<KernelEntry> Core::build_tuned(const ir::Kernel& kernel, std::optional<OpKey> key) {
  const std::optional<TuningEntry> entry =
      tuning_ == Tuning::off ? std::nullopt : tuning_entry(tuning_op(kernel), tuning_call(kernel));
  if (!entry) return nullptr;
  return build_as(*entry, std::move(key), {.op = kernel.name, .strategy = own_strategy}, [&] {
    ir::Schedule schedule(kernel);
    schedule.replay(entry->trace);
    BuiltKernel built{.authored = kernel, .scheduled = schedule.kernel(), .lowered = {}, .sources = {}};
    built.trace = schedule.trace();
    built.lowered = ir::lower(built.scheduled, ir::lowering_for(target_));
    return built;
  });
}

// What the entry says may be refused, as a whole, by whoever wrote it: then the rules choose.
std::shared_ptr<KernelEntry> Core::build_as(const TuningEntry& entry, std::optional<OpKey> key, KernelReport report,
                                            const Replay& replay) {
  const auto start = std::chrono::steady_clock::now();
  const bool own = !entry.op.empty() && find_op(entry.op) == nullptr;
  report.tuned = true;
  std::shared_ptr<KernelEntry> made;
  if (key) key->set_schedule(entry.best, entry.trace);
  if (key && !dumps() && (made = load(*key, false))) {
    KernelReport loaded = *made->report;
    loaded.tuned = true, loaded.determinism = report.determinism;
    made->report = std::make_shared<const KernelReport>(std::move(loaded));
  } else {
    BuiltKernel built;
    try {
      built = replay();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::invalid_argument && !dynamic_cast<const ir::Refusal*>(&error)) throw;
      tuning_log_->ignore(entry, error.what());
      return nullptr;
    }
    dump(report.op, report.strategy, built);
    made = std::make_shared<KernelEntry>();
    made->sources = built.sources;
    report.build_ms = milliseconds_since(start);
    report.pass_ms = built.pass_ms, report.schedule_trace = built.trace;
    const std::optional<ContentId> content = finish(*made, std::move(report), built.lowered, *backend_);
    if (key && content) put_index(*key, *content, *made);
  }
  made->own = own;
  tuned_.add();
  return made;
}

// On one thread, with generated inputs: callers have the others, and what they compute with is theirs.
std::shared_ptr<KernelEntry> Core::tuned_in_background(const PlannedCall& call, const std::function<bool()>& stopped) {
  if (tuning_ != Tuning::background || !tuning_log_ || !may_tune(call) || backend_for(call.op.schema()).runs_authored())
    return nullptr;
  if (tuning_log_->find(tuning_op(call), tuning_call(call))) return nullptr;  // once
  const Threads one_thread(1, nullptr);
  Recycler recycler(int64_t{64} << 20);
  GeneratedCall generated(call, 1);
  TrialSite site;
  for (int v = 0; v < call.plan.views.size(); ++v) {
    const View& view = call.plan.views[v];
    if (!view.output || call.plan.outputs[view.index].internal) continue;
    const GeneratedCall::Bytes bytes = generated.output(0, v);
    // What lies between the elements of a strided output is not written.
    site.written.push_back({bytes.data, bytes.count, call.options.accumulate || call.in_place != 0});
  }
  site.stopped = stopped;
  site.one_thread = true;
  site.launch = [&](const KernelEntry& entry) {
    int64_t scalars[max_scalars];
    fill_scalars(call.plan, entry.sources, scalars);
    return launch(entry, generated.views(0), scalars, {}, one_thread, recycler);
  };
  generated.fill_outputs(0);
  const std::shared_ptr<KernelEntry> own = build(call);
  if (generated.fill_inputs([&](void* const*) { return site.launch(*own); }) != no_bad_position) return nullptr;
  generated.fill_outputs(0);
  const TuneResult result = tune_call(*this, call, std::move(site), {.seconds = background_seconds});
  if (result.bad_position != no_bad_position) return nullptr;
  tuning_runs_.add();
  if (const std::string fault = tuning_log_->add(result.entry); !fault.empty())
    log(LogLevel::warn, "the tuning log {} is not written: {}", tuning_log_->path(), fault);
  log(LogLevel::info, "{}: measured in the background, {} candidates: {}", call.name(), result.report.measured,
      result.report.adopted ? fmt::format("{}, {:.2f} times as fast", fmt::join(result.report.changes, "; "),
                                          result.report.rules.ms / result.report.best.ms)
                            : "the rules' kernel stays");
  return result.report.adopted ? build_tuned(call) : nullptr;
}

}  // namespace gradloom
