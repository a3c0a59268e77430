// Execution of statements in the interpreter (loops: loop.cpp, reductions: reduce.cpp). With several frames (inside
// vector loops) each statement runs for all of them before the next one begins.
#include <algorithm>
#include <limits>
#include <optional>

#include "ir/interpret/code.h"
#include "ir/scalar_math.h"

namespace gradloom::ir::interp {
namespace {

struct BlockCode final : StmtCode {
  void run(std::span<Frame* const> frames) override {
    for (const StmtPtr& s : stmts) s->run(frames);
  }
  std::vector<StmtPtr> stmts;
};

struct LetCode final : StmtCode {
  void run(std::span<Frame* const> frames) override {
    for (Frame* frame : frames)
      if (value->lanes == 1)
        frame->vars[slot] = value->scalar(*frame);
      else
        value->vector(*frame, &frame->vars[slot]);
    body->run(frames);
  }
  size_t slot;
  ExprPtr value;
  StmtPtr body;
};

// A store or an accumulate: everything is evaluated, for all lanes of all frames, before the first lane is written.
struct WriteCode final : StmtCode {
  void run(std::span<Frame* const> frames) override {
    if (frames.size() == 1 && access.lanes == 1) {
      Frame& frame = *frames[0];
      int64_t index[max_rank];
      access.scalar(frame, index);
      const uint64_t on = guard ? guard->scalar(frame) : 1, v = value->scalar(frame),
                     f = factor ? factor->scalar(frame) : 0;
      if (on) write(*frame.arrays[access.array], index, v, f);
      return;
    }
    const size_t lanes = access.lanes, each = access.rank() * lanes, total = frames.size() * lanes;
    Lanes places(frames.size() * each), values(total), factors(factor ? total : 0), on(guard ? total : 0);
    int64_t* index = reinterpret_cast<int64_t*>(places.data());
    for (size_t i = 0; i < frames.size(); ++i) {
      access.vector(*frames[i], index + i * each);
      if (guard) guard->vector(*frames[i], on.data() + i * lanes);
      value->vector(*frames[i], values.data() + i * lanes);
      if (factor) factor->vector(*frames[i], factors.data() + i * lanes);
    }
    for (size_t i = 0; i < total; ++i)
      if (!guard || on[i])
        write(*frames[i / lanes]->arrays[access.array], index + i * access.rank(), values[i], factor ? factors[i] : 0);
  }
  void write(Array& array, const int64_t* index, uint64_t v, uint64_t f) const {
    if (how)
      array.accumulate(index, *how, v, f);
    else
      array.store(index, v);
  }
  Access access;
  ExprPtr value, factor, guard;
  std::optional<Accumulate> how;  // absent: a store
};

struct IfCode final : StmtCode {
  void run(std::span<Frame* const> frames) override {
    if (frames.size() == 1) {
      if (condition->scalar(*frames[0]))
        then_case->run(frames);
      else if (else_case)
        else_case->run(frames);
      return;
    }
    std::vector<Frame*> yes, no;
    for (Frame* frame : frames) (condition->scalar(*frame) ? yes : no).push_back(frame);
    if (!yes.empty()) then_case->run(yes);
    if (!no.empty() && else_case) else_case->run(no);
  }
  ExprPtr condition;
  StmtPtr then_case, else_case;
};

struct AllocCode final : StmtCode {
  AllocCode(Run& r, Buffer b) : run_state(r), buffer(std::move(b)) {}
  void run(std::span<Frame* const> frames) override {
    while (arrays.size() < frames.size()) arrays.push_back(std::make_unique<Array>(run_state));
    for (size_t i = 0; i < frames.size(); ++i) {
      arrays[i]->bind(*buffer, shape(*buffer, *frames[i]), std::nullopt);
      frames[i]->arrays[slot] = arrays[i].get();
    }
    body->run(frames);
  }
  Run& run_state;
  Buffer buffer;
  size_t slot = 0;
  Translator::ShapeCode shape;
  StmtPtr body;
  std::vector<std::unique_ptr<Array>> arrays;  // one per frame, reused between runs for their memory
};

struct CheckCode final : StmtCode {
  explicit CheckCode(Run& r) : run_state(r) {}
  void run(std::span<Frame* const> frames) override {
    std::vector<Frame*> passed;
    for (Frame* frame : frames)
      if (passes(*frame)) {
        if (frames.size() == 1) return body->run(frames);
        passed.push_back(frame);
      }
    if (!passed.empty()) body->run(passed);
  }
  bool passes(Frame& frame) {
    const int lanes = condition->lanes;
    Lanes ok(lanes), at(lanes);
    condition->vector(frame, ok.data());
    position->vector(frame, at.data());
    bool all = true;
    for (int lane = 0; lane < lanes; ++lane) {
      if (ok[lane]) continue;
      const int64_t p = std::min(static_cast<int64_t>(at[lane]),
                                 std::numeric_limits<int64_t>::max() - 1);  // the largest value means no failure
      run_state.bad_position = run_state.failed ? std::min(run_state.bad_position, p) : p;
      run_state.failed = true;
      all = false;
    }
    return all;
  }
  Run& run_state;
  ExprPtr condition, position;
  StmtPtr body;
};

struct EvaluateCode final : StmtCode {
  void run(std::span<Frame* const> frames) override {
    for (Frame* frame : frames) {
      Lanes ignored(value->lanes);
      value->vector(*frame, ignored.data());
    }
  }
  ExprPtr value;
};

struct BarrierCode final : StmtCode {
  BarrierCode(Run& r, BarrierScope s) : run_state(r), scope(s) {}
  void run(std::span<Frame* const>) override { run_state.races.barrier(scope); }
  Run& run_state;
  BarrierScope scope;
};

// Statements that all threads of a block may execute uniformly.
struct AlikeExpr final : ExprCode {
  AlikeExpr(Run& r, ExprPtr e) : ExprCode(e->lanes), races(r.races), value(std::move(e)) {}
  uint64_t scalar(Frame& frame) const override {
    const RaceDetector::Alike strand(races);
    return value->scalar(frame);
  }
  void vector(Frame& frame, uint64_t* out) const override {
    const RaceDetector::Alike strand(races);
    value->vector(frame, out);
  }
  RaceDetector& races;
  ExprPtr value;
};
struct AlikeStmt final : StmtCode {
  AlikeStmt(Run& r, StmtPtr s) : races(r.races), stmt(std::move(s)) {}
  void run(std::span<Frame* const> frames) override {
    const RaceDetector::Alike strand(races);
    stmt->run(frames);
  }
  RaceDetector& races;
  StmtPtr stmt;
};

void require_lanes(const ExprPtr& code, int lanes, const char* what) {
  if (code && code->lanes != lanes)
    fault(std::string(what) + " has " + std::to_string(code->lanes) + " lanes, not " + std::to_string(lanes));
}

}  // namespace

Array::Shape Translator::ShapeCode::operator()(const BufferNode& node, Frame& frame) const {
  Array::Shape shape;
  for (const ExprPtr& dim : dims) shape.dims.push_back(static_cast<int64_t>(dim->scalar(frame)));
  for (const ExprPtr& stride : strides) shape.strides.push_back(static_cast<int64_t>(stride->scalar(frame)));
  if (min) shape.min = {node.facts.min.dtype(), min->scalar(frame)};
  if (max) shape.max = {node.facts.max.dtype(), max->scalar(frame)};
  return shape;
}

Translator::ShapeCode Translator::shape(const Buffer& buffer) {
  ShapeCode code{exprs(buffer->dims), exprs(buffer->strides), nullptr, nullptr};
  if (buffer->facts.min) code.min = expr(buffer->facts.min);
  if (buffer->facts.max) code.max = expr(buffer->facts.max);
  if (!code.strides.empty() && code.strides.size() != code.dims.size())
    fault("buffer " + buffer->name + " needs one stride a dim");
  for (const auto* list : {&code.dims, &code.strides})
    for (const ExprPtr& e : *list) require_scalar(*e, "a dim or stride");
  for (const ExprPtr* e : {&code.min, &code.max})
    if (*e) require_scalar(**e, "a fact");
  return code;
}

StmtPtr Translator::stmt(const Stmt& s) {
  if (!s) fault("a statement is absent");
  StmtPtr code = std::visit([&](const auto& n) { return make(n); }, s.node().value);
  const bool write = s.as<Store>() || s.as<Accumulate>() || s.as<Reduce>();
  return write && run_.races.explicit_barriers ? std::make_unique<AlikeStmt>(run_, std::move(code)) : std::move(code);
}

ExprPtr Translator::alike(const Expr& e) {
  ExprPtr code = expr(e);
  return run_.races.explicit_barriers ? std::make_unique<AlikeExpr>(run_, std::move(code)) : std::move(code);
}

StmtPtr Translator::make(const Block& n) {
  auto code = std::make_unique<BlockCode>();
  for (const Stmt& s : n.stmts) code->stmts.push_back(stmt(s));
  return code;
}

StmtPtr Translator::make(const Let& n) {
  auto code = std::make_unique<LetCode>();
  code->value = alike(n.value);
  if (n.var.type != n.value.type())
    fault("let " + n.var.name + " is " + to_string(n.var.type) + " but its value " + to_string(n.value.type()));
  Scope scope(vars_, n.var.id);
  code->slot = declare(n.var);
  code->body = stmt(n.body);
  return code;
}

StmtPtr Translator::make(const Store& n) {
  auto code = std::make_unique<WriteCode>();
  code->value = expr(n.value);
  if (n.guard) code->guard = expr(n.guard);
  code->access = access(n.buffer, n.index, code->value->lanes);
  require_lanes(code->guard, code->value->lanes, "a store's guard");
  if (n.value.dtype() != n.buffer->dtype)
    fault("a store of " + to_string(n.value.type()) + " to buffer " + n.buffer->name + " of " +
          to_string(n.buffer->dtype));
  return code;
}

StmtPtr Translator::make(const Accumulate& n) {
  auto code = std::make_unique<WriteCode>();
  code->value = expr(n.value);
  if ((n.op == AccumulateOp::fma) != static_cast<bool>(n.factor))
    fault("buffer " + n.buffer->name + ": fma, and only fma, has a factor");
  if (n.factor) code->factor = expr(n.factor);
  if (n.guard) code->guard = expr(n.guard);
  code->access = access(n.buffer, n.index, code->value->lanes);
  require_lanes(code->guard, code->value->lanes, "an accumulate's guard");
  require_lanes(code->factor, code->value->lanes, "an accumulate's factor");
  code->how = n;
  return code;
}

StmtPtr Translator::make(const If& n) {
  auto code = std::make_unique<IfCode>();
  code->condition = alike(n.condition);
  require_scalar(*code->condition, "an if's condition");
  code->then_case = stmt(n.then_case);
  if (n.else_case) code->else_case = stmt(n.else_case);
  return code;
}

StmtPtr Translator::make(const Alloc& n) {
  if (!n.buffer) fault("an alloc without a buffer");
  auto code = std::make_unique<AllocCode>(run_, n.buffer);
  code->shape = shape(n.buffer);
  Scope scope(arrays_, n.buffer->id);
  code->slot = declare(n.buffer);
  code->body = stmt(n.body);
  return code;
}

StmtPtr Translator::make(const Check& n) {
  auto code = std::make_unique<CheckCode>(run_);
  code->condition = alike(n.condition);
  code->position = alike(n.position);
  require_lanes(code->position, code->condition->lanes, "a check's position");
  code->body = stmt(n.body);
  return code;
}

StmtPtr Translator::make(const Evaluate& n) {
  auto code = std::make_unique<EvaluateCode>();
  code->value = expr(n.value);
  return code;
}

StmtPtr Translator::make(const Barrier& n) { return std::make_unique<BarrierCode>(run_, n.scope); }

}  // namespace gradloom::ir::interp
