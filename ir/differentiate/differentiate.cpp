#include "gradloom/differentiate.h"

#include <algorithm>

#include "gradloom/builder.h"
#include "ir/analysis/verify.h"
#include "ir/differentiate/accesses.h"
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
  Derive(const Kernel& forward, const Derivation& how)
      : forward_(forward, how), known_(forward_.kernel()), order_(forward_), b_(forward.name + "_grad") {}

  Kernel run() {
    order_.require_single_assignment();
    declare();
    Reverse reverse(forward_, order_.carried_loops(), accesses_);
    for (const Given& y : outputs_)
      if (forward_.is_active(y.of)) reverse.set_adjoint(y.of, adjoint_of_output(y));
    for (const Given& x : wanted_)
      if (forward_.is_active(x.of)) reverse.set_adjoint(x.of, {sums_of(x), sums_of(x)});
    const Stmt& forward = forward_.kernel().body;
    Stmt body = forward ? reverse(forward) : block({});
    require_available(body);
    set_body(body);
    for (const Given& x : wanted_) store_adjoint(x);
    std::reverse(starts_.begin(), starts_.end());
    starts_.push_back(block(std::move(body_)));
    body = block(std::move(starts_));
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

  void set_body(const Stmt& body) {
    writers_.clear(), body_.clear();
    const Block* n = body.as<Block>();
    for (const Stmt& s : n ? n->stmts : std::vector<Stmt>{body}) {
      for (const int64_t id : accesses_.written(s)) writers_[id].push_back(body_.size());
      body_.push_back(s);
    }
  }

  // What the statements of the gradient add to x's adjoint is stored.
  void store_adjoint(const Given& x) {
    const Buffer sums = forward_.is_active(x.of) ? sums_of(x) : x.adjoint;
    const Stmt zeros = filled_with_zeros(sums);
    std::vector<Stmt> parts{zeros};
    const std::vector<size_t>& writers = writers_[sums->id];
    for (const size_t i : writers) parts.push_back(body_[i]);
    const bool all = gather(parts, {sums, zeros, x.adjoint, forward_.how().sums}, known_, false, accesses_);
    for (size_t k = 0; k < writers.size(); ++k) body_[writers[k]] = parts[k + 1];
    starts_.push_back(parts[0]);
    if (all || sums.same_as(x.adjoint)) return;
    std::vector<Stmt> whole(starts_.rbegin(), starts_.rend());
    starts_.clear();
    whole.insert(whole.end(), body_.begin(), body_.end());
    whole.push_back(copied(sums, x.adjoint));
    set_body(alloc(sums, block(std::move(whole))));
  }

  void require_available(const Stmt& gradient) {
    for (const auto& [id, b] : loaded(gradient)) {
      const std::vector<Buffer>& buffers = forward_.kernel().buffers;
      const bool own = std::any_of(buffers.begin(), buffers.end(), [&](const Buffer& x) { return x.same_as(b); });
      if (own && b->role == Role::in && !forward_.is_kept(b))
        forward_.refuse("its gradient needs " + b->name + ", which is not kept: keep it");
      if (b->role != Role::in) order_.require_final(b);
    }
  }

  const Forward forward_;
  const Ranges known_;
  Order order_;
  Accesses accesses_;
  KernelBuilder b_;
  std::vector<Stmt> body_;                                    // of the gradient
  std::unordered_map<int64_t, std::vector<size_t>> writers_;  // of a buffer: those statements
  std::vector<Stmt> starts_;                                  // what comes before them, last first
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
