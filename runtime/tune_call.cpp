#include "runtime/tune_call.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/abi.h"
#include "gradloom/refusal.h"
#include "gradloom/schedule.h"
#include "gradloom/text.h"
#include "ir/passes/passes.h"
#include "ir/schedule/schedule_default.h"
#include "runtime/cache/op_key.h"
#include "runtime/call.h"

namespace gradloom {
namespace {

// The rules' choice first, then what else serves. The levels below `sequential` fix the bits of each strategy alone: of
// those only the rules' own is varied, and it is no rival of others.
std::vector<Scheduled> starts_of(const PlannedCall& call, const ir::Target& target, const ServingKernel& rules) {
  std::vector<Scheduled> starts{{rules.strategy->name, rules.built.trace}};
  if (rules.strategy->level != Determinism::sequential) return starts;
  for (const Strategy* other : serving_strategies(call.op, call.plan, target)) {
    if (other == rules.strategy || other->level != Determinism::sequential) continue;
    try {
      starts.push_back({other->name, build_kernel(call.with(*other), target).trace});
    } catch (const ir::Refusal&) {  // nor would it serve a call
    }
  }
  return starts;
}

// The search, as a report and an entry. The entry's key and nest are the caller's to add.
TuneResult searched(const std::vector<Scheduled>& starts, CallTrials& trials, std::string name,
                    const TuneOptions& how) {
  TuneResult result{.report = {.op = std::move(name)}, .entry = {}, .bad_position = trials.bad_position()};
  if (result.bad_position != no_bad_position) return result;
  const SearchResult found = search(starts, trials, how.candidates, how.progress);
  TuneReport& report = result.report;
  report.rules = {starts[0].strategy, starts[0].trace, found.rules_ms};
  report.best = {found.best.strategy, found.best.trace, found.ms};
  report.adopted = found.adopted;
  report.changes = found.changes;
  report.measured = found.measured, report.dropped = found.dropped;
  report.wrong = trials.wrong();
  TuningEntry& entry = result.entry;
  entry.rules = report.rules.strategy, entry.rules_ms = found.rules_ms, entry.best_ms = found.ms;
  if (found.adopted) entry.best = found.best.strategy, entry.trace = found.best.trace;
  return result;
}

BuiltKernel replayed(const ir::Kernel& nest, const std::vector<std::string>& trace, const ir::Target& target) {
  BuiltKernel built;
  ir::Schedule schedule(nest);
  schedule.replay(trace);
  built.authored = nest, built.scheduled = schedule.kernel(), built.trace = schedule.trace();
  built.lowered = ir::lower(built.scheduled, ir::lowering_for(target));
  return built;
}

// Launches as a call would: but where the runtime has one thread, on this one, even if it has an embedder's pool.
class Launcher {
 public:
  Launcher(const Core& core, TrialSite& site) : core_(core) { site.one_thread = core.threads().count() == 1; }
  int64_t operator()(const KernelEntry& entry, void* const* buffers, const int64_t* scalars) const {
    const Threads& threads = core_.threads().count() == 1 ? this_thread_ : core_.threads();
    return core_.launch(entry, buffers, scalars, {}, threads, *core_.recycler());
  }

 private:
  const Core& core_;
  const Threads this_thread_{1, nullptr};
};

// Adds the result to the log.
TuneReport kept(Core& core, TuneResult&& result, const std::string& name) {
  if (const std::string fault = core.tuning_log().add(result.entry); !fault.empty())
    throw Error(ErrorCode::resource_exhausted,
                fmt::format("{}: the tuning log {} cannot be written: {}", name, core.tuning_log().path(), fault));
  result.report.log = core.tuning_log().path();
  return std::move(result.report);
}

}  // namespace

std::string nest_hash(const ir::Kernel& nest) { return to_hex(hash128(ir::print(nest))); }

std::string tuning_op(const PlannedCall& call) {
  return (find_op(call.name()) == &call.op ? "" : "own ") + call.name();
}
std::string tuning_call(const PlannedCall& call) {
  const OpKey key(call, "", "");
  std::string text;
  for (const KeyPart part : {KeyPart::dims, KeyPart::strides, KeyPart::dtypes, KeyPart::attributes, KeyPart::options})
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", to_string(part), key.part(part));
  return text;
}
std::string tuning_op(const ir::Kernel& nest) { return "kernel " + printable(nest.name); }
std::string tuning_call(const ir::Kernel& nest) { return "nest " + nest_hash(nest); }

TuneResult tune_call(const Core& core, const PlannedCall& call, TrialSite site, const TuneOptions& how) {
  const ir::Target& target = core.target();
  const ServingKernel rules = build_serving(call, target);
  const auto with = [&](const std::string& strategy) { return call.with(find_strategy(call.op, strategy)); };
  site.name = call.name();
  site.build = [&](const Scheduled& kernel) { return replay_kernel(with(kernel.strategy), target, kernel.trace); };
  CallTrials trials(core, std::move(site), rules.built, how.seconds);
  TuneResult result = searched(starts_of(call, target, rules), trials, call.name(), how);
  TuningEntry& entry = result.entry;
  entry.op = tuning_op(call), entry.call = tuning_call(call), entry.machine = core.tuning_log().machine();
  if (entry.adopted()) entry.nest = nest_hash(author_kernel(with(entry.best), target).authored);
  return result;
}

TuneResult tune_nest(const Core& core, const ir::Kernel& nest, TrialSite site, const TuneOptions& how) {
  const ir::Target& target = core.target();
  const std::vector<std::string> trace = ir::schedule_default(nest, target).trace;
  site.name = nest.name;
  site.build = [&](const Scheduled& kernel) { return replayed(nest, kernel.trace, target); };
  CallTrials trials(core, std::move(site), replayed(nest, trace, target), how.seconds);
  TuneResult result = searched({{own_strategy, trace}}, trials, nest.name, how);
  TuningEntry& entry = result.entry;
  entry.op = tuning_op(nest), entry.call = tuning_call(nest), entry.machine = core.tuning_log().machine();
  if (entry.adopted()) entry.nest = nest_hash(nest);
  return result;
}

TuneReport tune(Core& core, const Op& op, std::span<const Tensor> inputs, const Attributes& attributes,
                const RunOptions& options, const TuneOptions& how) {
  const OpSchema& schema = op.schema();
  core.require_tunable(schema.name);
  if (!options.strategy.empty() || options.any_shape)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: a call that names its strategy or wants the kernel of every shape is not tuned",
                            op.schema().name));
  const InputArguments in = input_arguments(schema, inputs);
  check_devices(schema, -1, span_of(in), {});
  const Operands operands(schema, span_of(in));
  const uint32_t wanted = options.outputs_wanted & schema_outputs(schema);
  const Request request = operands.request(attributes, wanted, options.accumulate, core.level(options));
  const Plan plan = op.check(request);
  const PlannedCall call{
      op, plan, choose_strategy(op, plan, options, core.target()), options, wanted, aligned_outputs, &request};
  std::vector<Tensor> made = make_outputs(core, -1, schema, plan, wanted, {});
  TrialSite site;
  for (const Tensor& output : made) {
    if (!output.present()) continue;
    const int64_t bytes = output.end_byte() - output.begin_byte();
    if (options.accumulate) std::fill_n(static_cast<char*>(output.data()), bytes, '\0');
    site.written.push_back({static_cast<char*>(output.data()), bytes, options.accumulate});
  }
  const OutputArguments out = output_arguments(schema, made);
  const CallBuffers buffers(core, -1, plan, span_of(in), span_of(out), {});
  const Launcher launcher(core, site);
  site.launch = [&](const KernelEntry& entry) {
    int64_t scalars[max_scalars];
    fill_scalars(plan, entry.sources, scalars);
    return launcher(entry, buffers.views, scalars);
  };
  TuneResult result = tune_call(core, call, std::move(site), how);
  if (result.bad_position != no_bad_position) throw explain(core, op, request, plan, result.bad_position, span_of(in));
  TuneReport report = kept(core, std::move(result), schema.name);
  core.end_tuning(KernelKey(call));
  return report;
}

TuneReport tune(Core& core, const ir::Kernel& nest, std::span<const Tensor> buffers, std::span<const int64_t> slots,
                const TuneOptions& how) {
  std::vector<void*> data;
  TrialSite site;
  for (size_t i = 0; i < buffers.size(); ++i) {
    data.push_back(buffers[i].data());
    const ir::Role role = nest.buffers[i]->role;
    if (role == ir::Role::in) continue;
    // What lies between the elements of a strided buffer is not the kernel's to write.
    site.written.push_back({const_cast<char*>(buffers[i].begin_byte()), buffers[i].end_byte() - buffers[i].begin_byte(),
                            role == ir::Role::inout || !buffers[i].dense()});
  }
  const Launcher launcher(core, site);
  site.launch = [&](const KernelEntry& entry) { return launcher(entry, data.data(), slots.data()); };
  TuneResult result = tune_nest(core, nest, std::move(site), how);
  if (result.bad_position != no_bad_position)
    throw Error(ErrorCode::out_of_range,
                fmt::format("kernel {}: a check failed at position {}", nest.name, result.bad_position));
  TuneReport report = kept(core, std::move(result), nest.name);
  core.end_tuning(KernelKey(ir::print(nest), {}));
  return report;
}

}  // namespace gradloom
