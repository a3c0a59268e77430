#pragma once
// The ways of computing an op. Each is a value in the op's table: a name, which means one nest, the level it keeps,
// when it serves, and how its nest is written and scheduled.
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradloom/schedule.h"
#include "gradloom/target.h"

namespace gradloom {

class KernelFrame;
class Op;
struct Plan;

// How much of the order of sums is fixed, the strongest first. sequential: the authored order, the same bits
// everywhere. run_to_run: the same bits for any run, launch and number of threads. relaxed: any order.
enum class Determinism : uint8_t { sequential, run_to_run, relaxed };

// How well a strategy serves a call: not at all; only where no other is preferred; well.
enum class Fit : uint8_t { none, possible, preferred };

// Rewrites an authored nest for the target that it was written for. It knows the nest's loops by their handles. Absent:
// the nest runs as it is.
using ScheduleNest = std::function<void(ir::Schedule&)>;

struct Strategy {
  std::string name;
  Determinism level = Determinism::sequential;
  // A call of these views, or, with `any_shape`, every call of their rank. Absent: any, preferred.
  std::function<Fit(const Plan& plan, const ir::Target& target, bool any_shape)> fit;
  // Writes the authored nest (serial, scalar) into frame.builder. What is returned is called, if at all, while frame,
  // plan and target live.
  std::function<ScheduleNest(KernelFrame& frame, const ir::Target& target)> author;
};

// The one to use for a call: `wanted`, or where that is empty the first that is preferred, else the first possible.
// Throws Error(invalid_argument), listing those that serve, when `wanted` is not among them.
const Strategy& choose_strategy(const Op& op, const Plan& plan, std::string_view wanted, const ir::Target& target,
                                bool any_shape = false);
// The same, or null.
const Strategy* find_serving(const Op& op, const Plan& plan, std::string_view wanted, const ir::Target& target,
                             bool any_shape = false);
// All that serve a call, the one to use first.
std::vector<const Strategy*> serving_strategies(const Op& op, const Plan& plan, const ir::Target& target,
                                                bool any_shape = false);
// The same by name.
std::vector<std::string> serving_names(const Op& op, const Plan& plan, const ir::Target& target,
                                       bool any_shape = false);
// By name; throws Error(invalid_argument) when the op has none.
const Strategy& find_strategy(const Op& op, std::string_view name);

// A nest as an object: it is written with `write`, and its members keep the handles that `schedule` uses.
template <class Nest>
ScheduleNest author_nest(std::shared_ptr<Nest> nest) {
  nest->write();
  return [nest](ir::Schedule& s) { nest->schedule(s); };
}

}  // namespace gradloom
