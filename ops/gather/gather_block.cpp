// The strategy "block" on a GPU: a thread block keeps the sums of a few neighbouring columns (or rows, when the axis is
// last) of dX in shared memory. Its threads load a tile of indices and values; then one warp per column adds 32 at a
// time, in index order, while the loads of the next tile are in flight.
#include <algorithm>
#include <limits>

#include "ir/analysis/verify_gpu.h"
#include "ir/index_math.h"
#include "ops/gather/gather_strategies.h"
#include "ops/patterns/integer_math.h"

namespace gradloom {
namespace {

using ir::Buffer;
using ir::Expr;
using Index = GatherFrame::Index;
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

class BlockNest {
 public:
  BlockNest(KernelFrame& frame, const ir::Target& target)
      : f_(frame, gather_roles(frame.plan())),
        b_(f_.b),
        cut_(block_of(frame.plan(), target)),
        inner_(f_.roles.inner == 1),
        extent_(f_.axis_extent()),
        count_(f_.dy->dims[f_.roles.outer]),
        limit_(inner_ ? f_.spanned()->dims.back() : f_.spanned()->dims[f_.roles.outer - 1]) {
    if (cut_.columns == 0) cut_ = {4, tile_elements / 4};  // sums in scratch memory
  }

  void write() {
    std::vector<Expr> dims = f_.outer_dims(f_.spanned());
    if (!inner_) dims.pop_back();
    Loop strips = 0;
    blocks_ = b_.loops("p", dims, [&](const Index& p) {
      strips = b_.loop("strip", 0, ir::floor_div(limit_ + (cut_.columns - 1), cut_.columns), [&](Expr strip) {
        p_ = p;
        strip_ = strip;
        block();
      });
    });
    blocks_.push_back(strips);
  }

  void schedule(ir::Schedule& s) const {
    s.bind(fuse_all(s, blocks_), ir::ForKind::grid);
    s.bind(threads_, ir::ForKind::thread);
    for (const Loop loop : {commits_, loads_}) s.unroll(loop);
    // Columns are proved disjoint between blocks only where the divisor is a constant.
    for (const auto& [outer, inner] : {zeros_, stores_})
      s.bind(ir::as_int(s.get(inner).extent) ? s.fuse(outer, inner) : inner, ir::ForKind::thread);
    const Loop lanes = s.split(adds_, ir::warp_lanes).inner;
    s.bind(warps_, ir::ForKind::warp);
    s.bind(lanes, ir::ForKind::lane);
  }

 private:
  void block() {
    const std::optional<int64_t> s = ir::as_int(extent_);
    const DType number = s && *s < std::numeric_limits<int32_t>::max() ? DType::i32 : DType::i64;
    acc_ = b_.alloc("acc", f_.sum, {cut_.columns, s ? Expr(padded(*s)) : extent_});
    places_ = b_.alloc("places", number, {cut_.columns, padded(cut_.tile)}, {.min = -1, .max = extent_ - 1});
    values_ = b_.alloc("values", f_.sum, {cut_.columns, padded(cut_.tile)});
    raw_ = b_.alloc("raw", f_.indices->dtype, {cut_.threads(), cut_.each()}, {}, ir::Space::per_thread);
    staged_ = b_.alloc("staged", f_.dy->dtype, {cut_.threads(), cut_.each()}, {}, ir::Space::per_thread);
    zeros_.outer = b_.loop("z0", 0, cut_.columns, [&](Expr c) {
      zeros_.inner = b_.loop("z1", 0, acc_->dims[1], [&](Expr i) { b_.store(acc_, {c, i}, ir::zero({f_.sum, 1})); });
    });
    // Software pipelining: while a tile is added, the next is loaded to registers; iteration `tile` commits tile - 1 to
    // shared memory and loads `tile`.
    const Expr tiles = ir::floor_div(count_ + (cut_.tile - 1), cut_.tile);
    b_.loop("tile", 0, tiles + 1, [&](Expr tile) {
      threads_ = b_.loop("t", 0, cut_.threads(), [&](Expr t) {
        b_.if_then(tile > 0,
                   [&] { commits_ = b_.loop("commit", 0, cut_.each(), [&](Expr u) { commit(tile - 1, t, u); }); });
        b_.if_then(tile < tiles, [&] { loads_ = b_.loop("load", 0, cut_.each(), [&](Expr u) { load(tile, t, u); }); });
      });
      b_.if_then(tile > 0, [&] {
        warps_ = b_.loop("column", 0, cut_.columns, [&](Expr c) {
          adds_ = b_.loop("k", 0, cut_.tile, [&](Expr t) {
            const Expr place = b_.let("place", ir::cast(DType::i64, ir::load(places_, {c, t})));
            b_.if_then(place >= 0, [&] { b_.accumulate(acc_, {c, place}, ir::load(values_, {c, t})); });
          });
        });
      });
    });
    // The inner loop runs along contiguous memory: accesses coalesce.
    const auto store = [&](const Expr& c, const Expr& i) {
      b_.guarded(column_inside(c), [&] { f_.store_total(f_.joined(p_at(c), {i}, q_at(c)), ir::load(acc_, {c, i})); });
    };
    stores_.outer = b_.loop("i0", 0, inner_ ? extent_ : Expr(cut_.columns), [&](Expr outer) {
      stores_.inner = b_.loop("i1", 0, inner_ ? Expr(cut_.columns) : extent_,
                              [&](Expr inner) { inner_ ? store(inner, outer) : store(outer, inner); });
    });
  }

  // A thread's element `u` of a tile: neighbouring threads access neighbours in memory (coalesced).
  struct Element {
    Expr c, t, k, inside;  // column, row of the tile, row of dY, guard (absent: true)
  };
  Element element(const Expr& tile, const Expr& thread, const Expr& u) {
    const Expr at = u * cut_.threads() + thread,
               c = inner_ ? ir::floor_mod(at, Expr(cut_.columns)) : ir::floor_div(at, Expr(cut_.tile)),
               t = inner_ ? ir::floor_div(at, Expr(cut_.columns)) : ir::floor_mod(at, Expr(cut_.tile));
    const Expr k = b_.let("k", tile * cut_.tile + t);
    const auto n = ir::as_int(count_);
    const Expr in_count = n && *n % cut_.tile == 0 ? Expr() : k < count_;
    return {c, t, k, ir::both(ir::both(column_inside(c), in_count), f_.covered(p_at(c), q_at(c)))};
  }

  void load(const Expr& tile, const Expr& thread, const Expr& u) {
    const Element e = element(tile, thread, u);
    b_.guarded(e.inside, [&] {
      const Index p = p_at(e.c), q = q_at(e.c);
      b_.store(raw_, {thread, u}, ir::load(f_.indices, f_.index_at(p, {e.k}, q)));
      b_.store(staged_, {thread, u}, ir::load(f_.dy, f_.joined(p, {e.k}, q)));
    });
  }

  void commit(const Expr& tile, const Expr& thread, const Expr& u) {
    const Element e = element(tile, thread, u);
    b_.store(places_, {e.c, e.t}, ir::constant_int(places_->dtype, -1));
    b_.guarded(e.inside, [&] {
      f_.checked_index(ir::load(raw_, {thread, u}), f_.index_at(p_at(e.c), {e.k}, q_at(e.c)), [&](Expr j) {
        b_.store(places_, {e.c, e.t}, ir::cast(places_->dtype, j));
        b_.store(values_, {e.c, e.t}, ir::cast(f_.sum, ir::load(staged_, {thread, u})));
      });
    });
  }

  Expr column(const Expr& c) const { return strip_ * cut_.columns + c; }
  // Absent: always true.
  Expr column_inside(const Expr& c) const {
    const auto n = ir::as_int(limit_);
    return n && *n % cut_.columns == 0 ? Expr() : column(c) < limit_;
  }
  Index p_at(const Expr& c) const {
    Index p = p_;
    if (!inner_) p.push_back(column(c));
    return p;
  }
  Index q_at(const Expr& c) const { return inner_ ? Index{column(c)} : Index{}; }

  const GatherFrame f_;
  ir::KernelBuilder& b_;
  GatherBlock cut_;
  const bool inner_;  // columns are of the inner dim, else of the last outer one
  const Expr extent_, count_, limit_;
  Index p_;
  Expr strip_;
  Buffer acc_, places_, values_;
  Buffer raw_, staged_;  // per-thread elements in flight: loaded, not yet committed

  struct Pair {
    Loop outer = 0, inner = 0;
  };
  std::vector<Loop> blocks_;  // outermost first, perfectly nested
  Pair zeros_, stores_;
  Loop threads_ = 0, commits_ = 0, loads_ = 0, warps_ = 0, adds_ = 0;
};

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
  return {.name = "block", .fit = fit, .author = [](KernelFrame& frame, const ir::Target& target) {
            return author_nest(std::make_shared<BlockNest>(frame, target));
          }};
}

}  // namespace gradloom
