#pragma once
// Whether what a refusal of differentiate says of a nest holds: by the nest itself, run with marks on the elements that
// it reads and writes, or by its text. What is refused and does not show is a gap: a proof that was too weak.
#include <regex>
#include <set>
#include <string>

#include "gradloom/differentiate.h"
#include "tests/support/gradient_check.h"

namespace gradloom::ir::testing {

// The nest with an output `seen`: 1 where an element of the buffer of this name is stored to after it was written (or,
// `reads`: written after it was read).
class Marked : public Rewriter {
 public:
  Marked(std::string buffer, bool reads) : name_(std::move(buffer)), reads_(reads) {}

  Kernel of(const Kernel& kernel) {
    Kernel result = kernel;
    seen_ = make_buffer({.name = "seen", .dtype = DType::i64, .dims = {1}, .role = Role::out});
    result.buffers.push_back(seen_);
    Buffer own;
    for (const Buffer& b : kernel.buffers)
      if (b->name == name_) own = b;
    Stmt body = (*this)(kernel.body);
    if (own) body = (*this)(own, kernel.body);
    std::vector<Stmt> all{store(seen_, {0}, 0)};
    for (const Buffer& b : kernel.buffers)
      if (b->role == Role::out) all.push_back(filled(b));
    all.push_back(body);
    result.body = block(std::move(all));
    return result;
  }

 private:
  using Rewriter::rewrite;
  // The scope of the buffer, with a mark for each of its elements.
  Stmt operator()(const Buffer& b, const Stmt& body) {
    target_ = b;
    marks_ = make_buffer({.name = "mark", .dtype = DType::i64, .dims = b->dims});
    return alloc(marks_, block({filled(marks_), (*this)(body)}));
  }
  // A nest that was spoiled may read what it has not written: zeros.
  static Stmt filled(const Buffer& b) {
    KernelBuilder zeros("");
    zeros.loops("m", b->dims, [&](const std::vector<Expr>& i) { zeros.store(b, i, zero({b->dtype, 1})); });
    return zeros.build().body;
  }
  using Rewriter::operator();

  Stmt marked(const std::vector<Expr>& index, const Expr& guard) const { return store(marks_, index, 1, guard); }
  void mark_reads(std::vector<Stmt>& before, const Expr& e) const {
    if (!e || !target_ || !reads_) return;
    walk(e, [&](const Expr& x) {
      if (const Load* n = x.as<Load>(); n && n->buffer.same_as(target_))
        before.push_back(n->guard ? if_then(n->guard, marked(n->index, {})) : marked(n->index, {}));
    });
  }
  Stmt written(const Stmt& self, const Buffer& b, const std::vector<Expr>& index, const Expr& guard, bool stores,
               std::vector<Stmt> all) const {
    if (target_ && b.same_as(target_)) {
      std::vector<Stmt> own;
      if (stores || reads_) own.push_back(accumulate(seen_, {0}, AccumulateOp::max, load(marks_, index)));
      if (!reads_) own.push_back(marked(index, {}));
      all.push_back(guard ? if_then(guard, block(own)) : block(own));
    }
    all.push_back(self);
    return block(std::move(all));
  }
  Stmt rewrite(const Store& n, const Stmt& self) override {
    std::vector<Stmt> all;
    for (const Expr& i : n.index) mark_reads(all, i);
    mark_reads(all, n.value), mark_reads(all, n.guard);
    return written(self, n.buffer, n.index, n.guard, true, std::move(all));
  }
  Stmt rewrite(const Accumulate& n, const Stmt& self) override {
    std::vector<Stmt> all;
    for (const Expr& i : n.index) mark_reads(all, i);
    mark_reads(all, n.value), mark_reads(all, n.factor), mark_reads(all, n.guard);
    return written(self, n.buffer, n.index, n.guard, false, std::move(all));
  }
  Stmt rewrite(const Reduce& n, const Stmt&) override { return (*this)(in_loops(n)); }
  Stmt rewrite(const Let& n, const Stmt&) override {
    std::vector<Stmt> all;
    mark_reads(all, n.value);
    all.push_back(let(n.var, n.value, (*this)(n.body)));
    return block(std::move(all));
  }
  Stmt rewrite(const If& n, const Stmt&) override {
    std::vector<Stmt> all;
    mark_reads(all, n.condition);
    all.push_back(if_then(n.condition, (*this)(n.then_case), n.else_case ? (*this)(n.else_case) : Stmt()));
    return block(std::move(all));
  }
  Stmt rewrite(const Alloc& n, const Stmt&) override {
    const Stmt body = n.buffer->name == name_ ? (*this)(n.buffer, n.body) : (*this)(n.body);
    return alloc(n.buffer, block({filled(n.buffer), body}));
  }

  const std::string name_;
  const bool reads_;
  Buffer target_, marks_, seen_;
};

inline bool shows(const Kernel& forward, const std::string& buffer, bool reads) {
  const Kernel marked = Marked(buffer, reads).of(forward);
  for (const int64_t n : {1, 2, 5, 6})
    for (uint32_t seed = 1; seed <= 20; ++seed) {
      Arrays arrays(seed);
      try {
        arrays.run(marked, {{"n", n}});
      } catch (const Error&) {
        // A nest that was spoiled may access what is out of bounds: after the marks, or before.
      }
      if (arrays.whole("seen", 0) != 0) return true;
    }
  return false;
}

// Whether the refusal holds: "" where it does, else what was looked for.
inline std::string untrue(const Kernel& forward, const std::string& text, const Derivation& how,
                          const std::string& refusal) {
  std::smatch m;
  const auto says = [&](const char* pattern) { return std::regex_search(refusal, m, std::regex(pattern)); };
  const auto in_text = [&](const std::string& pattern) { return std::regex_search(text, std::regex(pattern)); };
  const auto unless = [&](bool holds) { return holds ? std::string() : refusal; };
  if (says("buffer (\\w+) may be stored to (again|in another)") || says("may store to the same element of (\\w+);"))
    return unless(shows(forward, m[1], false));
  if (says("buffer (\\w+) is (read and stored to|written)")) return unless(shows(forward, m[1], true));
  if (says("buffer (\\w+) is accumulated into by more than one operation")) {
    std::set<std::string> ops;
    const std::regex update("\\b" + m[1].str() + "\\[[^=]*\\] (\\+|\\*|min|max|fma)=");
    for (auto i = std::sregex_iterator(text.begin(), text.end(), update); i != std::sregex_iterator(); ++i)
      ops.insert((*i)[1] == "fma" ? "+" : (*i)[1].str());
    return unless(ops.size() > 1);
  }
  if (says("buffer (\\w+) is a product")) return unless(in_text("\\b" + m[1].str() + "\\[[^=]*\\] (\\*=|= product)"));
  if (says("buffer (\\w+) is inout")) return unless(in_text("inout " + m[1].str() + ":"));
  if (says("an atomic accumulate into (\\w+)")) return unless(in_text("\\b" + m[1].str() + "\\[.* atomic"));
  if (says("bitcast")) return unless(in_text("bitcast"));
  if (says("the name d_(\\w+) is taken")) return unless(in_text("d_" + m[1].str() + "\\b"));
  if (says("gradient needs (\\w+), which is not kept"))
    return unless(how.kept && std::count(how.kept->begin(), how.kept->end(), m[1].str()) == 0);
  if (says("the (first|second) of equal elements of (\\w+)"))
    return unless(how.tie == (m[1] == "first" ? Tie::first : Tie::second) &&
                  in_text("\\b" + m[2].str() + "\\[[^=]*\\] ((min|max)=|= (min|max))"));
  return "no check of: " + refusal;
}

}  // namespace gradloom::ir::testing
