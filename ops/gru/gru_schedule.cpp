// The schedule of GRUTraining and GRUGrad.
#include <algorithm>

#include "gradloom/schedule_common.h"
#include "ir/rewrite.h"
#include "ir/schedule/schedule_gpu.h"
#include "ops/gru/gru.h"

namespace gradloom {

// Makes all steps of a direction one cooperative launch, where the device supports it.
void GruNest::persist(ir::Schedule& s) const {
  if (!target_.cooperative) return;
  const std::vector<ir::Loop> left = s.loops();  // the general schedule may have consumed some
  for (const Steps& all : all_steps_) {
    if (std::find(left.begin(), left.end(), all.loop) == left.end()) continue;
    const std::vector<const ir::For*> below = ir::loops_below(s.get(all.loop).body);
    const auto launches = [](const ir::For* loop) { return loop->kind == ir::ForKind::grid; };
    if (std::any_of(below.begin(), below.end(), launches)) s.bind(all.loop, ir::ForKind::cooperative);
  }
}

void GruNest::to_vectors(ir::Schedule& s, ir::Loop loop) const {
  if (ir::as_int(hidden))
    vectorize_elements(s, loop, size_of(sum), 1, target_);
  else  // masked vectors alone: a remainder of its own would double the code of every element
    s.vectorize(s.split_guarded(loop, target_.lanes(size_of(sum))).inner);
}

void GruNest::schedule(ir::Schedule& s) const {
  if (target_.gpu) {
    for (const Steps& all : all_steps_)
      for (const RecurrentLoops& product : all.in_blocks) schedule_matmul_recurrent(s, product);
    for (const MatmulBlocks& product : whole_in_blocks_) schedule_matmul_blocks(s, product);
    ir::schedule_gpu(s, target_);
    return persist(s);
  }
  for (const ir::Loop loop : elements_) to_vectors(s, loop);
  for (const ir::Loop loop : shared_) s.parallel(loop);
  for (const Steps& all : all_steps_)
    for (const ir::Loop product : all.products) schedule_matmul(s, product, target_, {.pack_b_before = all.outermost});
  for (const ir::Loop product : whole_) schedule_matmul(s, product, target_);
}

}  // namespace gradloom
