// Minimises a failing program: deletes statements and replaces expressions by constants or their own operands, as long
// as it still fails.
#include <chrono>

#include "ir/reduction.h"
#include "ir/rewrite.h"
#include "tests/support/program_run.h"

namespace gradloom::ir::testing {
namespace {

// Applies the edit with one number; counts all edits.
class Edit : public Rewriter {
 public:
  explicit Edit(int number) : number_(number) {}
  int seen() const { return seen_; }

 private:
  bool now() { return seen_++ == number_; }

  template <class Node>
  Expr edited(const Node& n, const Expr& self) {
    if (now()) return zero(self.type());
    if (is_int(self.dtype()) && now()) return broadcast(constant_int(self.dtype(), 1), self.lanes());
    for (const Expr& part : parts(n))
      if (part && part.type() == self.type() && now()) return part;
    return Rewriter::rewrite(n, self);
  }
  static std::vector<Expr> parts(const Var&) { return {}; }
  static std::vector<Expr> parts(const Load& n) {
    return n.guard ? std::vector<Expr>{n.otherwise} : std::vector<Expr>{};
  }
  static std::vector<Expr> parts(const Unary& n) { return {n.a}; }
  static std::vector<Expr> parts(const Binary& n) { return {n.a, n.b}; }
  static std::vector<Expr> parts(const Fma& n) { return {n.a, n.b, n.c}; }
  static std::vector<Expr> parts(const Select& n) { return {n.a, n.b}; }
  static std::vector<Expr> parts(const Cast&) { return {}; }
  static std::vector<Expr> parts(const Bitcast&) { return {}; }
  static std::vector<Expr> parts(const Shuffle& n) { return {n.a, n.b}; }
  static std::vector<Expr> parts(const Ramp&) { return {}; }
  static std::vector<Expr> parts(const Intrinsic&) { return {}; }
  static std::vector<Expr> parts(const Math& n) { return {n.a}; }

  Expr rewrite(const Var& n, const Expr& self) override { return edited(n, self); }
  Expr rewrite(const Load& n, const Expr& self) override {
    if (n.guard && now()) return load(n.buffer, n.index);
    return edited(n, self);
  }
  Expr rewrite(const Unary& n, const Expr& self) override { return edited(n, self); }
  Expr rewrite(const Binary& n, const Expr& self) override { return edited(n, self); }
  Expr rewrite(const Fma& n, const Expr& self) override { return edited(n, self); }
  Expr rewrite(const Select& n, const Expr& self) override { return edited(n, self); }
  Expr rewrite(const Cast& n, const Expr& self) override { return edited(n, self); }
  Expr rewrite(const Bitcast& n, const Expr& self) override { return edited(n, self); }
  Expr rewrite(const Shuffle& n, const Expr& self) override { return edited(n, self); }
  Expr rewrite(const Ramp& n, const Expr& self) override { return edited(n, self); }
  Expr rewrite(const Math& n, const Expr& self) override { return edited(n, self); }
  Expr rewrite(const Intrinsic& n, const Expr& self) override {
    return n.op == IntrinsicOp::prefetch ? Rewriter::rewrite(n, self) : edited(n, self);
  }

  Stmt rewrite(const For& n, const Stmt& self) override {
    if (now()) return block({});
    if (now()) return refresh(substitute(n.body, {{n.var.id, n.begin}}));
    if (n.kind != ForKind::serial && now()) return for_loop(n.var, n.begin, n.extent, ForKind::serial, n.body);
    return Rewriter::rewrite(n, self);
  }
  Stmt rewrite(const Let& n, const Stmt& self) override {
    if (now()) return substitute(n.body, {{n.var.id, zero(n.value.type())}});
    if (now()) return substitute(n.body, {{n.var.id, n.value}});
    return Rewriter::rewrite(n, self);
  }
  Stmt rewrite(const Store& n, const Stmt& self) override {
    if (now()) return block({});
    if (n.guard && now()) return store(n.buffer, n.index, n.value);
    return Rewriter::rewrite(n, self);
  }
  Stmt rewrite(const Accumulate& n, const Stmt& self) override {
    if (now()) return block({});
    if (now()) return store(n.buffer, n.index, n.value, n.guard);
    return Rewriter::rewrite(n, self);
  }
  Stmt rewrite(const Reduce& n, const Stmt& self) override {
    if (now()) return block({});
    if (now()) return in_loops(n);
    Reduce less = n;
    less.guard = {};
    return n.guard && now() ? reduce(less) : Rewriter::rewrite(n, self);
  }
  Stmt rewrite(const If& n, const Stmt& self) override {
    if (now()) return block({});
    if (now()) return n.then_case;
    if (n.else_case && now()) return n.else_case;
    return Rewriter::rewrite(n, self);
  }
  Stmt rewrite(const Check& n, const Stmt& self) override {
    if (now()) return block({});
    if (now()) return n.body;
    return Rewriter::rewrite(n, self);
  }
  Stmt rewrite(const Alloc& n, const Stmt& self) override {
    if (now()) return block({});
    return Rewriter::rewrite(n, self);
  }
  Stmt rewrite(const Evaluate& n, const Stmt& self) override { return now() ? block({}) : Rewriter::rewrite(n, self); }

  int number_, seen_ = 0;
};

// Removes parameters without uses.
RandomProgram trimmed(const RandomProgram& program) {
  std::unordered_map<int64_t, bool> used;
  const auto note = [&](const Expr& e) {
    if (const Var* v = e.as<Var>()) used[v->id] = true;
    if (const Load* l = e.as<Load>()) used[l->buffer->id] = true;
    if (const Intrinsic* i = e.as<Intrinsic>(); i && i->buffer) used[i->buffer->id] = true;
  };
  const auto note_buffer = [&](const Buffer& b) {
    for (const auto* list : {&b->dims, &b->strides})
      for (const Expr& e : *list) walk(e, note);
    for (const Expr& e : {b->facts.min, b->facts.max})
      if (e) walk(e, note);
  };
  walk(
      program.kernel.body,
      [&](const Stmt& s) {
        if (const Store* n = s.as<Store>()) used[n->buffer->id] = true;
        if (const Accumulate* n = s.as<Accumulate>()) used[n->buffer->id] = true;
        if (const Reduce* n = s.as<Reduce>()) used[n->buffer->id] = true;
        if (const Alloc* n = s.as<Alloc>()) note_buffer(n->buffer);
      },
      note);
  RandomProgram result{program.kernel, {}, {}, {}};
  result.kernel.buffers.clear(), result.kernel.scalars.clear();
  for (size_t k = 0; k < program.kernel.buffers.size(); ++k) {
    const Buffer& b = program.kernel.buffers[k];
    if (!used[b->id]) continue;
    note_buffer(b);
    result.kernel.buffers.push_back(b), result.buffers.push_back(program.buffers[k]),
        result.origins.push_back(program.origins[k]);
  }
  std::vector<Scalar> kept;
  for (size_t k = program.kernel.scalars.size(); k-- > 0;) {
    const Scalar& s = program.kernel.scalars[k];
    if (!used[s.var.id]) continue;
    for (const Expr& e : {s.min, s.max})
      if (e) walk(e, note);
    kept.insert(kept.begin(), s), result.scalars.insert(result.scalars.begin(), program.scalars[k]);
  }
  result.kernel.scalars = kept;
  return result;
}

}  // namespace

RandomProgram shrink_program(RandomProgram program, const std::function<bool(const RandomProgram&)>& still_fails) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (int number = 0; std::chrono::steady_clock::now() < end; ++number) {
      RandomProgram trial = program;
      Edit edit(number);
      try {
        trial.kernel = edit(program.kernel);
        if (number >= edit.seen()) break;
        trial = trimmed(trial);
      } catch (const Error&) {
        continue;  // no such node
      }
      if (!still_fails(trial)) continue;
      program = trial, smaller = true;
      --number;
    }
  }
  return program;
}

}  // namespace gradloom::ir::testing
