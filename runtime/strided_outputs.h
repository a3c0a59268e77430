#pragma once
// Outputs in memory that is not dense. Where a plan's views can describe it the kernel writes it in place, else into
// dense memory of the call's, which a compiled kernel copies. Nothing is written between the elements.
#include <vector>

#include "runtime/argument.h"
#include "runtime/core.h"

namespace gradloom {

// Whether gaps, steps or another order than row-major keep it from being dense.
inline bool is_strided(const Argument& a) { return a.strides && !is_dense(dims_of(a), strides_of(a)); }

// Gives views of such outputs the strides of their memory. Returns a mask of the outputs that a kernel of the plan then
// writes in place. Those must be checked.
uint32_t write_in_place(Plan& plan, Arguments outputs);

// The outputs of one call as its kernel sees them, where some are not dense and not written in place.
class DenseOutputs {
 public:
  static bool needed(Arguments outputs, uint32_t in_place) {
    for (size_t o = 0; o < outputs.size(); ++o)
      if (is_copied(outputs[o], in_place >> o & 1)) return true;
    return false;
  }
  // With `accumulate`, the gradients so far are copied there.
  DenseOutputs(Core& core, int device, Arguments outputs, uint32_t in_place, bool accumulate,
               const LaunchOptions& launch);
  Arguments arguments() const { return span_of(list_); }
  void copy_back() const;

 private:
  static bool is_copied(const Argument& output, bool in_place) {
    return output.present && is_strided(output) && !in_place;
  }
  // The copy between an output and its dense memory, of the axes as they lie in the output.
  struct Copy {
    Argument from, to;
    Plan plan;
    KernelHandle kernel;
  };
  Copy copy_of(const Argument& from, const Argument& to) const;
  void run(const Copy& copy) const;

  Core& core_;
  const int device_;
  const LaunchOptions& launch_;
  OutputArguments list_;
  std::vector<Tensor> memory_;  // dense
  std::vector<Copy> back_;
};

}  // namespace gradloom
