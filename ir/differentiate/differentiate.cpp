#include "gradloom/differentiate.h"

#include <algorithm>

#include "gradloom/builder.h"
#include "ir/analysis/verify.h"
#include "ir/differentiate/gather.h"
#include "ir/differentiate/order.h"
#include "ir/differentiate/products.h"
#include "ir/differentiate/reverse.h"
#include "ir/redirect.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

class Derive {
 public:
  Derive(const Kernel& forward, const Derivation& how) : forward_(forward, how), b_(forward.name + "_grad") {}

  Kernel run() {
    require_single_assignment(forward_);
    declare();
    Reverse reverse(forward_, carried_loops(forward_));
    for (const Given& y : outputs_)
      if (forward_.is_active(y.of)) reverse.set_adjoint(y.of, adjoint_of_output(y));
    for (const Given& x : wanted_)
      if (forward_.is_active(x.of)) reverse.set_adjoint(x.of, {sums_of(x), sums_of(x)});
    const Stmt& forward = forward_.kernel().body;
    Stmt body = forward ? reverse(forward) : block({});
    require_available(body);
    for (const Given& x : wanted_) body = stored(x, body);
    for (const Given& total : totals_)
      body =
          alloc(total.of, block({total.adjoint ? copied(total.adjoint, total.of) : filled_with_zeros(total.of), body}));
    b_.append(redirect(body, kept_));
    Kernel result = b_.build();
    result.scalars = forward_.kernel().scalars;
    verify(result, Stage::authored);
    return result;
  }

 private:
  struct Given {
    Buffer adjoint, of;  // no adjoint: of zeros
  };

  void declare() {
    const std::vector<Buffer>& buffers = forward_.kernel().buffers;
    for (const Buffer& b : buffers)
      if (b->role == Role::in && forward_.is_kept(b)) b_.parameter(b);
    for (const Buffer& b : buffers) {
      if (b->role != Role::out || !forward_.is_kept(b)) continue;
      BufferNode node = *b;
      node.id = 0, node.role = Role::in, node.alignment = 1;
      kept_[b->id] = {.to = b_.parameter(make_buffer(std::move(node)))};
    }
    for (const Buffer& b : buffers)
      if (b->role == Role::out && is_float(b->dtype))
        outputs_.push_back({forward_.is_seeded(b) ? parameter(b, Role::in) : Buffer(), b});
    for (const Buffer& b : buffers)
      if (const auto& names = forward_.how().wanted; std::find(names.begin(), names.end(), b->name) != names.end())
        wanted_.push_back({parameter(b, Role::out), b});
  }
  Buffer parameter(const Buffer& of, Role role) {
    return b_.parameter(make_buffer({.name = "d_" + of->name, .dtype = of->dtype, .dims = of->dims, .role = role}));
  }

  // What is given, if it is; where the nest reads the output, too, a sum that starts with it.
  Reverse::Adjoint adjoint_of_output(const Given& y) {
    const bool read = std::any_of(forward_.events().begin(), forward_.events().end(), [&](const Event& e) {
      return e.kind == Event::read && e.carries && e.buffer.same_as(y.of);
    });
    if (!read) return {y.adjoint, {}};
    const Buffer total = sums_like(y);
    totals_.push_back({y.adjoint, total});
    return {total, total};
  }
  static Buffer sums_like(const Given& g) {
    return make_buffer({.name = "sum_d_" + g.of->name, .dtype = accumulator_of(g.of->dtype), .dims = g.of->dims});
  }
  // Of a storage float, the sums are in a buffer of their own.
  Buffer sums_of(const Given& x) {
    if (!is_storage_float(x.of->dtype)) return x.adjoint;
    return sums_.try_emplace(x.of->id, sums_like(x)).first->second;
  }

  static Stmt copied(const Buffer& from, const Buffer& to) {
    KernelBuilder b("");
    b.loops("i", to->dims, [&](const std::vector<Expr>& i) { b.store(to, i, cast(to->dtype, load(from, i))); });
    return b.build().body;
  }

  // The gradient with x's adjoint stored.
  Stmt stored(const Given& x, const Stmt& gradient) {
    const Buffer sums = forward_.is_active(x.of) ? sums_of(x) : x.adjoint;
    const Stmt zeros = filled_with_zeros(sums), both = block({zeros, gradient});
    if (!forward_.is_active(x.of)) return both;
    const Gathered gathered =
        gather(both, {sums, zeros, x.adjoint, forward_.how().sums}, Ranges(forward_.kernel()), false);
    if (gathered.all || sums.same_as(x.adjoint)) return gathered.stmt;
    return alloc(sums, block({gathered.stmt, copied(sums, x.adjoint)}));
  }

  void require_available(const Stmt& gradient) {
    for (const auto& [id, b] : loaded(gradient)) {
      const std::vector<Buffer>& buffers = forward_.kernel().buffers;
      const bool own = std::any_of(buffers.begin(), buffers.end(), [&](const Buffer& x) { return x.same_as(b); });
      if (own && b->role == Role::in && !forward_.is_kept(b))
        forward_.refuse("its gradient needs " + b->name + ", which is not kept: keep it");
      if (b->role != Role::in) require_final(forward_, b);
    }
  }

  const Forward forward_;
  KernelBuilder b_;
  Redirections kept_;
  std::vector<Given> outputs_, wanted_;
  std::vector<Given> totals_;  // adjoint: what is given; of: the sum that starts with it
  std::unordered_map<int64_t, Buffer> sums_;
};

}  // namespace

Kernel differentiate(const Kernel& forward, const Derivation& how) {
  return Derive(products_as_recurrences(forward, how), how).run();
}

}  // namespace gradloom::ir
