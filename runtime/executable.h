#pragma once
// The state of the handles. It stays valid after the Runtime is destroyed.
#include <atomic>
#include <mutex>

#include "gradloom/executable.h"
#include "runtime/call.h"
#include "runtime/kernel_arguments.h"
#include "runtime/known_call.h"
#include "support/fork.h"

namespace gradloom {

struct Executable::State {
  State(std::shared_ptr<Core> core, const Op& op, std::span<const Tensor> inputs, const Attributes& attributes,
        const RunOptions& options, uint32_t outputs_wanted);
  // `trimmed`: the outputs again where they are to be trimmed, else empty.
  void call(std::span<const Tensor> inputs, std::span<const Tensor> outputs, std::span<Tensor> trimmed,
            const LaunchOptions& launch);

  CallSettings settings() const { return {*core, op, attributes, options}; }
  std::shared_ptr<const KnownCall> check_again(Arguments inputs);
  const KernelEntry* unaligned(const Plan& plan);

  const std::shared_ptr<Core> core;
  const Op& op;
  const Attributes attributes;
  const RunOptions options;
  const Strategy* strategy;  // the chosen one
  const uint32_t outputs_wanted;
  std::shared_ptr<const KnownCall> first;  // of compile: matched without a lock
  KernelHandle aligned_kernel;
  KernelReport report;

  Mutex mutex;
  std::shared_ptr<const KnownCall> latest;  // of the last call that did not match `first`
  KernelHandle unaligned_kernel;            // for outputs at any address; compiled when first needed
  std::atomic<const KernelEntry*> unaligned_ready{nullptr};
};

struct KernelExecutable::State {
  State(std::shared_ptr<Core> core, const ir::Kernel& kernel, const KernelOptions& options);
  void call(std::span<const Tensor> buffers, std::span<const int64_t> scalars, const LaunchOptions& launch) const;
  void check(std::span<const Tensor> buffers, std::span<const int64_t> scalars) const;

  const std::shared_ptr<Core> core;
  const ir::Kernel kernel;
  const KernelHandle entry;
  const KernelReport report;
  const DeclaredArguments declared;
  const std::string checked;  // the arguments that its Checks name
};

}  // namespace gradloom
