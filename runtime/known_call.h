#pragma once
// The arguments of a call that an op has checked, and the result: a later call with the same ones needs no check.
#include <string>
#include <vector>

#include "runtime/argument.h"
#include "runtime/core.h"

namespace gradloom {

// What stays the same from call to call of a handle; all of it outlives the calls.
struct CallSettings {
  const Core& core;
  const Op& op;
  const Attributes& attributes;
  const RunOptions& options;
};

struct KnownCall {
  // Throws what Op::check throws.
  KnownCall(const CallSettings& settings, Arguments inputs, uint32_t outputs_wanted);

  bool same(Arguments arguments) const;
  // Gives the plan's views the strides of outputs that are not dense; `same_strides`: of those of another call.
  void write_in_place(Arguments outputs);
  bool same_strides(Arguments outputs) const;
  // Of the first argument that differs in dtype, dims or strides: "input 0 (dY) is ...; <was> ...". Empty when none
  // does.
  std::string difference(const OpSchema& schema, Arguments arguments, const char* was) const;

  struct Input {
    Operand operand;  // its `host` is null
    bool dense = false;
    int64_t elements = 0;
    bool shape_like = false;
    std::vector<char> values{};  // of a shape-like one
  };
  std::vector<Input> inputs;
  uint32_t outputs_wanted;
  uint32_t outputs_had = 0;  // those of the wanted ones that this call has
  Plan plan;
  uint32_t in_place = 0;             // outputs that are not dense, whose views have their strides
  std::vector<Dims> output_strides;  // of outputs that are not dense, else empty; none: all are dense
};

}  // namespace gradloom
