// Steps that make loops of reductions: in place, across the columns of a loop, by parts that threads share.
#include <algorithm>

#include "gradloom/schedule.h"
#include "ir/analysis/races.h"
#include "ir/expand_reduction.h"
#include "ir/index_math.h"
#include "ir/redirect.h"
#include "ir/reduction.h"
#include "ir/rewrite.h"
#include "ir/schedule/site.h"

namespace gradloom::ir {
namespace {

// The body of a loop over columns: statements before and after its reduction, and what is around all of them.
struct ColumnBody {
  std::vector<Reduce::Definition> lets;
  std::vector<Buffer> own;  // of each column
  std::vector<Stmt> before, after;
  const Reduce* reduction = nullptr;
};

std::function<bool(const Expr&)> nonnegative(const Site& site) {
  return [&site](const Expr& extent) { return site.scope.of(extent).min.value_or(-1) >= 0; };
}

class ColumnNest {
 public:
  ColumnNest(const char* step, const Site& site, int64_t tile, bool rows_at_once)
      : step_(step),
        site_(site),
        loop_(*site.loop),
        form_{.rows_at_once = rows_at_once, .nonnegative = nonnegative(site)},
        b_("columns") {
    require_serial(step, loop_);
    collect(loop_.body);
    if (!body_.reduction) refuse_body("its body holds no reduction");
    for (const Reduce::Range& r : body_.reduction->ranges)
      if (varies(r.begin) || varies(r.extent)) refuse_body("the bounds of reduction " + r.var.name + " depend on it");
    for (const Reduce::Definition& d : body_.lets)
      if (may_clobber(loop_.body, d.value)) refuse_body("the let " + d.var.name + " reads memory that the loop writes");
    if (const std::string conflict = loop_carried_conflict(loop_, site.scope); !conflict.empty()) refuse_body(conflict);
    tile_ = tile;
    begin_ = read_once(loop_.begin);
    columns_ = read_once(loop_.extent);
    if (!form_.nonnegative(columns_)) columns_ = index_max(columns_, 0);
  }

  // `reduce` writes the reduction of the columns from `first` of a tile.
  void tiles(const std::function<void(const Expr& first)>& reduce) {
    const Expr& n = columns_;
    if (tile_ == 0) return one_tile(0, n, n, reduce);
    loops.tiles = b_.loop("tile", 0, floor_div(n, tile_), [&](Expr t) { one_tile(t * tile_, tile_, tile_, reduce); });
    const Expr rest = floor_mod(n, tile_);
    if (tile_ == 1 || (as_int(n) && *as_int(n) % tile_ == 0)) return;
    b_.if_then(rest > 0, [&] { one_tile(n - rest, rest, tile_, reduce); });
  }

  void reduce() { nest(b_).write(); }

  // Every part's total of all columns, before the tiles; `add` them in each tile.
  void parts() {
    select(0, columns_, columns_);
    if (any_of(reduction_stmt(),
               [&](const Expr& e) { return e.as<Load>() && writes(loop_.body, e.as<Load>()->buffer); }))
      refuse_body("its terms read memory that the loop writes");
    current_ = *moved(reduction_stmt()).as<Reduce>();
    ReductionNest all = nest(b_);
    const Expr count = all.parts();
    const Buffer sums = b_.alloc("sums", current_.buffer->dtype, {count, columns_});
    all.write_parts(sums);
    tiles([&](const Expr& first) {
      nest(b_).add_parts(sums, [&](const Expr& c) { return is_const(first, 0) ? c : first + c; });
    });
  }

  ReductionNest nest(KernelBuilder& b) {
    return ReductionNest(b, current_, ReductionTile{column_, width_, kept_}, form_, loops);
  }
  const Reduce& reduction() const { return *body_.reduction; }
  Stmt build() { return b_.build().body; }

  ReductionLoops loops;

 private:
  [[noreturn]] void refuse_body(const std::string& why) const { refuse(step_, loop_.var.name, why); }

  bool varies(const Expr& e) const {
    return any_of(e, [&](const Expr& x) {
      const Var* v = x.as<Var>();
      return v && (v->id == loop_.var.id ||
                   std::any_of(body_.lets.begin(), body_.lets.end(), [&](const auto& d) { return d.var.id == v->id; }));
    });
  }

  void collect(const Stmt& s) {
    if (const Block* n = s.as<Block>()) {
      for (size_t i = 0; i < n->stmts.size(); ++i) {
        const Stmt& part = n->stmts[i];
        if ((part.as<Let>() || part.as<Alloc>()) && i + 1 < n->stmts.size() && holds_reduction(part))
          refuse_body("statements follow the scope that holds its reduction");
        collect(part);
      }
    } else if (const Let* n = s.as<Let>(); n && holds_reduction(n->body)) {
      body_.lets.push_back({n->var, n->value});
      collect(n->body);
    } else if (const Alloc* n = s.as<Alloc>(); n && holds_reduction(n->body)) {
      for (const Expr& dim : n->buffer->dims)
        if (varies(dim)) refuse_body("the dims of buffer " + n->buffer->name + " depend on it");
      body_.own.push_back(n->buffer);
      collect(n->body);
    } else if (const Reduce* n = s.as<Reduce>()) {
      if (body_.reduction) refuse_body("its body holds several reductions");
      body_.reduction = n;
    } else if (holds_reduction(s)) {
      refuse_body("its reduction is inside another statement");
    } else {
      (body_.reduction ? body_.after : body_.before).push_back(s);
    }
  }

  Expr read_once(const Expr& bound) {
    const auto is_read = [](const Expr& e) { return e.as<Load>() || e.as<Intrinsic>() || e.lanes() > 1; };
    return any_of(bound, is_read) ? b_.let(loop_.var.name + "_n", bound) : bound;
  }
  // Columns first + c of the loop, for c in [0, width).
  void select(const Expr& first, const Expr& width, const Expr& kept) {
    column_ = make_var("c");
    width_ = width, kept_ = kept;
    const Expr column = is_const(first, 0) ? var(column_) : first + var(column_);
    place_ = is_const(begin_, 0) ? column : begin_ + column;
    redirections_.clear();
  }
  Stmt reduction_stmt() const { return refresh(ir::reduce(with_outer_lets(*body_.reduction, body_.lets))); }

  void one_tile(const Expr& first, const Expr& width, const Expr& kept,
                const std::function<void(const Expr&)>& reduce) {
    select(first, width, kept);
    for (const Buffer& b : body_.own) widen(b);
    current_ = *moved(reduction_stmt()).as<Reduce>();
    ReductionNest all = nest(b_);
    const auto each = [&](const std::vector<Stmt>& stmts) {
      if (stmts.empty()) return;
      all.each_column(loops.stored, "store", [&](const Expr& c) {
        Stmt s = block(stmts);
        for (size_t i = body_.lets.size(); i-- > 0;) s = let(body_.lets[i].var, body_.lets[i].value, std::move(s));
        b_.append(substitute(refresh(moved(s)), {{column_.id, c}}));
      });
    };
    each(body_.before);
    reduce(first);
    each(body_.after);
  }
  // A buffer that every column has, of one element or of more.
  void widen(const Buffer& b) {
    const bool one = std::all_of(b->dims.begin(), b->dims.end(), [](const Expr& d) { return is_const(d, 1); });
    BufferNode node = *b;
    node.id = 0;
    node.space = Space::global;
    if (one) node.dims.clear();
    node.dims.push_back(kept_);
    node.facts.nondecreasing = node.facts.injective = false;
    const Buffer wide = b_.alloc(node.name, node.dtype, node.dims, node.facts);
    redirections_[b->id] = {wide, [one, c = var(column_)](std::vector<Expr> index) {
                              if (one) index.clear();
                              index.push_back(c);
                              return index;
                            }};
  }
  // A statement of the body, of the column `place_`.
  Stmt moved(const Stmt& s) const { return redirect(substitute(s, {{loop_.var.id, place_}}), redirections_); }

  const char* step_;
  const Site& site_;
  const For& loop_;
  const ReductionForm form_;
  int64_t tile_ = 0;
  KernelBuilder b_;
  ColumnBody body_;
  Var column_;
  Expr begin_, columns_;  // of the loop, which may have none
  Expr width_, kept_, place_;
  Redirections redirections_;
  Reduce current_;
};

std::string flag(bool rows_at_once) { return rows_at_once ? " 1" : ""; }

}  // namespace

ReductionLoops Schedule::expand(Loop id, int64_t ahead) {
  const Site site = find_reduction(kernel_, id);
  if (ahead < 0 || ahead > 64)
    wrong_argument("expand", site.name(), "0 to 64 terms are read ahead, got " + std::to_string(ahead));
  const Reduce& n = *site.reduction;
  if (ahead > 1 && (n.order.kind == SumOrder::tree || n.guard || n.factor || n.ranges.size() > 1))
    refuse("expand", site.name(), "only values of one variable that are folded in order are read ahead");
  ReductionLoops loops;
  const Stmt to = expanded(n, {.ahead = ahead, .nonnegative = nonnegative(site)}, loops);
  put("expand", site, to,
      "expand " + reduction_name(kernel_, id) + (ahead ? " " + std::to_string(ahead) : std::string()));
  return loops;
}

ReductionLoops Schedule::expand_across(Loop id, int64_t tile, bool rows_at_once) {
  const Site site = find_loop(kernel_, id);
  if (tile < 0 || tile > (int64_t{1} << 30))
    wrong_argument("expand_across", site.loop->var.name, "a tile has 0 to 2^30 columns, got " + std::to_string(tile));
  ColumnNest nest("expand_across", site, tile, rows_at_once);
  nest.tiles([&](const Expr&) { nest.reduce(); });
  put("expand_across", site, nest.build(),
      "expand_across " + handle_name(kernel_, id) + " " + std::to_string(tile) + flag(rows_at_once));
  return nest.loops;
}

ReductionLoops Schedule::expand_parts(Loop id, Loop columns, int64_t tile, bool rows_at_once) {
  const char* step = "expand_parts";
  const Site own = find_reduction(kernel_, id);
  const Reduce& reduction = *own.reduction;
  if (reduction.order.kind != SumOrder::tree) refuse(step, own.name(), "its order is no tree");
  if (reduction.ranges.size() != 1) refuse(step, own.name(), "it is over several variables");
  const std::string line = std::string(step) + " " + reduction_name(kernel_, id);
  if (columns == 0) {
    ReductionLoops loops;
    KernelBuilder b("parts");
    ReductionNest nest(b, reduction, {}, {.nonnegative = nonnegative(own)}, loops);
    const Expr count = nest.parts();
    const Buffer sums = b.alloc("sums", reduction.buffer->dtype, {count, 1});
    nest.write_parts(sums);
    nest.add_parts(sums, [](const Expr& c) { return c; });
    put(step, own, b.build().body, line);
    return loops;
  }
  const Site site = find_loop(kernel_, columns);
  ColumnNest nest(step, site, tile, rows_at_once);
  if (nest.reduction().ranges[0].var.id != id)
    wrong_argument(step, own.name(), "loop " + site.name() + " does not hold it");
  nest.parts();
  put(step, site, nest.build(),
      line + " " + handle_name(kernel_, columns) + " " + std::to_string(tile) + flag(rows_at_once));
  return nest.loops;
}

}  // namespace gradloom::ir
