// The definition's nest with its sums in dX itself. "in_place", on a CPU: dX is filled with zeros, then rows are added
// in index order; for few indices, which cost less than another pass over dX. "atomic", on a GPU: every element is
// added by an atomic, in any order; a GPU's atomic adds of f32 flush denormals to zero.
#include "ir/rewrite.h"
#include "ir/schedule/schedule_gpu.h"
#include "ops/gather/gather_strategies.h"

namespace gradloom {
namespace {

using ir::Loop;

struct InPlace {
  std::vector<Loop> fill;            // over dX's outer dims, its rows, its inner dims; empty where it is added to
  std::vector<Loop> outer, updates;  // of what is added: over outer dims, over positions,
  std::vector<Loop> columns;         // over inner dims
};

InPlace sum_in_dx(ir::Schedule& s, const GatherColumns& loops, bool accumulate) {
  s.sum_in_place(loops.store, loops.sums);
  std::vector<Loop> columns = loops.outer;
  columns.insert(columns.end(), loops.inner.begin(), loops.inner.end());
  InPlace nest;
  Loop outermost = columns.empty() ? loops.middle[0] : columns[0];
  if (!accumulate) {
    for (size_t d = columns.size(); d-- > 0;) outermost = s.distribute(columns[d]).back();
    nest.fill = loops.outer;
    nest.fill.push_back(loops.zero);
    nest.fill.insert(nest.fill.end(), loops.inner.begin(), loops.inner.end());
    for (size_t q = loops.inner.size(); q-- > 0;) s.reorder(loops.inner[q], loops.zero);
  }
  std::vector<Loop> added{outermost};
  for (const ir::For* f : ir::loops_below(s.get(outermost).body)) added.push_back(f->var.id);
  const auto first = added.begin() + static_cast<std::ptrdiff_t>(loops.outer.size()),
             last = added.begin() + static_cast<std::ptrdiff_t>(columns.size());
  nest.outer = {added.begin(), first}, nest.columns = {first, last}, nest.updates = {last, added.end()};
  for (size_t q = nest.columns.size(); q-- > 0;)
    for (const Loop k : nest.updates) s.reorder(nest.columns[q], k);
  return nest;
}

// Fills narrow rows a vector's number of them at a time, which is whole vectors, and cache lines, of dX; others row by
// row.
void schedule_fill(ir::Schedule& s, const InPlace& nest, const GatherColumns& loops, const GatherSizes& sizes,
                   const ir::Target& target) {
  constexpr int64_t widest = 64;
  const int lanes = target.lanes(sizes.sum_bytes);
  const bool shared = worth_threads(sizes.traffic, target);
  const std::optional<int64_t> width = loops.inner.empty() ? 1 : ir::as_int(s.get(nest.fill.back()).extent);
  std::optional<Loop> rows = loops.zero;
  const bool narrow =
      !loops.inner.empty() && width && *width <= widest && ir::as_int(s.get(*rows).extent).value_or(0) >= lanes;
  if (narrow) {
    const ir::Schedule::Split cut = s.split(*rows, lanes);
    s.vectorize(s.fuse(cut.inner, nest.fill.back()), lanes, static_cast<int>(*width));
    rows = cut.outer;
  }
  if (shared) {
    if (nest.outer.empty())
      rows = share_in_pieces(s, *rows, target);
    else
      s.parallel(nest.fill[0]);
  }
  if (!narrow && !loops.inner.empty())
    vectorize_sums(s, nest.fill.back(), sizes.sum_bytes, target);
  else if (!narrow && rows)
    vectorize_sums(s, *rows, sizes.sum_bytes, target);
  if (narrow || loops.inner.empty())
    stream_large(s, sizes, target);
  else
    stream_rows(s, sizes, target);
}

void schedule_in_place(ir::Schedule& s, const GatherColumns& loops, const GatherSizes& sizes,
                       const ir::Target& target) {
  const InPlace nest = sum_in_dx(s, loops, false);
  constexpr int64_t rows_ahead = 16,
                    shortest_ahead = 128;  // bytes of a row; reads of shorter ones overlap by themselves
  if (!nest.columns.empty()) {
    vectorize_elements(s, nest.columns.back(), sizes.sum_bytes, 1, target);
    if (sizes.row_bytes() >= shortest_ahead)
      s.attempt([&](ir::Schedule& trial) {  // refused where lanes are masked
        trial.prefetch(nest.updates.back(), trial.kernel().buffers.back(), rows_ahead, 1);
      });
  }
  schedule_fill(s, nest, loops, sizes, target);
}

ScheduleNest author_in_place(KernelFrame& frame, const ir::Target& target) {
  return [loops = author_gather_columns(GatherFrame(frame, gather_roles(frame.plan()))),
          sizes = GatherSizes(frame.plan()), &target](ir::Schedule& s) { schedule_in_place(s, loops, sizes, target); };
}

Fit fit_in_place(const Plan& plan, const ir::Target& target, bool) {
  const GatherSizes s(plan);
  const DType dtype = plan.views.back().dtype;
  if (target.gpu || s.roles.accumulate || s.roles.shorter || accumulator_of(dtype) != dtype) return Fit::none;
  if (!s.flat() && !s.columns()) return Fit::none;
  return preferred_if(gather_by(s, target) == GatherBy::adding);
}

void schedule_atomic(ir::Schedule& s, const GatherColumns& loops, bool accumulate, const ir::Target& target) {
  const InPlace nest = sum_in_dx(s, loops, accumulate);
  s.atomic(nest.outer.empty() ? nest.updates[0] : nest.outer[0], s.kernel().buffers.back());
  ir::schedule_gpu(s, target);
}

ScheduleNest author_atomic(KernelFrame& frame, const ir::Target& target) {
  const GatherRoles roles = gather_roles(frame.plan());
  return [loops = author_gather_columns(GatherFrame(frame, roles)), roles, &target](ir::Schedule& s) {
    schedule_atomic(s, loops, roles.accumulate, target);
  };
}

Fit fit_atomic(const Plan& plan, const ir::Target& target, bool) {
  const GatherSizes s(plan);
  const DType dtype = plan.views.back().dtype;
  if (!target.gpu || s.roles.empty || (dtype != DType::f32 && dtype != DType::f64)) return Fit::none;
  return preferred_if(s.sortable());
}

}  // namespace

Strategy gather_in_place() { return {.name = "in_place", .fit = fit_in_place, .author = author_in_place}; }
Strategy gather_atomic() {
  return {.name = "atomic", .level = Determinism::relaxed, .fit = fit_atomic, .author = author_atomic};
}

}  // namespace gradloom
