#pragma once
// The statements of the gradient: the forward nest's, last first.
#include "gradloom/builder.h"
#include "ir/analysis/ranges.h"
#include "ir/differentiate/accesses.h"
#include "ir/differentiate/forward.h"

namespace gradloom::ir {

class Reverse {
 public:
  // `carried`: loops that run backwards.
  Reverse(const Forward& forward, std::unordered_set<int64_t> carried, Accesses& accesses)
      : forward_(forward), carried_(std::move(carried)), accesses_(accesses), scope_(forward.kernel()) {}

  // Where the adjoints of a parameter are read and added to.
  struct Adjoint {
    Buffer from, to;  // the same but for an output that is only read from
  };
  void set_adjoint(const Buffer& parameter, Adjoint adjoint) { adjoints_[parameter->id] = std::move(adjoint); }

  // The statements that add to the adjoints of all that s reads, from those of what it writes. What values of outputs
  // that are not kept they need is computed first.
  Stmt operator()(const Stmt& s);
  using Buffers = std::unordered_map<int64_t, Buffer>;  // by id

 private:
  Stmt captured(const std::function<void()>& body);
  template <class... Known>
  Stmt within(const Stmt& s, const Known&... known) {
    const Ranges::Scope inner(scope_, known...);
    return captured([&] { reverse(s); });
  }
  void reverse(const Stmt& s);
  void reverse(const For& n);
  void reverse(const Alloc& n);
  void reverse_write(const Stmt& s, const Buffer& buffer, const std::vector<Expr>& index, const Expr& guard);
  void reverse_extremum(const Stmt& s, const Buffer& buffer, const std::vector<Expr>& index, const Expr& guard);
  Expr adjoint_of(const Buffer& buffer, const std::vector<Expr>& index) const;
  // `fused`: the statement is a fused multiply-add, and products are added by one.
  void add(const Expr& value, const Expr& adjoint, const Expr& stored, const Expr& guard, bool fused = false);

  // The statements below s that write these buffers, and what they are computed from that s allocates.
  Stmt recomputed(const Stmt& s, Buffers wanted) const;
  bool is_known(const Buffer& buffer) const;
  Stmt with_known(const Stmt& s) const;  // reads of what is known replaced
  Stmt slice(const Stmt& s, const Buffers& wanted) const;
  Stmt as_let_or_alloc(const Buffer& buffer, const Stmt& s) const;

  bool is_extremum(const Buffer& buffer) const;  // accumulated into by min or max
  Stmt with_counts(const Stmt& scope, const Buffers& own, const std::function<void()>& body);
  void require_forward_order(const Buffer& buffer) const;
  Stmt counts(const Stmt& scope, const Buffer& buffer, const Buffer& count) const;

  const Forward& forward_;
  const std::unordered_set<int64_t> carried_;
  Accesses& accesses_;
  KernelBuilder* b_ = nullptr;
  Ranges scope_;  // where the statement stands
  std::unordered_map<int64_t, Adjoint> adjoints_;
  Buffers counts_;  // of an extremum: how many values are equal to it; Tie::first: whether one was met
};

Stmt filled_with_zeros(const Buffer& buffer);
// The buffers that s loads from.
Reverse::Buffers loaded(const Stmt& s);

}  // namespace gradloom::ir
