#include "ops/matmul.h"
#include "ops/schedule_common.h"

namespace gradloom {

void schedule_matmul(ir::Schedule& schedule, const std::string& prefix, const ir::Target& target, const MatmulHints&) {
  const ir::Schedule::Loop n = schedule.loop(prefix + "_n");
  vectorize_elements(schedule, n, 4, 1, target);
}

}  // namespace gradloom
