// The step tile_product: cache blocking, packed panels and register tiles for a matrix product (product_nest.cpp).
#include "ir/schedule/tile_product.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/index_math.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

constexpr const char* step = "tile_product";
constexpr int64_t largest_block = int64_t{1} << 30;

void require_tiles(const For& m, const ProductTiles& t) {
  const auto fail = [&](const std::string& why) { wrong_argument(step, m.var.name, why); };
  if (t.rows < 1 || t.rows > 64) fail("the rows must be 1 to 64, got " + std::to_string(t.rows));
  if (t.vectors < 1 || t.vectors > 64) fail("the vectors must be 1 to 64, got " + std::to_string(t.vectors));
  if (t.lanes != 2 && t.lanes != 4 && t.lanes != 8 && t.lanes != 16 && t.lanes != 32 && t.lanes != 64)
    fail("the lanes must be a power of two, 2 to 64, got " + std::to_string(t.lanes));
  if (t.unroll_k < 1 || t.unroll_k > 16) fail("the steps along k must be 1 to 16, got " + std::to_string(t.unroll_k));
  if (t.block_m < 0 || t.block_m % t.rows)
    fail("the block of rows must be whole tiles of " + std::to_string(t.rows) + ", got " + std::to_string(t.block_m));
  if (t.block_n < 0 || t.block_n % t.columns())
    fail("the block of columns must be whole tiles of " + std::to_string(t.columns()) + ", got " +
         std::to_string(t.block_n));
  if (t.outer_n < 0 || t.outer_n % std::max<int64_t>(t.block_n, t.columns()))
    fail("the outer block of columns must be whole blocks, got " + std::to_string(t.outer_n));
  if (t.block_k < 0) fail("the block along k must not be negative, got " + std::to_string(t.block_k));
  for (const int64_t block : {t.block_m, t.block_n, t.block_k, t.outer_n})
    if (block > largest_block)
      fail("a block must be at most " + std::to_string(largest_block) + ", got " + std::to_string(block));
}

// Rows and columns are compared with their loop's end, in tiles that may cross it. Begins must be 0, so that
// overflowing an i64 would take an endless loop.
void require_in_range(const Product& p, const Site& site, const ProductTiles& t) {
  for (const auto& [loop, tile] : {std::pair{p.m, int64_t{t.rows}}, std::pair{p.n, t.columns()}}) {
    if (site.scope.of(loop->begin).max.value_or(1) <= 0) continue;
    const Expr extent = nonnegative(loop->extent, site.scope), end = index_add(loop->begin, extent);
    if (!site.scope.sum_fits(loop->begin, extent) || !site.scope.sum_fits(end, tile))
      refuse(step, p.m->var.name,
             "the end of loop " + loop->var.name + ", rounded up to whole tiles, may not fit in 64 bits");
  }
}

// What B reads must be available, and unchanged, before the loop.
void require_before(const Kernel& kernel, const Product& p, const Site& around) {
  const For& loop = *around.loop;
  const auto fail = [&](const std::string& why) {
    refuse(step, p.m->var.name, "B cannot be packed before loop " + loop.var.name + ": " + why);
  };
  std::vector<Var> known = visible(kernel, around, false);
  for (const Expr* e : {&p.n->begin, &p.n->extent, &p.k->begin, &p.k->extent})
    if (!uses_only(*e, known)) fail("its extents are not known there");
  known.push_back(p.n->var);
  known.push_back(p.k->var);
  if (!uses_only(p.b, known)) fail("it uses a variable that is not known there");
  if (may_clobber(around.stmt(), p.b)) fail("the loop writes what it reads");
  std::vector<Buffer> there = kernel.buffers;
  for (const Stmt& s : around.path)
    if (const Alloc* a = s.as<Alloc>()) there.push_back(a->buffer);
  walk(p.b, [&](const Expr& e) {
    const Load* l = e.as<Load>();
    if (l && std::none_of(there.begin(), there.end(), [&](const Buffer& b) { return b.same_as(l->buffer); }))
      fail("buffer " + l->buffer->name + " does not exist there");
  });
}

}  // namespace

std::vector<Schedule::Loop> Schedule::tile_product(Loop m, const ProductTiles& tiles, Loop pack_before) {
  const Site site = find_loop(kernel_, m);
  require_tiles(*site.loop, tiles);
  const Product product = match_product(site, step);
  require_independent(product, site, step);
  require_in_range(product, site, tiles);
  const auto parallel = [](const Stmt& s) { return s.as<For>() && s.as<For>()->kind == ForKind::parallel; };
  const bool inside_parallel = std::any_of(site.path.begin(), site.path.end(), parallel);
  if (inside_parallel && tiles.share != ProductTiles::serial)
    refuse(step, site.loop->var.name, "it is inside a parallel loop already");
  std::string line = fmt::format("{} {}", step, handle_name(kernel_, m));
  for (const int64_t n : {int64_t{tiles.rows}, int64_t{tiles.vectors}, int64_t{tiles.lanes}, int64_t{tiles.unroll_k},
                          tiles.block_m, tiles.block_n, tiles.block_k, tiles.outer_n, int64_t{tiles.pack_a},
                          int64_t{tiles.pack_b}, int64_t{tiles.along_rows}, int64_t{tiles.share}})
    line += fmt::format(" {}", n);
  if (!pack_before) {
    const TiledProduct tiled = tile(product, tiles, site.scope, false);
    put(step, site, tiled.nest, line);
    return tiled.along_k;
  }
  line += fmt::format(" {}", handle_name(kernel_, pack_before));
  const Site around = find_loop(kernel_, pack_before);
  if (std::none_of(site.path.begin(), site.path.end() - 1, [&](const Stmt& s) { return s.same_as(around.stmt()); }))
    refuse(step, site.loop->var.name, "loop " + around.loop->var.name + " is not around it");
  require_before(kernel_, product, around);
  const TiledProduct tiled = tile(product, tiles, site.scope, true);
  const Kernel inner = replace(kernel_, site, tiled.nest);
  const Site now = find_loop(inner, pack_before);
  const bool shared = (inside_parallel || tiles.share != ProductTiles::serial) &&
                      std::none_of(around.path.begin(), around.path.end() - 1, parallel);
  const Stmt packed = tiled.around(now.stmt(), shared ? ForKind::parallel : ForKind::serial);
  Kernel changed = replace(inner, now, packed);
  if (!part_of_step_) require_proved(step, now, kernel_, changed, packed);
  kernel_ = std::move(changed);
  trace_.push_back(line);
  return tiled.along_k;
}

}  // namespace gradloom::ir
