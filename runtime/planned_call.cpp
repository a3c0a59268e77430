#include "runtime/planned_call.h"

namespace gradloom {

void fill_scalars(const Plan& plan, std::span<const ScalarSource> sources, int64_t* scalars) {
  for (size_t i = 0; i < sources.size(); ++i) {
    const ScalarSource& source = sources[i];
    switch (source.kind) {
      case ScalarSource::param:
        scalars[i] = plan.params[source.index];
        break;
      case ScalarSource::dim:
        scalars[i] = plan.views[source.view].dims[source.index];
        break;
      case ScalarSource::stride:
        scalars[i] = plan.views[source.view].strides[source.index];
        break;
    }
  }
}

}  // namespace gradloom
