#pragma once
// Memory for the views of a call, with generated inputs, for calls in the background: floats have mixed signs and full
// mantissas, so that a different summation order would show; integers are small enough to be indices.
#include <array>
#include <functional>
#include <random>
#include <vector>

#include "runtime/planned_call.h"

namespace gradloom {

class GeneratedCall {
 public:
  // With so many sets of outputs, at most 2. Throws Error(resource_exhausted) beyond 1 GiB.
  GeneratedCall(const PlannedCall& call, int output_sets);

  // Fills the inputs, integers below the largest bound of which `launch` fails no Check. Returns its bad position,
  // which no smaller bound cures if there is one.
  int64_t fill_inputs(const std::function<int64_t(void* const* views)>& launch);
  void fill_outputs(int set);  // with the same values each time
  void* const* views(int set) { return views_[static_cast<size_t>(set)].data(); }

  struct Bytes {
    char* data;
    int64_t count;
  };
  Bytes output(int set, int view) { return outputs_[static_cast<size_t>(set)][static_cast<size_t>(view)].bytes(); }

 private:
  struct Memory {
    std::vector<uint64_t> words;
    int64_t start = 0;  // offset of its first byte: all words start at the same alignment
    int64_t first = 0;  // byte offset of element [0, ..., 0]
    int64_t count = 0;
    char* base() { return reinterpret_cast<char*>(words.data()); }
    Bytes bytes() { return {base() + start, count}; }
  };
  Memory memory_of(const View& view, bool aligned);

  const Plan& plan_;
  std::mt19937_64 random_{1};
  int64_t bytes_ = 0;
  std::vector<Memory> inputs_;
  std::array<std::vector<Memory>, 2> outputs_;
  std::array<std::array<void*, max_views>, 2> views_;
};

}  // namespace gradloom
