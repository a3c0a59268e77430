#pragma once
// The passes that turn a scheduled kernel into a lowered one. One file, one free function each; pipeline.cpp lists them in order.
#include <functional>

#include "ir/stmt.h"
#include "ir/target.h"

namespace gradloom::ir {

// Folds constants, identities and proved conditions; drops empty loops, dead branches and lets used nowhere. Any stage; keeps every bit.
Kernel simplify(const Kernel& kernel);
// Unroll loops -> copies. Requires: constant extents. Breaks: nothing.
Kernel unroll(const Kernel& kernel);
// Vector loops -> vector statements: the variable becomes a ramp, conditions become guards. Requires: constant extents, proved loops.
Kernel vectorize(const Kernel& kernel);
// Stores that fill interleaved places (ramps of one stride k, at base, base+1, ..., base+k-1) -> one dense store of shuffled lanes.
Kernel coalesce_stores(const Kernel& kernel);

// Register buffers with an index that is not constant -> ordinary ones. Gives: what Stage::lowered asks of register buffers.
Kernel demote_registers(const Kernel& kernel);

struct PassTime {
  std::string pass;
  double ms;
};
struct LowerOptions {
  std::function<void(const std::string& pass, const Kernel& after)> dump;
  std::vector<PassTime>* times = nullptr;
};
// All of the above, in order. The result verifies as Stage::lowered. Debug builds verify after every pass.
Kernel lower(const Kernel& scheduled, const LowerOptions& options = {});

}  // namespace gradloom::ir
