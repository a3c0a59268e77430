// Vector loads of the columns of a square tile become loads of its rows, transposed in registers: each cache line is
// read once, by one instruction. Requires: vectors, constant indices of unrolled copies. Gives: fewer strided and
// gathered loads. Breaks: nothing.
//
// A tile is n loads of n lanes in the statements of one block, of an input that the kernel does not write, where
// nothing has a guard: x[.., ramp(row, step, n), .., column + u] for u = 0 to n - 1, where memory is contiguous along
// the last dim.
#include <algorithm>

#include "ir/analysis/ranges.h"
#include "ir/index_math.h"
#include "ir/passes/passes.h"
#include "ir/rewrite.h"
#include "ir/transpose.h"

namespace gradloom::ir {
namespace {

constexpr int fewest_lanes = 4, most_lanes = 16;
constexpr size_t most_columns = 512;  // of a block: each is compared with the others

struct Column {
  Expr load;
  size_t rows;  // the dim that is a ramp
  size_t at;    // its statement
};

std::optional<size_t> dim_of_rows(const Load& l) {
  if (l.buffer->role != Role::in || l.guard || l.index.size() < 2 || l.index.back().lanes() > 1) return std::nullopt;
  if (!l.buffer->strides.empty() && !is_const(l.buffer->strides.back(), 1)) return std::nullopt;
  std::optional<size_t> rows;
  for (size_t d = 0; d + 1 < l.index.size(); ++d) {
    if (l.index[d].lanes() == 1) continue;
    if (rows || !l.index[d].as<Ramp>()) return std::nullopt;
    rows = d;
  }
  return rows;
}

bool same_tile(const Load& a, const Load& b) {
  if (!a.buffer.same_as(b.buffer)) return false;
  for (size_t d = 0; d + 1 < a.index.size(); ++d)
    if (!equal(a.index[d], b.index[d])) return false;
  return true;
}

std::optional<int64_t> distance(const Expr& a, const Expr& b) {
  const Linear difference = linear(index_sub(b, a));
  if (!difference.terms.empty() || !difference.exact) return std::nullopt;
  return difference.constant;
}

struct ReplaceLoads : Rewriter {
  using Rewriter::rewrite;
  Expr rewrite(const Load& n, const Expr& self) override {
    for (const auto& [load, value] : values)
      if (self.same_as(load)) return value;
    return Rewriter::rewrite(n, self);
  }
  std::vector<std::pair<Expr, Expr>> values;
};

struct TransposeLoads : Rewriter {
  using Rewriter::rewrite;
  Stmt rewrite(const Store&, const Stmt& self) override { return self; }
  Stmt rewrite(const Accumulate&, const Stmt& self) override { return self; }
  Stmt rewrite(const Evaluate&, const Stmt& self) override { return self; }

  Stmt rewrite(const Block& n, const Stmt& self) override {
    std::vector<Column> columns;
    for (size_t at = 0; at < n.stmts.size() && columns.size() < most_columns; ++at) collect(n.stmts[at], at, columns);
    if (columns.size() < fewest_lanes) return Rewriter::rewrite(n, self);
    for (const Column& lowest : columns)
      if (const std::vector<Column> tile = tile_from(lowest, columns); !tile.empty()) return transposed(n, tile);
    return Rewriter::rewrite(n, self);
  }

 private:
  static void collect(const Stmt& s, size_t at, std::vector<Column>& columns) {
    const Store* stored = s.as<Store>();
    const Accumulate* added = s.as<Accumulate>();
    if ((!stored || stored->guard) && (!added || added->guard)) return;
    if (any_of(s, [](const Expr& e) { return e.as<Load>() && e.as<Load>()->guard; }))
      return;  // what is not read stays so
    walk(
        s, [](const Stmt&) {},
        [&](const Expr& e) {
          const Load* l = e.as<Load>();
          const std::optional<size_t> rows = l ? dim_of_rows(*l) : std::nullopt;
          if (rows && e.lanes() >= fewest_lanes && e.lanes() <= most_lanes && (e.lanes() & (e.lanes() - 1)) == 0)
            columns.push_back({e, *rows, at});
        });
  }
  // The tile whose first column this is; empty: some of its columns are missing.
  static std::vector<Column> tile_from(const Column& lowest, const std::vector<Column>& columns) {
    const auto* head = lowest.load.as<Load>();
    const size_t n = static_cast<size_t>(lowest.load.lanes());
    std::vector<Column> tile(n);
    size_t found = 0;
    for (const Column& c : columns) {
      const auto* l = c.load.as<Load>();
      if (!same_tile(*head, *l)) continue;
      const std::optional<int64_t> place = distance(head->index.back(), l->index.back());
      if (!place || *place < 0 || *place >= static_cast<int64_t>(n) || tile[static_cast<size_t>(*place)].load) continue;
      tile[static_cast<size_t>(*place)] = c;
      ++found;
    }
    return found == n ? tile : std::vector<Column>{};
  }
  // The block from the tile's first statement on stands in the lets of its rows.
  Stmt transposed(const Block& n, const std::vector<Column>& tile) {
    const auto* head = tile[0].load.as<Load>();
    const int lanes = tile[0].load.lanes();
    const auto* ramp_of_rows = head->index[tile[0].rows].as<Ramp>();
    Transposer t(head->buffer->name + "_x");
    std::vector<Expr> rows;
    for (int r = 0; r < lanes; ++r) {
      std::vector<Expr> index = head->index;
      index[tile[0].rows] = index_add(ramp_of_rows->base, index_mul(ramp_of_rows->stride, r));
      index.back() = ramp(index.back(), 1, lanes);
      rows.push_back(t.named(load(head->buffer, std::move(index))));
    }
    rows = t.transpose(std::move(rows));
    ReplaceLoads replace;
    size_t begin = n.stmts.size();
    for (size_t u = 0; u < tile.size(); ++u) {
      replace.values.emplace_back(tile[u].load, rows[u]);
      begin = std::min(begin, tile[u].at);
    }
    std::vector<Stmt> before(n.stmts.begin(), n.stmts.begin() + static_cast<std::ptrdiff_t>(begin)), after;
    for (size_t i = begin; i < n.stmts.size(); ++i) after.push_back(replace(n.stmts[i]));
    for (Stmt& s : before) s = (*this)(s);
    before.push_back(t.wrap((*this)(block(std::move(after)))));  // with the other tiles of the block
    return block(std::move(before));
  }
};

}  // namespace

Kernel transpose_loads(const Kernel& kernel) { return TransposeLoads()(kernel); }

}  // namespace gradloom::ir
