#include "ir/interpret/memory.h"

#include <cstring>
#include <limits>
#include <utility>

#include "ir/scalar_math.h"

namespace gradloom::ir::interp {
namespace {

constexpr int64_t max_elements = int64_t{1} << 32;  // of a buffer with per-element records

std::string text(const int64_t* index, size_t rank) {
  std::string s = "[";
  for (size_t d = 0; d < rank; ++d) s += (d ? ", " : "") + std::to_string(index[d]);
  return s + "]";
}

std::string value_text(DType dtype, uint64_t bits) {
  if (is_float(dtype)) return std::to_string(double_from_bits(dtype, bits));
  return dtype == DType::u64 ? std::to_string(bits) : std::to_string(int_from_bits(dtype, bits));
}

}  // namespace

void fault(const std::string& message) { throw Error(ErrorCode::internal, message); }

bool less(DType a_dtype, uint64_t a, DType b_dtype, uint64_t b) {
  if (is_float(a_dtype) || is_float(b_dtype)) return double_from_bits(a_dtype, a) < double_from_bits(b_dtype, b);
  const int64_t x = int_from_bits(a_dtype, a), y = int_from_bits(b_dtype, b);
  if (a_dtype == DType::u64) return b_dtype == DType::u64 ? a < b : std::cmp_less(a, y);
  return b_dtype == DType::u64 ? std::cmp_less(x, b) : x < y;
}

void Array::bind(const BufferNode& node, Shape shape, std::optional<void*> data) {
  node_ = &node;
  shape_ = std::move(shape);
  rank_ = shape_.dims.size();
  size_ = size_of(node.dtype);
  has_facts_ = shape_.min || shape_.max || node.facts.nondecreasing || node.facts.injective;
  depth_ = run_->races.depth();
  sharing_ = run_->races.sharing(node.space);
  counted_ = false;
  counts_.clear();
  // A block's shared memory is the same each time that an alloc in it is reached.
  const uint32_t block = node.space == Space::shared ? run_->races.running_block() : 0;
  if (block == 0 || block != block_) touches_.clear();
  block_ = block;

  __int128 count = 1;
  for (int64_t dim : shape_.dims) {
    if (dim < 0)
      fault("buffer " + node.name + " has dims " + text(shape_.dims.data(), rank_) + ", which must not be negative");
    count *= dim;
    if (count > max_elements && node.role != Role::in)
      throw Error(ErrorCode::resource_exhausted,
                  "buffer " + node.name + " has too many elements: dims " + text(shape_.dims.data(), rank_));
    if (count > std::numeric_limits<int64_t>::max()) count = std::numeric_limits<int64_t>::max();
  }
  if (shape_.strides.empty()) {
    shape_.strides.resize(rank_);
    uint64_t stride = 1;
    for (size_t d = rank_; d-- > 0; stride *= static_cast<uint64_t>(shape_.dims[d]))
      shape_.strides[d] = static_cast<int64_t>(stride);
  }
  __int128 low = 0, high = 0;
  if (count > 0)
    for (size_t d = 0; d < rank_; ++d) {
      const __int128 reach = static_cast<__int128>(shape_.dims[d] - 1) * shape_.strides[d];
      (reach < 0 ? low : high) += reach;
    }
  if (low < -(__int128{1} << 59) || high > (__int128{1} << 59))
    fault("buffer " + node.name + " reaches past the address space");
  lowest_ = static_cast<int64_t>(low);
  span_ = count == 0 ? 0 : static_cast<int64_t>(high - low) + 1;
  if (span_ > max_elements && node.role != Role::in)
    fault("buffer " + node.name + " spans too many elements: strides " + text(shape_.strides.data(), rank_));

  if (data) {
    data_ = static_cast<uint8_t*>(*data);
    own_.clear();
  } else {
    own_.assign(static_cast<size_t>(span_) * size_, 0xa5);  // read only after a failed check
    data_ = own_.data() - lowest_ * size_;
  }
  if (node.role == Role::in || node.role == Role::inout)
    written_.clear();
  else
    written_.assign(static_cast<size_t>(span_), 0);
}

void Array::fault_at(const int64_t* index, const std::string& what) const {
  fault("buffer " + node_->name + text(index, rank_) + ": " + what);
}

void Array::out_of_bounds(const int64_t* index, const char* what) const {
  fault_at(index, std::string(what) + " out of bounds, dims are " + text(shape_.dims.data(), rank_));
}

void Array::require_memory(const int64_t* index) const {
  if (!data_) fault_at(index, "the buffer has no memory");
}

uint64_t Array::get(int64_t offset) const {
  const uint8_t* from = data_ + offset * size_;
  switch (size_) {
    case 1:
      return node_->dtype == DType::boolean ? *from != 0 : *from;
    case 2: {
      uint16_t v;
      std::memcpy(&v, from, 2);
      return v;
    }
    case 4: {
      uint32_t v;
      std::memcpy(&v, from, 4);
      return v;
    }
    default: {
      uint64_t v;
      std::memcpy(&v, from, 8);
      return v;
    }
  }
}

void Array::put(int64_t offset, uint64_t bits) {
  if (node_->facts.injective) {
    count_values();
    if (written(offset)) --counts_[get(offset)];
    ++counts_[bits];
  }
  uint8_t* to = data_ + offset * size_;
  switch (size_) {
    case 1: {
      *to = static_cast<uint8_t>(bits);
      break;
    }
    case 2: {
      const uint16_t v = static_cast<uint16_t>(bits);
      std::memcpy(to, &v, 2);
      break;
    }
    case 4: {
      const uint32_t v = static_cast<uint32_t>(bits);
      std::memcpy(to, &v, 4);
      break;
    }
    default:
      std::memcpy(to, &bits, 8);
  }
  if (!written_.empty()) written_[offset - lowest_] = 1;
}

void Array::require_written(const int64_t* index, int64_t offset) const {
  if (!written(offset) && !run_->failed) fault_at(index, "read, but never written");
}

Touch* Array::touch(int64_t offset) {
  if (!run_->check_races || node_->role == Role::in || run_->races.depth() == depth_) return nullptr;
  if (touches_.empty()) touches_.resize(static_cast<size_t>(span_));
  return &touches_[offset - lowest_];
}

uint64_t Array::load(const int64_t* index) {
  const int64_t offset = locate(index, "a load");
  require_memory(index);
  require_written(index, offset);
  if (Touch* t = touch(offset)) report(index, run_->races.read(*t, sharing_));
  const uint64_t bits = get(offset);
  if (has_facts_ && !run_->failed) check_facts(index, offset, bits);
  return bits;
}

void Array::store(const int64_t* index, uint64_t bits) {
  const int64_t offset = locate(index, "a store");
  require_memory(index);
  if (node_->role == Role::in) fault_at(index, "a store to an input");
  if (Touch* t = touch(offset)) report(index, run_->races.write(*t, sharing_));
  put(offset, bits);
}

void Array::accumulate(const int64_t* index, const Accumulate& how, uint64_t value, uint64_t factor) {
  const int64_t offset = locate(index, "an accumulate");
  require_memory(index);
  if (node_->role == Role::in) fault_at(index, "an accumulate to an input");
  if (Touch* t = touch(offset))
    report(index, how.atomic ? run_->races.accumulate(*t, how.op, sharing_) : run_->races.write(*t, sharing_));
  require_written(index, offset);
  const uint64_t old = get(offset);
  switch (how.op) {
    case AccumulateOp::add:
      return put(offset, eval_binary(BinaryOp::add, node_->dtype, old, value));
    case AccumulateOp::mul:
      return put(offset, eval_binary(BinaryOp::mul, node_->dtype, old, value));
    case AccumulateOp::min:
      return put(offset, eval_binary(BinaryOp::min, node_->dtype, old, value));
    case AccumulateOp::max:
      return put(offset, eval_binary(BinaryOp::max, node_->dtype, old, value));
    case AccumulateOp::fma:
      return put(offset, eval_fma(node_->dtype, value, factor, old));
  }
}

void Array::check_facts(const int64_t* index, int64_t offset, uint64_t bits) {
  const DType t = node_->dtype;
  if (shape_.min && less(t, bits, shape_.min->dtype, shape_.min->bits))
    fault_at(index, "is " + value_text(t, bits) + ", below its declared minimum " +
                        value_text(shape_.min->dtype, shape_.min->bits));
  if (shape_.max && less(shape_.max->dtype, shape_.max->bits, t, bits))
    fault_at(index, "is " + value_text(t, bits) + ", above its declared maximum " +
                        value_text(shape_.max->dtype, shape_.max->bits));
  if (node_->facts.nondecreasing && rank_ > 0) {
    const int64_t at = index[rank_ - 1], step = shape_.strides[rank_ - 1];
    if (at > 0 && written(offset - step) && less(t, bits, t, get(offset - step)))
      fault_at(index, "is " + value_text(t, bits) + " after " + value_text(t, get(offset - step)) +
                          ", but declared nondecreasing");
    if (at + 1 < shape_.dims[rank_ - 1] && written(offset + step) && less(t, get(offset + step), t, bits))
      fault_at(index, "is " + value_text(t, bits) + " before " + value_text(t, get(offset + step)) +
                          ", but declared nondecreasing");
  }
  if (node_->facts.injective) {
    count_values();
    if (counts_[bits] > 1)
      fault_at(index, "is " + value_text(t, bits) + " like another element, but declared injective");
  }
}

void Array::count_values() {
  if (counted_) return;
  counted_ = true;
  if (span_ == 0) return;
  std::vector<int64_t> index(rank_, 0);
  while (true) {
    const int64_t offset = locate(index.data(), "a count");
    if (written(offset)) ++counts_[get(offset)];
    size_t d = rank_;
    while (d > 0 && ++index[d - 1] == shape_.dims[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

}  // namespace gradloom::ir::interp
