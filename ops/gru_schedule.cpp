// The schedule of GRUTraining and GRUGrad: batches to threads, products by schedule_matmul, columns to vectors.
#include "ir/rewrite.h"
#include "ir/schedule_gpu.h"
#include "ops/gru.h"
#include "ops/schedule_common.h"

namespace gradloom {
namespace {

using Loop = ir::Schedule::Loop;

constexpr const char* recurrent[] = {"step0", "step1", "candidate0", "candidate1"};
constexpr const char* whole[] = {"xw", "hr", "rhr", "dx0", "dx1", "dw", "dr", "dr_candidate"};  // over all steps

// Whether `outer` holds `inner`.
bool holds(const ir::Schedule& s, Loop outer, Loop inner) {
  bool found = false;
  ir::walk(s.get(outer).body, [&](const ir::Stmt& stmt) {
    if (const ir::For* loop = stmt.as<ir::For>()) found = found || loop->var.id == inner;
  });
  return found;
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

}  // namespace

void schedule_gru(ir::Schedule& s, const Plan& plan, const ir::Target& target) {
  if (target.gpu) {
    for (const char* prefix : recurrent) schedule_matmul_blocks(s, prefix);
    for (const char* prefix : whole) schedule_matmul_blocks(s, prefix);
    return ir::schedule_gpu(s, target);
  }
  const int bytes = size_of(accumulator_of(plan.views[0].dtype));
  for (const char* name : {"j", "i"})
    for (const Loop loop : s.loops(name)) {
      const std::vector<Loop> innermost = innermost_loops(s);
      if (std::find(innermost.begin(), innermost.end(), loop) != innermost.end()) vectorize_elements(s, loop, bytes, 1, target);
    }
  for (const char* shared : {"chunk", "shared"})
    for (const Loop loop : s.loops(shared)) s.parallel(loop);
  for (const char* prefix : recurrent) schedule_recurrent(s, prefix, target);
  for (const char* prefix : whole)
    if (!s.loops(std::string(prefix) + "_m").empty()) schedule_matmul(s, prefix, target);
}

}  // namespace gradloom
