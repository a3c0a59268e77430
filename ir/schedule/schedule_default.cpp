#include "ir/schedule/schedule_default.h"

#include <algorithm>

#include "ir/analysis/verify_gpu.h"
#include "ir/rewrite.h"
#include "ir/schedule/schedule_cpu.h"
#include "ir/schedule/schedule_gpu.h"

namespace gradloom::ir {

void schedule_default(Schedule& schedule, const Target& target) {
  if (target.gpu) {
    if (!is_gpu(schedule.kernel())) schedule_gpu(schedule, target);
    return;
  }
  const std::vector<const For*> loops = loops_below(schedule.kernel().body);
  if (std::all_of(loops.begin(), loops.end(), [](const For* f) { return f->kind == ForKind::serial; }))
    schedule_cpu(schedule, target);
}

Kernel with_default_schedule(const Kernel& kernel, const Target& target) {
  Schedule schedule(kernel);
  schedule_default(schedule, target);
  return schedule.kernel();
}

}  // namespace gradloom::ir
