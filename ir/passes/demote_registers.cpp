// A buffer that asked for registers but is indexed by a variable, because no schedule unrolled or vectorized that loop,
// lives on the stack instead. Prefetches of buffers in registers go: there is no memory to fetch.
#include <algorithm>

#include "ir/analysis/verify.h"
#include "ir/passes/passes.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

// Swaps each demoted buffer, under its own id.
struct Demote : Rewriter {
  Buffer buffer(const Buffer& b) override {
    const auto found = demoted.find(b->id);
    return found == demoted.end() ? b : found->second;
  }
  void look(const Buffer& b, const std::vector<Expr>& index) {
    if (b->space != Space::registers || std::all_of(index.begin(), index.end(), constant_index)) return;
    auto [slot, fresh] = demoted.try_emplace(b->id);
    if (!fresh) return;
    BufferNode node = *b;
    node.space = Space::global;
    slot->second = make_buffer(std::move(node));
  }
  using Rewriter::rewrite;
  Stmt rewrite(const Evaluate& n, const Stmt& self) override {
    const Buffer& b = n.value.as<Intrinsic>()->buffer;
    return b && b->space == Space::registers ? block({}) : Rewriter::rewrite(n, self);
  }
  std::unordered_map<int64_t, Buffer> demoted;
  bool prefetched = false;  // one in registers
};

}  // namespace

Kernel demote_registers(const Kernel& kernel) {
  Demote demote;
  walk(
      kernel.body,
      [&](const Stmt& s) {
        if (const Store* n = s.as<Store>()) demote.look(n->buffer, n->index);
        if (const Accumulate* n = s.as<Accumulate>()) demote.look(n->buffer, n->index);
      },
      [&](const Expr& e) {
        if (const Load* n = e.as<Load>()) demote.look(n->buffer, n->index);
        if (const Intrinsic* n = e.as<Intrinsic>(); n && n->buffer)
          demote.prefetched |= n->buffer->space == Space::registers;
      });
  return demote.demoted.empty() && !demote.prefetched ? kernel : demote(kernel);
}

}  // namespace gradloom::ir
