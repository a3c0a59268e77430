#pragma once
// Small inline vectors: checking a call allocates nothing.
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "ir/error.h"

namespace gradloom {

template <class T, int Capacity>
class InlineVector {
 public:
  InlineVector() = default;
  InlineVector(std::initializer_list<T> values) { append(std::span<const T>(values.begin(), values.size())); }
  template <class Range>
  explicit InlineVector(const Range& values) {
    append(std::span<const T>(values.data(), values.size()));
  }
  void push_back(const T& value) {
    if (size_ == Capacity) throw Error(ErrorCode::unsupported, "more than " + std::to_string(Capacity) + " dims or parameters");
    values_[size_++] = value;
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
  T& operator[](int i) { return values_[i]; }
  const T& operator[](int i) const { return values_[i]; }
  T* data() { return values_.data(); }
  const T* data() const { return values_.data(); }
  T* begin() { return values_.data(); }
  T* end() { return values_.data() + size_; }
  const T* begin() const { return values_.data(); }
  const T* end() const { return values_.data() + size_; }
  const T& back() const { return values_[size_ - 1]; }
  T& back() { return values_[size_ - 1]; }
  bool operator==(const InlineVector& other) const { return std::equal(begin(), end(), other.begin(), other.end()); }

 private:
  std::array<T, Capacity> values_{};
  int size_ = 0;
};

inline constexpr int max_rank = 16;
using Dims = InlineVector<int64_t, max_rank>;

// The number of elements; 1 for rank 0. Throws Error(invalid_argument) when it does not fit in i64 (in bytes of `element_bytes`).
int64_t element_count(const Dims& dims, int element_bytes = 1);
Dims dense_strides(const Dims& dims);
bool is_dense(const Dims& dims, const Dims& strides);  // row-major; strides of dims of size 1, and of empty tensors, do not matter
std::string to_string(const Dims& dims);               // "[2,3]"

}  // namespace gradloom
