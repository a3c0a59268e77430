#include "runtime/call.h"

#include <fmt/format.h>

namespace gradloom {

int64_t launch_plan(const Core& core, const KernelEntry& entry, const Plan& plan, void* const* buffers,
                    const LaunchOptions& options) {
  int64_t scalars[max_scalars];
  fill_scalars(plan, entry.sources, scalars);
  return core.launch(entry, buffers, scalars, options);
}

Error explain(const Core& core, const Op& op, const Request& request, const Plan& plan, int64_t bad_position,
              Arguments inputs) {
  return op.explain(request, plan, bad_position, [&](int input, int64_t element) {
    if (input < 0 || static_cast<size_t>(input) >= inputs.size()) {
      throw Error(ErrorCode::internal, fmt::format("an error message reads input {}, which is absent", input));
    }
    return integer_element(core.copy_to(-1, tensor_of(inputs[input]), nullptr), element);
  });
}

}  // namespace gradloom
