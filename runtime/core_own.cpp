// Kernels of an embedder's own: verified, found in memory or on disk by their text, or lowered and compiled.
#include <fmt/format.h>

#include "gradloom/text.h"
#include "ir/analysis/verify.h"
#include "ir/analysis/verify_gpu.h"
#include "ir/passes/passes.h"
#include "ir/schedule/schedule_default.h"
#include "runtime/core.h"
#include "support/stack.h"

namespace gradloom {
namespace {

// A user's nest may come unscheduled.
ir::Scheduled schedule_own(const ir::Kernel& kernel, const ir::Target& target, bool default_schedule) {
  if (!target.gpu && ir::is_gpu(kernel)) {
    throw Error(
        ErrorCode::unsupported,
        fmt::format(
            "kernel {}: it has loops of a GPU (grid, thread, warp, lane, cooperative), which target {} does not run",
            kernel.name, target.name));
  }
  return default_schedule ? ir::schedule_default(kernel, target) : ir::Scheduled{kernel, {}};
}

// "[n,m] [n]"
std::string dims_of(const ir::Kernel& kernel) {
  std::string all;
  for (const ir::Buffer& buffer : kernel.buffers) {
    std::string dims;
    for (const ir::Expr& dim : buffer->dims) dims += (dims.empty() ? "" : ",") + ir::print(dim);
    all += fmt::format("{}[{}]", all.empty() ? "" : " ", dims);
  }
  return all;
}

}  // namespace

KernelHandle Core::kernel_for(const ir::Kernel& kernel, const KernelOptions& options) {
  require_stack(interprets() ? interpreter_stack_bytes : compiler_stack_bytes, kernel.name);
  try {
    ir::verify(kernel, ir::Stage::authored);
  } catch (const Error&) {
    ir::verify(kernel, ir::Stage::scheduled);  // to throw its error
  }
  bool built = false;
  const std::string nest = ir::print(kernel);
  const auto build = [&] {
    const auto start = std::chrono::steady_clock::now();
    std::shared_ptr<KernelEntry> made = build_own(kernel, nest, options);
    log_made(*made, milliseconds_since(start));
    return made;
  };
  KernelHandle entry = cache_.get(KernelKey(nest, options), build, built);
  done(entry, built);
  return entry;
}

std::shared_ptr<KernelEntry> Core::build_own(const ir::Kernel& kernel, std::string_view nest,
                                             const KernelOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  std::optional<OpKey> key;
  if (store_) {
    key.emplace(kernel, nest, dims_of(kernel), options, store_->target(), store_->toolchain());
    if (!dumps()) {
      if (std::shared_ptr<KernelEntry> entry = load(*key, /*any_shape=*/false)) {
        entry->own = true;
        return entry;
      }
    }
  }
  if (options.default_schedule)
    if (std::shared_ptr<KernelEntry> tuned = build_tuned(kernel, key)) return tuned;
  ir::PassTimes pass_ms;
  ir::LowerOptions lowering = ir::lowering_for(target_);
  lowering.times = &pass_ms;
  const ir::Scheduled scheduled =
      interprets() ? ir::Scheduled{kernel, {}} : schedule_own(kernel, target_, options.default_schedule);
  const ir::Kernel lowered = interprets() ? kernel : ir::lower(scheduled.kernel, lowering);
  dump(
      kernel.name, own_strategy,
      {.authored = kernel, .scheduled = scheduled.kernel, .lowered = lowered, .sources = {}, .trace = scheduled.trace});
  auto entry = std::make_shared<KernelEntry>();
  entry->own = true;
  const std::optional<ContentId> content = finish(*entry,
                                                  {.op = kernel.name,
                                                   .strategy = own_strategy,
                                                   .build_ms = milliseconds_since(start),
                                                   .pass_ms = pass_ms,
                                                   .schedule_trace = scheduled.trace},
                                                  lowered, *backend_);
  if (key && content) put_index(*key, *content, *entry);
  return entry;
}

}  // namespace gradloom
