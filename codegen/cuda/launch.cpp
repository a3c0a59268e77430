// The host part of a GPU kernel, walked. Pure but for the sink.
#include <algorithm>
#include <array>
#include <limits>

#include "codegen/cuda/module.h"
#include "ir/error.h"

namespace gradloom::codegen {
namespace {

constexpr int64_t most_blocks = 2147483647;  // of a grid's x
constexpr size_t most_depth = 64;

// Integers wrap; a divisor is proved nonzero before this is emitted.
int64_t wrap(uint64_t v) { return static_cast<int64_t>(v); }
int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) throw Error(ErrorCode::internal, "launch: a host program divides by 0");
  if (b == -1) return wrap(0 - static_cast<uint64_t>(a));
  const int64_t quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

int64_t multiply_sizes(int64_t a, int64_t b) {
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  if (a <= 0 || b <= 0) return 0;
  return a > most / b ? most : a * b;
}

int64_t binary(HostCode::Op op, int64_t a, int64_t b) {
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  switch (op) {
    case HostCode::add: return wrap(ua + ub);
    case HostCode::sub: return wrap(ua - ub);
    case HostCode::mul: return wrap(ua * ub);
    case HostCode::floor_div: return floor_divide(a, b);
    case HostCode::floor_mod: return wrap(ua - static_cast<uint64_t>(floor_divide(a, b)) * ub);
    case HostCode::min: return std::min(a, b);
    case HostCode::max: return std::max(a, b);
    case HostCode::eq: return a == b;
    case HostCode::ne: return a != b;
    case HostCode::lt: return a < b;
    case HostCode::le: return a <= b;
    case HostCode::gt: return a > b;
    case HostCode::ge: return a >= b;
    case HostCode::bit_and: return a & b;
    case HostCode::bit_or: return a | b;
    case HostCode::bit_xor: return a ^ b;
    case HostCode::size: return multiply_sizes(a, b);
    case HostCode::constant:
    case HostCode::slot:
    case HostCode::select:
    case HostCode::logical_not: break;
  }
  throw Error(ErrorCode::internal, "launch: a host program holds an unknown operator");
}

// Memory of the sink's; none for 0 bytes.
struct Scratch {
  Scratch(const LaunchSink& s, int64_t n) : sink(s), bytes(n), data(n ? s.acquire(n) : nullptr) {
    if (n && !data) throw Error(ErrorCode::resource_exhausted, "no device memory for the kernel's scratch of " + std::to_string(n) + " bytes");
  }
  ~Scratch() {
    if (data) sink.release(data, bytes);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const LaunchSink& sink;
  const int64_t bytes;
  void* const data;
};

class Walk {
 public:
  Walk(const CudaModule& module, std::span<void* const> buffers, std::span<const int64_t> scalars, void* status, const LaunchSink& sink)
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
      case HostStep::launch: return launch(module_.functions[static_cast<size_t>(step.index)], value(step.value));
      case HostStep::loop: {
        const int64_t begin = value(step.begin), count = value(step.value);
        for (int64_t k = 0; k < count; ++k) {
          slots_[static_cast<size_t>(step.index)] = begin + k;
          run(step.body);
        }
        return;
      }
      case HostStep::branch: return run(value(step.value) ? step.body : step.otherwise);
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
        case CudaArgument::buffer: pointers[i] = buffers_[index]; break;
        case CudaArgument::scratch: pointers[i] = scratch_[index]; break;
        case CudaArgument::status: pointers[i] = status_; break;
        case CudaArgument::barrier: pointers[i] = barrier.data; break;
        case CudaArgument::slot: arguments[i] = &slots_[index]; break;
      }
      if (a.kind != CudaArgument::slot) arguments[i] = &pointers[i];
    }
    sink_.launch(function, std::min(blocks, most_blocks), arguments);
  }

  int64_t value(const HostValue& program) const {
    std::array<int64_t, most_depth> stack;
    size_t top = 0;
    for (const HostCode& code : program) {
      if (code.op == HostCode::constant || code.op == HostCode::slot) {
        if (top == most_depth) throw Error(ErrorCode::unsupported, "launch: a host expression is nested too deep");
        stack[top++] = code.op == HostCode::constant ? code.value : slots_[static_cast<size_t>(code.value)];
      } else if (code.op == HostCode::logical_not) {
        stack[top - 1] = !stack[top - 1];
      } else if (code.op == HostCode::select) {
        top -= 2;
        stack[top - 1] = stack[top - 1] ? stack[top] : stack[top + 1];
      } else {
        --top;
        stack[top - 1] = binary(code.op, stack[top - 1], stack[top]);
      }
    }
    return stack[0];
  }

  const CudaModule& module_;
  std::span<void* const> buffers_;
  void* status_;
  const LaunchSink& sink_;
  std::vector<int64_t> slots_;
  std::vector<void*> scratch_;
};

}  // namespace

void launch_all(const CudaModule& module, std::span<void* const> buffers, std::span<const int64_t> scalars, void* status, const LaunchSink& sink) {
  Walk(module, buffers, scalars, status, sink).run(module.steps);
}

}  // namespace gradloom::codegen
