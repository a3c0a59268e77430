// Products on matrix units: a tile of C per block, subtiles to warps, operands in their storage dtype. Tiles in shared
// memory are contiguous along k where the operand is: rows of either layout are padded by 16 bytes, so that the lanes
// of a warp access different banks.
#include "ir/analysis/fragment_product.h"
#include "ir/index_math.h"
#include "ops/matmul/matmul_blocks.h"
#include "ops/patterns/integer_math.h"

namespace gradloom {

using namespace ir;

namespace {

constexpr int64_t pad = 8, vector = 8;  // elements: 16 bytes

struct WarpTile {
  int64_t tile, warps_m, warps_n, depth;
  int64_t rows() const { return tile / warps_m; }
  int64_t columns() const { return tile / warps_n; }
  int64_t threads() const { return warps_m * warps_n * warp_lanes; }
};
constexpr WarpTile large{128, 2, 4, 32}, middle{64, 2, 2, 32}, small{32, 2, 2, 64};

class Fragments {
 public:
  Fragments(KernelBuilder& builder, const Matmul& product, const Target& target) : b_(builder), p_(product) {
    const std::optional<int64_t> m = as_int(p_.m), n = as_int(p_.n);
    const auto too_few = [&](const WarpTile& t) {
      return 2 * ceil_div(*m, t.tile) * ceil_div(*n, t.tile) < target.multiprocessors;
    };
    t_ = !m || !n ? middle : !too_few(large) ? large : !too_few(middle) ? middle : small;
  }

  MatmulBlocks write() {
    loops_.threads = t_.threads();
    const auto tiles = [&](const Expr& extent) { return floor_div(extent + (t_.tile - 1), t_.tile); };
    loops_.grid = b_.loops(p_.prefix + "_t", {tiles(p_.m), tiles(p_.n)}, [&](const std::vector<Expr>& at) {
      first_m_ = at[0] * t_.tile, first_n_ = at[1] * t_.tile;
      one_tile();
    });
    return std::move(loops_);
  }

 private:
  // A tile in shared memory, and the operand it is staged from.
  struct Operand {
    const char* name;
    Expr first, extent;  // of rows of A, columns of B
    std::function<Expr(const Expr& at, const Expr& k)> value;
    bool along_k = false;  // contiguous along k
    Buffer tile;
    std::vector<Expr> index(const Expr& at, const Expr& k) const {
      return along_k ? std::vector<Expr>{at, k} : std::vector<Expr>{k, at};
    }
  };
  Operand operand(const char* name, const Expr& first, const Expr& extent,
                  std::function<Expr(const Expr&, const Expr&)> value) {
    Operand o{name, first, extent, std::move(value)};
    const Var at = make_var("at"), k = make_var("k");
    const Expr probe = o.value(var(at), var(k));
    o.along_k = matmul_blocks::runs_along(probe, k);
    const std::vector<Expr> dims =
        o.along_k ? std::vector<Expr>{t_.tile, t_.depth + pad} : std::vector<Expr>{t_.depth, t_.tile + pad};
    o.tile = b_.alloc(p_.prefix + name, probe.dtype(), dims);
    return o;
  }

  // One iteration per element of C's tile, run by the warp and lane that hold its sum.
  using Element = std::function<void(const std::vector<Expr>& sum, const Expr& m, const Expr& n)>;
  void elements(const std::string& name, const Element& body) {
    const auto loop = [&](ForKind kind, const char* part, int64_t extent, const std::function<void(Expr)>& inner) {
      loops_.inside.write(b_, kind, p_.prefix + name + part, extent, inner);
    };
    loop(ForKind::warp, "w", t_.warps_m * t_.warps_n, [&](Expr w) {
      loop(ForKind::fragment, "i", t_.rows(), [&](Expr i) {
        loop(ForKind::fragment, "j", t_.columns(), [&](Expr j) {
          body({w, i, j}, floor_div(w, Expr(t_.warps_n)) * t_.rows() + i,
               floor_mod(w, Expr(t_.warps_n)) * t_.columns() + j);
        });
      });
    });
  }

  void guarded(const Expr& m, const Expr& n, const std::function<void()>& body) {
    const auto inside = [&](const Expr& e, const Expr& extent) {
      return as_int(extent).value_or(1) % t_.tile == 0 ? Expr() : e < extent;
    };
    b_.guarded(both(inside(m, p_.m), inside(n, p_.n)), body);
  }

  void one_tile() {
    const Buffer sums =
        b_.alloc(p_.prefix + "_sums", p_.sum, {t_.warps_m * t_.warps_n, t_.rows(), t_.columns()}, {}, Space::per_warp);
    const Operand a = operand("_a", first_m_, p_.m, [&](const Expr& m, const Expr& k) { return p_.a(m, k); });
    const Operand c = operand("_b", first_n_, p_.n, [&](const Expr& n, const Expr& k) { return p_.b(k, n); });
    elements("_f", [&](const std::vector<Expr>& sum, const Expr& m, const Expr& n) {
      b_.store(sums, sum, zero({p_.sum, 1}));
      if (p_.first)
        guarded(first_m_ + m, first_n_ + n,
                [&] { b_.store(sums, sum, cast(p_.sum, p_.first(first_m_ + m, first_n_ + n))); });
    });
    b_.loop(p_.prefix + "_kt", 0, floor_div(p_.k + (t_.depth - 1), t_.depth), [&](Expr kt) {
      stage(a, kt * t_.depth);
      stage(c, kt * t_.depth);
      elements("_c", [&](const std::vector<Expr>& sum, const Expr& m, const Expr& n) {
        loops_.inside.write(b_, ForKind::matrix_unit, p_.prefix + "_ck", t_.depth, [&](Expr k) {
          b_.accumulate(sums, sum, cast(p_.sum, load(a.tile, a.index(m, k))), AccumulateOp::fma,
                        cast(p_.sum, load(c.tile, c.index(n, k))));
        });
      });
    });
    elements("_s", [&](const std::vector<Expr>& sum, const Expr& m, const Expr& n) {
      guarded(first_m_ + m, first_n_ + n, [&] { p_.store(first_m_ + m, first_n_ + n, load(sums, sum)); });
    });
  }

  // Coalesced: neighbouring threads load neighbours in memory, 16 bytes each where extents allow it; 0 beyond the
  // operand's end.
  void stage(const Operand& o, const Expr& first_k) {
    const std::optional<int64_t> k = as_int(p_.k), n = as_int(o.extent), run = o.along_k ? k : n;
    int64_t together = vector;
    while (together > 1 && (!run || *run % together != 0)) together /= 2;
    const std::string name = p_.prefix + o.name;
    const std::vector<Expr> extents{o.along_k ? t_.tile : t_.depth, (o.along_k ? t_.depth : t_.tile) / together};
    loops_.staged.push_back(b_.loops(name, extents, [&](const std::vector<Expr>& place) {
      const Expr &outer = place[0], &inner = place[1];
      const auto copy = [&](const char* loop, bool inside) {
        const auto one = [&](const Expr& e) {
          const Expr at = o.along_k ? outer : inner * together + e, kk = o.along_k ? inner * together + e : outer;
          b_.store(o.tile, o.index(at, kk), inside ? o.value(o.first + at, first_k + kk) : zero({o.tile->dtype, 1}));
        };
        together > 1 ? loops_.inside.write(b_, ForKind::vector, name + loop, together, one) : one(0);
      };
      const Expr in_tile =
          n && *n % t_.tile == 0 ? Expr() : o.first + (o.along_k ? outer : inner * together) < o.extent;
      const Expr in_k = k && *k % t_.depth == 0 ? Expr() : first_k + (o.along_k ? inner * together : outer) < p_.k;
      const Expr inside = both(in_tile, in_k);
      inside ? b_.if_then(
                   inside, [&] { copy("2", true); }, [&] { copy("3", false); })
             : copy("2", true);
    }));
  }

  KernelBuilder& b_;
  const Matmul& p_;
  WarpTile t_ = middle;
  Expr first_m_, first_n_;
  MatmulBlocks loops_;
};

}  // namespace

bool fits_matrix_units(const Matmul& product, const Target& target) {
  if (!target.matrix_units || product.sum != DType::f32) return false;
  const Expr any = var(make_var("any"));
  const DType a = product.a(any, any).dtype(), b = product.b(any, any).dtype();
  return a == b && is_storage_float(a);
}

MatmulBlocks author_matmul_fragments(KernelBuilder& builder, const Matmul& product, const Target& target) {
  return Fragments(builder, product, target).write();
}

}  // namespace gradloom
