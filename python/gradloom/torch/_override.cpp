// Overrides of PyTorch's CPU kernels by gradloom's, registered and taken back at run time. Compiled on the user's
// machine for the PyTorch that is installed there, over its ordinary C++ interface. The stable one does not reach: a
// kernel that is overridden cannot be called through it, which exact fallback needs; its errors lose their kinds, so
// that an IndexError becomes a RuntimeError; and whether a call is recorded by autograd cannot be seen.
#include <torch/library.h>

#include <memory>
#include <optional>

#include "_override_bags.h"
#include "_override_index.h"
#include "_override_indices.h"
#include "_override_kernels.h"

namespace gradloom_torch {
namespace {

// Destroyed, they give the dispatcher its own kernels back.
struct Registrations {
  torch::Library cpu{torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__};
  torch::Library autograd{torch::Library::IMPL, "aten", c10::DispatchKey::AutogradCPU, __FILE__, __LINE__};

  Registrations() {
    cpu.impl("embedding_dense_backward", TORCH_FN(embedding_dense_backward));
    cpu.impl("_embedding_bag_dense_backward", TORCH_FN(embedding_bag_dense_backward));
    cpu.impl("scatter_add", TORCH_FN(scatter_add));
    cpu.impl("scatter_add_", TORCH_FN(scatter_add_));
    cpu.impl("index_add", TORCH_FN(index_add));
    cpu.impl("index_add_", TORCH_FN(index_add_));
    cpu.impl("_index_put_impl_", TORCH_FN(index_put));
    cpu.impl("slice_backward", TORCH_FN(slice_backward));
    cpu.impl("select_backward", TORCH_FN(select_backward));
    // These are composites: a kernel of the CPU's would stand below autograd, which then would not record what they
    // do. Here they see whether they are recorded, and all other keys keep the composite.
    autograd.impl("gather_backward", TORCH_FN(gather_backward));
    autograd.impl("index_select_backward", TORCH_FN(index_select_backward));
    if (!index_kernel)
      index_kernel = new c10::KernelFunction(
          index_op().getComputedKernelForDispatchKey(c10::DispatchKey::AutogradCPU).kernelFunction());
    autograd.impl("index.Tensor", TORCH_FN(index_forward));
  }
};

// The dispatcher warns of each override; these are asked for.
struct Silent final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

std::optional<Registrations>& registrations() {
  static auto* const made = new std::optional<Registrations>;  // the dispatcher may be gone at the process's end
  return *made;
}

template <class Body>
const char* guarded(Body&& body) {
  static thread_local std::string message;
  try {
    body();
    return nullptr;
  } catch (const c10::Error& error) {
    message = error.what_without_backtrace();
  } catch (const std::exception& error) {
    message = error.what();
  }
  return message.c_str();
}

}  // namespace
}  // namespace gradloom_torch

using namespace gradloom_torch;

// For ctypes. Each returns null or what went wrong, and is called with Python's lock held: no thread of Python's
// dispatches meanwhile.
extern "C" __attribute__((visibility("default"))) const char* gradloom_open(const GradloomFunctions* functions) {
  if (functions->version != GRADLOOM_FUNCTIONS_VERSION || functions->size != sizeof(GradloomFunctions))
    return "the extension was built for another gradloom";
  library = functions;
  return nullptr;
}

extern "C" __attribute__((visibility("default"))) const char* gradloom_torch_enable(int64_t memory) {
  return guarded([&] {
    library->memory_budget(memory);
    if (registrations()) return;
    Silent silent;
    const c10::WarningUtils::WarningHandlerGuard guard(&silent);
    registrations().emplace();
  });
}

extern "C" __attribute__((visibility("default"))) const char* gradloom_torch_disable() {
  return guarded([] {
    registrations().reset();
    library->memory_budget(0);
  });
}

extern "C" __attribute__((visibility("default"))) int64_t gradloom_torch_memory_kept() {
  return library->memory_kept();
}

// Null past the last.
extern "C" __attribute__((visibility("default"))) const char* gradloom_torch_kernel_name(int kernel) {
  return kernel < kernel_count ? kernel_names[kernel] : nullptr;
}
extern "C" __attribute__((visibility("default"))) const char* gradloom_torch_outcome_name(int outcome) {
  return outcome < outcome_count ? outcome_names[outcome] : nullptr;
}
extern "C" __attribute__((visibility("default"))) uint64_t gradloom_torch_count(int kernel, int outcome) {
  return counts[kernel][outcome].load(std::memory_order_relaxed);
}
extern "C" __attribute__((visibility("default"))) void gradloom_torch_reset_counts() {
  for (auto& row : counts)
    for (auto& each : row) each.store(0, std::memory_order_relaxed);
}
