#include "gradloom/schedule_common.h"

#include "ir/rewrite.h"

namespace gradloom {

ir::Schedule::Loop vectorize_elements(ir::Schedule& schedule, ir::Schedule::Loop loop, int element_bytes, int copies,
                                      const ir::Target& target) {
  int64_t lanes = std::min(target.lanes(element_bytes), 64);
  if (const std::optional<int64_t> extent = ir::as_int(schedule.get(loop).extent)) {
    if (*extent < 2) return loop;
    while (lanes > *extent) lanes /= 2;
    while (copies > 1 && lanes * copies > *extent) copies /= 2;
  }
  if (lanes < 2) return loop;
  return schedule.vectorize(loop, static_cast<int>(lanes), copies);
}

ir::Schedule::Loop fuse_all(ir::Schedule& schedule, const std::vector<ir::Schedule::Loop>& loops) {
  ir::Schedule::Loop one = loops[0];
  for (size_t i = 1; i < loops.size(); ++i) one = schedule.fuse(one, loops[i]);
  return one;
}

std::vector<ir::Schedule::Loop> innermost_loops(const ir::Schedule& schedule) {
  std::vector<ir::Schedule::Loop> innermost;
  for (const ir::Schedule::Loop loop : schedule.loops())
    if (!ir::holds_loop(schedule.get(loop).body)) innermost.push_back(loop);
  return innermost;
}

}  // namespace gradloom
