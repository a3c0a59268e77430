#include "gradloom/schedule_common.h"

#include "ir/rewrite.h"
#include "ir/schedule/nest_shape.h"

namespace gradloom {

ir::Schedule::Loop vectorize_elements(ir::Schedule& schedule, ir::Schedule::Loop loop, int element_bytes, int copies,
                                      const ir::Target& target) {
  const auto vectors = ir::fitting_vectors(schedule.get(loop).extent, target.lanes(element_bytes), copies);
  return vectors ? schedule.vectorize(loop, vectors->lanes, vectors->copies) : loop;
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
