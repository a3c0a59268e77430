#include "ir/passes/host_bound.h"

#include "ir/analysis/loop_bounds.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/scalar_program.h"

namespace gradloom::ir {
namespace {

// Makes divisions and shifts total that only a guard inside the launch makes defined; `defined` accumulates the
// conditions under which they were defined.
struct Define : Rewriter {
  explicit Define(const Ranges& r) : outside(r) {}
  using Rewriter::rewrite;
  Expr rewrite(const Binary& n, const Expr& self) override {
    const bool division = n.op == BinaryOp::floor_div || n.op == BinaryOp::floor_mod,
               shift = n.op == BinaryOp::shl || n.op == BinaryOp::shr;
    const Expr whole = Rewriter::rewrite(n, self);
    if (!division && !shift) return whole;
    const Binary& b = *whole.as<Binary>();
    const DType t = b.b.dtype();
    const int64_t bits = 8 * size_of(t);
    if (division ? outside.nonzero(b.b) : outside.shift_count(b.b)) return whole;
    const Expr low = constant_int(t, 0), high = constant_int(t, bits - 1);
    const Expr valid = division ? b.b != low : (b.b >= low) & (b.b <= high);
    defined = both(defined, valid);
    return binary(b.op, b.a, division ? select(valid, b.b, constant_int(t, 1)) : min(max(b.b, low), high));
  }
  const Ranges& outside;
  Expr defined;
};

class AtMost {
 public:
  AtMost(const std::vector<Var>& known, const Ranges& inside, const Ranges& outside)
      : known_(known), inside_(inside), outside_(outside) {}

  Expr operator()(const Expr& e) const {
    if (is_scalar_arithmetic(e) && uses_only(e, known_)) {
      Define define(outside_);
      const Expr whole = define(e);
      return define.defined ? select(define.defined, whole, 0) : whole;
    }
    if (const Var* v = e.as<Var>())
      if (const Expr* value = inside_.let_value(v->id)) return (*this)(*value);
    if (const Binary* n = e.as<Binary>(); n && (n->op == BinaryOp::min || n->op == BinaryOp::max)) {
      const Expr a = (*this)(n->a), b = (*this)(n->b);
      if (a && b) return n->op == BinaryOp::min ? index_min(a, b) : index_max(a, b);
      if (n->op == BinaryOp::min && (a || b)) return a ? a : b;
    }
    const std::optional<int64_t> most = inside_.of(e).max;
    return most ? Expr(*most) : Expr();
  }

 private:
  const std::vector<Var>& known_;
  const Ranges &inside_, &outside_;
};

}  // namespace

Expr at_most(const Expr& e, const std::vector<Var>& known, const Ranges& inside, const Ranges& outside) {
  const Expr bound = AtMost(known, inside, outside)(e);
  return bound ? nonnegative(bound, outside) : bound;
}

}  // namespace gradloom::ir
