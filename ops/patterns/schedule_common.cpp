#include "ops/patterns/schedule_common.h"

#include "ir/rewrite.h"

namespace gradloom {

ir::Schedule::Loop vectorize_elements(ir::Schedule& schedule, ir::Schedule::Loop loop, int element_bytes, int copies,
                                      const ir::Target& target) {
  int64_t lanes = std::min(target.lanes(element_bytes), 64);
  if (const std::optional<int64_t> extent = ir::as_int(schedule.get(loop).extent)) {
    while (lanes > *extent) lanes /= 2;
    while (copies > 1 && lanes * copies > *extent) copies /= 2;
  }
  if (lanes < 2) return loop;
  return schedule.vectorize(loop, static_cast<int>(lanes), copies);
}

std::vector<ir::Schedule::Loop> innermost_loops(const ir::Schedule& schedule) {
  std::vector<ir::Schedule::Loop> innermost;
  for (const ir::Schedule::Loop loop : schedule.loops())
    if (!ir::holds_loop(schedule.get(loop).body)) innermost.push_back(loop);
  return innermost;
}

}  // namespace gradloom
