// The nests of BroadcastGrad's strategies "direct" and "split".
#include "ops/broadcast/broadcast_grad.h"
#include "ops/patterns/integer_math.h"

namespace gradloom {
namespace {

using ir::Expr;
using ir::Loop;
using Index = std::vector<Expr>;

constexpr int64_t quarter = partials / 4;

class ReduceNest {
 public:
  ReduceNest(KernelFrame& frame, const ir::Target& target)
      : roles_(frame.plan()),
        b_(frame.builder),
        y_(frame.view(0, "dY")),
        x_(frame.view(1, "dX", roles_.accumulate)),
        sum_(accumulator_of(x_->dtype)),
        wide_(!target.gpu && target.vector_registers > partials) {
    at_y_.resize(roles_.rank());
    if (roles_.columns()) tile_ = column_tile(frame, target);
  }

  ReduceLoops direct() {
    const int loops = roles_.kept.size() - (roles_.columns() && !roles_.reduced.empty() ? 1 : 0);
    Index extents;
    for (int i = 0; i < loops; ++i) extents.push_back(y_->dims[roles_.kept[i]]);
    loops_.kept = b_.loops("p", extents, [&](const Index& p) {
      at_x_ = p;
      for (int i = 0; i < loops; ++i) at_y_[roles_.kept[i]] = p[i];
      if (roles_.reduced.empty())
        store(0, ir::cast(sum_, element()));
      else if (roles_.columns())
        column_tiles();
      else
        one_row(1);
    });
    return std::move(loops_);
  }

  // The same sums with every part's total stored: any thread may sum a part; a second phase adds the totals in order.
  ReduceLoops split() {
    const Expr n = y_->dims[roles_.reduced[0]];
    first_ = Expr(0);
    width_ = kept_width_ = roles_.columns() ? y_->dims.back() : Expr(1);
    parts_ = roles_.parts(n);
    sums_ = b_.alloc("sums", sum_, {*parts_, width_});
    loops_.parts = b_.loop("parts", 0, *parts_, [&](Expr k) { one_part_total(0, k, *sums_, {k}); });
    tile_ = 64;
    roles_.columns() ? column_tiles() : one_row(1);
    return std::move(loops_);
  }

 private:
  // Columns that share a row of accumulators: as many as stay in the L1 cache along with the data read, fewer where
  // there would be too few tasks for all threads. Rows are read in long contiguous pieces, as only those reach full
  // memory bandwidth. On a GPU, one column per thread: neighbouring columns go to neighbouring threads, sums are in
  // registers.
  int64_t column_tile(const KernelFrame& frame, const ir::Target& target) const {
    constexpr int64_t any = 256;
    if (target.gpu) return 1;
    const int64_t most = 4096 / size_of(sum_);
    if (frame.any_shape()) return any;
    const View& x = frame.plan().views[1];
    const int64_t columns = std::max<int64_t>(x.dims.back(), 1),
                  rows = std::max<int64_t>(element_count(x.dims) / columns, 1),
                  line = ir::line_bytes / size_of(x.dtype);
    const int64_t pieces = ceil_div(target.threads, rows), piece = round_up(ceil_div(columns, pieces), line);
    return std::clamp<int64_t>(piece, 1, std::min(columns, most));
  }

  Expr element() const { return ir::load(y_, at_y_); }
  Expr zero() const { return ir::zero({sum_, 1}); }

  void store(Expr column, Expr total) {
    Index index = at_x_;
    if (roles_.kept.empty()) index = {0};
    if (roles_.columns() && !roles_.reduced.empty()) index.push_back(std::move(column));
    // No reduction: a plain copy, which preserves NaN payloads.
    if (roles_.reduced.empty() && !roles_.accumulate) return b_.store(x_, index, element());
    if (roles_.accumulate) total = ir::cast(sum_, ir::load(x_, index)) + total;
    b_.store(x_, index, ir::cast(x_->dtype, total));
  }

  // Full tiles, whose number of columns is a constant, then the remainder.
  void column_tiles() {
    const Expr columns = y_->dims.back();
    loops_.tiles = b_.loop("tile", 0, ir::floor_div(columns, tile_), [&](Expr t) {
      first_ = t * tile_;
      one_row(tile_);
    });
    const Expr rest = ir::floor_mod(columns, tile_);
    if (tile_ == 1 || (ir::as_int(columns) && *ir::as_int(columns) % tile_ == 0)) return;
    b_.if_then(rest > 0, [&] {
      first_ = columns - rest;
      one_row(rest);
    });
  }

  // The totals of `columns` columns of dX (1 when the innermost dim is reduced).
  void one_row(Expr columns) {
    width_ = columns;
    kept_width_ = Expr(tile_);
    const ir::Buffer acc = b_.alloc("acc", sum_, {kept_width_});
    if (sums_) {
      each_column(loops_.stored, "zero", [&](Expr c) { b_.store(acc, {c}, zero()); });
      b_.loop("add", 0, *parts_, [&](Expr k) {
        each_column(loops_.summed, "column", [&](Expr c) {
          b_.accumulate(acc, {c}, ir::load(*sums_, {k, roles_.columns() ? first_ + c : c}));
        });
      });
    } else {
      total(0, acc, {});
    }
    each_column(loops_.stored, "store", [&](Expr c) { store(first_ ? first_ + c : c, ir::load(acc, {c})); });
  }

  void each_column(std::vector<Loop>& loops, const std::string& name, const std::function<void(Expr)>& body) {
    if (!roles_.columns()) return body(0);
    loops.push_back(b_.loop(name, 0, width_, [&](Expr c) {
      at_y_[roles_.rank() - 1] = first_ + c;
      body(c);
    }));
  }

  static Index extended(Index index, const Expr& column) {
    index.push_back(column);
    return index;
  }

  // out[at.., column] = the total of reduced dim j (and all inner ones).
  void total(int j, const ir::Buffer& out, const Index& at) {
    const auto place = [&](const Expr& c) { return extended(at, c); };
    each_column(loops_.stored, "zero", [&](Expr c) { b_.store(out, place(c), zero()); });
    const Expr n = y_->dims[roles_.reduced[j]];
    const auto add = [&](const Expr& c, const Expr& sum) { b_.accumulate(out, place(c), sum); };
    if (j + 1 == roles_.reduced.size()) {
      if (roles_.one_part(n)) return blocks(j, 0, n, add);
      const ir::Buffer part = b_.alloc("part", sum_, {kept_width_});
      b_.loop("parts", 0, roles_.parts(n), [&](Expr k) {
        one_part_total(j, k, part, {});
        each_column(loops_.summed, "column", [&](Expr c) { add(c, ir::load(part, {c})); });
      });
      return;
    }
    // The body is emitted once, with a variable extent: a separate remainder would double the code size with every
    // reduced dim.
    const std::string number = std::to_string(j);
    const Expr count = ir::floor_div(n + (partials - 1), partials);
    b_.loop("block" + number, 0, count,
            [&](Expr k) { totals(j, out, place, k * partials, ir::min(Expr(partials), n - k * partials)); });
  }

  // out[at.., column] = the total of part k of the innermost reduced dim.
  void one_part_total(int j, const Expr& k, const ir::Buffer& out, const Index& at) {
    const Expr n = y_->dims[roles_.reduced[j]], first = k * roles_.part();
    each_column(loops_.stored, "zero", [&](Expr c) { b_.store(out, extended(at, c), zero()); });
    blocks(j, first, ir::min(Expr(roles_.part()), n - first),
           [&](const Expr& c, const Expr& sum) { b_.accumulate(out, extended(at, c), sum); });
  }

  // Consumes a block's sum.
  using Put = std::function<void(const Expr& column, const Expr& sum)>;

  // All blocks of `count` elements of the innermost reduced dim, from `first`.
  void blocks(int j, const Expr& first, const Expr& count, const Put& put) {
    if (!roles_.columns()) return blocks_of_256(first, count, put);
    b_.loop("block", 0, ir::floor_div(count, partials), [&](Expr k) { rows(j, first + k * partials, {}, put); });
    if (divides(partials)) return;
    const Expr rest = ir::floor_mod(count, partials);
    b_.if_then(rest > 0, [&] { rows(j, first + (count - rest), rest, put); });
  }
  // Whether the innermost reduced dim is known to have no short block.
  bool divides(int64_t length) const {
    const std::optional<int64_t> n = ir::as_int(y_->dims[roles_.reduced.back()]);
    return n && *n % length == 0;
  }

  // The tree over up to 16 rows of dY, from `first`; all 16 when `extent` is absent. With enough vector registers for a
  // row each, all 16 rows are read at once; other cores reach full memory bandwidth with a few streams, and far less
  // with sixteen: they read four rows at a time, those that the tree adds first.
  void rows(int j, Expr first, Expr extent, const Put& put) {
    const auto row = [&](Expr l) {
      at_y_[roles_.reduced[j]] = first + l;
      const Expr value = extent ? ir::load(y_, at_y_, extent > l, ir::zero({y_->dtype, 1})) : element();
      return zero() + ir::cast(sum_, value);
    };
    if (wide_) {
      each_column(loops_.summed, "element", [&](Expr c) {
        std::vector<Expr> p;
        for (int64_t l = 0; l < partials; ++l) p.push_back(row(l));
        put(c, tree(std::move(p)));
      });
      return;
    }
    const ir::Buffer quads = b_.alloc("quads", sum_, {quarter, kept_width_});
    const auto add = [](Expr a, Expr b) { return std::move(a) + std::move(b); };
    loops_.quads.push_back(b_.loop("quad", 0, quarter, [&](Expr q) {
      each_column(loops_.summed, "element", [&](Expr c) {
        b_.store(quads, {q, c}, add(add(row(q), row(q + 8)), add(row(q + 4), row(q + 12))));
      });
    }));
    each_column(loops_.summed, "column", [&](Expr c) {
      const auto sum = [&](int64_t q) { return ir::load(quads, {Expr(q), c}); };
      put(c, add(add(sum(0), sum(2)), add(sum(1), sum(3))));
    });
  }

  // out += the tree over up to 16 totals of the next reduced dim: `extent` of them.
  void totals(int j, const ir::Buffer& out, const std::function<Index(Expr)>& place, Expr first, Expr extent) {
    const ir::Buffer inner = b_.alloc("inner" + std::to_string(j), sum_, {partials, roles_.columns() ? tile_ : 1});
    b_.loop("l" + std::to_string(j), 0, extent, [&](Expr l) {
      at_y_[roles_.reduced[j]] = first + l;
      total(j + 1, inner, {l});
    });
    b_.loop("missing" + std::to_string(j), extent, Expr(partials) - extent, [&](Expr l) {
      each_column(loops_.stored, "zero", [&](Expr c) { b_.store(inner, {l, c}, zero()); });
    });
    each_column(loops_.summed, "column", [&](Expr c) {
      std::vector<Expr> p;
      for (int64_t l = 0; l < partials; ++l) p.push_back(ir::load(inner, {l, c}));
      b_.accumulate(out, place(c), tree(std::move(p)));
    });
  }

  // The innermost dim of dY: 16 interleaved partials, one per lane where vectorised.
  void blocks_of_256(const Expr& from, const Expr& count, const Put& put) {
    const int d = roles_.rank() - 1;
    const ir::Buffer p = b_.alloc("p", sum_, {partials}, {}, ir::Space::registers);
    const auto lanes = [&](const std::string& name, int64_t count, const std::function<void(Expr)>& body) {
      loops_.lanes.push_back(b_.loop(name, 0, count, body));
    };
    const auto finish = [&] {
      for (int64_t h = partials / 2; h > 0; h /= 2)
        lanes("half" + std::to_string(h), h, [&](Expr l) { b_.accumulate(p, {l}, ir::load(p, {l + h})); });
      put(0, ir::load(p, {0}));
    };
    const auto clear = [&] { lanes("lane", partials, [&](Expr l) { b_.store(p, {l}, zero()); }); };
    b_.loop("block", 0, ir::floor_div(count, block_elements), [&](Expr k) {
      clear();
      loops_.steps.push_back(b_.loop("step", 0, block_elements / partials, [&](Expr s) {
        lanes("lane", partials, [&](Expr l) {
          at_y_[d] = from + k * block_elements + s * partials + l;
          b_.accumulate(p, {l}, ir::cast(sum_, element()));
        });
      }));
      finish();
    });
    if (divides(block_elements)) return;
    const Expr rest = ir::floor_mod(count, block_elements), end = from + count, first = end - rest;
    b_.if_then(rest > 0, [&] {
      clear();
      b_.loop("rest", 0, ir::floor_div(rest, partials), [&](Expr s) {
        lanes("lane", partials, [&](Expr l) {
          at_y_[d] = first + s * partials + l;
          b_.accumulate(p, {l}, ir::cast(sum_, element()));
        });
      });
      // Adding +0.0 to a partial changes no bit: no partial is ever -0.0.
      const Expr whole = first + ir::floor_div(rest, partials) * partials;
      lanes("lane", partials, [&](Expr l) {
        at_y_[d] = whole + l;
        b_.accumulate(p, {l}, ir::cast(sum_, ir::load(y_, at_y_, whole + l < end, ir::zero({y_->dtype, 1}))));
      });
      finish();
    });
  }

  const ReduceRoles roles_;
  ir::KernelBuilder& b_;
  const ir::Buffer y_, x_;
  const DType sum_;
  const bool wide_;  // each row of the tree has a vector register
  int64_t tile_ = 1;
  std::optional<ir::Buffer> sums_;  // strategy "split": every part's total
  std::optional<Expr> parts_;
  Expr first_, width_;  // the current tile's first column and its number of columns
  Expr kept_width_;     // the columns that buffers are allocated for
  Index at_x_, at_y_;   // the current indices; kept dims are set first, reduced ones by their loops
  ReduceLoops loops_;
};

}  // namespace

ScheduleNest author_broadcast_direct(KernelFrame& frame, const ir::Target& target) {
  return [loops = ReduceNest(frame, target).direct(), &plan = frame.plan(), &target](ir::Schedule& s) {
    schedule_broadcast_direct(s, loops, plan, target);
  };
}

ScheduleNest author_broadcast_split(KernelFrame& frame, const ir::Target& target) {
  return [loops = ReduceNest(frame, target).split(), &plan = frame.plan(), &target](ir::Schedule& s) {
    schedule_broadcast_split(s, loops, plan, target);
  };
}

}  // namespace gradloom
