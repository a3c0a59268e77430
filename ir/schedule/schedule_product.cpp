// Chooses register tiles, packed panels and cache blocks for one product. Costs are in cycles and bytes.
#include "ir/schedule/schedule_product.h"

#include <algorithm>

#include "ir/rewrite.h"
#include "ir/schedule/tile_product.h"

namespace gradloom::ir {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// What a schedule depends on.
struct Shape {
  int64_t m, n, k;
  int bytes;                                       // of a sum
  int64_t a_step_m, a_step_k, b_step_n, b_step_k;  // as step_of
  bool a_plain, b_plain;                           // one load of the sum's dtype
  int64_t a_row_bytes;                             // between neighbours along m, 0 where it is no constant
};

bool plain(const Expr& e) { return e.as<Load>() && !e.as<Load>()->guard; }

int64_t row_bytes(const Product& p) {
  const Load* l = p.a.as<Load>();
  if (!l) return 0;
  int64_t bytes = 0, dense = size_of(l->buffer->dtype);
  for (size_t d = l->index.size(); d-- > 0;) {
    const std::optional<int64_t> stride = l->buffer->strides.empty() ? std::nullopt : as_int(l->buffer->strides[d]);
    bytes += linear(l->index[d]).coefficient(var(p.m->var)) *
             (l->buffer->strides.empty() ? dense : stride.value_or(0) * size_of(l->buffer->dtype));
    dense *= as_int(l->buffer->dims[d]).value_or(0);
  }
  return bytes;
}

Shape shape_of(const Product& p, const ProductHints& hints) {
  Shape s{};
  s.m = as_int(p.m->extent).value_or(hints.m);
  s.n = as_int(p.n->extent).value_or(hints.n);
  s.k = as_int(p.k->extent).value_or(hints.k);
  s.bytes = size_of(p.sum->dtype);
  s.a_step_m = step_of(p.a, p.m->var.id), s.a_step_k = step_of(p.a, p.k->var.id);
  s.b_step_n = step_of(p.b, p.n->var.id), s.b_step_k = step_of(p.b, p.k->var.id);
  s.a_plain = plain(p.a), s.b_plain = plain(p.b);
  s.a_row_bytes = row_bytes(p);
  return s;
}

// Cost model: cycles of all tiles of this form, per step along k. Two multiply-adds and two loads per cycle, a
// multiply-add latency of four cycles (five, so that more than eight sums are preferred), and a small cost per load,
// higher for B, which comes from a farther cache: of two forms with the same multiply-add throughput, the one with
// fewer loads.
double cycles(const Shape& s, int rows, int vectors, int lanes) {
  const double tiles =
      static_cast<double>(ceil_div(s.m, rows)) * static_cast<double>(ceil_div(s.n, int64_t{vectors} * lanes));
  return tiles * (std::max({rows * vectors / 2.0, (rows + vectors) / 2.0, 5.0}) + 0.05 * rows + 0.15 * vectors);
}

// The sums, the vectors of B and one of A must fit the registers. A single row uses B as a memory operand.
void choose_tile(ProductTiles& t, const Shape& s, const Target& target) {
  t.lanes = std::max(2, std::min(target.lanes(s.bytes), 64));
  double best = -1;
  for (int rows = 1; rows <= 14; ++rows)
    for (int vectors = 1; vectors <= 12; ++vectors) {
      if (rows * vectors + (rows > 1 ? vectors : 1) + 1 > target.vector_registers) continue;
      const double c = cycles(s, rows, vectors, t.lanes);
      if (best < 0 || c < best) best = c, t.rows = rows, t.vectors = vectors;
    }
}

constexpr int64_t rows_early = 4;     // prefetch distance in rows of unpacked B: covers the L2 latency
constexpr int64_t few_rows = 8;       // B is read once or twice: packing it would cost as much as the product
constexpr int64_t page_bytes = 4096;  // rows this far apart conflict in the same cache sets
constexpr int64_t parallel_flops = 1 << 20;
void choose_panels(ProductTiles& t, const Shape& s, const Target& target, bool before) {
  const int64_t panels = ceil_div(s.n, t.columns());
  const bool b_near = s.k * s.n * s.bytes <= target.l2_bytes / 4 && s.m <= 64 && (s.n * s.bytes) % page_bytes != 0;
  const bool b_as_it_is = s.b_plain && s.b_step_n == 1 && (s.m <= few_rows || b_near);
  t.pack_b = !before && !b_as_it_is;
  // A is broadcast from its unpacked rows where they are contiguous along k and do not conflict in the caches.
  const bool rows_meet = s.a_row_bytes % page_bytes == 0 && s.m > few_rows && panels > few_rows;
  const bool a_as_it_is = s.a_plain && (s.a_step_k == 1 ? !rows_meet : panels <= 2);
  t.pack_a = !a_as_it_is && !(panels == 1 && s.a_plain);
}

void choose_blocks(ProductTiles& t, const Shape& s, const Target& target, bool before) {
  if (before) return;  // few rows per product: all pass over a panel of B while it is cached, and C stays cached
  if (t.pack_b && s.m <= few_rows) {  // a panel at a time, in L1
    t.block_n = t.columns();
    t.block_k = std::max<int64_t>(8, target.l1_bytes / 2 / s.bytes / t.columns() / 8 * 8);
    return;
  }
  // Each block along k costs a pass over C, so k is one block while a tile's rows fit L1; longer rows are split into
  // blocks that leave room for B to stream through.
  const int64_t row_bytes = s.k * s.bytes, most_row_bytes = target.l1_bytes * 3 / 32,
                block_row_bytes = std::max<int64_t>(1, most_row_bytes / 2);
  if (row_bytes > most_row_bytes)
    t.block_k = round_up(ceil_div(s.k, (row_bytes + block_row_bytes / 2) / block_row_bytes), 8);
  const int64_t depth = std::max<int64_t>(1, t.block_k ? t.block_k : s.k);
  const auto rows_in = [&](int64_t bytes) { return std::max<int64_t>(1, bytes / s.bytes / depth / t.rows) * t.rows; };
  const bool all_rows_near = (s.m + t.columns()) * depth * s.bytes <= target.l1_bytes * 3 / 4;  // and a panel of B
  t.along_rows = s.m > few_rows && !all_rows_near;
  // B streams from L2 for each row of tiles. Where all of it fits there, A is read once; else blocks of A are read once
  // per block of columns.
  const int64_t near = target.l2_bytes * 3 / 8 / s.bytes / depth / t.columns() * t.columns();
  if (t.pack_b && s.n > 2 * near) {
    t.block_n = std::max(near, t.columns());
    t.block_m = rows_in(4 * target.l2_bytes);
  } else {
    t.block_m = t.pack_a ? rows_in(target.l2_bytes / 4) : 0;
  }
}

// Parallelises row blocks where there are enough, else blocks of columns, each with panels of its own.
void choose_sharing(ProductTiles& t, const Shape& s, const Target& target) {
  const int64_t tasks = int64_t{4} * target.threads;
  if (ceil_div(s.m, t.rows) >= tasks) {
    t.block_m =
        std::max<int64_t>(t.rows, std::min(t.block_m ? t.block_m : s.m, ceil_div(s.m, tasks) / t.rows * t.rows));
    t.share = ProductTiles::rows_parallel;
    // Panels of B are shared by all threads, in a cache that they share.
    const int64_t far = 8 * target.l2_bytes / s.bytes / std::max<int64_t>(1, t.block_k ? t.block_k : s.k),
                  unit = t.block_n ? t.block_n : t.columns();
    if (t.pack_b) t.outer_n = std::max(unit, far / unit * unit);
    return;
  }
  const int64_t panels = ceil_div(s.n, t.columns());
  if (panels < 2) return;
  const bool panel_by_panel = t.block_n == t.columns();
  const int64_t unit = panel_by_panel ? t.columns() : t.columns() * std::max<int64_t>(1, panels / tasks);
  if (!panel_by_panel) t.block_n = 0;
  t.outer_n = unit;
  t.share = ProductTiles::columns_parallel;
}

// A share of a cache is a block of at most largest_block elements.
Target with_caches_for_blocks(Target target) {
  constexpr int64_t most = int64_t{256} << 20;
  target.l1_bytes = std::min(target.l1_bytes, most);
  target.l2_bytes = std::min(target.l2_bytes, most);
  return target;
}

}  // namespace

void schedule_product(Schedule& schedule, Loop rows, const Target& machine, const ProductHints& hints) {
  const Target target = with_caches_for_blocks(machine);
  const Site site = find_loop(schedule.kernel(), rows);
  const Product p = match_product(site, "schedule_product");
  const Shape s = shape_of(p, hints);
  // Few rows read B once per product: packing does not pay where B is contiguous along n and a row is shorter than a
  // page.
  const bool before =
      hints.pack_before && !(s.m <= few_rows && s.b_plain && s.b_step_n == 1 && s.n * s.bytes < page_bytes);
  ProductTiles t;
  choose_tile(t, s, target);
  choose_panels(t, s, target, before);
  choose_blocks(t, s, target, before);
  const bool inside = std::any_of(site.path.begin(), site.path.end(),
                                  [](const Stmt& p) { return p.as<For>() && p.as<For>()->kind == ForKind::parallel; });
  const double flops = 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  if (hints.parallel && target.threads > 1 && !inside && flops >= parallel_flops) choose_sharing(t, s, target);
  const std::vector<Loop> along_k = schedule.tile_product(rows, t, before ? hints.pack_before : 0);
  if (before || t.pack_b) return;
  // A panel of an unpacked B is read in strided pieces, which the hardware prefetcher does not follow.
  for (const Loop k : along_k) schedule.prefetch(k, p.b.as<Load>()->buffer, rows_early, 1);
}

}  // namespace gradloom::ir
