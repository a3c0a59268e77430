#pragma once
// The strategy "staged" of BroadcastGrad, for a GPU: the same tree of additions (broadcast_grad_nest.cpp states it),
// its blocks summed by threads side by side into shared memory, one reduced dim after the other, from the innermost
// out.
#include "ops/broadcast/broadcast_grad.h"

namespace gradloom {

void author_broadcast_grad_staged(KernelFrame& frame);
void schedule_broadcast_grad_staged(ir::Schedule& s, const ir::Target& target);

}  // namespace gradloom
