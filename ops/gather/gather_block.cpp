// The strategy "block" on a GPU: the definition's nest, of which a thread block keeps the sums of a few neighbouring
// columns (or rows, when the axis is last) of dX in shared memory. Its threads load a tile of indices and values; then
// one warp per column adds 32 at a time, in index order, while the loads of the next tile are in flight.
#include <algorithm>

#include "ir/analysis/verify_gpu.h"
#include "ir/rewrite.h"
#include "ops/gather/gather_strategies.h"
#include "ops/patterns/integer_math.h"

namespace gradloom {
namespace {

using ir::Loop;

constexpr int64_t tile_elements =
    4096;  // over all columns, per multiprocessor: four indices and values in flight for each of 1024 threads
constexpr int64_t banks = 32;  // of shared memory, four bytes each

// The padded length of a row of shared memory: neighbouring columns start four banks apart, so that four rows of eight
// columns have no bank conflicts.
int64_t padded(int64_t length) { return length + (banks + 4 - length % banks) % banks; }

// The tiling of a call; `columns` is 0 where the sums do not fit into shared memory.
struct GatherBlock {
  int64_t columns = 0;   // per block
  int64_t tile = 0;      // indices per column that are loaded at a time, a multiple of 32
  int64_t each() const;  // elements of a tile that a thread loads
  int64_t threads() const { return columns * tile / each(); }  // that load a tile
};
GatherBlock block_of(const Plan& plan, const ir::Target& target);

bool is_const(const ir::Schedule& s, Loop loop) { return ir::as_int(s.get(loop).extent).has_value(); }

// Of two loops, one in the other, as one for threads, with the conditions between them in it.
void bind_both(ir::Schedule& s, Loop outer, Loop inner) {
  if (!is_const(s, outer) || !is_const(s, inner)) return s.bind(inner, ir::ForKind::thread);
  if (!s.get(outer).body.as<ir::For>()) s.reorder(outer, inner), s.reorder(inner, outer);
  s.bind(s.fuse(outer, inner), ir::ForKind::thread);
}

void schedule_block(ir::Schedule& s, const GatherColumns& loops, const Plan& plan, const ir::Target& target) {
  GatherBlock cut = block_of(plan, target);
  if (cut.columns == 0) cut = {4, tile_elements / 4};  // sums in scratch memory
  const bool inner = !loops.inner.empty();             // columns are of the inner dim, else of the last outer one
  const ir::Schedule::Split strip = s.split_guarded(inner ? loops.inner[0] : loops.outer.back(), cut.columns);
  const std::vector<Loop> parts = s.distribute(strip.inner);  // zeros, sums, stores
  const auto below = [&](Loop loop) { return ir::loops_below(s.get(loop).body)[0]->var.id; };
  ir::Buffer sums;
  ir::walk(s.get(parts[0]).body, [&](const ir::Stmt& x) {
    if (const auto* store = x.as<ir::Store>()) sums = store->buffer;
  });
  const auto extent = ir::as_int(sums->dims[0]);
  sums = s.layout(sums, {1, 0}, {0, extent ? padded(*extent) : 0});

  // Tiles of indices and values: each is loaded while the one before it is added.
  const ir::Schedule::Split tiles = s.split_guarded(below(parts[1]), cut.tile);
  s.reorder(parts[1], tiles.outer);
  const ir::Schedule::Recorded tile = s.record(parts[1], sums);
  for (const ir::Buffer& table : tile.tables) s.layout(table, {0, 1}, {0, padded(cut.tile)});
  if (inner) s.reorder(tile.fetch[0], tile.fetch[1]);
  const Loop all = inner ? s.fuse(tile.fetch[1], tile.fetch[0]) : s.fuse(tile.fetch[0], tile.fetch[1]);
  const ir::Schedule::Split each = s.split(all, cut.threads());
  s.reorder(each.outer, each.inner);
  s.unroll(each.outer);

  // The inner loop runs along contiguous memory: accesses coalesce.
  std::vector<Loop> blocks = loops.outer;
  if (!inner) blocks.pop_back();
  blocks.push_back(strip.outer);
  s.bind(fuse_all(s, blocks), ir::ForKind::grid);
  s.bind(each.inner, ir::ForKind::thread);
  s.load_ahead(tiles.outer, each.inner);
  bind_both(s, parts[0], below(parts[0]));
  const Loop along = below(parts[2]);
  if (inner) s.reorder(parts[2], along);
  inner ? bind_both(s, along, parts[2]) : bind_both(s, parts[2], along);
  const Loop lanes = s.split(tile.add[1], ir::warp_lanes).inner;
  s.bind(tile.add[0], ir::ForKind::warp);
  s.bind(lanes, ir::ForKind::lane);
}

GatherBlock block_of(const Plan& plan, const ir::Target& target) {
  const GatherRoles roles = gather_roles(plan);
  if (roles.empty || roles.middle != 1 || roles.inner > 1 || roles.inner + roles.outer == 0) return {};
  const View &dy = plan.views[1], &dx = plan.views[2];
  const int64_t sum = size_of(accumulator_of(dx.dtype)), extent = dx.dims[roles.axis()], count = dy.dims[roles.outer];
  for (const int64_t columns : {16, 8, 4, 2}) {
    // The widest strip leaves room for two resident blocks per multiprocessor, in registers too.
    const int64_t blocks = columns == 16 ? 2 : 1;
    const int64_t tile =
        std::min(tile_elements / blocks / columns, round_up(std::max<int64_t>(count, 1), ir::warp_lanes));
    const int64_t bytes = columns * (padded(extent) * sum + padded(tile) * (size_of(DType::i32) + sum)) + 64;
    if (extent < target.shared_bytes && bytes <= target.shared_bytes / blocks) return {columns, tile};
  }
  return {};
}

// A power of two: otherwise the commits of different threads are not proved disjoint.
int64_t GatherBlock::each() const {
  int64_t each = 1;
  while (columns * tile > each * ir::most_block_threads) each *= 2;
  return each;
}

Fit fit(const Plan& plan, const ir::Target& target, bool) {
  const GatherSizes s(plan);
  if (!target.gpu || !((s.flat() && s.roles.outer > 0) || s.columns())) return Fit::none;
  return preferred_if(block_of(plan, target).columns > 0);
}

}  // namespace

Strategy gather_block() {
  return {.name = "block", .fit = fit, .author = [](KernelFrame& frame, const ir::Target& target) -> ScheduleNest {
            return [loops = author_gather_columns(GatherFrame(frame, gather_roles(frame.plan()))), &plan = frame.plan(),
                    &target](ir::Schedule& s) { schedule_block(s, loops, plan, target); };
          }};
}

}  // namespace gradloom
