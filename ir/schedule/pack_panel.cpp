// Packing an operand into panels. Lanes that are adjacent in memory are copied by vectors; where k is the contiguous
// axis instead, square tiles are read along k and transposed in registers.
#include <algorithm>

#include "gradloom/target.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/schedule/tile_product.h"
#include "ir/transpose.h"

namespace gradloom::ir {
namespace {

struct Packer {
  const Panel& p;
  const std::string& name;

  std::vector<Expr> place(const Expr& panel, const Expr& k, const Expr& lane) const {
    return {index_add(p.first, panel), k, lane};
  }
  Expr operand_k(const Expr& k) const { return index_add(p.first_k, k); }
  Expr operand_lane(const Expr& panel, const Expr& lane) const {
    return index_add(p.first_lane, index_add(index_mul(panel, p.step), lane));
  }
  // Beyond the operand's end its last lane is read again; the result is never used.
  Expr clamped(const Expr& lane) const {
    const Expr place = operand_lane(0, lane);
    return p.whole ? place : min(place, index_sub(p.end_lane, 1));
  }
  Stmt copy() const {
    const std::optional<int64_t> count = as_int(p.count);
    return product_loop(name + "_k", p.k_count, ForKind::serial, [&](Expr k) {
      const auto vectors = [&](const Expr& panel) {
        return product_loop(name + "_v", p.width / p.group, count ? ForKind::unroll : ForKind::serial, [&](Expr v) {
          return product_loop(name + "_l", p.group, ForKind::vector, [&](Expr l) {
            const Expr lane = index_add(index_mul(v, p.group), l);
            const Expr from = operand_lane(panel, lane);
            if (p.whole) return store(p.buffer, place(panel, k, lane), p.element(from, operand_k(k)));
            const Var any = make_var("lane");
            const Expr guarded = guard_loads(p.element(var(any), operand_k(k)), {{any, p.end_lane}});
            return store(p.buffer, place(panel, k, lane), substitute(guarded, {{any.id, from}}));
          });
        });
      };
      if (!count) return product_loop(name + "_p", p.count, ForKind::serial, vectors);
      std::vector<Stmt> panels;
      for (int64_t panel = 0; panel < *count; ++panel) panels.push_back(vectors(panel));
      return block(std::move(panels));
    });
  }

  // Square tiles that share a cache line of the operand's rows are processed together: rows far apart map to the same
  // sets of the nearest cache, and a line would be evicted before its second half is read.
  Stmt squares() const {
    const int side = square_side(), together = std::max<int>(1, line_bytes / (side * size_of(p.buffer->dtype)));
    const Expr whole = index_div(p.k_count, side), rest = index_mod(p.k_count, side);
    const Expr lines = index_div(whole, together), odd = index_mod(whole, together);
    const auto each = [&](const Expr& count, const char* suffix, const std::function<Stmt(const Expr& at)>& body) {
      return product_loop(name + suffix, count, ForKind::serial, body);
    };
    const auto line = [&](const Expr& first, const Expr& n, ForKind kind) {
      return product_loop(name + "_v", p.width / side, ForKind::serial, [&](Expr v) {
        return product_loop(name + "_u", n, kind, [&](Expr u) { return square(index_add(first, u), v); });
      });
    };
    Stmt main;
    if (p.brief && together > 1) {
      main = each(index_div(index_add(whole, together - 1), together), "_kb", [&](const Expr& at) {
        const Expr first = index_mul(at, together);
        return line(first, index_min(together, index_sub(whole, first)), ForKind::serial);
      });
    } else {
      main =
          block({is_const(lines, 0)
                     ? Stmt()
                     : each(lines, "_kb",
                            [&](const Expr& at) { return line(index_mul(at, together), together, ForKind::unroll); }),
                 is_const(odd, 0) ? Stmt() : each(odd, "_ko", [&](const Expr& at) {
                   return line(index_add(index_mul(lines, together), at), 1, ForKind::unroll);
                 })});
    }
    if (is_const(rest, 0)) return main;
    Stmt last = product_loop(name + "_kt", rest, ForKind::serial, [&](Expr k) {
      const Expr at = index_add(index_mul(whole, side), k);
      return product_loop(name + "_l", p.width, ForKind::serial, [&](Expr lane) {
        return store(p.buffer, place(0, at, lane), p.element(clamped(lane), operand_k(at)));
      });
    });
    return block({is_const(whole, 0) ? Stmt() : main, last});
  }

 private:
  int square_side() const { return p.brief ? std::min(p.group, 8) : p.group; }
  // Lanes [v * side, (v + 1) * side) by `side` steps along k.
  Stmt square(const Expr& number, const Expr& v) const {
    const int side = square_side();
    Transposer t(name + "_x");
    const Expr first = index_mul(number, side), lane = index_mul(v, side);
    std::vector<Expr> rows;
    for (int i = 0; i < side; ++i)
      rows.push_back(t.named(broadcast(p.element(clamped(index_add(lane, i)), ramp(operand_k(first), 1, side)), side)));
    rows = t.transpose(std::move(rows));
    std::vector<Stmt> stores;
    for (int i = 0; i < side; ++i)
      stores.push_back(store(p.buffer, place(0, index_add(first, i), ramp(lane, 1, side)), rows[i]));
    return t.wrap(block(std::move(stores)));
  }
};

}  // namespace

Stmt product_loop(const std::string& name, const Expr& extent, ForKind kind, const std::function<Stmt(Expr)>& body) {
  if (is_const(extent, 1)) return body(0);
  const Var v = make_var(name);
  return for_loop(v, 0, extent, kind, body(var(v)));
}

Stmt pack_panel(const Panel& panel, const std::string& name) {
  const Packer packer{panel, name};
  return panel.transpose ? packer.squares() : packer.copy();
}

}  // namespace gradloom::ir
