#pragma once
// The loops that a reduction's order is: in one place for every nest. Lowering expands what schedules left as it is;
// schedules expand where they want handles to the loops, or columns side by side.
#include <functional>
#include <optional>
#include <unordered_map>

#include "gradloom/builder.h"

namespace gradloom::ir {

// Columns whose reductions advance together: the reduction mentions `column`, which is each of [0, width) in turn;
// buffers have `kept` of them, which is at least the width.
struct ReductionTile {
  Var column;
  Expr width, kept;
};

// How loops are written: `rows_at_once`, of a tile: the 16 rows of a block of 16 are read at once, else four and four.
// `nonnegative`: whether an extent is known not to be negative, where it is needed; absent: never.
struct ReductionForm {
  bool rows_at_once = false;
  int64_t ahead = 0;  // of a fold in order: terms that are read before they are folded
  std::function<bool(const Expr& extent)> nonnegative = {};
};

// Writes a reduction's loops to a builder, and notes them.
class ReductionNest {
 public:
  ReductionNest(KernelBuilder& builder, const Reduce& reduction, std::optional<ReductionTile> tile, ReductionForm form,
                ReductionLoops& loops);

  void write();
  // Of a tree over one variable. The number of its parts; sums[k, column] = the total of part k, for every k; the
  // reduction's total from those of its parts.
  Expr parts();
  void write_parts(const Buffer& sums);
  void add_parts(const Buffer& sums, const std::function<Expr(const Expr& column)>& place);
  // One loop over the tile, or the body once where there is none.
  void each_column(std::vector<Loop>& loops, const std::string& name, const std::function<void(const Expr&)>& body);

 protected:
  using Index = std::vector<Expr>;
  struct Into {  // a total of each column
    Buffer buffer;
    std::function<Index(const Expr& column)> place;
  };
  using Put = std::function<void(const Expr& column, const Expr& sum)>;  // consumes a block's fold

  Expr start() const;
  Expr combined(Expr a, Expr b) const;
  Expr halved(std::vector<Expr> partials) const;  // the fold of sixteen by halves
  void combine(const Into& out, const Expr& column, const Expr& value);
  void begin_total(const Into& out);
  Expr at(const Expr& e, const Expr& column) const;
  Into destination() const;
  void enter(size_t d, const Expr& i);
  Expr extent(size_t d);
  bool is_large() const;  // a term too large to be written sixteen times
  // The number of n terms' parts, where it is known to be one; terms of a block, of a part.
  bool one_part(const Expr& n) const;
  int64_t part() const { return sum_part_blocks * reduction_.order.block; }
  bool divides(size_t d, int64_t length) const;

  // A term at the entered variables: as an expression, from the identity; or folded into an element.
  bool plain() const;
  Expr plain_term(const Expr& column, const Expr& inside) const;  // 0 where that does not hold
  Expr term(const Expr& column, const Expr& inside = {});
  void fold(const Buffer& buffer, const Index& index, const Expr& column, const Expr& inside = {});

  KernelBuilder& b_;
  const Reduce reduction_;
  const std::optional<ReductionTile> tile_;
  const ReductionForm form_;
  const bool clamped_;
  ReductionLoops& loops_;
  const DType dtype_;
  const Expr kept_;
  std::unordered_map<int64_t, Expr> values_;  // of entered variables and definitions
  std::unordered_map<size_t, Expr> extents_;  // of entered variables, read once

 private:
  void in_order(size_t d, const Into& out);
  void in_order(size_t d, const Expr& first, const Expr& count, const Into& out);
  void read_ahead(size_t d, const Expr& first, const Expr& count, const Into& out);
  void in_chunks(const Into& out);
  void total(size_t d, const Into& out);
  void one_part_total(size_t d, const Expr& k, const Into& out);
  void blocks(size_t d, const Expr& first, const Expr& count, const Put& put);
  void rows(size_t d, const Expr& first, const Expr& extent, const Put& put);
  void strided(size_t d, const Expr& from, const Expr& count, const Put& put);
  void outer_block(size_t d, const Into& out, const Expr& first, const Expr& extent);
};

Stmt expanded(const Reduce& reduction, ReductionForm form, ReductionLoops& loops);

}  // namespace gradloom::ir
