#pragma once
// The strategy "pipelined" of GatherElementsGrad with an inner dim, shapes known: narrow strips, each written while the
// next ones are summed. Sums wait for the caches and writing for memory, so one hides the other. A row of a strip is
// one or two cache lines, and lines below one another share few ways to memory: so the rows of `depth` neighbouring
// strips are written side by side, the first part of the last one, the second part of the one before it, and so on.
#include <optional>

#include "ops/gather/gather_common.h"

namespace gradloom {

struct GatherPipeline {
  int64_t columns = 0;    // of a strip
  int64_t depth = 0;      // strips that are summed and not yet written
  int64_t sum_bytes = 0;  // of a task: those and the one that is summed
};
// Nothing where the nest does not serve: strips are of whole cache lines, and indices cover all of a strip or none of
// it.
std::optional<GatherPipeline> gather_pipeline(const Plan& plan);

// Whether a large call is faster so: there is as much to write as to read, else reading narrow pieces costs more than
// is hidden; and the sums of all strips under way lie in cache.
bool pipelining_pays(const Plan& plan, const GatherPipeline& cut, const ir::Target& target);

void author_gather_pipelined(KernelFrame& frame, const ir::Target& target);
// False, and nothing is done, for another nest.
bool schedule_gather_pipelined(ir::Schedule& schedule);

}  // namespace gradloom
