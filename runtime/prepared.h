#pragma once
// The state of a PreparedOp. What its calls learn is kept in several places, each of which one call at a time may take:
// no call waits for another, and what is found needs no reference count.
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "gradloom/executable.h"
#include "runtime/known_call.h"

namespace gradloom {

struct PreparedOp::State {
  State(std::shared_ptr<Core> core, const Op& op, const Attributes& attributes, const RunOptions& options);

  std::vector<Tensor> run(Arguments inputs, const LaunchOptions& launch);
  // `found(o, dims)` is called for outputs whose size the kernel found.
  using Found = std::function<void(size_t o, const Dims& dims)>;
  void run_into(Arguments inputs, Arguments outputs, const LaunchOptions& launch, const Found& found);
  std::vector<OutputInfo> infer(std::span<const Operand> inputs) const;

  const std::shared_ptr<Core> core;
  const Op& op;
  const Attributes attributes;
  const RunOptions options;

 private:
  // A checked call, with the kernels that served it: for aligned outputs and for any.
  struct Served : KnownCall {
    using KnownCall::KnownCall;
    const Strategy* strategy = nullptr;  // chosen when its kernel is first asked for
    KeptKernels kept[2];
  };
  struct Place {
    std::atomic<bool> taken{false};
    size_t next = 0;  // to be replaced
    std::vector<std::unique_ptr<Served>> calls;
  };
  // A place for the duration of a call.
  class Taken;

  void launch(Served& call, int device, Arguments inputs, Arguments outputs, const LaunchOptions& launch,
              const Found& found);
  Served& served(Place& place, Arguments inputs, Arguments outputs, uint32_t wanted);
  CallSettings settings() const { return {*core, op, attributes, options}; }

  std::array<Place, 16> places_;
};

// Of PreparedOps that Runtime::prepare has made; throws Error(invalid_argument) for an empty one.
PreparedOp::State& state_of(const PreparedOp& prepared);
// Of one call: Op::check's outputs.
std::vector<OutputInfo> infer_outputs(const CallSettings& settings, std::span<const Operand> inputs);

}  // namespace gradloom
