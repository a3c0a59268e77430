#pragma once
// Loops that are emitted along with their schedule (a binding, vectors or unrolling).
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
  // Emits a serial loop over [0, extent) that `schedule` binds to `kind`, or unrolls; `vector`: vectorised where that
  // is proved legal, else unrolled.
  void write(ir::KernelBuilder& builder, ir::ForKind kind, const std::string& name, const ir::Expr& extent,
             const std::function<void(ir::Expr)>& body);
  // In order of appearance, outer before inner.
  void schedule(ir::Schedule& s) const;

 private:
  std::vector<std::pair<ir::Loop, ir::ForKind>> loops_;
};

}  // namespace gradloom
