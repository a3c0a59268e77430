#ifndef GRADLOOM_TORCH_OVERRIDE_LIBRARY_H
#define GRADLOOM_TORCH_OVERRIDE_LIBRARY_H
// gradloom as the kernels see it: memory, handles, one call.
#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/stable/c/shim.h>

#include <array>
#include <atomic>
#include <numeric>
#include <span>
#include <string>

#include "../_c_functions.h"

namespace gradloom_torch {

inline const GradloomFunctions* library = nullptr;  // set once, before any kernel is registered

// Memory of the library's for PyTorch's tensors.
class Memory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, at::kCPU};
    auto block = std::make_unique<Block>(Block{nullptr, static_cast<int64_t>(bytes)});
    block->data = library->memory_allocate(block->bytes);
    TORCH_CHECK_WITH(OutOfMemoryError, block->data, "gradloom: no memory for a tensor of ", bytes, " bytes");
    void* const data = block->data;
    return {data, block.release(), &release, at::kCPU};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  struct Block {
    void* data;
    int64_t bytes;
  };
  static void release(void* context) {
    const std::unique_ptr<Block> block(static_cast<Block*>(context));
    if (block) library->memory_release(block->data, block->bytes);
  }
};

// Contents unspecified.
inline at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype) {
  static Memory* const memory = new Memory;  // tensors outlive everything else
  return at::detail::empty_generic(sizes, memory, c10::DispatchKeySet(c10::DispatchKey::CPU), dtype, std::nullopt);
}

// A DLTensor over a tensor's own arrays of sizes and strides: valid as long as they are.
struct Argument : DLTensor {
  Argument(void* data, at::ScalarType dtype, at::IntArrayRef sizes, const int64_t* strides) : DLTensor{} {
    this->data = data;
    device = {kDLCPU, 0};
    ndim = static_cast<int32_t>(sizes.size());
    this->dtype = dlpack_dtype(dtype);
    shape = const_cast<int64_t*>(sizes.data());
    this->strides = const_cast<int64_t*>(strides);
  }
  explicit Argument(const at::Tensor& input)
      : Argument(const_cast<void*>(input.const_data_ptr()), input.scalar_type(), input.sizes(),
                 input.strides().data()) {}
  // A list of integers.
  Argument(at::IntArrayRef values, const int64_t* count)
      : Argument(const_cast<int64_t*>(values.data()), at::kLong, at::IntArrayRef(count, 1), nullptr) {}

  static Argument output(const at::Tensor& tensor) {
    return {tensor.mutable_data_ptr(), tensor.scalar_type(), tensor.sizes(), tensor.strides().data()};
  }

  // bits 0: a dtype that the library does not have.
  static DLDataType dlpack_dtype(at::ScalarType dtype) {
    switch (dtype) {
      case at::kBool:
        return {kDLBool, 8, 1};
      case at::kByte:
        return {kDLUInt, 8, 1};
      case at::kUInt16:
        return {kDLUInt, 16, 1};
      case at::kUInt32:
        return {kDLUInt, 32, 1};
      case at::kUInt64:
        return {kDLUInt, 64, 1};
      case at::kChar:
        return {kDLInt, 8, 1};
      case at::kShort:
        return {kDLInt, 16, 1};
      case at::kInt:
        return {kDLInt, 32, 1};
      case at::kLong:
        return {kDLInt, 64, 1};
      case at::kHalf:
        return {kDLFloat, 16, 1};
      case at::kBFloat16:
        return {kDLBfloat, 16, 1};
      case at::kFloat:
        return {kDLFloat, 32, 1};
      case at::kDouble:
        return {kDLFloat, 64, 1};
      default:
        return {kDLFloat, 0, 1};
    }
  }
};

// Handles for any shapes, one for each op, variant of its attributes and number of threads. Made by the first call that
// needs one, and kept until the process ends, with the kernels behind them. No lock: what two threads make at a time,
// one of them drops; and so a child of fork finds none taken.
class Handles {
 public:
  enum Op { gather_grad, gather_elements_grad, slice_grad, index_grad, embedding_bag_grad, op_count };
  static constexpr int max_rank = 16, max_indices = 8;
  static constexpr int max_threads = 256;
  static constexpr int max_variants = max_rank * max_indices;

  // Variants of the ops' attributes: an axis of the gathers', 0 of slice_grad, and these.
  static int64_t index_variant(int64_t first_axis, int64_t axes) { return first_axis * max_indices + axes - 1; }
  static int64_t bag_variant(int64_t mode, bool scale_grad_by_freq) { return 2 * mode + scale_grad_by_freq; }

  // Null: the library refused, as its last error says.
  const gradloom_prepared* get(Op op, int64_t variant, bool accumulate, bool specialise) {
    std::atomic<PerThreads*>& slot = by_threads_[std::min(at::get_num_threads(), max_threads) - 1];
    PerThreads* mine = slot.load(std::memory_order_acquire);
    if (!mine) mine = make(slot);
    if (!mine) return nullptr;
    std::atomic<gradloom_prepared*>& handle = mine->handles[op][variant][accumulate][specialise];
    if (gradloom_prepared* const made = handle.load(std::memory_order_acquire)) return made;
    return prepare(*mine, handle, op, variant, accumulate, specialise);
  }

 private:
  struct PerThreads {
    gradloom_runtime* runtime = nullptr;
    std::atomic<gradloom_prepared*> handles[op_count][max_variants][2][2] = {};
  };

  // PyTorch's own threads, which it has for its other kernels anyway.
  static void parallel_for(void*, int64_t n, gradloom_body body, void* env) {
    struct Loop {
      gradloom_body body;
      void* env;
    } loop{body, env};
    torch_parallel_for(
        0, n, 1,
        [](int64_t begin, int64_t end, void* context) {
          const Loop& it = *static_cast<Loop*>(context);
          it.body(it.env, begin, end);
        },
        &loop);
  }

  static PerThreads* make(std::atomic<PerThreads*>& slot) {
    gradloom_runtime_options options;
    library->runtime_options_init_sized(&options, sizeof options);
    options.threads = std::min(at::get_num_threads(), max_threads);
    options.policy = GRADLOOM_POLICY_GENERIC_FIRST;
    options.specialise_after = 16;  // a model's shapes come again with every step,
    options.specialisations = 64;   // and its layers share a handle
    options.parallel_for = parallel_for;
    options.recycle_bytes = int64_t{256} << 20;  // scratch only: outputs have memory of their own
    auto made = std::make_unique<PerThreads>();
    if (library->runtime_create(&options, &made->runtime)) return nullptr;
    PerThreads* other = nullptr;
    if (slot.compare_exchange_strong(other, made.get(), std::memory_order_acq_rel)) return made.release();
    library->runtime_destroy(made->runtime);
    return other;
  }

  static gradloom_prepared* prepare(PerThreads& of, std::atomic<gradloom_prepared*>& handle, Op op, int64_t variant,
                                    bool accumulate, bool specialise) {
    constexpr const char* names[] = {"GatherGrad", "GatherElementsGrad", "SliceGrad", "IndexGrad", "EmbeddingBagGrad"};
    gradloom_run_options options;
    library->run_options_init_sized(&options, sizeof options);
    options.accumulate = accumulate;
    if (specialise) options.policy = GRADLOOM_POLICY_SPECIALISE;
    gradloom_attributes* attributes = nullptr;
    gradloom_prepared* made = nullptr;
    const bool failed = library->attributes_create(&attributes) || set_attributes(attributes, op, variant) ||
                        library->prepare(of.runtime, names[op], attributes, &options, &made);
    library->attributes_destroy(attributes);
    if (failed) return nullptr;
    gradloom_prepared* other = nullptr;
    if (handle.compare_exchange_strong(other, made, std::memory_order_acq_rel)) return made;
    library->prepared_destroy(made);
    return other;
  }

  static bool set_attributes(gradloom_attributes* attributes, Op op, int64_t variant) {
    constexpr const char* modes[] = {"sum", "mean", "max"};
    switch (op) {
      case slice_grad:
        return false;
      case index_grad: {
        int64_t axes[max_indices];
        std::iota(axes, axes + max_indices, variant / max_indices);
        return library->attributes_set_ints(attributes, "axes", axes, static_cast<int32_t>(variant % max_indices + 1));
      }
      case embedding_bag_grad:
        return library->attributes_set_string(attributes, "mode", modes[variant / 2]) ||
               library->attributes_set_int(attributes, "include_last_offset", 1) ||
               library->attributes_set_int(attributes, "scale_grad_by_freq", variant % 2);
      default:
        return library->attributes_set_int(attributes, "axis", variant);
    }
  }

  std::atomic<PerThreads*> by_threads_[max_threads] = {};
};
inline Handles* const handles = new Handles;

// Sizes that came before. The library makes kernels for such in the background, but compares each with the one for all
// sizes first, which takes seconds where tensors are large and each call waits for memory. So a large output's kernel
// is made at once when its sizes come for the eighth time; the bits are the same.
class SeenSizes {
 public:
  static constexpr size_t large_bytes = size_t{4} << 20;

  bool again(uint64_t hash) {
    std::atomic<uint64_t>& slot = slots_[hash % slot_count];
    const uint64_t seen = slot.load(std::memory_order_relaxed), tag = hash & ~count_mask;
    if ((seen & ~count_mask) != tag) {
      slot.store(tag | 1, std::memory_order_relaxed);
      return false;
    }
    if ((seen & count_mask) == often) return true;
    if ((seen & count_mask) + 1 == often && made_.fetch_add(1, std::memory_order_relaxed) >= most) return false;
    slot.store(seen + 1, std::memory_order_relaxed);
    return (seen & count_mask) + 1 == often;
  }

 private:
  static constexpr size_t slot_count = 1024;
  static constexpr uint64_t count_mask = 15, often = 8;
  static constexpr int most = 1024;  // so that sizes that differ all the time do not compile all the time
  std::atomic<uint64_t> slots_[slot_count] = {};
  std::atomic<int> made_ = 0;
};
inline SeenSizes* const seen_sizes = new SeenSizes;

inline uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 29;
}

inline uint64_t mixed(uint64_t hash, const DLTensor& tensor) {
  hash = mixed(hash, static_cast<uint64_t>(tensor.ndim) << 16 | tensor.dtype.code << 8 | tensor.dtype.bits);
  for (int32_t d = 0; d < tensor.ndim; ++d) {
    hash = mixed(hash, static_cast<uint64_t>(tensor.shape[d]));
    if (tensor.strides) hash = mixed(hash, static_cast<uint64_t>(tensor.strides[d]));
  }
  return hash;
}

// An input may be null: one that is left out.
inline gradloom_status call(Handles::Op op, int64_t variant, bool accumulate, std::span<const DLTensor* const> inputs,
                            const at::Tensor& out) {
  Argument output = Argument::output(out);
  bool again = false;
  if (out.nbytes() >= SeenSizes::large_bytes) {
    uint64_t hash = mixed(static_cast<uint64_t>(op) << 8 | static_cast<uint64_t>(variant) << 1 | accumulate, output);
    for (const DLTensor* const input : inputs) hash = input ? mixed(hash, *input) : mixed(hash, uint64_t{0});
    again = seen_sizes->again(mixed(hash, static_cast<uint64_t>(at::get_num_threads())));
  }
  const gradloom_prepared* const handle = handles->get(op, variant, accumulate, again);
  if (!handle) return GRADLOOM_INTERNAL;
  DLTensor* const outputs[] = {&output};
  return library->prepared_run_into(handle, inputs.data(), static_cast<int32_t>(inputs.size()), nullptr, outputs, 1);
}
template <size_t n>
gradloom_status call(Handles::Op op, int64_t variant, bool accumulate, const std::array<const DLTensor*, n>& inputs,
                     const at::Tensor& out) {
  return call(op, variant, accumulate, std::span<const DLTensor* const>(inputs), out);
}

}  // namespace gradloom_torch

#endif
