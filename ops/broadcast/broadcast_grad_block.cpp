#include "ops/broadcast/broadcast_grad_block.h"

#include <algorithm>

#include "ir/index_math.h"
#include "ir/schedule/schedule_gpu.h"
#include "ops/patterns/integer_math.h"

namespace gradloom {
namespace {

using ir::Buffer;
using ir::Expr;
using Index = std::vector<Expr>;
using Loop = ir::Schedule::Loop;

constexpr int64_t partials = 16, block_elements = 256, part_blocks = 64;  // of the tree
constexpr int64_t column_tile = 32, tile_threads = 512, most_rows = 32;

class StagedNest {
 public:
  explicit StagedNest(KernelFrame& frame)
      : roles_(frame.plan()),
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

 private:
  int64_t block() const { return roles_.columns() ? partials : block_elements; }
  Expr zero() const { return ir::zero({sum_, 1}); }

  static Expr tree(std::vector<Expr> p) {
    for (size_t h = p.size() / 2; h > 0; h /= 2)
      for (size_t l = 0; l < h; ++l) p[l] = p[l] + p[l + h];
    return p[0];
  }

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
  void over(const std::vector<int>& dims, const std::string& name, const std::function<void()>& body) {
    b_.loops(name, extents(dims), [&](const Index& i) {
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
    const int64_t part = blocks_ * block();  // read whole, the last one too
    return element(n && *n > 0 && *n % part == 0 ? Expr() : i < n_);
  }

  // What becomes of a total of the dims in rest_: dX's element, or an element of the next dim.
  void put(const Expr& total) {
    if (next_) return b_.store(next_, places(rest_), total);
    const std::vector<int> kept(roles_.kept.begin(), roles_.kept.end());
    Index index = places(kept);
    if (index.empty()) index.push_back(0);
    b_.store(x_, index, ir::cast(x_->dtype, roles_.accumulate ? ir::cast(sum_, ir::load(x_, index)) + total : total));
  }

  // +0.0 plus, in order, `count` values.
  Expr in_order(const std::string& name, const Expr& count, const std::function<Expr(const Expr&)>& value) {
    const Buffer acc = b_.alloc("acc", sum_, {1}, {}, ir::Space::registers);
    b_.store(acc, {0}, zero());
    b_.loop(name, 0, count, [&](Expr i) { b_.accumulate(acc, {0}, value(i)); });
    return ir::load(acc, {0});
  }

  void innermost() {
    if (roles_.reduced.size() > 1) next_ = b_.alloc("totals", sum_, extents(rest_));
    const auto n = ir::as_int(n_);
    const bool one_part = n && *n <= part_blocks * block();
    blocks_ = n ? std::clamp<int64_t>(ceil_div(*n, block()), 1, part_blocks) : part_blocks;
    if (one_part) return tiles(0, [&](const Expr& total) { put(total); });
    const Expr parts = ir::floor_div(n_ + (part_blocks * block() - 1), part_blocks * block());
    std::vector<Expr> dims{parts};
    for (const Expr& e : extents(rest_)) dims.push_back(e);
    const Buffer sums = b_.alloc("sums", sum_, dims);
    const auto place = [&](const Expr& part) {
      Index index{part};
      for (const Expr& e : places(rest_)) index.push_back(e);
      return index;
    };
    b_.loop("parts", 0, parts,
            [&](Expr part) { tiles(part, [&](const Expr& total) { b_.store(sums, place(part), total); }); });
    over(rest_, "a",
         [&] { put(in_order("add", parts, [&](const Expr& part) { return ir::load(sums, place(part)); })); });
  }

  // One part's totals of all of rest_, a tile of neighbours a block.
  void tiles(const Expr& part, const std::function<void(const Expr&)>& store) {
    std::vector<int> grid = rest_;
    const bool tiled = !rest_.empty();
    if (tiled) grid.pop_back();
    const int64_t width = roles_.columns() ? column_tile
                          : !tiled         ? 1
                                           : std::clamp<int64_t>(tile_threads / (blocks_ * partials), 1, most_rows);
    over(grid, "p", [&] {
      const int t = tiled ? rest_.back() : 0;
      const Expr length = tiled ? y_->dims[t] : Expr(1);
      b_.loop("tile", 0, ir::index_div(ir::index_add(length, width - 1), width), [&](Expr tile) {
        const auto at = [&](const Expr& c, const std::function<void()>& body) {
          const Expr place = tile * width + c;
          if (tiled) at_[t] = place;
          if (const auto known = ir::as_int(length); known && *known % width == 0) return body();
          b_.if_then(place < length, body);
        };
        roles_.columns() ? columns_of(part, width, at, store) : rows_of(part, width, at, store);
      });
    });
  }
  using At = std::function<void(const Expr& c, const std::function<void()>& body)>;

  // Blocks of the part that hold an element at least.
  Expr blocks_in(const Expr& part) const {
    const auto n = ir::as_int(n_);
    if (n && *n <= part_blocks * block()) return blocks_;
    return ir::min(Expr(blocks_), ir::floor_div(n_ - part * (part_blocks * block()) + (block() - 1), block()));
  }

  void columns_of(const Expr& part, int64_t width, const At& at, const std::function<void(const Expr&)>& store) {
    const Buffer sums = b_.alloc("block_sums", sum_, {blocks_, width});
    b_.loop("u0", 0, blocks_, [&](Expr k) {
      b_.loop("u1", 0, width, [&](Expr c) {
        at(c, [&] {
          const Expr first = b_.let("first", (part * part_blocks + k) * partials);
          std::vector<Expr> p;
          for (int64_t l = 0; l < partials; ++l) p.push_back(zero() + element_at(first + l));
          b_.store(sums, {k, c}, tree(std::move(p)));
        });
      });
    });
    b_.loop("v0", 0, width, [&](Expr c) {
      at(c, [&] { store(in_order("block", blocks_in(part), [&](const Expr& k) { return ir::load(sums, {k, c}); })); });
    });
  }

  void rows_of(const Expr& part, int64_t width, const At& at, const std::function<void(const Expr&)>& store) {
    const Buffer kept = b_.alloc("partials", sum_, {width, blocks_, partials}),
                 sums = b_.alloc("block_sums", sum_, {width, blocks_});
    b_.loop("u0", 0, width, [&](Expr c) {
      b_.loop("u1", 0, blocks_, [&](Expr k) {
        b_.loop("u2", 0, partials, [&](Expr l) {
          at(c, [&] {
            const Expr first = b_.let("first", (part * part_blocks + k) * block_elements);
            Expr p = zero();
            for (int64_t s = 0; s < block_elements / partials; ++s) p = p + element_at(first + (l + s * partials));
            b_.store(kept, {c, k, l}, p);
          });
        });
      });
    });
    b_.loop("v0", 0, width, [&](Expr c) {
      b_.loop("v1", 0, blocks_, [&](Expr k) {
        at(c, [&] {
          std::vector<Expr> p;
          for (int64_t l = 0; l < partials; ++l) p.push_back(ir::load(kept, {c, k, l}));
          b_.store(sums, {c, k}, tree(std::move(p)));
        });
      });
    });
    b_.loop("w0", 0, width, [&](Expr c) {
      at(c, [&] { store(in_order("block", blocks_in(part), [&](const Expr& k) { return ir::load(sums, {c, k}); })); });
    });
  }

  // Dim d of the totals so far.
  void outer(int d, bool is_last) {
    const Buffer from = next_;
    const std::vector<int> dims = rest_;
    rest_.erase(std::find(rest_.begin(), rest_.end(), d));
    next_ = is_last ? Buffer() : b_.alloc("totals", sum_, extents(rest_));
    over(rest_, "o", [&] {
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

  const ReduceRoles roles_;
  ir::KernelBuilder& b_;
  const Buffer y_, x_;
  const DType sum_;
  const int last_;  // the innermost reduced dim
  const Expr n_;
  std::vector<Expr> at_;   // the current index, by dim of dY
  std::vector<int> rest_;  // dims that are not reduced yet, but for the current one
  int64_t blocks_ = 1;     // of a part
  Buffer next_;            // where totals go; absent: dX
};

Loop fused(ir::Schedule& s, const std::vector<Loop>& loops) {
  Loop one = loops[0];
  for (size_t i = 1; i < loops.size(); ++i) one = s.fuse(one, loops[i]);
  return one;
}

// Neighbours of dY that are read at once, 16 bytes of f32: the loop is then over those of a thread. Left as it is where
// that is not proved.
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

}  // namespace

void author_broadcast_grad_staged(KernelFrame& frame) { StagedNest(frame).write(); }

void schedule_broadcast_grad_staged(ir::Schedule& s, const ir::Target& target) {
  const auto numbered = [&](const std::string& name) {
    std::vector<Loop> loops;
    while (!s.loops(name + std::to_string(loops.size())).empty())
      loops.push_back(s.loop(name + std::to_string(loops.size())));
    return loops;
  };
  std::vector<Loop> grid = s.loops("parts");
  for (const Loop p : numbered("p")) grid.push_back(p);
  grid.push_back(s.loop("tile"));
  // As many of them as are still proved independent once fused; the others stay loops of the host.
  while (grid.size() > 1 && !s.attempt([&](ir::Schedule& trial) { trial.bind(fused(trial, grid), ir::ForKind::grid); }))
    grid.erase(grid.begin());
  if (grid.size() == 1) s.bind(grid[0], ir::ForKind::grid);
  for (const std::string name : {"u", "v", "w"}) {
    std::vector<Loop> loops = numbered(name);
    if (loops.empty()) continue;
    if (name == "u") neighbours_together(s, loops.back());
    s.bind(fused(s, loops), ir::ForKind::thread);
  }
  for (const char* name : {"a0", "o0"})
    for (const Loop loop : s.loops(name)) ir::schedule_gpu(s, loop, target);
}

}  // namespace gradloom
