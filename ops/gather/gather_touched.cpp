// The strategy "touched": accumulates into few elements of dX, touching no other. Each element that is named lends its
// memory to the first position that names it:
//
//   from the last position to the first   save what the element holds, and leave the position's number there
//   from the first to the last            the number there is the first position's: add to that one's sum, or store the
//                                         sum where no later position names the element
//
// The last position saves the element itself, the others the number of the next one; what is saved at k is such a
// number if and only if it is of a later position with the same index. So duplicates are summed in index order and
// rounded once, in time and memory of the indices' number alone.
#include "ops/gather/gather_touched.h"

#include <algorithm>

#include "ir/bits_dtype.h"
#include "ops/patterns/scatter.h"

namespace gradloom {
namespace {

using ir::Buffer;
using ir::Expr;
using ir::Loop;
using Index = GatherFrame::Index;

constexpr int64_t strip = 256;  // neighbouring columns that are summed together

constexpr int64_t serial_elements = 1 << 14;  // fewer are not worth waking a thread for

// Indices per column whose positions an element of dX can hold.
int64_t most_positions(DType dtype) {
  return size_of(dtype) >= 8 ? ir::max_elements : int64_t{1} << 8 * size_of(dtype);
}

// Writes `body(shared)`, with loops to be distributed over threads or not; in the kernel for any shape both, by the
// call's size, and the definition for a call whose positions no element can hold.
void author_touched(const GatherFrame& f, const ir::Target& target, const Expr& count,
                    const std::function<void(bool shared)>& body) {
  Expr elements = count;
  for (const Expr& dim : f.outer_dims(f.dy)) elements = elements * dim;
  for (const Expr& dim : f.inner_dims(f.dy)) elements = elements * dim;
  const std::optional<int64_t> known = ir::as_int(elements);
  const auto versions = [&] {
    if (target.threads == 1 || target.gpu) return body(false);
    if (known) return body(*known >= serial_elements);
    f.b.if_then(
        elements >= serial_elements, [&] { body(true); }, [&] { body(false); });
  };
  const int64_t most = most_positions(f.dx->dtype);
  if (known || most >= ir::max_elements) return versions();
  f.b.if_then(count <= most, versions, [&] { author_gather_columns(f); });
}

class TouchedElements {
 public:
  TouchedElements(KernelFrame& frame, const ir::Target& target)
      : f_(frame, gather_roles(frame.plan())),
        b_(f_.b),
        target_(target),
        plan_(frame.plan()),
        count_(f_.dy->dims[f_.roles.outer]),
        bits_(ir::bits_dtype(f_.dx->dtype)),
        width_(f_.roles.inner == 0 || target.gpu ? 1 : strip) {}

  void write() {
    author_touched(f_, target_, count_, [&](bool shared) {
      const auto single = [&] { share(shared, author_single()); };
      const auto several = [&] { share(shared, author_several()); };
      if (ir::is_const(count_, 1)) return single();
      if (ir::as_int(count_)) return several();
      b_.if_then(count_ == 1, single, several);
    });
  }

  void schedule(ir::Schedule& s) const {
    for (const Loop loop : columns_) s.vectorize(loop, std::min(target_.lanes(size_of(f_.sum)), 8));
    for (const Nest& nest : shared_) share_one_of(s, nest.loops, nest.extents, target_);
  }

 private:
  struct Nest {  // loops from the outside in, and their extents in this call
    std::vector<Loop> loops;
    Dims extents;
  };

  // One index a column: nothing is named twice.
  Nest author_single() {
    Nest nest = over(f_.inner_dims(f_.dy), [&](const Index& p, const Index& q) {
      f_.checked_index(f_.index_at(p, {0}, q), [&](const Expr& j) {
        const Index at = f_.joined(p, {j}, q);
        b_.store(f_.dx, at, added_to(ir::load(f_.dx, at), value(p, 0, q)));
      });
    });
    return nest;
  }

  Nest author_several() {
    std::vector<Expr> inner = f_.inner_dims(f_.dy);
    if (!inner.empty()) inner.back() = ir::floor_div(inner.back() + (width_ - 1), width_);
    return over(inner, [&](const Index& p, const Index& q) { author_strip(p, q); });
  }

  // Loops over dY's outer dims and these inner ones.
  Nest over(const std::vector<Expr>& inner, const std::function<void(const Index& p, const Index& q)>& body) {
    Nest nest;
    std::vector<Loop> inside;
    nest.loops = b_.loops("p", f_.outer_dims(f_.dy),
                          [&](const Index& p) { inside = b_.loops("q", inner, [&](const Index& q) { body(p, q); }); });
    nest.loops.insert(nest.loops.end(), inside.begin(), inside.end());
    const Dims& dims = plan_.views[1].dims;
    for (int d = 0; d < dims.size(); ++d)
      if (d != f_.roles.outer) nest.extents.push_back(dims[d]);
    return nest;
  }
  void share(bool shared, Nest nest) {
    if (shared) shared_.push_back(std::move(nest));
  }

  // `q`: of the columns but for the last inner dim, and there the number of the strip.
  void author_strip(const Index& p, const Index& q) {
    const Buffer saved = b_.alloc("saved", bits_, {count_, width_}), sums = b_.alloc("sums", f_.sum, {count_, width_});
    const auto pass = [&](const char* name, bool backwards, const auto& body) {
      b_.loop(name, 0, count_, [&](const Expr& i) {
        const Expr k = backwards ? b_.let("k", count_ - 1 - i) : i;
        const auto at_column = [&](const Expr& c, const Index& at) {
          f_.checked_index(f_.index_at(p, {k}, at), [&](const Expr& j) { body(k, c, at, j, f_.joined(p, {j}, at)); });
        };
        if (q.empty()) return at_column(0, q);
        columns_.push_back(b_.loop("c", 0, width_, [&](const Expr& c) {
          Index at = q;
          at.back() = q.back() * width_ + c;
          const Expr columns = f_.dy->dims.back();
          const bool whole = ir::as_int(columns).value_or(1) % width_ == 0;
          b_.guarded(whole ? Expr() : at.back() < columns, [&] { at_column(c, at); });
        }));
      });
    };
    pass("save", true, [&](const Expr& k, const Expr& c, const Index&, const Expr&, const Index& at) {
      b_.store(saved, {k, c}, bits_at(at));
      b_.store(f_.dx, at, ir::bitcast(f_.dx->dtype, ir::cast(bits_, k)));
    });
    pass("sum", false, [&](const Expr& k, const Expr& c, const Index& q, const Expr& j, const Index& at) {
      const Expr first = b_.let("first", ir::cast(DType::i64, bits_at(at))),
                 held = b_.let("held", ir::load(saved, {k, c})), next = b_.let("next", ir::cast(DType::i64, held));
      const Expr sum = ir::load(sums, {first, c}, first < k, ir::zero({f_.sum, 1}));
      const Expr total = b_.let("total", sum + value(p, k, q));
      const Expr later = b_.let("later", (next > k) & (next < count_));
      const Expr raw = ir::load(f_.indices, f_.index_at(p, {next}, q), later, ir::zero({f_.indices->dtype, 1}));
      b_.if_then(
          later & (f_.wrapped(raw) == j),
          [&] {
            b_.store(sums, {first, c}, total);
          },
          [&] { b_.store(f_.dx, at, added_to(ir::bitcast(f_.dx->dtype, held), total)); });
    });
  }

  Expr bits_at(const Index& at) const { return ir::bitcast(bits_, ir::load(f_.dx, at)); }
  Expr value(const Index& p, const Expr& k, const Index& q) const {
    return ir::cast(f_.sum, ir::load(f_.dy, f_.joined(p, {k}, q)));
  }

  const GatherFrame f_;
  ir::KernelBuilder& b_;
  const ir::Target& target_;
  const Plan& plan_;
  const Expr count_;
  const DType bits_;
  const int64_t width_;
  std::vector<Nest> shared_;
  std::vector<Loop> columns_;
};

Fit fit(const Plan& plan, const ir::Target& target, bool any_shape) {
  const GatherSizes s(plan);
  if (s.roles.middle != 1 || !(s.roles.varying || s.one_row())) return Fit::none;
  if (!any_shape && !s.roles.empty && s.count > most_positions(plan.views[2].dtype)) return Fit::none;
  const bool large = s.one_row() && s.extent * s.sum_bytes > target.l2_bytes;  // where "partition" reads it in order
  return touched_fit(plan, target, large ? 128 : 32);
}

ScheduleNest author(KernelFrame& frame, const ir::Target& target) {
  ScheduleNest own = author_nest(std::make_shared<TouchedElements>(frame, target));
  return target.gpu ? ScheduleNest() : own;
}

}  // namespace

Fit touched_fit(const Plan& plan, const ir::Target& target, int64_t rare) {
  const GatherSizes s(plan);
  if (!s.roles.accumulate || s.roles.empty) return Fit::none;
  // On a GPU that may add in any order, atomics do the same at once.
  if (target.gpu && plan.determinism == Determinism::relaxed) return Fit::possible;
  return preferred_if(s.count <= s.extent / rare);
}

bool worth_sharing(const GatherSizes& s, const ir::Target& target) {
  return target.threads > 1 && s.count * s.outer * s.inner >= serial_elements;
}

void share_one_of(ir::Schedule& schedule, const std::vector<Loop>& loops, const Dims& extents,
                  const ir::Target& target) {
  int best = -1;
  for (int d = 0; d < extents.size(); ++d) {
    if (best < 0 || extents[d] > extents[best]) best = d;
    if (extents[d] >= wanted_tasks(target)) break;
  }
  if (best >= 0) schedule.parallel(loops[best]);
}

Strategy gather_touched() { return {.name = "touched", .fit = fit, .author = author}; }

}  // namespace gradloom
