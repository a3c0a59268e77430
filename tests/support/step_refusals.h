#pragma once
// Whether a refusal of a schedule step is true: the step, done by force, changes what the interpreter computes for some
// data, or makes iterations race, or gives no nest at all; or the step has nothing to act on, which is looked up here.
// What is neither is a gap: the step may well have been legal. It is counted so, too, where nothing here can force it.
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "ir/analysis/verify.h"
#include "ir/rewrite.h"
#include "ir/schedule/site.h"
#include "ir/wrappers.h"
#include "tests/support/kernel_run.h"
#include "tests/support/random_ir.h"

namespace gradloom::ir::testing {

// A refused step: "STEP of loop NAME: WHY", the kernel before it, the loop and the buffer that it was about.
struct Refusal {
  std::string step, name, why;
  Kernel kernel;
  Loop loop = 0;
  Buffer buffer;
  std::vector<Expr> begin, extent;  // of stage
};

class RefusalAudit {
 public:
  explicit RefusalAudit(const RandomCase& c) : cases_{c} {
    // Other destinations: all equal, and spread. Smaller sizes, in the same memory.
    for (const int how : {0, 1}) {
      RandomCase other = c;
      for (size_t k = 0; k < c.kernel.buffers.size(); ++k)
        if (c.kernel.buffers[k]->name.starts_with("indices")) redraw(other.buffers[k], how);
      cases_.push_back(std::move(other));
    }
    for (const int64_t size : {0, 1}) {
      RandomCase other = c;
      for (int64_t& s : other.scalars) s = std::min(s, size);
      if (!c.scalars.empty()) cases_.push_back(std::move(other));
    }
  }

  bool is_true(const Refusal& r) const {
    if (r.step == "streaming")
      return !any_of(r.kernel.body,
                     [&](const Stmt& s) { return s.as<Store>() && s.as<Store>()->buffer.same_as(r.buffer); });
    const For* loop = nullptr;
    for (const For* f : loops_below(r.kernel.body))
      if (f->var.id == r.loop) loop = f;
    if (!loop) return false;
    if (const auto absent = nothing_to_act_on(r, *loop)) return *absent;
    const auto starts = [&](const char* text) { return r.why.starts_with(text); };
    if (starts("it would change the order in which sums") || starts("it would let sums"))
      return r.why.find("sums of f") != std::string::npos;  // rounded otherwise
    if (std::regex_search(r.why, std::regex("^it is an? \\w+ loop")))
      return starts(("it is " + with_article(loop->kind)).c_str());
    if (starts("it is inside") || starts("it holds the") || starts("two iterations") ||
        starts("the bounds of its inner") || starts("the extent must be")) {
      if (r.step == "reorder" || r.step == "fuse") return swapped_differs(r, *loop);
      return kind_fails(r, *loop, kind_of(r.step));
    }
    if (r.why.find("not proved inside the window") != std::string::npos || starts("it would copy in"))
      return window_fails(r, *loop);
    if (r.step == "hoist_lets") return lets_vary(r, *loop);
    if (starts("its destination depends on loop")) return destination_varies(r, *loop);
    if (starts("with loop ") || starts("its inner loop")) return swapped_differs(r, *loop);
    // Whether iterations may run in any order, whose sums alone are shared.
    if (starts("it reads buffer") || r.why.find("is not only accumulated into") != std::string::npos)
      return atomic_fails(r, *loop);
    if (r.step == "join") return joined_differs(r, *loop);
    if (r.step == "skip_empty") return skipped_differs(r, *loop);
    if (r.step == "distribute") return kind_fails(r, *loop, ForKind::parallel);
    if (starts("destination ")) return out_of_bounds(r);
    return false;
  }

 private:
  static void redraw(std::vector<uint8_t>& bytes, int how) {
    if (bytes.empty()) return;
    std::vector<int64_t> values(bytes.size() / 8);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    int64_t most = 0;
    for (const int64_t v : values) most = std::max(most, v);
    for (size_t i = 0; i < values.size(); ++i) values[i] = how == 0 ? most / 2 : static_cast<int64_t>(i) % (most + 1);
    std::memcpy(bytes.data(), values.data(), bytes.size());
  }
  static ForKind kind_of(const std::string& step) {
    return step == "vectorize" ? ForKind::vector : step == "unroll" ? ForKind::unroll : ForKind::parallel;
  }

  // What a step needs and is not there; no value: the message is about something else.
  std::optional<bool> nothing_to_act_on(const Refusal& r, const For& loop) const {
    const auto says = [&](const char* text) { return r.why.find(text) != std::string::npos; };
    const auto touched = [&](auto&& is) { return any_of(loop.body, [&](const Stmt& s) { return is(s); }); };
    const auto own = [&] {
      return touched([&](const Stmt& s) { return s.as<Alloc>() && s.as<Alloc>()->buffer.same_as(r.buffer); });
    };
    if (says("nothing in it touches")) {
      const bool read =
          any_of(loop.body, [&](const Expr& e) { return e.as<Load>() && e.as<Load>()->buffer.same_as(r.buffer); });
      return !read && !writes(loop.body, r.buffer);
    }
    if (says("nothing in it accumulates"))
      return !touched(
          [&](const Stmt& s) { return s.as<Accumulate>() && s.as<Accumulate>()->buffer.same_as(r.buffer); });
    if (says("exists only inside it")) return own();
    if (says("an iteration does more than to allocate")) return !own();
    if (says("holds no reduction")) return !holds_reduction(loop.body);
    if (says("its order is no tree") || says("its order is not in chunks")) return true;  // the step is of such alone
    if (says("no let in it")) return !touched([](const Stmt& s) { return s.as<Let>() != nullptr; });
    if (says("does not follow it in the same body")) return !followers(r.kernel, loop, quoted(r.why));
    if (says("is not in it")) return true;  // looked up by the step's own argument
    if (says("it does not stand in the body in which buffer")) return !stands_in_scope(r, loop);
    if (says("its destination does not depend on it")) return !destination_mentions(loop, r.buffer);
    if (says("its body is one statement")) return !loop.body.as<Block>();
    return std::nullopt;
  }
  static std::string quoted(const std::string& why) {
    std::smatch m;
    return std::regex_search(why, m, std::regex("loop ([^\\s:]+)")) ? m[1].str() : "";
  }
  static const For* followers(const Kernel& kernel, const For& loop, const std::string& name) {
    const For* found = nullptr;
    walk(kernel.body, [&](const Stmt& s) {
      const Block* b = s.as<Block>();
      bool after = false;
      for (size_t i = 0; b && i < b->stmts.size(); ++i) {
        const For* f = b->stmts[i].as<For>();
        if (f && after && f->var.name == name && !found) found = f;
        after |= f == &loop;
      }
    });
    return found;
  }
  static bool stands_in_scope(const Refusal& r, const For& loop) {
    bool in = false;
    walk(r.kernel.body, [&](const Stmt& s) {
      const Alloc* a = s.as<Alloc>();
      if (!a || !a->buffer.same_as(r.buffer)) return;
      const Block* b = a->body.as<Block>();
      in |= a->body.as<For>() == &loop;
      for (size_t i = 0; b && i < b->stmts.size(); ++i) in |= b->stmts[i].as<For>() == &loop;
    });
    return in;
  }
  // By its own variable, or by what is loaded or named in it.
  static bool destination_mentions(const For& loop, const Buffer& buffer) {
    std::vector<int64_t> ids{loop.var.id};
    bool found = false;
    walk(loop.body, [&](const Stmt& s) {
      const auto varies = [&](const Expr& e) {
        return std::any_of(ids.begin(), ids.end(), [&](int64_t id) { return mentions(e, id); });
      };
      if (const Let* l = s.as<Let>(); l && varies(l->value)) ids.push_back(l->var.id);
      const Accumulate* a = s.as<Accumulate>();
      if (a && a->buffer.same_as(buffer)) found |= std::any_of(a->index.begin(), a->index.end(), varies);
    });
    return found;
  }

  struct Forced : Rewriter {
    Forced(const For& from, std::function<Stmt(const For&)> to) : from(from.var.id), to(std::move(to)) {}
    using Rewriter::rewrite;
    Stmt rewrite(const For& n, const Stmt& self) override {
      return n.var.id == from ? to(n) : Rewriter::rewrite(n, self);
    }
    const int64_t from;
    const std::function<Stmt(const For&)> to;
  };

  // Whether the changed kernel is none, or does something else for some data.
  bool fails(const Kernel& before, const Kernel& after) const {
    if (!error_of_verify(after).empty()) return true;
    for (const RandomCase& c : cases_) {
      Result want{c.buffers}, got{c.buffers};
      try {
        want.bad_position = interpret(before, pointers(want.memory), c.scalars).bad_position;
      } catch (const Error&) {
        continue;  // data that the nest is not for
      }
      try {
        got.bad_position = interpret(after, pointers(got.memory), c.scalars).bad_position;
      } catch (const Error&) {
        return true;
      }
      if (!difference(c.kernel, want, got).empty()) return true;
    }
    return false;
  }
  static std::string error_of_verify(const Kernel& kernel) {
    try {
      verify(kernel, Stage::scheduled);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }
  bool forced_fails(const Refusal& r, const For& loop, std::function<Stmt(const For&)> to) const {
    try {
      return fails(r.kernel, Forced(loop, std::move(to))(r.kernel));
    } catch (const Error&) {
      return true;  // nodes that no nest can have
    }
  }

  bool kind_fails(const Refusal& r, const For& loop, ForKind kind) const {
    return forced_fails(r, loop, [&](const For& n) { return for_loop(n.var, n.begin, n.extent, kind, n.body); });
  }
  bool atomic_fails(const Refusal& r, const For& loop) const {
    struct Atomic : Rewriter {
      explicit Atomic(const Buffer& b) : buffer(b) {}
      using Rewriter::rewrite;
      Stmt rewrite(const Accumulate& n, const Stmt& self) override {
        if (!n.buffer.same_as(buffer)) return self;
        return accumulate(n.buffer, n.index, n.op, n.value, n.factor, n.guard, true, n.ordered);
      }
      const Buffer& buffer;
    };
    return forced_fails(r, loop, [&](const For& n) {
      return for_loop(n.var, n.begin, n.extent, ForKind::parallel, Atomic(r.buffer)(n.body));
    });
  }
  bool swapped_differs(const Refusal& r, const For& loop) const {
    return forced_fails(r, loop, [&](const For& n) {
      std::vector<Stmt> between;
      Stmt s = n.body;
      for (; is_wrapper(s) && !s.as<For>(); s = body_of(s)) between.push_back(s);
      const For* inner = s.as<For>();
      if (!inner) return block({});  // nothing to swap with
      return for_loop(inner->var, inner->begin, inner->extent, inner->kind,
                      for_loop(n.var, n.begin, n.extent, n.kind, wrapped(between, inner->body)));
    });
  }
  bool joined_differs(const Refusal& r, const For& loop) const {
    const For* second = followers(r.kernel, loop, quoted(r.why));
    if (!second) return false;
    Stmt first;
    const Kernel without = Forced(loop, [&](const For& n) {
      first = n.body;
      return block({});
    })(r.kernel);
    return fails(r.kernel, Forced(*second, [&](const For& n) {
                   const Stmt one = substitute(first, {{loop.var.id, var(n.var)}});
                   return for_loop(n.var, n.begin, n.extent, ForKind::serial, block({one, n.body}));
                 })(without));
  }
  bool skipped_differs(const Refusal& r, const For& loop) const {
    std::smatch m;
    if (!std::regex_search(r.why, m, std::regex("iteration of loop (\\S+)"))) return false;
    for (const For* inner : loops_below(loop.body)) {
      if (inner->var.name != m[1]) continue;
      if (forced_fails(r, loop, [&](const For& n) {
            return for_loop(n.var, n.begin, n.extent, n.kind, if_then(inner->extent > 0, n.body));
          }))
        return true;
    }
    return false;
  }
  // Whether every let of the body has values that matter and differ.
  bool lets_vary(const Refusal& r, const For& loop) const {
    bool all = true;
    walk(loop.body, [&](const Stmt& s) {
      const Let* l = s.as<Let>();
      if (!l || !all) return;
      all = forced_fails(r, loop, [&](const For& n) {
        struct One : Rewriter {
          One(const Let& l, const For& n) : let_(l), loop_(n) {}
          using Rewriter::rewrite;
          Stmt rewrite(const Let& x, const Stmt& self) override {
            if (x.var.id != let_.var.id) return Rewriter::rewrite(x, self);
            return let(x.var, substitute(x.value, {{loop_.var.id, loop_.begin}}), x.body);
          }
          const Let& let_;
          const For& loop_;
        };
        return for_loop(n.var, n.begin, n.extent, n.kind, One(*l, n)(n.body));
      });
    });
    return all;
  }
  // Whether another destination would be meant if the loop inside did not choose it.
  bool destination_varies(const Refusal& r, const For& loop) const {
    for (const For* inner : loops_below(loop.body)) {
      struct Fixed : Rewriter {
        Fixed(const For& n, const Buffer& b) : loop_(n), buffer_(b) {}
        using Rewriter::rewrite;
        Stmt rewrite(const Accumulate& n, const Stmt& self) override {
          if (!n.buffer.same_as(buffer_)) return self;
          std::vector<Expr> index = n.index;
          for (Expr& i : index) i = substitute(i, {{loop_.var.id, loop_.begin}});
          return accumulate(n.buffer, index, n.op, n.value, n.factor, n.guard, n.atomic, n.ordered);
        }
        const For& loop_;
        const Buffer& buffer_;
      };
      if (forced_fails(r, *inner, [&](const For& n) {
            return for_loop(n.var, n.begin, n.extent, n.kind, Fixed(n, r.buffer)(n.body));
          }))
        return true;
    }
    return false;
  }
  // Whether accesses below the loop leave the window, or it holds elements that nothing has written.
  bool window_fails(const Refusal& r, const For& loop) const {
    const auto clamped = [&](const std::vector<Expr>& index) {
      std::vector<Expr> inside;
      for (size_t d = 0; d < index.size(); ++d)
        inside.push_back(min(max(index[d], r.begin[d]), r.begin[d] + r.extent[d] - 1));
      return inside;
    };
    struct Inside : Rewriter {
      Inside(const Buffer& b, std::function<std::vector<Expr>(const std::vector<Expr>&)> f)
          : buffer(b), to(std::move(f)) {}
      using Rewriter::rewrite;
      Expr rewrite(const Load& n, const Expr& self) override {
        return n.buffer.same_as(buffer) ? load(n.buffer, to(n.index), n.guard, n.otherwise)
                                        : Rewriter::rewrite(n, self);
      }
      const Buffer& buffer;
      const std::function<std::vector<Expr>(const std::vector<Expr>&)> to;
    };
    if (r.why.find("not proved inside the window") != std::string::npos)
      return forced_fails(r, loop, [&](const For& n) {
        return for_loop(n.var, n.begin, n.extent, n.kind, Inside(r.buffer, clamped)(n.body));
      });
    return forced_fails(r, loop, [&](const For& n) {
      std::vector<Var> vars;
      std::vector<Expr> index;
      Expr exists = Expr(0) <= Expr(0);
      for (size_t d = 0; d < r.begin.size(); ++d) {
        vars.push_back(make_var("w"));
        index.push_back(r.begin[d] + var(vars[d]));
        exists = exists & (index[d] >= 0) & (index[d] < r.buffer->dims[d]);
      }
      Stmt read = if_then(exists, store(r.buffer, index, load(r.buffer, index)));
      for (size_t d = vars.size(); d-- > 0;) read = for_loop(vars[d], 0, r.extent[d], ForKind::serial, read);
      return for_loop(n.var, n.begin, n.extent, n.kind, block({read, n.body}));
    });
  }
  // Whether some index beyond its buffer gets through.
  bool out_of_bounds(const Refusal& r) const {
    for (const int64_t bad : {int64_t{-1}, int64_t{1} << 40}) {
      RandomCase c = cases_[0];
      for (size_t k = 0; k < c.kernel.buffers.size(); ++k) {
        if (!c.kernel.buffers[k]->name.starts_with("indices")) continue;
        std::vector<int64_t> values(c.buffers[k].size() / 8, bad);
        std::memcpy(c.buffers[k].data(), values.data(), c.buffers[k].size());
      }
      try {
        interpret(r.kernel, pointers(c.buffers), c.scalars);
      } catch (const Error&) {
        return true;
      }
    }
    return false;
  }

  std::vector<RandomCase> cases_;
};

}  // namespace gradloom::ir::testing
