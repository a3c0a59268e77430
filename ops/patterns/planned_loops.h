#pragma once
// Loops that are written together with what they are to become.
#include <functional>
#include <string>
#include <vector>

#include "gradloom/schedule.h"

namespace gradloom {

namespace ir {
class KernelBuilder;
}

class PlannedLoops {
 public:
  // Writes a serial loop over [0, extent) that `schedule` binds to `kind`, or unrolls; `vector`: makes a vector where
  // that is proved, and else unrolls.
  void write(ir::KernelBuilder& builder, ir::ForKind kind, const std::string& name, const ir::Expr& extent,
             const std::function<void(ir::Expr)>& body);
  // In order of appearance, outer before inner.
  void schedule(ir::Schedule& s) const;

 private:
  std::vector<std::pair<ir::Loop, ir::ForKind>> loops_;
};

}  // namespace gradloom
