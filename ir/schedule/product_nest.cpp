// The loop nest that tile_product generates.
//
//   for no {
//     for kb {
//       [pack panels of B]
//       for mb {
//         [pack panels of A]
//         for nb {
//           [pack panels of B]
//           for mt { for np {
//             acc = first or partial; for k { acc fma= (A, B) } rest or partial = acc
//           } }
//         }
//       }
//     }
//   }
//
// Each sum is its initial value, then a product is added for each k in order: k blocks run in sequence, and a tile
// resumes from its stored partial sum. A tile that crosses an edge computes padding lanes of repeated or zero elements
// there, whose results nothing reads.
#include <algorithm>

#include "gradloom/target.h"
#include "ir/index_math.h"
#include "ir/redirect.h"
#include "ir/rewrite.h"
#include "ir/schedule/tile_product.h"

namespace gradloom::ir {
namespace {

Expr ceil_div(const Expr& e, int64_t factor) { return index_div(index_add(e, factor - 1), factor); }
Expr scaled(const Expr& e, int64_t factor) { return index_mul(e, factor); }
Expr shorter(const Expr& e, int64_t most) {
  const std::optional<int64_t> n = as_int(e);
  return n ? Expr(std::min(*n, most)) : min(e, most);
}

// One register tile.
struct Tile {
  Var m0, n0;  // its first row and column
  Buffer sums;
  Expr end_m, end_n;  // of the operands
  Expr inside;        // the tile is entirely inside; absent where that is known

  Expr row(const Expr& i) const { return index_add(var(m0), i); }
  Expr column(const Expr& c) const { return index_add(var(n0), c); }
};

class ProductNest {
 public:
  ProductNest(const Product& product, const ProductTiles& tiles, const Ranges& scope, bool b_before)
      : p_(product),
        t_(tiles),
        name_(product.m->var.name),
        b_before_(b_before),
        m_(read_once(*p_.m, scope)),
        n_(read_once(*p_.n, scope)),
        k_(read_once(*p_.k, scope)) {
    const auto even = [&](const Expr& extent, int64_t tile) { return as_int(extent).value_or(1) % tile == 0; };
    whole_m_ = even(m_.extent, t_.rows);
    whole_n_ = even(n_.extent, t_.columns());
    const std::optional<int64_t> m = as_int(m_.extent), n = as_int(n_.extent), k = as_int(k_.extent);
    any_shape_ = !m && !n;
    if (m && *m <= t_.block_m) t_.block_m = 0;
    if (n && *n <= t_.outer_n) t_.outer_n = 0;
    if (t_.outer_n ? t_.block_n == t_.outer_n : n && *n <= t_.block_n) t_.block_n = 0;
    if (k && *k <= t_.block_k) t_.block_k = 0;
    divides_depth_ = k && *k % t_.unroll_k == 0 && t_.block_k % t_.unroll_k == 0;
    if (b_before_) panels_b_ = panels("b", {panels_of(n_.extent), k_.extent, t_.columns()});
  }

  // Packs the whole of B into panels, around the loop given by pack_before.
  Stmt around(const Stmt& body, ForKind kind) const {
    const Stmt pack = pack_panels(
        panels_of(n_.extent), b_side_by_side(), kind, "_bp",
        [&](const Expr& np, const Expr& count) { return pack_b(np, count, scaled(np, t_.columns()), 0, k_.extent); });
    return alloc(panels_b_, block({pack, body}));
  }
  // The k loops of the tiles, valid after build().
  const std::vector<Schedule::Loop>& along_k() const { return along_k_; }
  Stmt build() {
    const ForKind columns = t_.share == ProductTiles::columns_parallel ? ForKind::parallel : ForKind::serial;
    const Stmt nest = loop("_no", t_.outer_n ? ceil_div(n_.extent, t_.outer_n) : Expr(1), columns,
                           [&](Expr no) { return outer_columns(no); });
    return m_.wrap(n_.wrap(k_.wrap(nest)));
  }

 private:
  Stmt loop(const std::string& suffix, const Expr& extent, ForKind kind, const std::function<Stmt(Expr)>& body) const {
    return product_loop(name_ + suffix, extent, kind, body);
  }
  Buffer panels(const std::string& suffix, std::vector<Expr> dims) const {
    return make_buffer({.name = name_ + "_" + suffix,
                        .dtype = p_.sum->dtype,
                        .dims = std::move(dims),
                        .role = Role::temp,
                        .alignment = 64});
  }
  Expr panels_of(const Expr& columns) const { return ceil_div(columns, t_.columns()); }

  // The number of blocks of size `part` in block number `at` of size `outer`, out of `extent` in all; size 0 means the
  // full extent.
  static Expr parts(const Expr& extent, int64_t outer, const Expr& at, int64_t part) {
    if (!outer) return ceil_div(extent, part);
    const std::optional<int64_t> n = as_int(extent);
    if (n && *n % outer == 0) return outer / part;
    return shorter(ceil_div(index_sub(extent, scaled(at, outer)), part), outer / part);
  }
  // The number of panels for block nb: those of the outer block, or of one block.
  Expr panels_in(const Expr& extent, const Expr& nb) const { return parts(extent, t_.block_n, nb, t_.columns()); }
  Expr block_tiles(const Expr& mb) const { return parts(m_.extent, t_.block_m, mb, t_.rows); }
  Expr k_blocks() const {
    return t_.block_k ? index_max(ceil_div(k_.extent, t_.block_k), 1) : Expr(1);
  }  // at least one, even where k is empty
  // The length of block number `at`.
  static Expr length(const Expr& extent, int64_t block, const Expr& at) {
    if (!block) return extent;
    const std::optional<int64_t> n = as_int(extent);
    if (n && *n % block == 0) return block;
    return shorter(index_sub(extent, scaled(at, block)), block);
  }
  Expr block_depth(const Expr& kb) const { return length(k_.extent, t_.block_k, kb); }
  Expr most_depth() const { return t_.block_k ? Expr(t_.block_k) : k_.extent; }

  // Whether k is the contiguous axis.
  bool transposed(const Expr& e, const Var& lane) const {
    return step_of(e, lane.id) != 1 && step_of(e, p_.k->var.id) == 1;
  }
  // Panels whose lanes are contiguous in memory are packed several at a time, so that whole cache lines are read.
  Stmt pack_panels(const Expr& count, bool side_by_side, ForKind kind, const std::string& suffix,
                   const std::function<Stmt(const Expr& first, const Expr& count)>& body) const {
    const int together = side_by_side ? 4 : 1;
    if (together > 1 && any_shape_)
      return loop(suffix, ceil_div(count, together), kind, [&](Expr p) {
        const Expr first = scaled(p, together);
        return body(first, index_min(together, index_sub(count, first)));
      });
    const Expr whole = index_div(count, together), rest = index_mod(count, together);
    const Stmt main = loop(suffix, whole, kind, [&](Expr p) { return body(scaled(p, together), together); });
    const Stmt last = loop(suffix, rest, kind, [&](Expr p) { return body(index_add(scaled(whole, together), p), 1); });
    return block({is_const(whole, 0) ? Stmt() : main, is_const(rest, 0) ? Stmt() : last});
  }
  // Packs panels [to, to + count) from the operand `e`, whose lanes are the values of `lane` from `first` on; rows [k0,
  // k0 + depth) of k.
  Stmt pack(Panel panel, int64_t step_of_lanes, const Expr& e, const Var& lane, const Bounds& lanes, const Expr& to,
            const Expr& count, const Expr& first, const Expr& k0, const Expr& depth, const std::string& name) const {
    panel.first = to;
    panel.count = count;
    panel.step = step_of_lanes;
    panel.element = [&](const Expr& at, const Expr& k) { return substitute(e, {{lane.id, at}, {p_.k->var.id, k}}); };
    panel.first_lane = index_add(lanes.begin, first);
    panel.end_lane = index_add(lanes.begin, lanes.extent);
    panel.first_k = index_add(k_.begin, k0);
    panel.k_count = depth;
    panel.transpose = transposed(e, lane);
    panel.brief = any_shape_;
    return pack_panel(panel, name_ + name);
  }
  bool b_side_by_side() const { return !transposed(p_.b, p_.n->var); }
  Stmt pack_b(const Expr& to, const Expr& count, const Expr& first, const Expr& k0, const Expr& depth) const {
    return pack({.buffer = panels_b_, .width = t_.columns(), .group = t_.lanes, .whole = whole_n_}, t_.columns(), p_.b,
                p_.n->var, n_, to, count, first, k0, depth, "_b");
  }
  int group_a() const {
    int group = 2;
    while (group < t_.rows && group < t_.lanes) group *= 2;
    return group;
  }
  int64_t width_a() const { return (t_.rows + group_a() - 1) / group_a() * group_a(); }
  Stmt pack_a(const Expr& to, const Expr& count, const Expr& first, const Expr& k0, const Expr& depth) const {
    const bool whole = whole_m_ && width_a() == t_.rows;
    return pack({.buffer = panels_a_, .width = width_a(), .group = group_a(), .whole = whole}, t_.rows, p_.a, p_.m->var,
                m_, to, count, first, k0, depth, "_a");
  }

  int64_t panels_before(int64_t block) const { return block / t_.columns(); }

  Expr outer_extent(const Expr& no) const { return length(n_.extent, t_.outer_n, no); }

  ForKind rows_kind() const { return t_.share == ProductTiles::rows_parallel ? ForKind::parallel : ForKind::serial; }

  Stmt outer_columns(const Expr& no) {
    const auto depths = [&] {
      return loop("_kb", k_blocks(), ForKind::serial, [&](Expr kb) { return depth(no, kb); });
    };
    if (is_const(k_blocks(), 1) || p_.plain) return depths();
    const Expr columns = t_.outer_n ? Expr(t_.outer_n) : scaled(panels_of(n_.extent), t_.columns());
    partial_ = panels("p", {scaled(ceil_div(m_.extent, t_.rows), t_.rows), columns});
    return alloc(partial_, depths());
  }

  // One block along k.
  Stmt depth(const Expr& no, const Expr& kb) {
    const auto rows = [&] {
      return loop("_mb", t_.block_m ? ceil_div(m_.extent, t_.block_m) : Expr(1), rows_kind(),
                  [&](Expr mb) { return row_block(no, kb, mb); });
    };
    return b_by_block() ? rows() : with_panels_b(no, kb, 0, rows_kind(), rows);
  }

  Stmt row_block(const Expr& no, const Expr& kb, const Expr& mb) {
    const auto columns = [&] {
      const Expr blocks = t_.block_n ? ceil_div(outer_extent(no), t_.block_n) : Expr(1);
      return loop("_nb", blocks, ForKind::serial, [&](Expr nb) {
        const auto all = [&] { return tiles(no, kb, mb, nb); };
        return b_by_block() ? with_panels_b(no, kb, nb, ForKind::serial, all) : all();
      });
    };
    if (!t_.pack_a) return columns();
    panels_a_ = panels("a", {t_.block_m ? Expr(t_.block_m / t_.rows) : block_tiles(mb), most_depth(), width_a()});
    const Stmt pack = pack_panels(block_tiles(mb), !transposed(p_.a, p_.m->var), ForKind::serial, "_at",
                                  [&](const Expr& mt, const Expr& count) {
                                    return pack_a(mt, count, index_add(scaled(mb, t_.block_m), scaled(mt, t_.rows)),
                                                  scaled(kb, t_.block_k), block_depth(kb));
                                  });
    return alloc(panels_a_, block({pack, columns()}));
  }

  // B is packed per column block, not for the entire outer block.
  bool b_by_block() const { return t_.block_n && t_.share != ProductTiles::rows_parallel; }
  // Wraps `body` in the packing of B for it, if B is packed per k block.
  Stmt with_panels_b(const Expr& no, const Expr& kb, const Expr& nb, ForKind kind, const std::function<Stmt()>& body) {
    if (b_before_ || !t_.pack_b) return body();
    const int64_t most = b_by_block() ? t_.block_n : t_.outer_n;
    panels_b_ = panels("b", {most ? Expr(panels_before(most)) : panels_of(n_.extent), most_depth(), t_.columns()});
    const Expr count = b_by_block() ? panels_in(outer_extent(no), nb) : panels_of(outer_extent(no));
    const Stmt pack = pack_panels(count, b_side_by_side(), kind, "_bp", [&](const Expr& np, const Expr& together) {
      return pack_b(np, together, index_add(first_column(no, nb), scaled(np, t_.columns())), scaled(kb, t_.block_k),
                    block_depth(kb));
    });
    return alloc(panels_b_, block({pack, body()}));
  }

  Stmt tiles(const Expr& no, const Expr& kb, const Expr& mb, const Expr& nb) {
    const auto down = [&](const std::function<Stmt(Expr)>& body) {
      return loop("_mt", block_tiles(mb), ForKind::serial, body);
    };
    const auto along = [&](const std::function<Stmt(Expr)>& body) {
      return loop("_np", panels_in(outer_extent(no), nb), ForKind::serial, body);
    };
    if (t_.along_rows)
      return down([&](Expr mt) { return along([&](Expr np) { return tile(no, mb, nb, kb, np, mt); }); });
    return along([&](Expr np) { return down([&](Expr mt) { return tile(no, mb, nb, kb, np, mt); }); });
  }
  Expr first_column(const Expr& no, const Expr& nb) const {
    return index_add(scaled(no, t_.outer_n), scaled(nb, t_.block_n));
  }

  using Element = std::function<Stmt(const Expr& row, const Expr& column)>;

  Tile make_tile() const {
    Tile t{make_var(name_ + "0"), make_var(p_.n->var.name + "0"), {}, {}, {}, {}};
    t.sums = make_buffer({.name = p_.sum->name,
                          .dtype = p_.sum->dtype,
                          .dims = {t_.rows, t_.columns()},
                          .role = Role::temp,
                          .space = Space::registers,
                          .alignment = 64});
    t.end_m = index_add(m_.begin, m_.extent), t.end_n = index_add(n_.begin, n_.extent);
    if (!whole_m_) t.inside = t.row(t_.rows) <= t.end_m;
    if (!whole_n_) t.inside = both(t.inside, t.column(t_.columns()) <= t.end_n);
    return t;
  }
  // Vectors of a row, over `rows` rows.
  Stmt each(const Element& body) const { return each(t_.rows, ForKind::unroll, body); }
  Stmt each(const Expr& rows, ForKind kind, const Element& body) const {
    return loop("_r", rows, kind, [&](Expr i) {
      return loop("_v", t_.vectors, kind, [&](Expr v) {
        return loop("_l", t_.lanes, ForKind::vector,
                    [&](Expr l) { return body(i, index_add(scaled(v, t_.lanes), l)); });
      });
    });
  }
  Substitution at_element(const Tile& t, const Expr& i, const Expr& c) const {
    return {{p_.m->var.id, t.row(i)}, {p_.n->var.id, t.column(c)}};
  }

  // The sums' initial values.
  Stmt set(const Tile& t, const Expr& value) const {
    const auto fill = [&](const Expr& e) {
      return each([&](Expr i, Expr c) { return store(t.sums, {i, c}, substitute(e, at_element(t, i, c))); });
    };
    std::vector<EdgeGuard> edges;
    if (!whole_m_) edges.push_back({p_.m->var, t.end_m});
    if (!whole_n_) edges.push_back({p_.n->var, t.end_n});
    const Expr guarded = guard_loads(value, edges);
    return guarded.same_as(value) ? fill(value) : if_then(t.inside, fill(value), fill(guarded));
  }
  // What the statement does with a finished sum, for each of them.
  Stmt write(const Tile& t, const Stmt& s) const {
    const auto at = [&](const Buffer& sums) {
      return [&](const Expr& i, const Expr& c) {
        const Stmt own = redirect(s, p_.sum, {sums, [&](const auto&) { return std::vector<Expr>{i, c}; }});
        return substitute(refresh(own), at_element(t, i, c));
      };
    };
    const Stmt plain = each(at(t.sums));
    if (!t.inside) return plain;
    if (any_shape_) {
      // Short code rather than fast: the sums go through memory, by loops over the rows and vectors inside.
      const Buffer sums = panels("edge", {t_.rows, t_.columns()});
      const Stmt keep = each([&](Expr i, Expr c) { return store(sums, {i, c}, load(t.sums, {i, c})); });
      const Expr rows = whole_m_ ? Expr(t_.rows) : shorter(index_sub(t.end_m, var(t.m0)), t_.rows);
      const Stmt rest =
          each(rows, ForKind::serial, [&](Expr i, Expr c) { return if_then(t.column(c) < t.end_n, at(sums)(i, c)); });
      return if_then(t.inside, plain, alloc(sums, block({keep, rest})));
    }
    const Stmt guarded = each([&](Expr i, Expr c) {
      Stmt one = at(t.sums)(i, c);
      if (!whole_n_) one = if_then(t.column(c) < t.end_n, one);
      return whole_m_ ? one : if_then(t.row(i) < t.end_m, one);
    });
    return if_then(t.inside, plain, guarded);
  }

  // A tile over one k block.
  Stmt tile(const Expr& no, const Expr& mb, const Expr& nb, const Expr& kb, const Expr& np, const Expr& mt) {
    const Tile t = make_tile();
    const Expr in_m = index_add(scaled(mb, t_.block_m), scaled(mt, t_.rows)),
               in_outer_n = index_add(scaled(nb, t_.block_n), scaled(np, t_.columns()));
    Stmt begin = set(t, p_.first), end = write(t, p_.rest);
    if (const Expr blocks = k_blocks(); !is_const(blocks, 1)) {
      const Stmt resumed = p_.plain ? set(t, load(p_.plain->buffer, p_.plain->index)) : each([&](Expr i, Expr c) {
        return store(t.sums, {i, c}, load(partial_, {index_add(in_m, i), index_add(in_outer_n, c)}));
      });
      begin = if_then(kb == 0, begin, resumed);
      if (!p_.plain)
        end = if_then(kb == index_sub(blocks, 1), end, each([&](Expr i, Expr c) {
                        return store(partial_, {index_add(in_m, i), index_add(in_outer_n, c)}, load(t.sums, {i, c}));
                      }));
    }
    const Stmt next = p_.plain && !is_const(k_blocks(), 1) ? fetch_next(p_, t_, var(t.m0), var(t.n0)) : Stmt();
    const Stmt body = alloc(t.sums, block({begin, next, products(t, no, nb, kb, np, mt), end}));
    return let(t.m0, index_add(m_.begin, in_m),
               let(t.n0, index_add(n_.begin, index_add(scaled(no, t_.outer_n), in_outer_n)), body));
  }
  // The tile's multiply-adds along one k block.
  Stmt products(const Tile& t, const Expr& no, const Expr& nb, const Expr& kb, const Expr& np, const Expr& mt) {
    const Expr k0 = scaled(kb, t_.block_k);
    const Expr panel = index_add(scaled(nb, panels_before(t_.block_n)), np);
    const auto steps = [&](bool guarded) {
      return steps_along_k(block_depth(kb), [&](Expr k) {
        const Expr from = index_add(k_.begin, index_add(k0, k));
        return each([&](Expr i, Expr c) {
          const Expr place = whole_m_ ? t.row(i) : min(t.row(i), index_sub(t.end_m, 1));
          Expr a = substitute(p_.a, {{p_.m->var.id, place}, {p_.k->var.id, from}}), b;
          if (t_.pack_a) a = load(panels_a_, {mt, k, i});
          if (b_before_)
            b = load(panels_b_, {index_add(scaled(no, panels_before(t_.outer_n)), panel), index_add(k0, k), c});
          else if (t_.pack_b)
            b = load(panels_b_, {b_by_block() ? np : panel, k, c});
          else
            b = substitute(guarded ? guard_loads(p_.b, {{p_.n->var, t.end_n}}) : p_.b,
                           {{p_.k->var.id, from}, {p_.n->var.id, t.column(c)}});
          const Expr value = p_.a_first ? a : b, factor = p_.a_first ? b : a;
          return p_.fused ? accumulate(t.sums, {i, c}, AccumulateOp::fma, value, factor)
                          : accumulate(t.sums, {i, c}, AccumulateOp::add, value * factor);
        });
      });
    };
    const bool edge_loads = !whole_n_ && !b_before_ && !t_.pack_b;
    const Stmt within = steps(false);
    return edge_loads ? if_then(t.column(t_.columns()) <= t.end_n, within, steps(true)) : within;
  }
  Stmt steps_along_k(const Expr& depth, const std::function<Stmt(Expr)>& body) {
    const auto steps = [&](const Expr& begin, const Expr& extent, int unrolled) {
      const Var v = make_var(p_.k->var.name);
      along_k_.push_back(v.id);
      const Expr first = index_add(begin, scaled(var(v), unrolled));
      return for_loop(v, 0, extent, ForKind::serial,
                      loop("_u", unrolled, ForKind::unroll, [&](Expr u) { return body(index_add(first, u)); }));
    };
    if (t_.unroll_k == 1) return steps(0, depth, 1);
    const Expr whole = index_div(depth, t_.unroll_k);
    const Expr rest = divides_depth_ ? Expr(0) : index_mod(depth, t_.unroll_k);
    return block({is_const(whole, 0) ? Stmt() : steps(0, whole, t_.unroll_k),
                  is_const(rest, 0) ? Stmt() : steps(scaled(whole, t_.unroll_k), rest, 1)});
  }

  const Product& p_;
  ProductTiles t_;
  std::string name_;
  bool b_before_;
  Bounds m_, n_, k_;
  bool whole_m_ = false, whole_n_ = false;  // tiles are known to divide the extent
  bool any_shape_ = false;                  // no extent is known: less code is preferred at edges and in packing
  bool divides_depth_ = false;              // the unroll factor is known to divide every k block
  Buffer panels_a_, panels_b_, partial_;
  std::vector<Schedule::Loop> along_k_;
};

}  // namespace

TiledProduct tile(const Product& product, const ProductTiles& tiles, const Ranges& scope, bool b_before) {
  const auto nest = std::make_shared<ProductNest>(product, tiles, scope, b_before);
  return {nest->build(), nest->along_k(), [nest](const Stmt& body, ForKind kind) { return nest->around(body, kind); }};
}

}  // namespace gradloom::ir
