#include "ops/gather/gather_block.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "ir/index_math.h"
#include "ops/patterns/integer_math.h"

namespace gradloom {
namespace {

using ir::Buffer;
using ir::Expr;
using Index = GatherFrame::Index;
using Loop = ir::Schedule::Loop;

constexpr int64_t most_threads = 1024;  // of a block
constexpr int64_t tile_elements =
    4096;  // of all columns, for a multiprocessor: four indices and values on their way for each of 1024 threads
constexpr int64_t banks = 32;  // of shared memory, four bytes each

// A row of shared memory as long as `length` but for padding: neighbouring columns lie four banks apart, and four rows
// of eight columns meet in none.
int64_t padded(int64_t length) { return length + (banks + 4 - length % banks) % banks; }

class BlockNest {
 public:
  BlockNest(KernelFrame& frame, const ir::Target& target)
      : f_(frame, gather_roles(frame.plan())),
        b_(f_.b),
        cut_(gather_block(frame.plan(), target)),
        inner_(f_.roles.inner == 1),
        extent_(f_.axis_extent()),
        count_(f_.dy->dims[f_.roles.outer]),
        limit_(inner_ ? f_.dx->dims.back() : f_.dx->dims[f_.roles.outer - 1]) {
    if (cut_.columns == 0) cut_ = {4, tile_elements / 4};  // in scratch
  }

  void write() {
    std::vector<Expr> dims = f_.outer_dims(f_.dx);
    if (!inner_) dims.pop_back();
    b_.loops("p", dims, [&](const Index& p) {
      b_.loop("strip", 0, ir::floor_div(limit_ + (cut_.columns - 1), cut_.columns), [&](Expr strip) {
        p_ = p;
        strip_ = strip;
        block();
      });
    });
  }

 private:
  void block() {
    const std::optional<int64_t> s = ir::as_int(extent_);
    const DType number = s && *s < std::numeric_limits<int32_t>::max() ? DType::i32 : DType::i64;
    acc_ = b_.alloc("acc", f_.sum, {cut_.columns, s ? Expr(padded(*s)) : extent_});
    places_ = b_.alloc("places", number, {cut_.columns, padded(cut_.tile)}, {.min = -1, .max = extent_ - 1});
    values_ = b_.alloc("values", f_.sum, {cut_.columns, padded(cut_.tile)});
    raw_ = b_.alloc("raw", f_.indices->dtype, {cut_.threads(), cut_.each()}, {}, ir::Space::per_thread);
    held_ = b_.alloc("held", f_.dy->dtype, {cut_.threads(), cut_.each()}, {}, ir::Space::per_thread);
    b_.loop("z0", 0, cut_.columns, [&](Expr c) {
      b_.loop("z1", 0, acc_->dims[1], [&](Expr i) { b_.store(acc_, {c, i}, ir::zero({f_.sum, 1})); });
    });
    // While a tile is added, the next is on its way: in turn `tile` threads put down tile - 1 and ask for `tile`.
    const Expr tiles = ir::floor_div(count_ + (cut_.tile - 1), cut_.tile);
    b_.loop("tile", 0, tiles + 1, [&](Expr tile) {
      b_.loop("t", 0, cut_.threads(), [&](Expr t) {
        b_.if_then(tile > 0, [&] { b_.loop("put", 0, cut_.each(), [&](Expr u) { put(tile - 1, t, u); }); });
        b_.if_then(tile < tiles, [&] { b_.loop("ask", 0, cut_.each(), [&](Expr u) { ask(tile, t, u); }); });
      });
      b_.if_then(tile > 0, [&] {
        b_.loop("column", 0, cut_.columns, [&](Expr c) {
          b_.loop("k", 0, cut_.tile, [&](Expr t) {
            const Expr place = b_.let("place", ir::cast(DType::i64, ir::load(places_, {c, t})));
            b_.if_then(place >= 0, [&] { b_.accumulate(acc_, {c, place}, ir::load(values_, {c, t})); });
          });
        });
      });
    });
    each("i", extent_, [&](const Expr& c, const Expr& i) {
      b_.guarded(column_inside(c), [&] { f_.store_total(f_.joined(p_at(c), {i}, q_at(c)), ir::load(acc_, {c, i})); });
    });
  }

  // Neighbours in memory are neighbours in the inner loop.
  void each(const std::string& name, const Expr& length,
            const std::function<void(const Expr& c, const Expr& i)>& body) {
    const std::string outer = name + "0", inner = name + "1";
    if (inner_)
      b_.loop(outer, 0, length, [&](Expr i) { b_.loop(inner, 0, cut_.columns, [&](Expr c) { body(c, i); }); });
    else
      b_.loop(outer, 0, cut_.columns, [&](Expr c) { b_.loop(inner, 0, length, [&](Expr i) { body(c, i); }); });
  }

  // A thread's element `u` of a tile: neighbours in memory are neighbouring threads'.
  struct Element {
    Expr c, t, k, inside;  // column, row of the tile, row of dY; absent: always
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

  void ask(const Expr& tile, const Expr& thread, const Expr& u) {
    const Element e = element(tile, thread, u);
    b_.guarded(e.inside, [&] {
      const Index p = p_at(e.c), q = q_at(e.c);
      b_.store(raw_, {thread, u}, ir::load(f_.indices, f_.index_at(p, {e.k}, q)));
      b_.store(held_, {thread, u}, ir::load(f_.dy, f_.joined(p, {e.k}, q)));
    });
  }

  void put(const Expr& tile, const Expr& thread, const Expr& u) {
    const Element e = element(tile, thread, u);
    b_.store(places_, {e.c, e.t}, ir::constant_int(places_->dtype, -1));
    b_.guarded(e.inside, [&] {
      f_.checked_index(ir::load(raw_, {thread, u}), f_.index_at(p_at(e.c), {e.k}, q_at(e.c)), [&](Expr j) {
        b_.store(places_, {e.c, e.t}, ir::cast(places_->dtype, j));
        b_.store(values_, {e.c, e.t}, ir::cast(f_.sum, ir::load(held_, {thread, u})));
      });
    });
  }

  Expr column(const Expr& c) const { return strip_ * cut_.columns + c; }
  // Absent: always.
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
  Buffer raw_, held_;  // a thread's elements on their way
};

// All loops of these names, outermost first, each all that the one before holds, as one.
Loop fused(ir::Schedule& s, const std::vector<Loop>& loops) {
  Loop one = loops[0];
  for (size_t i = 1; i < loops.size(); ++i) one = s.fuse(one, loops[i]);
  return one;
}

}  // namespace

GatherBlock gather_block(const Plan& plan, const ir::Target& target) {
  const GatherRoles roles = gather_roles(plan);
  if (roles.empty || roles.middle != 1 || roles.inner > 1 || roles.inner + roles.outer == 0) return {};
  const View &dy = plan.views[1], &dx = plan.views[2];
  const int64_t sum = size_of(accumulator_of(dx.dtype)), extent = dx.dims[roles.axis()], count = dy.dims[roles.outer];
  for (const int64_t columns : {16, 8, 4, 2}) {
    // The wide strip leaves room for two blocks, in registers too.
    const int64_t blocks = columns == 16 ? 2 : 1;
    const int64_t tile =
        std::min(tile_elements / blocks / columns, round_up(std::max<int64_t>(count, 1), ir::warp_lanes));
    const int64_t bytes = columns * (padded(extent) * sum + padded(tile) * (size_of(DType::i32) + sum)) + 64;
    if (extent < target.shared_bytes && bytes <= target.shared_bytes / blocks) return {columns, tile};
  }
  return {};
}

// A power of two: of three, say, it is not proved that threads put down elements of their own.
int64_t GatherBlock::each() const {
  int64_t each = 1;
  while (columns * tile > each * most_threads) each *= 2;
  return each;
}

void author_gather_block(KernelFrame& frame, const ir::Target& target) { BlockNest(frame, target).write(); }

void schedule_gather_block(ir::Schedule& s, const ir::Target&) {
  std::vector<Loop> blocks;
  while (!s.loops("p" + std::to_string(blocks.size())).empty())
    blocks.push_back(s.loop("p" + std::to_string(blocks.size())));
  blocks.push_back(s.loop("strip"));
  s.bind(fused(s, blocks), ir::ForKind::grid);
  s.bind(s.loop("t"), ir::ForKind::thread);
  for (const char* copies : {"put", "ask"}) s.unroll(s.loop(copies));
  for (const std::string name : {"z", "i"}) {
    // A column is known to be the block's own only by a division by a constant.
    const Loop outer = s.loop(name + "0"), inner = s.loop(name + "1");
    s.bind(ir::as_int(s.get(inner).extent) ? s.fuse(outer, inner) : inner, ir::ForKind::thread);
  }
  const Loop lanes = s.split(s.loop("k"), ir::warp_lanes).inner;
  s.bind(s.loop("column"), ir::ForKind::warp);
  s.bind(lanes, ir::ForKind::lane);
}

}  // namespace gradloom
