// The strategies "sorted" and "chunked" on a GPU (rows, or single elements of a flat dX), for kernels of a known shape:
// the definition's nest, its positions sorted by row with keys that blocks of threads sort and that are then merged;
// every row of dX is summed, in index order, and written once, whatever the duplicates. "chunked" sums each long group
// by a thread block: in-order sums of chunks of equal length in parallel, then the chunk sums in order.
#include <algorithm>
#include <bit>
#include <limits>

#include "ir/rewrite.h"
#include "ir/schedule/schedule_gpu.h"
#include "ops/gather/gather_strategies.h"

namespace gradloom {
namespace {

using ir::Loop;

constexpr int64_t longest_run = 4096, shortest_run = 64;  // keys that a block sorts
constexpr int64_t rows_in_flight = 8, vector_bytes = 16;

int64_t run_length(int64_t count) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::clamp(count, shortest_run, longest_run))));
}

// Sorts positions by row; then, for each row, sums one element of it after the other.
ir::Schedule::SortedGroups sort_rows(ir::Schedule& s, const GatherColumns& loops, int64_t count) {
  const ir::Schedule::SortedGroups groups = s.group_sorted(loops.middle[0], loops.sums, run_length(count));
  s.join(loops.zero, groups.rows[0]);
  s.join(loops.zero, loops.store);
  s.stage(loops.zero, loops.sums, {ir::var(s.get(loops.zero).var)}, {1});
  for (size_t q = loops.inner.size(); q-- > 0;) s.reorder(loops.inner[q], loops.zero);
  return groups;
}

void bind_sort(ir::Schedule& s, const ir::Schedule::SortedGroups& groups, const ir::Target& target) {
  s.bind(groups.runs, ir::ForKind::grid);
  for (const Loop loop : groups.run) s.bind(loop, ir::ForKind::thread);
  for (const Loop loop : groups.merges) ir::schedule_gpu(s, loop, target);
  for (const Loop loop : {groups.clear, groups.mark}) ir::schedule_gpu(s, loop, target);
}

// Each thread has 16 bytes of a row.
void bind_rows(ir::Schedule& s, const GatherColumns& loops, DType dtype, const ir::Target& target) {
  Loop one = loops.zero;
  for (size_t p = loops.outer.size(); p-- > 0;) one = s.fuse(loops.outer[p], one);
  if (!loops.inner.empty()) {
    Loop columns = loops.inner[0];
    const int64_t lanes = vector_bytes / size_of(dtype);
    if (*ir::as_int(s.get(columns).extent) % lanes == 0) {
      const ir::Schedule::Split cut = s.split(columns, lanes);
      s.vectorize(cut.inner);
      columns = cut.outer;
    }
    one = s.fuse(one, columns);
  }
  const ir::Schedule::Split cut = s.split_guarded(one, target.block_threads);
  s.bind(cut.outer, ir::ForKind::grid);
  s.bind(cut.inner, ir::ForKind::thread);
}

void schedule_sorted(ir::Schedule& s, const GatherColumns& loops, const Plan& plan, const ir::Target& target) {
  const ir::Schedule::SortedGroups groups = sort_rows(s, loops, GatherSizes(plan).count);
  bind_sort(s, groups, target);
  s.read_ahead(groups.group, rows_in_flight);
  bind_rows(s, loops, plan.views[2].dtype, target);
}

// "chunked": a group longer than this is a block's.
int64_t longest_group(int64_t count) {
  constexpr int64_t shortest = 64, longest = 1024;
  return std::clamp(count / 4096, shortest, longest);
}

// The sums of long groups: each in chunks of equal length, each chunk's sum of a tile of columns by a thread, then
// the chunks' sums in order. `nest`: loops over dX's outer dims, slots, columns; then over the group.
void schedule_long_groups(ir::Schedule& s, std::vector<Loop> nest, bool columns) {
  constexpr int64_t chunks = 32, widest_tile = 32;
  const ir::Schedule::Split cut = s.split_parts(nest.back(), chunks);
  nest.pop_back();
  const Loop slot = nest[nest.size() - (columns ? 2 : 1)];
  ir::Buffer sum;
  ir::walk(s.get(slot).body, [&](const ir::Stmt& x) {
    if (const auto* alloc = x.as<ir::Alloc>(); alloc && !sum) sum = alloc->buffer;
  });
  const ir::Buffer partial = s.privatise(cut.outer, sum);
  s.stage(cut.outer, partial, {ir::var(s.get(cut.outer).var), 0}, {1, 1});
  s.read_ahead(cut.inner, rows_in_flight);
  std::vector<Loop> threads{cut.outer};
  if (columns) {
    Loop tile = nest.back();
    nest.pop_back();
    const int64_t width = *ir::as_int(s.get(tile).extent);
    if (width > widest_tile) {
      const ir::Schedule::Split tiles =
          width % widest_tile == 0 ? s.split(tile, widest_tile) : s.split_guarded(tile, widest_tile);
      s.reorder(slot, tiles.outer);
      nest.insert(nest.end() - 1, tiles.outer);
      tile = tiles.inner;
    }
    const std::vector<Loop> parts = s.distribute(tile);  // zeros, sums of chunks, their sums, stores
    ir::walk(s.get(parts[0]).body, [&](const ir::Stmt& x) {
      if (const auto* store = x.as<ir::Store>()) sum = store->buffer;
    });
    for (const Loop later : {parts[2], parts[3]}) s.join(parts[0], later);
    s.attempt([&](ir::Schedule& trial) {  // refused where the last tile is shorter
      trial.stage(parts[0], sum, {0, ir::var(trial.get(parts[0]).var)}, {1, 1});
    });
    const Loop chunk = ir::loops_below(s.get(parts[1]).body)[0]->var.id;
    s.reorder(parts[1], chunk);
    threads = {s.fuse(chunk, parts[1]), parts[0]};
  }
  s.bind(fuse_all(s, nest), ir::ForKind::grid);
  for (const Loop loop : threads) s.bind(loop, ir::ForKind::thread);
}

void schedule_chunked(ir::Schedule& s, const GatherColumns& loops, const Plan& plan, const ir::Target& target) {
  const GatherSizes sizes(plan);
  const ir::Schedule::SortedGroups groups = sort_rows(s, loops, sizes.count);
  for (const Loop q : loops.inner) s.hoist_lets(q);
  const ir::Schedule::LongGroups separate = s.separate_long(loops.zero, groups.group, longest_group(sizes.count));
  bind_sort(s, groups, target);
  for (const Loop loop : {separate.none, separate.find}) ir::schedule_gpu(s, loop, target);
  Loop outermost = separate.slots;
  for (size_t p = loops.outer.size(); p-- > 0;) outermost = s.distribute(loops.outer[p])[1];
  std::vector<Loop> nest{outermost};
  for (const ir::For* f : ir::loops_below(s.get(outermost).body)) nest.push_back(f->var.id);
  schedule_long_groups(s, nest, !loops.inner.empty());
  for (const Loop q : loops.inner) s.reorder(loops.zero, q), s.reorder(q, loops.zero);
  s.read_ahead(groups.group, rows_in_flight);
  bind_rows(s, loops, plan.views[2].dtype, target);
}

// Keys hold a position and a row in 32 bits each. Of keys, padded to a power of two, there are two lists; of rows, two
// tables of i32.
bool has_keys(const GatherSizes& s) {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  return s.count <= most / 2 && s.extent <= most && 32 * s.count + 8 * s.extent <= ir::Schedule::max_table_bytes;
}

Fit fit(const Plan& plan, const ir::Target& target, bool any_shape) {
  const GatherSizes s(plan);
  return target.gpu && !any_shape && s.sortable() && has_keys(s) ? Fit::preferred : Fit::none;
}

using ScheduleRows = void (*)(ir::Schedule&, const GatherColumns&, const Plan&, const ir::Target&);
template <ScheduleRows schedule>
ScheduleNest author(KernelFrame& frame, const ir::Target& target) {
  return [loops = author_gather_columns(GatherFrame(frame, gather_roles(frame.plan()))), &plan = frame.plan(),
          &target](ir::Schedule& s) { schedule(s, loops, plan, target); };
}

}  // namespace

Strategy gather_sorted() { return {.name = "sorted", .fit = fit, .author = author<schedule_sorted>}; }
Strategy gather_chunked() {
  return {.name = "chunked", .level = Determinism::run_to_run, .fit = fit, .author = author<schedule_chunked>};
}

}  // namespace gradloom
