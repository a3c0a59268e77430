#include "cli/bench/gpu_predict.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "ir/rewrite.h"

namespace gradloom::cli {
namespace {

using ir::Expr;

struct Traffic {
  double read = 0, written = 0, size = 0;
};

class Predictor {
 public:
  explicit Predictor(const ir::Kernel& kernel) { host(kernel.body, 1); }
  std::vector<GpuPrediction> launches;

 private:
  void host(const ir::Stmt& s, double times) {
    if (!s) return;
    if (const auto* n = s.as<ir::For>()) {
      const double extent = enter(*n);
      if (n->kind == ir::ForKind::cooperative) return cooperative(*n, times, extent);
      if (n->kind != ir::ForKind::grid) return host(n->body, times * extent);
      launch(*n, times, extent);
    } else if (const auto* n = s.as<ir::Block>()) {
      for (const ir::Stmt& part : n->stmts) host(part, times);
    } else if (const auto* n = s.as<ir::Let>()) {
      lets_[n->var.id] = n->value;
      host(n->body, times);
    } else if (const auto* n = s.as<ir::If>()) {
      host(n->then_case, times);
      host(n->else_case, times);
    } else if (const auto* n = s.as<ir::Alloc>()) {
      if (n->buffer->space == ir::Space::per_block) own_.insert(n->buffer->id);
      host(n->body, times);
    }
  }

  // One launch: what its grid loops do, summed.
  void cooperative(const ir::For& n, double launches_of_it, double turns) {
    const size_t first = launches.size();
    host(n.body, launches_of_it * turns);
    GpuPrediction all;
    for (size_t i = first; i < launches.size(); ++i) {
      all.accessed_bytes += launches[i].accessed_bytes;
      all.moved_bytes += launches[i].moved_bytes;
      all.steps += launches[i].steps;
    }
    launches.resize(first);
    launches.push_back(all);
  }

  void launch(const ir::For& grid, double launches_of_it, double blocks) {
    threads_ = 32;
    ir::walk(grid.body, [&](const ir::Stmt& s) {
      const auto* n = s.as<ir::For>();
      if (!n || (n->kind != ir::ForKind::thread && n->kind != ir::ForKind::warp)) return;
      threads_ = std::max(
          threads_, std::min(expected(n->extent, true) * (n->kind == ir::ForKind::warp ? ir::warp_lanes : 1), 1024.0));
    });
    traffic_.clear();
    GpuPrediction p;
    p.steps = launches_of_it * statement(grid.body, blocks);
    for (const auto& [buffer, t] : traffic_) {
      p.accessed_bytes += launches_of_it * (t.read + t.written);
      p.moved_bytes += launches_of_it * (std::min(t.read, t.size) + std::min(t.written, t.size));
    }
    launches.push_back(p);
  }

  // How long the loop is expected to be.
  double enter(const ir::For& n) {
    const double begin = expected(n.begin, true), extent = std::max(0.0, expected(n.extent, true));
    range_[n.var.id] = {begin, extent, together(n.kind)};
    return extent;
  }

  // Iterations that run side by side; 0: one after the other.
  double together(ir::ForKind kind) const {
    switch (kind) {
      case ir::ForKind::thread:
        return threads_;
      case ir::ForKind::warp:
        return std::max(1.0, threads_ / ir::warp_lanes);
      case ir::ForKind::lane:
        return ir::warp_lanes;
      default:
        return 0;
    }
  }

  // Steps of one thread; `times`: how often the statement runs in the whole launch, what all threads of a block do
  // alike counted once.
  double statement(const ir::Stmt& s, double times) {
    return s ? std::visit([&](const auto& n) { return steps(n, times); }, s.node().value) : 0;
  }
  double steps(const ir::For& n, double times) {
    const double extent = enter(n), body = statement(n.body, times * extent);
    switch (n.kind) {
      case ir::ForKind::thread:
      case ir::ForKind::warp:
        return std::ceil(extent / together(n.kind)) * body;
      case ir::ForKind::lane:
      case ir::ForKind::vector:
        return body;
      // Rows and columns: 8 by 4 lanes side by side. With 16 along k, 16 by 8 sums are one instruction.
      case ir::ForKind::fragment:
        return extent / (n.body.as<ir::For>() && n.body.as<ir::For>()->kind == ir::ForKind::fragment ? 8 : 4) * body;
      case ir::ForKind::matrix_unit:
        return extent / 64 * body;
      case ir::ForKind::serial:
      case ir::ForKind::unroll:
      case ir::ForKind::parallel:
      case ir::ForKind::cooperative:
      case ir::ForKind::grid:
        return extent * body;
    }
    return 0;
  }
  double steps(const ir::Block& n, double times) {
    double sum = 0;
    for (const ir::Stmt& s : n.stmts) sum += statement(s, times);
    return sum;
  }
  double steps(const ir::Let& n, double times) {
    lets_[n.var.id] = n.value;
    return look(n.value, times) + statement(n.body, times);
  }
  double steps(const ir::Store& n, double times) {
    look_at(n.index, times);
    look(n.guard, times);
    write(n.buffer, n.value.lanes(), times);
    return 1 + look(n.value, times);
  }
  double steps(const ir::Accumulate& n, double times) {
    look_at(n.index, times);
    look(n.guard, times);
    look(n.factor, times);
    read(n.buffer, n.value.lanes(), times);
    write(n.buffer, n.value.lanes(), times);
    return 1 + look(n.value, times);
  }
  struct Range {
    double begin = 0, extent = 0, together = 0;
    double middle() const { return begin + std::max(0.0, extent - 1) / 2; }
  };
  // Where a condition compares a loop's variable with a number, each case as often as it holds; else the first case
  // there is.
  double steps(const ir::If& n, double times) {
    Range range;
    const double read = look(n.condition, times), holds = share(n.condition, range);
    if (holds < 0) return read + (n.then_case ? statement(n.then_case, times) : statement(n.else_case, times));
    // A case that one of the threads takes, all of them wait for.
    const auto turns = [&](double part) {
      return range.together ? std::ceil(part * range.extent / range.together) /
                                  std::max(1.0, std::ceil(range.extent / range.together))
                            : part;
    };
    return read + turns(holds) * statement(n.then_case, times * holds) +
           turns(1 - holds) * statement(n.else_case, times * (1 - holds));
  }
  // In how many of a loop's iterations the condition holds, from 0 to 1, and that loop's range; negative: unknown.
  double share(const Expr& condition, Range& range) {
    const auto* n = condition.as<ir::Binary>();
    if (!n || (n->op != ir::BinaryOp::lt && n->op != ir::BinaryOp::gt)) return -1;
    const bool less = n->op == ir::BinaryOp::lt;
    const Expr &low = less ? n->a : n->b, &high = less ? n->b : n->a;
    for (const bool above : {false, true}) {  // v < c, c < v
      const auto* v = (above ? high : low).as<ir::Var>();
      const auto c = ir::as_int(above ? low : high);
      const auto found = v && c ? range_.find(v->id) : range_.end();
      if (found == range_.end()) continue;
      range = found->second;
      const double below = static_cast<double>(*c) + (above ? 1 : 0) - range.begin;  // iterations before it
      const double part = std::clamp(below / std::max(1.0, range.extent), 0.0, 1.0);
      return above ? 1 - part : part;
    }
    return -1;
  }
  double steps(const ir::Alloc& n, double times) {
    own_.insert(n.buffer->id);
    return statement(n.body, times);
  }
  double steps(const ir::Check& n, double times) { return look(n.condition, times) + statement(n.body, times); }
  double steps(const ir::Evaluate&, double) { return 0; }

  // One step where memory is read: loads of one statement are on their way together.
  double look(const Expr& e, double times) {
    bool loads = false;
    if (e)
      ir::walk(e, [&](const Expr& x) {
        if (const auto* n = x.as<ir::Load>()) loads = true, read(n->buffer, x.lanes(), times);
      });
    return loads ? 1 : 0;
  }
  void look_at(const std::vector<Expr>& index, double times) {
    for (const Expr& e : index) look(e, times);
  }

  Traffic* traffic(const ir::Buffer& b) {
    if (own_.contains(b->id)) return nullptr;
    Traffic& t = traffic_[b->id];
    t.size = static_cast<double>(size_of(b->dtype)) * elements(b);
    return &t;
  }
  void read(const ir::Buffer& b, int lanes, double times) {
    if (Traffic* t = traffic(b)) t->read += times * lanes * size_of(b->dtype);
  }
  void write(const ir::Buffer& b, int lanes, double times) {
    if (Traffic* t = traffic(b)) t->written += times * lanes * size_of(b->dtype);
  }
  double elements(const ir::Buffer& b) {
    double count = 1;
    for (const Expr& dim : b->dims) count *= expected(dim, true);
    return count;
  }

  // The mean value. `up`: as part of a difference, whether it is what something is taken from; of two offsets, the one
  // that is taken away counts as 0.
  double expected(const Expr& e, bool up) {
    if (const auto n = ir::as_int(e)) return static_cast<double>(*n);
    if (const auto* n = e.as<ir::Var>()) {
      if (const auto let = lets_.find(n->id); let != lets_.end()) return expected(let->second, up);
      const auto range = range_.find(n->id);
      return range == range_.end() ? 0 : range->second.middle();
    }
    if (const auto* n = e.as<ir::Load>()) {
      const double count = elements(n->buffer);
      return up && n->buffer->facts.max && count > 0 ? expected(n->buffer->facts.max, true) / count : 0;
    }
    if (const auto* n = e.as<ir::Cast>()) return expected(n->value, up);
    if (const auto* n = e.as<ir::Select>()) return expected(n->a, up);
    if (const auto* n = e.as<ir::Binary>()) {
      switch (n->op) {
        case ir::BinaryOp::add:
          return expected(n->a, up) + expected(n->b, up);
        case ir::BinaryOp::sub:
          return expected(n->a, up) - expected(n->b, !up);
        case ir::BinaryOp::mul:
          return expected(n->a, up) * expected(n->b, up);
        case ir::BinaryOp::floor_div:
          return expected(n->a, true) / std::max(1.0, expected(n->b, true));
        case ir::BinaryOp::floor_mod:
          return std::max(0.0, expected(n->b, true) - 1) / 2;
        case ir::BinaryOp::min:
          return std::min(expected(n->a, up), expected(n->b, up));
        case ir::BinaryOp::max:
          return std::max(expected(n->a, up), expected(n->b, up));
        default:
          return 0;
      }
    }
    return 0;
  }

  double threads_ = 32;
  std::unordered_map<int64_t, Range> range_;  // of loop variables
  std::unordered_map<int64_t, Expr> lets_;
  std::unordered_set<int64_t> own_;  // of a block, warp or thread
  std::unordered_map<int64_t, Traffic> traffic_;
};

}  // namespace

std::vector<GpuPrediction> predict_gpu(const ir::Kernel& lowered) { return Predictor(lowered).launches; }

}  // namespace gradloom::cli
