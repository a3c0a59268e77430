// Compares two kernels of one call on generated inputs.
#include <fmt/format.h>

#include <cstring>

#include "codegen/abi.h"
#include "runtime/generic_first/generated_call.h"
#include "runtime/generic_first/specialise.h"
#include "runtime/memory/recycler.h"
#include "runtime/threads/threads.h"

namespace gradloom {

std::optional<std::string> different_results(const KernelSource& source, const KernelEntry& own,
                                             const KernelEntry& generic, const PlannedCall& call) {
  const Plan& plan = call.plan;
  const Threads one_thread(1, nullptr);
  Recycler recycler(0);
  GeneratedCall generated(call, 2);
  const auto launch = [&](int set, const KernelEntry& entry) {
    generated.fill_outputs(set);
    int64_t scalars[max_scalars];
    fill_scalars(plan, entry.sources, scalars);
    return source.launch(entry, generated.views(set), scalars, {}, one_thread, recycler);
  };
  const int64_t bad_position = generated.fill_inputs([&](void* const*) { return launch(0, generic); });
  const int64_t own_position = launch(1, own);
  if (own_position != bad_position)
    return fmt::format("its Check failed at {}, the other's at {}", own_position, bad_position);
  if (bad_position != no_bad_position) return std::nullopt;  // outputs are unspecified
  for (int v = 0; v < plan.views.size(); ++v) {
    const View& view = plan.views[v];
    if (!view.output || plan.outputs[view.index].internal) continue;
    const GeneratedCall::Bytes a = generated.output(0, v), b = generated.output(1, v);
    if (a.count > 0 && std::memcmp(a.data, b.data, static_cast<size_t>(a.count)) != 0)
      return fmt::format("output {} differs on generated inputs", view.index);
  }
  return std::nullopt;
}

}  // namespace gradloom
