#include "ir/schedule/schedule_default.h"

#include <algorithm>

#include "ir/analysis/verify_gpu.h"
#include "ir/rewrite.h"
#include "ir/schedule/schedule_cpu.h"
#include "ir/schedule/schedule_gpu.h"

namespace gradloom::ir {

Scheduled schedule_default(const Kernel& kernel, const Target& target, Determinism level) {
  if (target.gpu) {
    if (is_gpu(kernel)) return {kernel, {}};
    Schedule schedule(kernel, level);
    schedule_gpu(schedule, target);
    return {schedule.kernel(), schedule.trace()};
  }
  const std::vector<const For*> loops = loops_below(kernel.body);
  if (std::any_of(loops.begin(), loops.end(), [](const For* f) { return f->kind != ForKind::serial; }))
    return {kernel, {}};
  return schedule_cpu(kernel, target);
}

Kernel with_default_schedule(const Kernel& kernel, const Target& target) {
  return schedule_default(kernel, target).kernel;
}

}  // namespace gradloom::ir
