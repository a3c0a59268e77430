// The schedule of GRUTraining and GRUGrad: batches to threads, products by schedule_matmul, columns to vectors.
#include "ir/rewrite.h"
#include "ir/schedule/schedule_gpu.h"
#include "ir/schedule/site.h"
#include "ops/gru/gru.h"
#include "ops/matmul/matmul_recurrent.h"
#include "ops/patterns/schedule_common.h"

namespace gradloom {
namespace {

using Loop = ir::Schedule::Loop;

constexpr const char* recurrent[] = {"step0", "step1", "candidate0", "candidate1"};
constexpr const char* whole[] = {"xw", "hr", "rhr", "dx0", "dx1", "dw", "dr", "dr_candidate"};  // over all steps

// Whether `outer` holds `inner`.
bool holds(const ir::Schedule& s, Loop outer, Loop inner) {
  const std::vector<const ir::For*> below = ir::loops_below(s.get(outer).body);
  return std::any_of(below.begin(), below.end(), [&](const ir::For* loop) { return loop->var.id == inner; });
}

// The products that run step by step: R is brought into panels once, before the batch is shared out.
void schedule_recurrent(ir::Schedule& s, const std::string& prefix, const ir::Target& target) {
  const std::vector<Loop> products = s.loops(prefix + "_m");
  if (products.empty()) return;
  MatmulHints hints;
  for (const char* around : {"chunk", "t"})
    for (const Loop loop : s.loops(around))
      if (!hints.pack_b_before && holds(s, loop, products[0])) hints.pack_b_before = loop;
  schedule_matmul(s, prefix, target, hints);
}

// All steps of a direction are one launch, where the device can do that.
void persist(ir::Schedule& s, const ir::Target& target) {
  if (!target.cooperative) return;
  for (const char* name : {"launch", "t"})
    for (const Loop steps : s.loops(name)) {
      const ir::Site site = ir::find_loop(s.kernel(), steps);
      const std::vector<const ir::For*> below = ir::loops_below(site.loop->body);
      const auto launched = [](const ir::Stmt& around) {
        return around.as<ir::For>() && around.as<ir::For>()->kind == ir::ForKind::cooperative;
      };
      const auto launches = [](const ir::For* loop) { return loop->kind == ir::ForKind::grid; };
      if (std::none_of(site.path.begin(), site.path.end(), launched) &&
          std::any_of(below.begin(), below.end(), launches))
        s.bind(steps, ir::ForKind::cooperative);
    }
}

}  // namespace

void schedule_gru(ir::Schedule& s, const Plan& plan, const ir::Target& target) {
  if (target.gpu) {
    for (const char* prefix : recurrent) schedule_matmul_recurrent(s, prefix), schedule_matmul_blocks(s, prefix);
    for (const char* prefix : whole) schedule_matmul_blocks(s, prefix);
    ir::schedule_gpu(s, target);
    return persist(s, target);
  }
  const int bytes = size_of(accumulator_of(plan.views[0].dtype));
  for (const char* name : {"j", "i"})
    for (const Loop loop : s.loops(name)) {
      const std::vector<Loop> innermost = innermost_loops(s);
      if (std::find(innermost.begin(), innermost.end(), loop) != innermost.end())
        vectorize_elements(s, loop, bytes, 1, target);
    }
  for (const char* shared : {"chunk", "shared"})
    for (const Loop loop : s.loops(shared)) s.parallel(loop);
  for (const char* prefix : recurrent) schedule_recurrent(s, prefix, target);
  for (const char* prefix : whole)
    if (!s.loops(std::string(prefix) + "_m").empty()) schedule_matmul(s, prefix, target);
}

}  // namespace gradloom
