#include "ops/matmul/matmul_blocks.h"

#include "ir/analysis/ranges.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ops/patterns/integer_math.h"

namespace gradloom {

using namespace ir;

namespace {

using matmul_blocks::runs_along;

constexpr int64_t side = 16;                             // threads of a block along m, and along n
constexpr int64_t vector = 4;                            // elements per vector access
constexpr int64_t shortest_part = 256, most_parts = 16;  // of split-k: elements per part, parts
constexpr int64_t resident = 2;                          // resident blocks per multiprocessor, with these tiles

int64_t tiles_of(int64_t m, int64_t n, int64_t each) { return ceil_div(m, each * side) * ceil_div(n, each * side); }

// Elements per thread along m, and along n: at most `most`, fewer where there would be too few tiles for all
// multiprocessors; `unknown` where extents are not constant.
int64_t elements_a_thread(const Matmul& p, const Target& target, int64_t most, int64_t unknown) {
  const std::optional<int64_t> m = as_int(p.m), n = as_int(p.n);
  if (!m || !n) return unknown;
  int64_t each = most;
  while (each > 1 && 2 * tiles_of(*m, *n, each) < target.multiprocessors) each /= 2;
  return each;
}

class Tiles {
 public:
  // `each`: elements per thread along m, and along n.
  Tiles(KernelBuilder& builder, const Matmul& product, int64_t count, const Epilogue& store, int64_t each)
      : b_(builder),
        p_(product),
        count_(count),
        store_(store),
        each_(each),
        group_(std::min(each, vector)),
        tile_(each * side),
        depth_(each == 8   ? 16
               : each == 4 ? 32
                           : 64) {}

  MatmulBlocks write() {
    // Folded to a constant where possible: with known grid extents, vector stores of C are proved disjoint.
    const auto tiles = [&](const Expr& extent) {
      const int64_t known = as_int(extent).value_or(0);  // with no tiles, the loops must still exist, to be scheduled
      return known > 0 ? Expr(ceil_div(known, tile_)) : floor_div(extent + (tile_ - 1), tile_);
    };
    loops_.threads = side * side;
    loops_.grid = b_.loops(p_.prefix + "_t", {tiles(p_.m), tiles(p_.n)}, [&](const std::vector<Expr>& at) {
      first_m_ = at[0] * tile_, first_n_ = at[1] * tile_;
      one_tile();
    });
    return std::move(loops_);
  }

 private:
  Buffer alloc(const char* name, std::vector<Expr> dims, Space space) {
    return b_.alloc(p_.prefix + name, p_.sum, std::move(dims), {}, space);
  }

  void threads(const char* name, const std::function<void(const Expr& t, const Expr& y, const Expr& x)>& body) {
    loops_.inside.write(b_, ForKind::thread, p_.prefix + name, side * side,
                        [&](Expr t) { body(t, floor_div(t, Expr(side)), floor_mod(t, Expr(side))); });
  }

  // A thread's rows (or columns): groups of contiguous elements, so that a group is one access to shared memory, and
  // groups of neighbouring threads are adjacent. `at`: the index in the tile; `i`: in the register tile.
  void own(const std::string& name, const Expr& thread, ForKind group,
           const std::function<void(const Expr& i, const Expr& at)>& body) {
    loops_.inside.write(b_, ForKind::unroll, p_.prefix + name + "0", each_ / group_, [&](Expr outer) {
      loops_.inside.write(b_, group, p_.prefix + name + "1", group_, [&](Expr inner) {
        body(outer * group_ + inner, outer * (group_ * side) + thread * group_ + inner);
      });
    });
  }
  void each(const std::string& name, const Expr& y, const Expr& x, ForKind row,
            const std::function<void(const Expr& i, const Expr& j, const Expr& m, const Expr& n)>& body) {
    own(name + "i", y, ForKind::unroll, [&](const Expr& i, const Expr& m) {
      own(name + "j", x, row, [&](const Expr& j, const Expr& n) { body(i, j, first_m_ + m, first_n_ + n); });
    });
  }

  void guarded(const Expr& m, const Expr& n, const std::function<void()>& body) {
    const auto inside = [&](const Expr& e, const Expr& extent) {
      return as_int(extent).value_or(1) % tile_ == 0 ? Expr() : e < extent;
    };
    b_.guarded(both(inside(m, p_.m), inside(n, p_.n)), body);
  }

  void one_tile() {
    const Buffer sums = alloc("_sums", {side * side, each_, count_ * each_}, Space::per_thread);
    const Buffer a = alloc("_as", {depth_, tile_ + vector}, Space::global),
                 c = alloc("_bs", {depth_, count_ * (tile_ + vector)}, Space::global);
    threads("_f", [&](const Expr& t, const Expr& y, const Expr& x) {
      each("_f", y, x, ForKind::unroll, [&](const Expr& i, const Expr& j, const Expr& m, const Expr& n) {
        for (int64_t g = 0; g < count_; ++g) {
          b_.store(sums, {t, i, of_thread(g, j)}, zero({p_.sum, 1}));
          if (p_.first)
            guarded(m, n, [&] { b_.store(sums, {t, i, of_thread(g, j)}, cast(p_.sum, p_.first(m, column(g, n)))); });
        }
      });
    });
    const std::optional<int64_t> k = as_int(p_.k);
    b_.loop(p_.prefix + "_kt", 0, floor_div(p_.k + (depth_ - 1), depth_), [&](Expr kt) {
      const Expr first_k = kt * depth_;
      const Expr count = k && *k % depth_ == 0 ? Expr(depth_) : min(Expr(depth_), p_.k - first_k);
      stage("_a", a, first_m_, p_.m, first_k, 1, [&](int64_t, const Expr& m, const Expr& kk) { return p_.a(m, kk); });
      stage("_b", c, first_n_, p_.n, first_k, count_,
            [&](int64_t g, const Expr& n, const Expr& kk) { return p_.b(kk, column(g, n)); });
      threads("_c", [&](const Expr& t, const Expr& y, const Expr& x) {
        b_.loop(p_.prefix + "_k", 0, count, [&](Expr kk) {
          const Buffer rows = alloc("_row", {each_}, Space::registers),
                       columns = alloc("_column", {count_ * each_}, Space::registers);
          own("_r", y, ForKind::vector, [&](const Expr& i, const Expr& at) { b_.store(rows, {i}, load(a, {kk, at})); });
          own("_q", x, ForKind::vector, [&](const Expr& j, const Expr& at) {
            for (int64_t g = 0; g < count_; ++g) b_.store(columns, {of_thread(g, j)}, load(c, {kk, staged(g, at)}));
          });
          each("_c", y, x, ForKind::unroll, [&](const Expr& i, const Expr& j, const Expr&, const Expr&) {
            for (int64_t g = 0; g < count_; ++g)
              b_.accumulate(sums, {t, i, of_thread(g, j)}, load(rows, {i}), AccumulateOp::fma,
                            load(columns, {of_thread(g, j)}));
          });
        });
      });
    });
    // Where extents are not known, vector stores of C could not be proved disjoint.
    const bool known = as_int(p_.m).value_or(0) > 0 && as_int(p_.n).value_or(0) > 0;
    threads("_s", [&](const Expr& t, const Expr& y, const Expr& x) {
      each("_s", y, x, known ? ForKind::vector : ForKind::unroll,
           [&](const Expr& i, const Expr& j, const Expr& m, const Expr& n) {
             guarded(m, n, [&] {
               std::vector<Expr> together;
               for (int64_t g = 0; g < count_; ++g) together.push_back(load(sums, {t, i, of_thread(g, j)}));
               store_(m, n, together);
             });
           });
    });
  }

  // Of product g: the index of a column in B, in the register tile, and in shared memory.
  Expr column(int64_t g, const Expr& n) const { return index_add(index_mul(g, p_.n), n); }
  Expr of_thread(int64_t g, const Expr& j) const { return index_add(g * each_, j); }
  Expr staged(int64_t g, const Expr& at) const { return index_add(g * (tile_ + vector), at); }

  // to[k, staged(g, i)] = value(g, first + i, first_k + k); neighbouring threads load neighbours in memory (coalesced).
  void stage(const char* name, const Buffer& to, const Expr& first, const Expr& extent, const Expr& first_k,
             int64_t count, const std::function<Expr(int64_t g, const Expr&, const Expr&)>& value) {
    const Var probe_i = make_var("i"), probe_k = make_var("k");
    const bool along_k = runs_along(value(0, var(probe_i), var(probe_k)), probe_k);
    const std::optional<int64_t> k = as_int(p_.k), n = as_int(extent);
    const auto bring = [&](const Expr& i, const Expr& kk) {
      const Expr in_tile = n && *n % tile_ == 0 ? Expr() : first + i < extent,
                 in_k = k && *k % depth_ == 0 ? Expr() : first_k + kk < p_.k;
      const auto each_product = [&](const std::function<Expr(int64_t g)>& element) {
        for (int64_t g = 0; g < count; ++g) b_.store(to, {kk, staged(g, i)}, element(g));
      };
      if (!n || *n % tile_ != 0)
        each_product([&](int64_t) { return zero({p_.sum, 1}); });  // for sums that are never stored
      b_.guarded(both(in_tile, in_k),
                 [&] { each_product([&](int64_t g) { return cast(p_.sum, value(g, first + i, first_k + kk)); }); });
    };
    const std::vector<Expr> extents = along_k ? std::vector<Expr>{tile_, depth_} : std::vector<Expr>{depth_, tile_};
    loops_.staged.push_back(b_.loops(p_.prefix + name, extents, [&](const std::vector<Expr>& at) {
      along_k ? bring(at[0], at[1]) : bring(at[1], at[0]);
    }));
  }

  KernelBuilder& b_;
  const Matmul& p_;
  const int64_t count_;  // of products
  const Epilogue& store_;
  const int64_t each_;  // rows, and columns, per thread
  const int64_t group_, tile_, depth_;
  Expr first_m_, first_n_;
  MatmulBlocks loops_;
};

// Split-k for a long product of few tiles, so that tiles can be large and all multiprocessors have work.
struct Parts {
  int64_t each, count, length;  // elements per thread; parts, and elements per part, along k
};
std::optional<Parts> parts_of(const Matmul& p, const Target& target) {
  const std::optional<int64_t> m = as_int(p.m), n = as_int(p.n), k = as_int(p.k);
  if (!m || !n || !k || *m < 1 || *n < 1) return std::nullopt;
  const int64_t most = std::min(most_parts, *k / shortest_part);
  for (const int64_t each : {8, 4}) {
    const int64_t tiles = tiles_of(*m, *n, each), count = std::min(most, resident * target.multiprocessors / tiles);
    if (count < 2 || tiles * count < target.multiprocessors) continue;
    const int64_t length = round_up(ceil_div(*k, count), side);
    return Parts{each, ceil_div(*k, length), length};
  }
  return std::nullopt;
}

// for <prefix>_part { tiles of a part of k }
// for <prefix>_tm { for <prefix>_tn { the in-order sum of the parts } }
MatmulBlocks author_in_parts(KernelBuilder& b, const Matmul& p, const Parts& parts) {
  const Buffer partial = b.alloc(p.prefix + "_partial", p.sum, {parts.count, p.m, p.n}, {.exclusive = true});
  MatmulBlocks loops;
  const Loop all = b.loop(p.prefix + "_part", 0, parts.count, [&](Expr part) {
    const Expr first = part * parts.length;
    Matmul one = p;
    one.k = *as_int(p.k) % parts.length == 0 ? Expr(parts.length) : min(Expr(parts.length), p.k - first);
    one.a = [&](Expr m, Expr k) { return p.a(std::move(m), first + k); };
    one.b = [&](Expr k, Expr n) { return p.b(first + k, std::move(n)); };
    one.first = {};
    const Epilogue store = [&](Expr m, Expr n, const std::vector<Expr>& sums) {
      b.store(partial, {part, m, n}, sums[0]);
    };
    loops = Tiles(b, one, 1, store, parts.each).write();
  });
  loops.grid.insert(loops.grid.begin(), all);
  b.loop(p.prefix + "_tm", 0, p.m, [&](Expr m) {
    b.loop(p.prefix + "_tn", 0, p.n, [&](Expr n) {
      Expr total = p.first ? cast(p.sum, p.first(m, n)) : Expr();
      for (int64_t part = 0; part < parts.count; ++part) {
        const Expr value = load(partial, {part, m, n});
        total = total ? total + value : value;
      }
      p.store(m, n, b.let("total", total));
    });
  });
  return loops;
}

}  // namespace

MatmulBlocks author_matmul_blocks(KernelBuilder& builder, const Matmul& product, const Target& target, bool in_order) {
  if (fits_matrix_units(product, target)) return author_matmul_fragments(builder, product, target);
  if (const std::optional<Parts> parts = in_order ? std::nullopt : parts_of(product, target))
    return author_in_parts(builder, product, *parts);
  const Epilogue store = [&](Expr m, Expr n, const std::vector<Expr>& sums) { product.store(m, n, sums[0]); };
  return Tiles(builder, product, 1, store, elements_a_thread(product, target, 8, 4)).write();
}

MatmulBlocks author_matmul_blocks(KernelBuilder& builder, const Matmul& product, int64_t count, const Epilogue& store,
                                  const Target& target) {
  return Tiles(builder, product, count, store, elements_a_thread(product, target, count == 1 ? 8 : 2, 1)).write();
}

namespace matmul_blocks {

bool runs_along(const Expr& value, const Var& v) {
  return any_of(value, [&](const Expr& e) {
    const Load* l = e.as<Load>();
    return l && !l->index.empty() && linear(l->index.back()).coefficient(var(v)) == 1;
  });
}

}  // namespace matmul_blocks

void schedule_matmul_blocks(Schedule& s, const MatmulBlocks& product) {
  Loop grid = product.grid.back();
  for (size_t i = product.grid.size() - 1; i-- > 0;) grid = s.fuse(product.grid[i], grid);
  s.bind(grid, ForKind::grid);
  for (const std::vector<Loop>& staged : product.staged) {  // several elements per thread
    const Schedule::Split cut = s.split(s.fuse(staged[0], staged[1]), product.threads);
    s.reorder(cut.outer, cut.inner);
    s.bind(cut.inner, ForKind::thread);
  }
  product.inside.schedule(s);
}

}  // namespace gradloom
