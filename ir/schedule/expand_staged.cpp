// The step that makes loops of a tree for the threads of GPU blocks: all blocks of a part at once, through shared
// memory.
#include <algorithm>

#include "gradloom/schedule.h"
#include "ir/expand_reduction.h"
#include "ir/index_math.h"
#include "ir/redirect.h"
#include "ir/rewrite.h"
#include "ir/schedule/reduction_nest_site.h"

namespace gradloom::ir {
namespace {

constexpr const char* step = "expand_staged";
constexpr int64_t partials = sum_partials;

class StagedNest : ReductionNest {
 public:
  StagedNest(KernelBuilder& b, const ReductionNestSite& around, int64_t width, StagedLoops& loops)
      : ReductionNest(b, around.with_lets(), {}, {.nonnegative = around.nonnegative()}, unused_),
        around_(around),
        width_(width),
        staged_(loops),
        last_(reduction_.ranges.size() - 1),
        n_(extent(last_)) {
    for (const For* f : around.loops) {
      const bool known = form_.nonnegative(f->extent);
      axes_.push_back({f->var, f->begin, known ? f->extent : index_max(f->extent, 0), {}});
    }
    for (size_t d = 0; d < last_; ++d) axes_.push_back({reduction_.ranges[d].var, {}, extent(d), d});
    std::stable_sort(axes_.begin(), axes_.end(), [&](const Axis& a, const Axis& b) { return dim_of(a) < dim_of(b); });
  }

  void write() {
    if (last_ > 0) next_ = b_.alloc("totals", dtype_, extents());
    innermost();
    for (size_t d = last_; d-- > 0;) outer(d);
  }

 private:
  // A loop that stays: of the nest, or an outer variable of the reduction.
  struct Axis {
    Var var;
    Expr begin, extent;
    std::optional<size_t> variable;
    Expr at = {};
  };
  using Values = std::function<Expr(const Expr& i)>;

  // In which dim of what the terms read it moves: neighbours in memory stay neighbours.
  int dim_of(const Axis& axis) const {
    int found = -1;
    walk(reduction_.value, [&](const Expr& e) {
      const Load* l = e.as<Load>();
      for (size_t d = 0; l && found < 0 && d < l->index.size(); ++d)
        if (mentions(l->index[d], axis.var.id)) found = static_cast<int>(d);
    });
    return found;
  }

  Index extents() const {
    Index all;
    for (const Axis& a : axes_) all.push_back(a.extent);
    return all;
  }
  Index places() const {
    Index all;
    for (const Axis& a : axes_) all.push_back(a.at);
    return all;
  }
  void set(Axis& axis, const Expr& i) {
    axis.at = i;
    if (axis.variable) return enter(*axis.variable, i);
    values_[axis.var.id] = is_const(axis.begin, 0) ? i : axis.begin + i;
  }
  std::vector<Loop> over(size_t count, const std::string& name, const std::function<void()>& body) {
    Index extents_of = extents();
    extents_of.resize(count);
    return b_.loops(name, extents_of, [&](const Index& i) {
      for (size_t k = 0; k < count; ++k) set(axes_[k], i[k]);
      body();
    });
  }

  // out = the identity op, in order, `count` values.
  void fold_in_order(const Into& out, const std::string& name, const Expr& count, const Values& value) {
    begin_total(out);
    b_.loop(name, 0, count, [&](Expr i) { combine(out, 0, value(i)); });
  }
  void store_fold(const Buffer& to, const Index& index, const std::string& name, const Expr& count,
                  const Values& value) {
    const Buffer acc = b_.alloc("acc", dtype_, {1}, {}, Space::registers);
    fold_in_order({acc, [](const Expr&) { return Index{0}; }}, name, count, value);
    b_.store(to, index, load(acc, {0}));
  }
  // The fold is a total of the axes that are left: a term of the next variable, or the reduction's.
  void put(const std::string& name, const Expr& count, const Values& value) {
    if (next_) return store_fold(next_, places(), name, count, value);
    Redirections own;
    for (const Buffer& b : around_.own) {
      const bool total = b->id == reduction_.buffer->id && b->space == Space::global && is_one(b);
      own[b->id] = {b_.alloc(b->name, b->dtype, b->dims, b->facts, total ? Space::registers : b->space), {}};
    }
    const auto is_own = own.find(reduction_.buffer->id);
    const Into out = destination();
    if (is_own == own.end())
      store_fold(out.buffer, out.place(0), name, count, value);
    else
      fold_in_order({is_own->second.to, out.place}, name, count, value);
    if (around_.after.empty()) return;
    Stmt rest = block(around_.after);
    for (size_t i = around_.lets.size(); i-- > 0;) {
      values_.erase(around_.lets[i].var.id);  // those of the terms
      rest = let(around_.lets[i].var, around_.lets[i].value, rest);
    }
    b_.append(refresh(substitute(redirect(rest, own), values_)));
  }
  static bool is_one(const Buffer& b) {
    return std::all_of(b->dims.begin(), b->dims.end(), [](const Expr& d) { return is_const(d, 1); });
  }

  // Loops over the axes that add up what the grid, or earlier loops, have stored.
  void totals(const std::string& name, const std::function<void()>& body) {
    if (const std::vector<Loop> loops = over(axes_.size(), name, body); !loops.empty())
      staged_.totals.push_back(loops[0]);
  }

  void innermost() {
    const auto n = as_int(n_);
    blocks_ = n ? std::clamp<int64_t>((*n + reduction_.order.block - 1) / reduction_.order.block, 1, sum_part_blocks)
                : sum_part_blocks;
    if (one_part(n_)) return tiles(0, [&](const Expr& count, const Values& value) { put("block", count, value); });
    const Expr count = parts();
    Index dims = extents();
    dims.insert(dims.begin(), count);
    const Buffer sums = b_.alloc("sums", dtype_, dims);
    const auto place = [&](const Expr& part) {
      Index index = places();
      index.insert(index.begin(), part);
      return index;
    };
    const Loop every_part = b_.loop("parts", 0, count, [&](Expr part) {
      tiles(part,
            [&](const Expr& blocks, const Values& value) { store_fold(sums, place(part), "block", blocks, value); });
    });
    staged_.grid.insert(staged_.grid.begin(), every_part);
    totals("a", [&] { put("add", count, [&](const Expr& part) { return load(sums, place(part)); }); });
  }

  using Take = std::function<void(const Expr& blocks, const Values& block)>;
  using At = std::function<void(const Expr& c, const std::function<void()>& body)>;

  // A part's totals for all axes, a tile of neighbours along the last one a thread block.
  void tiles(const Expr& part, const Take& take) {
    const bool tiled = !axes_.empty();
    const int64_t width = tiled ? width_ : 1;
    Loop every_tile = 0;
    staged_.grid = over(tiled ? axes_.size() - 1 : 0, "p", [&] {
      const Expr length = tiled ? axes_.back().extent : Expr(1);
      every_tile = b_.loop("tile", 0, index_div(index_add(length, width - 1), width), [&](Expr tile) {
        const At at = [&](const Expr& c, const std::function<void()>& body) {
          const Expr place = tile * width + c;
          if (tiled) set(axes_.back(), place);
          if (const auto known = as_int(length); known && *known % width == 0) return body();
          b_.if_then(place < length, body);
        };
        reduction_.order.block == partials ? columns_of(part, width, at, take) : rows_of(part, width, at, take);
      });
    });
    staged_.grid.push_back(every_tile);
  }

  void phase(const std::string& name, const Index& extents, const std::function<void(const Index&)>& body) {
    staged_.phases.push_back(b_.loops(name, extents, body));
  }
  // The part's blocks that are not empty.
  Expr blocks_in(const Expr& part_index) const {
    if (one_part(n_)) return blocks_;
    const int64_t block = reduction_.order.block;
    return min(Expr(blocks_), floor_div(n_ - part_index * part() + (block - 1), block));
  }
  // The condition that the innermost variable has an i-th value: absent where all blocks are known to be whole.
  Expr enter_last(const Expr& i) {
    enter(last_, i);
    const auto n = as_int(n_);
    const int64_t read = blocks_ * reduction_.order.block;  // of a part, the last one too
    return n && *n > 0 && *n % read == 0 ? Expr() : i < n_;
  }

  // A block of sixteen terms a thread.
  void columns_of(const Expr& part, int64_t width, const At& at, const Take& take) {
    const Buffer sums = b_.alloc("block_sums", dtype_, {blocks_, width});
    phase("u", {blocks_, width}, [&](const Index& i) {
      at(i[1], [&] {
        const Expr first = b_.let("first", (part * sum_part_blocks + i[0]) * partials);
        std::vector<Expr> p;
        if (plain()) {
          for (int64_t l = 0; l < partials; ++l) {
            const Expr inside = enter_last(first + l);
            p.push_back(term(0, inside));
          }
        } else {
          const Buffer own = b_.alloc("p", dtype_, {partials}, {}, Space::registers);
          for (int64_t l = 0; l < partials; ++l) {
            b_.store(own, {l}, start());
            const Expr inside = enter_last(first + l);
            fold(own, {l}, 0, inside);
            p.push_back(load(own, {l}));
          }
        }
        b_.store(sums, i, halved(std::move(p)));
      });
    });
    phase("v", {width}, [&](const Index& i) {
      at(i[0], [&] { take(blocks_in(part), [&](const Expr& k) { return load(sums, {k, i[0]}); }); });
    });
  }

  // A partial of a block a thread.
  void rows_of(const Expr& part, int64_t width, const At& at, const Take& take) {
    const int64_t block = reduction_.order.block;
    const Buffer kept = b_.alloc("partials", dtype_, {width, blocks_, partials}),
                 sums = b_.alloc("block_sums", dtype_, {width, blocks_});
    phase("u", {width, blocks_, partials}, [&](const Index& i) {
      const Expr l = i[2];
      at(i[0], [&] {
        const Expr first = b_.let("first", (part * sum_part_blocks + i[1]) * block);
        if (plain()) {
          Expr p = start();
          for (int64_t s = 0; s < block / partials; ++s) {
            const Expr inside = enter_last(first + (l + s * partials));
            p = p + plain_term(0, inside);
          }
          return b_.store(kept, i, p);
        }
        const Buffer own = b_.alloc("p", dtype_, {1}, {}, Space::registers);
        b_.store(own, {0}, start());
        b_.loop("s", 0, block / partials, [&](Expr s) {
          const Expr inside = enter_last(first + (l + s * partials));
          fold(own, {0}, 0, inside);
        });
        b_.store(kept, i, load(own, {0}));
      });
    });
    phase("v", {width, blocks_}, [&](const Index& i) {
      at(i[0], [&] {
        std::vector<Expr> p;
        for (int64_t l = 0; l < partials; ++l) p.push_back(load(kept, {i[0], i[1], l}));
        b_.store(sums, i, halved(std::move(p)));
      });
    });
    phase("w", {width}, [&](const Index& i) {
      at(i[0], [&] { take(blocks_in(part), [&](const Expr& k) { return load(sums, {i[0], k}); }); });
    });
  }

  // The totals so far over variable d: blocks of sixteen, in order.
  void outer(size_t d) {
    const Buffer from = next_;
    const auto axis = std::find_if(axes_.begin(), axes_.end(), [&](const Axis& a) { return a.variable == d; });
    const auto place = axis - axes_.begin();
    const Expr n = axis->extent;
    axes_.erase(axis);
    next_ = d == 0 ? Buffer() : b_.alloc("totals", dtype_, extents());
    totals("o", [&] {
      put("block", floor_div(n + (partials - 1), partials), [&](const Expr& k) {
        std::vector<Expr> p;
        for (int64_t l = 0; l < partials; ++l) {
          const Expr i = k * partials + l;
          Index index = places();
          index.insert(index.begin() + place, i);
          p.push_back(load(from, index, i < n, start()));
        }
        return halved(std::move(p));
      });
    });
  }

  ReductionLoops unused_;
  const ReductionNestSite& around_;
  const int64_t width_;
  StagedLoops& staged_;
  const size_t last_;  // the innermost variable
  const Expr n_;
  std::vector<Axis> axes_;  // that are left, without the innermost variable
  int64_t blocks_ = 1;      // of a part
  Buffer next_;             // of totals that are terms of the next variable; absent: there is none
};

}  // namespace

StagedLoops Schedule::expand_staged(Loop id, int64_t width, Loop around) {
  const Site own = find_reduction(kernel_, id);
  const Reduce& reduction = *own.reduction;
  if (width < 1 || width > 1024)
    wrong_argument(step, own.name(), "a tile is 1 to 1024 wide, got " + std::to_string(width));
  if (reduction.order.kind != SumOrder::tree) refuse(step, own.name(), "its order is no tree");
  const std::string line = std::string(step) + " " + reduction_name(kernel_, id) + " " + std::to_string(width) +
                           (around ? " " + handle_name(kernel_, around) : "");
  const ReductionNestSite nest(step, kernel_, own, around);
  KernelBuilder b("staged");
  StagedLoops loops;
  StagedNest(b, nest, width, loops).write();
  put(step, nest.site, b.build().body, line);
  return loops;
}

}  // namespace gradloom::ir
