// Interprets the host part of a GPU kernel. No side effects except through the sink.
#include <algorithm>
#include <limits>
#include <optional>
#include <string>

#include "codegen/cuda/module.h"
#include "gradloom/error.h"

namespace gradloom::codegen {
namespace {

constexpr int64_t most_blocks = 2147483647;  // limit of gridDim.x

// Scratch memory acquired from the sink; none for 0 bytes.
struct Scratch {
  Scratch(const LaunchSink& s, int64_t n)
      : sink(s), bytes(n), data(0 < n && n < ir::max_buffer_bytes ? s.acquire(n) : nullptr) {
    if (n && !data) refuse(n);
  }
  ~Scratch() {
    if (data) sink.release(data, bytes);
  }
  [[noreturn]] static void refuse(int64_t n) {
    const std::string size =
        n == std::numeric_limits<int64_t>::max() ? "more bytes than can be counted" : std::to_string(n) + " bytes";
    throw Error(ErrorCode::resource_exhausted, "no device memory for the kernel's scratch of " + size);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const LaunchSink& sink;
  const int64_t bytes;
  void* const data;
};

class Walk {
 public:
  Walk(const CudaModule& module, std::span<void* const> buffers, std::span<const int64_t> scalars, void* status,
       const LaunchSink& sink)
      : module_(module),
        buffers_(buffers),
        status_(status),
        sink_(sink),
        slots_(static_cast<size_t>(module.slots)),
        scratch_(static_cast<size_t>(module.scratch_blocks)) {
    std::copy(scalars.begin(), scalars.end(), slots_.begin());
  }

  void run(const std::vector<HostStep>& steps) {
    for (const HostStep& step : steps) run(step);
  }

 private:
  void run(const HostStep& step) {
    switch (step.kind) {
      case HostStep::launch:
        return launch(module_.functions[static_cast<size_t>(step.index)], value(step.value));
      case HostStep::loop: {
        const int64_t begin = value(step.begin), count = value(step.value);
        for (int64_t k = 0; k < count; ++k) {
          slots_[static_cast<size_t>(step.index)] =
              static_cast<int64_t>(static_cast<uint64_t>(begin) + static_cast<uint64_t>(k));
          run(step.body);
        }
        return;
      }
      case HostStep::branch:
        return run(value(step.value) ? step.body : step.otherwise);
      case HostStep::let:
        slots_[static_cast<size_t>(step.index)] = value(step.value);
        return run(step.body);
      case HostStep::scratch: {
        const int64_t bytes = std::max<int64_t>(value(step.value), 1);
        const Scratch scratch(sink_, bytes);
        scratch_[static_cast<size_t>(step.index)] = scratch.data;
        return run(step.body);
      }
    }
  }

  void launch(const CudaFunction& function, int64_t blocks) {
    if (blocks <= 0) return;
    const Scratch barrier(sink_, function.cooperative ? barrier_bytes : 0);
    if (barrier.data) sink_.zero(barrier.data, barrier_bytes);
    std::vector<void*> pointers(function.arguments.size()), arguments(function.arguments.size());
    for (size_t i = 0; i < arguments.size(); ++i) {
      const CudaArgument& a = function.arguments[i];
      const auto index = static_cast<size_t>(a.index);
      switch (a.kind) {
        case CudaArgument::buffer:
          pointers[i] = buffers_[index];
          break;
        case CudaArgument::scratch:
          pointers[i] = scratch_[index];
          break;
        case CudaArgument::status:
          pointers[i] = status_;
          break;
        case CudaArgument::barrier:
          pointers[i] = barrier.data;
          break;
        case CudaArgument::slot:
          arguments[i] = &slots_[index];
          break;
      }
      if (a.kind != CudaArgument::slot) arguments[i] = &pointers[i];
    }
    sink_.launch(function, std::min(blocks, most_blocks), arguments);
  }

  int64_t value(const HostValue& program) const {
    const std::optional<uint64_t> bits = ir::evaluate(program, slots_);
    if (!bits) throw Error(ErrorCode::internal, "launch: a host program divides by 0 or shifts by too much");
    return static_cast<int64_t>(*bits);
  }

  const CudaModule& module_;
  std::span<void* const> buffers_;
  void* status_;
  const LaunchSink& sink_;
  std::vector<int64_t> slots_;
  std::vector<void*> scratch_;
};

}  // namespace

void launch_all(const CudaModule& module, std::span<void* const> buffers, std::span<const int64_t> scalars,
                void* status, const LaunchSink& sink) {
  Walk(module, buffers, scalars, status, sink).run(module.steps);
}

}  // namespace gradloom::codegen
