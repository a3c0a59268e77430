#include "runtime/backend/backend.h"

#include "gradloom/error.h"
#include "runtime/backend/gpu_target.h"

namespace gradloom {

bool is_gpu(TargetKind kind) { return kind == TargetKind::cuda_host || kind == TargetKind::cuda; }

ir::Target host_gpu_target() { return gpu_target(90); }

std::unique_ptr<Backend> open_backend(const RuntimeOptions& options) {
  switch (options.target) {
    case TargetKind::cuda:
      return open_cuda(options);
    case TargetKind::cuda_host:
      return open_cuda_host();
    case TargetKind::interpreter:
      return open_interpreter();
    case TargetKind::llvm:
      return open_llvm(options);
    case TargetKind::automatic:
      break;
  }
  return has_llvm() ? open_llvm(options) : open_interpreter();
}

std::shared_ptr<const LoadedKernel> Backend::load(const std::string&, std::string_view) const {
  throw Error(ErrorCode::internal, "finished code was given to a target that keeps none");
}
std::shared_ptr<void> Backend::allocate(int64_t, void*) const {
  throw Error(ErrorCode::internal, "device memory was asked of a target that has none");
}
void Backend::copy(void*, const void*, int64_t, void*) const {
  throw Error(ErrorCode::internal, "a copy was asked of a target that has no memory of its own");
}

}  // namespace gradloom
