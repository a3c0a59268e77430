#pragma once
// The calling convention between generated code and its launcher (codegen/abi.h).
#include "codegen/abi.h"
#include "runtime/backend/backend.h"

namespace gradloom {

class FunctionKernel : public LoadedKernel {
 public:
  // `code` keeps the function alive.
  FunctionKernel(KernelFunction function, int64_t code_bytes, std::shared_ptr<void> code)
      : function_(function), code_bytes_(code_bytes), code_(std::move(code)) {}
  int64_t launch(void* const* buffers, const int64_t* scalars, const LaunchSite& site) const override;
  int64_t code_bytes() const override { return code_bytes_; }

 private:
  const KernelFunction function_;
  const int64_t code_bytes_;
  const std::shared_ptr<void> code_;
};

}  // namespace gradloom
