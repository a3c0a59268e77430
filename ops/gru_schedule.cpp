// The schedule of GRUTraining and GRUGrad: products by schedule_matmul, batches to threads, columns to vectors.
#include "ops/gru.h"
#include "ops/schedule_common.h"

namespace gradloom {

void schedule_gru(ir::Schedule& s, const Plan& plan, const ir::Target& target) {
  using Loop = ir::Schedule::Loop;
  const int bytes = size_of(accumulator_of(plan.views[0].dtype));
  for (const Loop chunk : s.loops("chunk")) s.parallel(chunk);
  for (const char* name : {"j"})
    for (const Loop loop : s.loops(name)) vectorize_elements(s, loop, bytes, 1, target);
}

}  // namespace gradloom
