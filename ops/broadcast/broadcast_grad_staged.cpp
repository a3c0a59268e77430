// The nest of BroadcastGrad's strategy "staged", and its schedule.
#include <algorithm>

#include "gradloom/schedule_common.h"
#include "ir/index_math.h"
#include "ir/schedule/schedule_gpu.h"
#include "ops/broadcast/broadcast_grad.h"
#include "ops/patterns/integer_math.h"

namespace gradloom {
namespace {

using ir::Buffer;
using ir::Expr;
using Index = std::vector<Expr>;
using ir::Loop;

constexpr int64_t column_tile = 32, tile_threads = 512, most_rows = 32;

// Vectorises loads of neighbouring elements of dY, 16 bytes of f32: `loop` becomes the loop over vectors, which goes to
// threads. Unchanged where the vectorisation is not proved legal.
void neighbours_together(ir::Schedule& s, Loop& loop) {
  constexpr int64_t together = 4;
  const std::optional<int64_t> extent = ir::as_int(s.get(loop).extent);
  if (!extent || *extent % together != 0) return;
  s.attempt([&](ir::Schedule& trial) {
    const ir::Schedule::Split cut = trial.split(loop, together);
    trial.vectorize(cut.inner);
    loop = cut.outer;
  });
}

class StagedNest {
 public:
  StagedNest(KernelFrame& frame, const ir::Target& target)
      : target_(target),
        roles_(frame.plan()),
        b_(frame.builder),
        y_(frame.view(0, "dY")),
        x_(frame.view(1, "dX", roles_.accumulate)),
        sum_(accumulator_of(x_->dtype)),
        last_(roles_.reduced.back()),
        n_(y_->dims[last_]),
        at_(roles_.rank()) {
    for (int d = 0; d < roles_.rank(); ++d)
      if (d != last_) rest_.push_back(d);
  }

  void write() {
    innermost();
    for (int j = roles_.reduced.size() - 1; j-- > 0;) outer(roles_.reduced[j], j == 0);
  }

  void schedule(ir::Schedule& s) const {
    // Fuses as many of the grid loops as are still proved independent once fused; the outer ones stay host loops.
    std::vector<Loop> grid = grid_;
    while (grid.size() > 1 &&
           !s.attempt([&](ir::Schedule& trial) { trial.bind(fuse_all(trial, grid), ir::ForKind::grid); }))
      grid.erase(grid.begin());
    if (grid.size() == 1) s.bind(grid[0], ir::ForKind::grid);
    std::vector<std::vector<Loop>> phases = phases_;
    neighbours_together(s, phases[0].back());
    for (const std::vector<Loop>& phase : phases) s.bind(fuse_all(s, phase), ir::ForKind::thread);
    for (const Loop loop : later_) ir::schedule_gpu(s, loop, target_);
  }

 private:
  Expr zero() const { return ir::zero({sum_, 1}); }

  Index places(const std::vector<int>& dims) const {
    Index index;
    for (const int d : dims) index.push_back(at_[d]);
    return index;
  }
  std::vector<Expr> extents(const std::vector<int>& dims) const {
    std::vector<Expr> result;
    for (const int d : dims) result.push_back(y_->dims[d]);
    return result;
  }
  // Loops over these dims.
  std::vector<Loop> over(const std::vector<int>& dims, const std::string& name, const std::function<void()>& body) {
    return b_.loops(name, extents(dims), [&](const Index& i) {
      for (size_t k = 0; k < dims.size(); ++k) at_[dims[k]] = i[k];
      body();
    });
  }

  // The element of dY at at_, or +0.0 where `inside` is false.
  Expr element(const Expr& inside) const {
    Index index;
    for (const Expr& e : at_) index.push_back(e);
    return ir::cast(sum_, inside ? ir::load(y_, index, inside, ir::zero({y_->dtype, 1})) : ir::load(y_, index));
  }
  Expr element_at(const Expr& i) {
    at_[last_] = i;
    const auto n = ir::as_int(n_);
    const int64_t part = blocks_ * roles_.block();  // read in full, the last one too
    return element(n && *n > 0 && *n % part == 0 ? Expr() : i < n_);
  }

  // Stores a total at the current index of rest_: to dX, or as an element of the next reduction.
  void put(const Expr& total) {
    if (next_) return b_.store(next_, places(rest_), total);
    const std::vector<int> kept(roles_.kept.begin(), roles_.kept.end());
    Index index = places(kept);
    if (index.empty()) index.push_back(0);
    b_.store(x_, index, ir::cast(x_->dtype, roles_.accumulate ? ir::cast(sum_, ir::load(x_, index)) + total : total));
  }

  // In-order reduction: +0.0 plus `count` values.
  Expr in_order(const std::string& name, const Expr& count, const std::function<Expr(const Expr&)>& value) {
    const Buffer acc = b_.alloc("acc", sum_, {1}, {}, ir::Space::registers);
    b_.store(acc, {0}, zero());
    b_.loop(name, 0, count, [&](Expr i) { b_.accumulate(acc, {0}, value(i)); });
    return ir::load(acc, {0});
  }

  void innermost() {
    if (roles_.reduced.size() > 1) next_ = b_.alloc("totals", sum_, extents(rest_));
    const auto n = ir::as_int(n_);
    blocks_ = n ? std::clamp<int64_t>(ceil_div(*n, roles_.block()), 1, part_blocks) : part_blocks;
    if (roles_.one_part(n_)) return tiles(0, [&](const Expr& total) { put(total); });
    const Expr parts = roles_.parts(n_);
    std::vector<Expr> dims{parts};
    for (const Expr& e : extents(rest_)) dims.push_back(e);
    const Buffer sums = b_.alloc("sums", sum_, dims);
    const auto place = [&](const Expr& part) {
      Index index{part};
      for (const Expr& e : places(rest_)) index.push_back(e);
      return index;
    };
    const Loop every_part = b_.loop("parts", 0, parts, [&](Expr part) {
      tiles(part, [&](const Expr& total) { b_.store(sums, place(part), total); });
    });
    grid_.insert(grid_.begin(), every_part);
    totals("a", [&] { put(in_order("add", parts, [&](const Expr& part) { return ir::load(sums, place(part)); })); });
  }

  // Loops over rest_ that reduce results of the grid or of earlier loops.
  void totals(const std::string& name, const std::function<void()>& body) {
    if (const std::vector<Loop> loops = over(rest_, name, body); !loops.empty()) later_.push_back(loops[0]);
  }

  // One part's totals for all of rest_, a tile of neighbours per thread block.
  void tiles(const Expr& part, const std::function<void(const Expr&)>& store) {
    std::vector<int> grid = rest_;
    const bool tiled = !rest_.empty();
    if (tiled) grid.pop_back();
    const int64_t width = roles_.columns() ? column_tile
                          : !tiled         ? 1
                                           : std::clamp<int64_t>(tile_threads / (blocks_ * partials), 1, most_rows);
    Loop every_tile = 0;
    grid_ = over(grid, "p", [&] {
      const int t = tiled ? rest_.back() : 0;
      const Expr length = tiled ? y_->dims[t] : Expr(1);
      every_tile = b_.loop("tile", 0, ir::index_div(ir::index_add(length, width - 1), width), [&](Expr tile) {
        const auto at = [&](const Expr& c, const std::function<void()>& body) {
          const Expr place = tile * width + c;
          if (tiled) at_[t] = place;
          if (const auto known = ir::as_int(length); known && *known % width == 0) return body();
          b_.if_then(place < length, body);
        };
        roles_.columns() ? columns_of(part, width, at, store) : rows_of(part, width, at, store);
      });
    });
    grid_.push_back(every_tile);
  }
  using At = std::function<void(const Expr& c, const std::function<void()>& body)>;

  // What the threads of a block do between two barriers.
  void phase(const std::string& name, const std::vector<Expr>& extents, const std::function<void(const Index&)>& body) {
    phases_.push_back(b_.loops(name, extents, body));
  }

  // The number of non-empty blocks of the part.
  Expr blocks_in(const Expr& part) const {
    if (roles_.one_part(n_)) return blocks_;
    const int64_t block = roles_.block();
    return ir::min(Expr(blocks_), ir::floor_div(n_ - part * roles_.part() + (block - 1), block));
  }

  void columns_of(const Expr& part, int64_t width, const At& at, const std::function<void(const Expr&)>& store) {
    const Buffer sums = b_.alloc("block_sums", sum_, {blocks_, width});
    phase("u", {blocks_, width}, [&](const Index& i) {
      const Expr k = i[0], c = i[1];
      at(c, [&] {
        const Expr first = b_.let("first", (part * part_blocks + k) * partials);
        std::vector<Expr> p;
        for (int64_t l = 0; l < partials; ++l) p.push_back(zero() + element_at(first + l));
        b_.store(sums, {k, c}, tree(std::move(p)));
      });
    });
    phase("v", {width}, [&](const Index& i) {
      const Expr c = i[0];
      at(c, [&] { store(in_order("block", blocks_in(part), [&](const Expr& k) { return ir::load(sums, {k, c}); })); });
    });
  }

  void rows_of(const Expr& part, int64_t width, const At& at, const std::function<void(const Expr&)>& store) {
    const Buffer kept = b_.alloc("partials", sum_, {width, blocks_, partials}),
                 sums = b_.alloc("block_sums", sum_, {width, blocks_});
    phase("u", {width, blocks_, partials}, [&](const Index& i) {
      const Expr c = i[0], k = i[1], l = i[2];
      at(c, [&] {
        const Expr first = b_.let("first", (part * part_blocks + k) * block_elements);
        Expr p = zero();
        for (int64_t s = 0; s < block_elements / partials; ++s) p = p + element_at(first + (l + s * partials));
        b_.store(kept, i, p);
      });
    });
    phase("v", {width, blocks_}, [&](const Index& i) {
      const Expr c = i[0], k = i[1];
      at(c, [&] {
        std::vector<Expr> p;
        for (int64_t l = 0; l < partials; ++l) p.push_back(ir::load(kept, {c, k, l}));
        b_.store(sums, i, tree(std::move(p)));
      });
    });
    phase("w", {width}, [&](const Index& i) {
      const Expr c = i[0];
      at(c, [&] { store(in_order("block", blocks_in(part), [&](const Expr& k) { return ir::load(sums, {c, k}); })); });
    });
  }

  // Reduces dim d of the totals so far.
  void outer(int d, bool is_last) {
    const Buffer from = next_;
    const std::vector<int> dims = rest_;
    rest_.erase(std::find(rest_.begin(), rest_.end(), d));
    next_ = is_last ? Buffer() : b_.alloc("totals", sum_, extents(rest_));
    totals("o", [&] {
      put(in_order("block", ir::floor_div(y_->dims[d] + (partials - 1), partials), [&](const Expr& k) {
        std::vector<Expr> p;
        for (int64_t l = 0; l < partials; ++l) {
          at_[d] = k * partials + l;
          p.push_back(ir::load(from, places(dims), at_[d] < y_->dims[d], zero()));
        }
        return tree(std::move(p));
      }));
    });
  }

  const ir::Target& target_;
  const ReduceRoles roles_;
  ir::KernelBuilder& b_;
  const Buffer y_, x_;
  const DType sum_;
  const int last_;  // the innermost reduced dim
  const Expr n_;
  std::vector<Expr> at_;                   // the current index, by dim of dY
  std::vector<int> rest_;                  // dims that are not reduced yet, without the current one
  int64_t blocks_ = 1;                     // of a part
  Buffer next_;                            // destination of totals; absent: dX
  std::vector<Loop> grid_, later_;         // parts, dims, tiles; outermost loops of later reductions
  std::vector<std::vector<Loop>> phases_;  // of a tile, with barriers between them
};

}  // namespace

ScheduleNest author_broadcast_staged(KernelFrame& frame, const ir::Target& target) {
  return author_nest(std::make_shared<StagedNest>(frame, target));
}

}  // namespace gradloom
