// Proofs of earlier steps must stay valid: reruns the verifier's checks on the loops that a step can have changed.
#include "ir/analysis/races.h"
#include "ir/analysis/verify.h"
#include "ir/analysis/widenable.h"
#include "ir/rewrite.h"
#include "ir/schedule/site.h"

namespace gradloom::ir {

void require_proved(const std::string& step, const Site& site, const Kernel& before, const Kernel& changed,
                    const Stmt& to) {
  const auto refuse_unproved = [&](const std::string& why) {
    verify(before, Stage::scheduled);  // an error that existed before the step is not a refusal of it
    refuse(step, site.name(), why);
  };
  const auto prove = [&](const For& old) {
    if (!any_order(old.kind) && !in_lanes(old.kind)) return;
    const bool parallel = any_order(old.kind);
    const Site again = find_loop(changed, old.var.id);
    std::string why =
        parallel ? loop_carried_conflict(*again.loop, again.scope) : lane_order_conflict(*again.loop, again.scope);
    if (why.empty() && !parallel) why = not_widenable(*again.loop);
    if (!why.empty())
      refuse_unproved(std::string("the ") + to_string(old.kind) + " loop " + old.var.name +
                      " would not be proved any more: " + why);
  };
  for (const Stmt& s : site.path)
    if (const For* around = s.as<For>(); around && around != site.loop) prove(*around);
  for (const For* below : loops_below(to)) prove(*below);
  if (!has_variable_divisor(to)) return;
  try {
    verify(changed, Stage::scheduled);
  } catch (const Error& error) {
    refuse_unproved(error.what());
  }
}

}  // namespace gradloom::ir
