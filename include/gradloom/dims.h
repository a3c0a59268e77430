#pragma once
// Small inline vectors: checking a call does not allocate.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "gradloom/error.h"

#pragma GCC visibility push(default)
namespace gradloom {

template <class T, int Capacity>
class InlineVector {
 public:
  static_assert(std::is_trivially_destructible_v<T>, "elements are dropped, not destroyed");

  InlineVector() {}  // the elements stay uninitialised: a plan has room for many, and a call uses few
  InlineVector(const InlineVector& other) : size_(other.size_) {
    std::uninitialized_copy_n(other.data(), size_, data());
  }
  InlineVector& operator=(const InlineVector& other) {
    if (this != &other) std::uninitialized_copy_n(other.data(), size_ = other.size_, data());
    return *this;
  }
  InlineVector(std::initializer_list<T> values) { append(std::span<const T>(values.begin(), values.size())); }
  template <class Range>
  requires(!std::is_same_v<Range, InlineVector>) explicit InlineVector(const Range& values) {
    append(std::span<const T>(values.data(), values.size()));
  }
  void push_back(const T& value) {
    if (size_ == Capacity)
      throw Error(ErrorCode::unsupported, "more than " + std::to_string(Capacity) + " dims or parameters");
    std::construct_at(data() + size_++, value);
  }
  void append(std::span<const T> values) {
    for (const T& v : values) push_back(v);
  }
  void clear() { size_ = 0; }
  void resize(int n) {
    while (size_ < n) push_back(T{});
    size_ = n;
  }
  int size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](int i) { return data()[i]; }
  const T& operator[](int i) const { return data()[i]; }
  T* data() { return reinterpret_cast<T*>(values_); }
  const T* data() const { return reinterpret_cast<const T*>(values_); }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  const T& back() const { return data()[size_ - 1]; }
  T& back() { return data()[size_ - 1]; }
  bool operator==(const InlineVector& other) const { return std::equal(begin(), end(), other.begin(), other.end()); }

 private:
  alignas(T) std::byte values_[sizeof(T) * Capacity];
  int size_ = 0;
};

inline constexpr int max_rank = 16;
using Dims = InlineVector<int64_t, max_rank>;

// The number of elements; 1 for rank 0. Throws Error(invalid_argument) when it does not fit in i64 (in bytes of
// `element_bytes`).
int64_t element_count(const Dims& dims, int element_bytes = 1);
Dims dense_strides(const Dims& dims);
bool is_dense(const Dims& dims,
              const Dims& strides);       // row-major; strides of dims of size 1, and of empty tensors, do not matter
std::string to_string(const Dims& dims);  // "[2,3]"

}  // namespace gradloom

#pragma GCC visibility pop
