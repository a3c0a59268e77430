#include "ops/patterns/planned_loops.h"

#include "gradloom/builder.h"

namespace gradloom {

void PlannedLoops::write(ir::KernelBuilder& builder, ir::ForKind kind, const std::string& name, const ir::Expr& extent,
                         const std::function<void(ir::Expr)>& body) {
  const size_t place = loops_.size();
  loops_.emplace_back(0, kind);
  const ir::Loop loop = builder.loop(name, 0, extent, body);
  loops_[place].first = loop;
}

void PlannedLoops::schedule(ir::Schedule& s) const {
  for (const auto& [loop, kind] : loops_) {
    if (ir::on_gpu(kind)) {
      s.bind(loop, kind);
      continue;
    }
    const bool vector = kind == ir::ForKind::vector && ir::as_int(s.get(loop).extent) != 1;
    if (!vector || !s.attempt([&](ir::Schedule& trial) { trial.vectorize(loop); })) s.unroll(loop);
  }
}

}  // namespace gradloom
