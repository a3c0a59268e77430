#pragma once
// The implementations of an op. Each is an entry in the op's table: a name that identifies one nest, its determinism
// level, when it applies, and how its nest is written and scheduled.
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradloom/schedule.h"
#include "gradloom/target.h"

#pragma GCC visibility push(default)
namespace gradloom {

class KernelFrame;
class Op;
struct Plan;

// Suitability of a strategy for a call: not applicable; only as a fallback; preferred.
enum class Fit : uint8_t { none, possible, preferred };

// Schedules an authored nest for the target that it was written for. It refers to the nest's loops by their handles.
// Absent: the nest runs unscheduled; on a GPU the default schedule applies, which takes any nest.
using ScheduleNest = std::function<void(ir::Schedule&)>;

struct Strategy {
  std::string name = {};
  Determinism level = Determinism::sequential;
  // A call of these views, or, with `any_shape`, every call of their rank. Absent: any, preferred.
  std::function<Fit(const Plan& plan, const ir::Target& target, bool any_shape)> fit = {};
  // Writes the authored nest (serial, scalar) into frame.builder. The returned function is called, if at all, while
  // frame, plan and target are alive.
  std::function<ScheduleNest(KernelFrame& frame, const ir::Target& target)> author = {};
};

// The strategy to use for a call: `wanted` or, where that is empty, the first preferred one, else the first applicable
// one. Throws Error(invalid_argument), listing those that apply, when `wanted` is not among them.
const Strategy& choose_strategy(const Op& op, const Plan& plan, std::string_view wanted, const ir::Target& target,
                                bool any_shape = false);
// The same, or null.
const Strategy* find_serving(const Op& op, const Plan& plan, std::string_view wanted, const ir::Target& target,
                             bool any_shape = false);
// All that serve a call, in order of use.
std::vector<const Strategy*> serving_strategies(const Op& op, const Plan& plan, const ir::Target& target,
                                                bool any_shape = false);
// The same by name.
std::vector<std::string> serving_names(const Op& op, const Plan& plan, const ir::Target& target,
                                       bool any_shape = false);
// By name; throws Error(invalid_argument) when the op has none.
const Strategy& find_strategy(const Op& op, std::string_view name);

// A nest as an object: `write` builds it, and its members hold the loop handles that `schedule` uses.
template <class Nest>
ScheduleNest author_nest(std::shared_ptr<Nest> nest) {
  nest->write();
  return [nest](ir::Schedule& s) { nest->schedule(s); };
}

}  // namespace gradloom

#pragma GCC visibility pop
