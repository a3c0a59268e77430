#pragma once
// One call of a loop nest from the command line: its scalars, and memory for each buffer parameter.
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gradloom/stmt.h"
#include "gradloom/tensor.h"
#include "runtime/kernel_arguments.h"

namespace gradloom::nest {

inline constexpr int64_t most_bytes = int64_t{1} << 32;  // of all buffers of a call

// A buffer's elements at the addresses that its strides give, between guard regions that detect stray writes. Unset
// bytes are 0xff: a NaN, -1, an invalid boolean.
class Memory {
 public:
  Memory(DType dtype, const Dims& dims, const Dims& strides, int64_t alignment);
  Memory(const Memory& other);
  Memory& operator=(Memory other);

  int64_t elements() const { return elements_; }
  // Calls fn(position, offset) for the elements in row-major order.
  template <class Fn>
  void each(Fn&& fn) const;
  uint64_t get(int64_t offset) const;
  void set(int64_t offset, uint64_t bits);
  // A tensor view; this must outlive it.
  Tensor tensor(bool writable) const;
  // The first byte outside all elements, counted from element [0, ..., 0], that was modified; nothing when none was.
  std::optional<int64_t> stray_write() const;
  uint64_t checksum() const;  // of the elements
  // The bytes that a call of these dims takes, guards and alignment included; nothing beyond most_bytes.
  static std::optional<int64_t> bytes_of(DType dtype, const Dims& dims, const Dims& strides, int64_t alignment);

 private:
  DType dtype_;
  Dims dims_, strides_;
  int64_t alignment_, elements_ = 0;
  int64_t lead_ = 0, size_ = 0;  // bytes: of the allocation before and after element [0, ..., 0]
  int64_t low_ = 0, high_ = 0;   // byte offsets from element [0, ..., 0]: the range of the elements
  std::shared_ptr<char> block_;
  char* first_ = nullptr;
};

struct Argument {
  ir::Buffer declared;
  std::string name;
  Dims dims, strides;
  DeclaredRange range;
  Memory memory;
  bool given() const { return declared->role != ir::Role::out; }  // it is initialised before the call
  bool written() const { return declared->role != ir::Role::in; }
  std::string element_name(int64_t position) const;  // "x[1,2]"
};

struct Call {
  // Checks the scalars against their ranges and allocates the memory. Throws Error(invalid_argument);
  // Error(resource_exhausted) beyond `bytes`.
  Call(const ir::Kernel& kernel, std::span<const int64_t> scalars, int64_t bytes = most_bytes);
  // Checks that the values of in and inout buffers satisfy the declared facts: ranges, nondecreasing, injective. Throws
  // Error(invalid_argument) naming the first that does not.
  void check_facts() const;

  ir::Kernel kernel;
  std::vector<int64_t> slots;
  std::vector<Argument> buffers;
};

template <class Fn>
void Memory::each(Fn&& fn) const {
  Dims index;
  index.resize(dims_.size());
  int64_t offset = 0;
  for (int64_t position = 0; position < elements_; ++position) {
    fn(position, offset);
    for (int d = dims_.size(); d-- > 0;) {
      offset += strides_[d];
      if (++index[d] < dims_[d]) break;
      offset -= strides_[d] * dims_[d];
      index[d] = 0;
    }
  }
}

}  // namespace gradloom::nest
