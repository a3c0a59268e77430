#pragma once
// A buffer at run time: bounds, which elements were written, facts and race records.
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "gradloom/stmt.h"
#include "ir/interpret/races.h"

namespace gradloom::ir::interp {

[[noreturn]] void fault(const std::string& message);  // Error(internal)

inline constexpr int max_rank = 32;

// State shared by all arrays of one run.
struct Run {
  RaceDetector races;
  bool check_races = true;
  bool reverse_parallel = false;
  bool failed = false;  // a Check failed: contents are unspecified from here on, so only bounds are still checked
  int64_t bad_position = 0;
};

struct Bound {  // of a buffer's values
  DType dtype;
  uint64_t bits;
};
// By value, across dtypes.
bool less(DType a_dtype, uint64_t a, DType b_dtype, uint64_t b);

class Array {
 public:
  explicit Array(Run& run) : run_(&run) {}

  struct Shape {
    std::vector<int64_t> dims, strides;  // strides may be empty: dense
    std::optional<Bound> min, max;
  };
  // Binds to the caller's memory at element [0, ..., 0], or, if `data` is absent, to memory that it allocates.
  void bind(const BufferNode& node, Shape shape, std::optional<void*> data);

  // The element's offset from [0, ..., 0]; faults when the index is out of bounds.
  int64_t locate(const int64_t* index, const char* what) const {
    int64_t offset = 0;
    for (size_t d = 0; d < rank_; ++d) {
      if (static_cast<uint64_t>(index[d]) >= static_cast<uint64_t>(shape_.dims[d])) out_of_bounds(index, what);
      offset += index[d] * shape_.strides[d];
    }
    return offset;
  }
  uint64_t load(const int64_t* index);
  void store(const int64_t* index, uint64_t bits);
  void accumulate(const int64_t* index, const Accumulate& how, uint64_t value, uint64_t factor);

 private:
  [[noreturn]] void out_of_bounds(const int64_t* index, const char* what) const;
  [[noreturn]] void fault_at(const int64_t* index, const std::string& what) const;
  uint64_t get(int64_t offset) const;
  void put(int64_t offset, uint64_t bits);
  void require_memory(const int64_t* index) const;
  bool written(int64_t offset) const { return written_.empty() || written_[offset - lowest_]; }
  void require_written(const int64_t* index, int64_t offset) const;
  // The race record of an element, or null where no other iteration can access it.
  Touch* touch(int64_t offset);
  void report(const int64_t* index, const std::string& conflict) const {
    if (!conflict.empty() && !run_->failed) fault_at(index, "race, " + conflict);
  }
  void check_facts(const int64_t* index, int64_t offset, uint64_t bits);
  void count_values();

  Run* run_;
  const BufferNode* node_ = nullptr;
  size_t rank_ = 0;
  int size_ = 1;
  Shape shape_;
  bool has_facts_ = false;
  uint8_t* data_ = nullptr;
  int64_t lowest_ = 0, span_ = 0;  // offsets lie in [lowest_, lowest_ + span_)
  int depth_ = 0;                  // number of enclosing strands where the array was made
  Sharing sharing_ = Sharing::common;
  uint32_t block_ = 0;  // the GPU block whose shared memory it is; 0: none
  std::vector<uint8_t> own_;
  std::vector<uint8_t> written_;  // by offset - lowest_; empty: all are
  std::vector<Touch> touches_;    // likewise; empty until needed
  bool counted_ = false;
  std::unordered_map<uint64_t, int64_t> counts_;  // of the written values, for `injective`
};

}  // namespace gradloom::ir::interp
