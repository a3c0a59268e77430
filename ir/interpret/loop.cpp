// Execution of loops in the interpreter: in order, together (vector loops), or as strands of the race detector.
#include <algorithm>
#include <limits>

#include "ir/interpret/code.h"

namespace gradloom::ir::interp {
namespace {

constexpr int64_t max_vector_extent = 4096;

int64_t agreed(const ExprCode& bound, std::span<Frame* const> frames, const std::string& loop) {
  const int64_t value = static_cast<int64_t>(bound.scalar(*frames[0]));
  for (Frame* frame : frames.subspan(1))
    if (static_cast<int64_t>(bound.scalar(*frame)) != value)
      fault("loop " + loop + " has bounds that differ between the iterations of a vector loop around it");
  return value;
}

struct ForCode final : StmtCode {
  ForCode(Run& r, const For& n, size_t at, ExprPtr from, ExprPtr count, StmtPtr stmt)
      : run_state(r),
        loop(n.var.name),
        kind(n.kind),
        slot(at),
        begin(std::move(from)),
        extent(std::move(count)),
        body(std::move(stmt)) {}

  void run(std::span<Frame* const> frames) override {
    const uint64_t first = static_cast<uint64_t>(agreed(*begin, frames, loop));
    const int64_t count = agreed(*extent, frames, loop);
    if (count <= 0) return;
    switch (kind) {
      case ForKind::serial:
      case ForKind::ordered:
      case ForKind::unroll:
      case ForKind::matrix_unit:
        return in_order(frames, first, count);
      case ForKind::cooperative:
        return as_strand([&] { in_order(frames, first, count); });
      case ForKind::parallel:
      case ForKind::grid:
      case ForKind::thread:
      case ForKind::warp:
      case ForKind::fragment: {
        const RaceDetector::Loop side_by_side = run_state.races.enter_loop(kind);
        for (int64_t k = 0; k < count; ++k) {
          const uint64_t value = first + static_cast<uint64_t>(run_state.reverse_parallel ? count - 1 - k : k);
          run_state.races.enter_iteration(side_by_side, static_cast<int64_t>(value), loop);
          iteration(frames, value);
          run_state.races.leave_iteration();
        }
        return run_state.races.leave_loop(side_by_side);
      }
      case ForKind::vector:
        return together(frames, first, count);
      case ForKind::lane:
        return as_strand([&] { together(frames, first, count); });
    }
  }

  template <class Body>
  void as_strand(const Body& body) {
    if (!run_state.races.explicit_barriers) return body();
    const RaceDetector::Loop all = run_state.races.enter_loop(kind);
    run_state.races.enter_iteration(all, {}, loop);
    body();
    run_state.races.leave_iteration();
    run_state.races.leave_loop(all);
  }

  void in_order(std::span<Frame* const> frames, uint64_t first, int64_t count) {
    for (int64_t k = 0; k < count; ++k) iteration(frames, first + static_cast<uint64_t>(k));
  }

  void iteration(std::span<Frame* const> frames, uint64_t value) {
    for (Frame* frame : frames) frame->vars[slot] = value;
    body->run(frames);
  }

  void together(std::span<Frame* const> frames, uint64_t first, int64_t count) {
    if (count > max_vector_extent)
      fault("vector loop " + loop + " has extent " + std::to_string(count) + ", at most " +
            std::to_string(max_vector_extent));
    const size_t total = frames.size() * static_cast<size_t>(count);
    copies.resize(std::max(copies.size(), total));
    std::vector<Frame*> all(total);
    size_t next = 0;
    for (Frame* frame : frames)
      for (int64_t k = 0; k < count; ++k, ++next) {
        copies[next] = *frame;
        copies[next].vars[slot] = first + static_cast<uint64_t>(k);
        all[next] = &copies[next];
      }
    body->run(all);
  }

  Run& run_state;
  std::string loop;
  ForKind kind;
  size_t slot;
  ExprPtr begin, extent;
  StmtPtr body;
  std::vector<Frame> copies;  // reused between runs for their memory
};

}  // namespace

void require_scalar(const ExprCode& code, const char* what) {
  if (code.lanes != 1) fault(std::string(what) + " has " + std::to_string(code.lanes) + " lanes, must be a scalar");
}

StmtPtr Translator::make(const For& n) {
  ExprPtr begin = alike(n.begin), extent = alike(n.extent);
  require_scalar(*begin, "a loop's begin");
  require_scalar(*extent, "a loop's extent");
  if (n.var.type != Type{}) fault("loop variable " + n.var.name + " must be i64");
  Scope scope(vars_, n.var.id);
  const size_t slot = declare(n.var);
  StmtPtr body = stmt(n.body);
  return std::make_unique<ForCode>(run_, n, slot, std::move(begin), std::move(extent), std::move(body));
}

}  // namespace gradloom::ir::interp
