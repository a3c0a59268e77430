#include "ops/matmul_blocks.h"

#include "ir/ranges.h"
#include "ir/rewrite.h"

namespace gradloom {

using namespace ir;

namespace {

constexpr int64_t side = 16;  // threads of a block along m, and along n

// Whether neighbours along `v` are neighbours in memory.
bool runs_along(const Expr& value, const Var& v) {
  bool found = false;
  walk(value, [&](const Expr& e) {
    const Load* l = e.as<Load>();
    if (l && !l->index.empty()) found |= linear(l->index.back()).coefficient(var(v)) == 1;
  });
  return found;
}

class Tiles {
 public:
  Tiles(KernelBuilder& builder, const Matmul& product, const Target& target) : b_(builder), p_(product) {
    const std::optional<int64_t> m = as_int(p_.m), n = as_int(p_.n);
    const auto tiles = [&](int64_t each) { return (*m + each * side - 1) / (each * side) * ((*n + each * side - 1) / (each * side)); };
    while (m && n && each_ > 1 && 2 * tiles(each_) < target.multiprocessors) each_ /= 2;
    tile_ = each_ * side;
    depth_ = each_ == 4 ? 32 : 64;
  }

  void write() {
    b_.loop(p_.prefix + "_bm", 0, floor_div(p_.m + (tile_ - 1), tile_), [&](Expr bm) {
      b_.loop(p_.prefix + "_bn", 0, floor_div(p_.n + (tile_ - 1), tile_), [&](Expr bn) {
        first_m_ = bm * tile_, first_n_ = bn * tile_;
        one_tile();
      });
    });
  }

 private:
  Buffer shared(const char* name, std::vector<Expr> dims) { return b_.alloc(p_.prefix + name, p_.sum, std::move(dims)); }

  void threads(const char* name, const std::function<void(const Expr& y, const Expr& x)>& body) {
    b_.loop(p_.prefix + name + "0", 0, side, [&](Expr y) { b_.loop(p_.prefix + name + "1", 0, side, [&](Expr x) { body(y, x); }); });
  }

  // Each element of the thread's register tile; rows and columns lie `side` apart, so that neighbouring threads read neighbouring places.
  void each(const std::function<void(int64_t i, int64_t j)>& body) const {
    for (int64_t i = 0; i < each_; ++i)
      for (int64_t j = 0; j < each_; ++j) body(i, j);
  }

  void guarded(const Expr& m, const Expr& n, const std::function<void()>& body) {
    const auto inside = [&](const Expr& e, const Expr& extent) { return as_int(extent).value_or(1) % tile_ == 0 ? Expr() : e < extent; };
    const Expr a = inside(m, p_.m), c = inside(n, p_.n);
    if (!a && !c) return body();
    b_.if_then(a && c ? a & c : a ? a : c, body);
  }

  void one_tile() {
    const Buffer sums = shared("_sums", {each_, each_, side, side});
    // One place more a row: a column's elements lie in different banks.
    const Buffer a = shared("_as", {depth_, tile_ + 1}), c = shared("_bs", {depth_, tile_ + 1});
    const auto row = [&](const Expr& y, int64_t i) { return first_m_ + (y + i * side); };
    const auto column = [&](const Expr& x, int64_t j) { return first_n_ + (x + j * side); };
    threads("_f", [&](const Expr& y, const Expr& x) {
      each([&](int64_t i, int64_t j) {
        b_.store(sums, {i, j, y, x}, zero({p_.sum, 1}));
        if (p_.first) guarded(row(y, i), column(x, j), [&] { b_.store(sums, {i, j, y, x}, cast(p_.sum, p_.first(row(y, i), column(x, j)))); });
      });
    });
    const std::optional<int64_t> k = as_int(p_.k);
    b_.loop(p_.prefix + "_kt", 0, floor_div(p_.k + (depth_ - 1), depth_), [&](Expr kt) {
      const Expr first_k = kt * depth_;
      const Expr count = k && *k % depth_ == 0 ? Expr(depth_) : min(Expr(depth_), p_.k - first_k);
      stage("_a", a, first_m_, p_.m, first_k, [&](const Expr& m, const Expr& kk) { return p_.a(m, kk); });
      stage("_b", c, first_n_, p_.n, first_k, [&](const Expr& n, const Expr& kk) { return p_.b(kk, n); });
      threads("_c", [&](const Expr& y, const Expr& x) {
        const Buffer tile = b_.alloc(p_.prefix + "_tile", p_.sum, {each_, each_}, {}, Space::registers);
        each([&](int64_t i, int64_t j) { b_.store(tile, {i, j}, load(sums, {i, j, y, x})); });
        b_.loop(p_.prefix + "_k", 0, count, [&](Expr kk) {
          std::vector<Expr> rows, columns;
          for (int64_t i = 0; i < each_; ++i) rows.push_back(b_.let("a" + std::to_string(i), load(a, {kk, y + i * side})));
          for (int64_t j = 0; j < each_; ++j) columns.push_back(b_.let("b" + std::to_string(j), load(c, {kk, x + j * side})));
          each([&](int64_t i, int64_t j) { b_.accumulate(tile, {i, j}, rows[i], AccumulateOp::fma, columns[j]); });
        });
        each([&](int64_t i, int64_t j) { b_.store(sums, {i, j, y, x}, load(tile, {i, j})); });
      });
    });
    threads("_s", [&](const Expr& y, const Expr& x) {
      each([&](int64_t i, int64_t j) {
        const Expr m = row(y, i), n = column(x, j);
        guarded(m, n, [&] { p_.store(m, n, load(sums, {i, j, y, x})); });
      });
    });
  }

  // to[k, i] = value(first + i, first_k + k); neighbours in memory are brought by neighbouring threads.
  void stage(const char* name, const Buffer& to, const Expr& first, const Expr& extent, const Expr& first_k,
             const std::function<Expr(const Expr&, const Expr&)>& value) {
    const Var probe_i = make_var("i"), probe_k = make_var("k");
    const bool along_k = runs_along(value(var(probe_i), var(probe_k)), probe_k);
    const std::optional<int64_t> k = as_int(p_.k), n = as_int(extent);
    const auto bring = [&](const Expr& i, const Expr& kk) {
      Expr inside;
      const auto also = [&](const Expr& e) { inside = inside ? inside & e : e; };
      if (!n || *n % tile_ != 0) also(first + i < extent);
      if (!k || *k % depth_ != 0) also(first_k + kk < p_.k);
      const auto put = [&] { b_.store(to, {kk, i}, cast(p_.sum, value(first + i, first_k + kk))); };
      if (!n || *n % tile_ != 0) b_.store(to, {kk, i}, zero({p_.sum, 1}));  // for sums that nobody keeps
      inside ? b_.if_then(inside, put) : put();
    };
    const std::string outer = p_.prefix + name + "0", inner = p_.prefix + name + "1";
    if (along_k)
      b_.loop(outer, 0, tile_, [&](Expr i) { b_.loop(inner, 0, depth_, [&](Expr kk) { bring(i, kk); }); });
    else
      b_.loop(outer, 0, depth_, [&](Expr kk) { b_.loop(inner, 0, tile_, [&](Expr i) { bring(i, kk); }); });
  }

  KernelBuilder& b_;
  const Matmul& p_;
  int64_t each_ = 4;  // rows, and columns, of a thread
  int64_t tile_ = 0, depth_ = 0;
  Expr first_m_, first_n_;
};

}  // namespace

void author_matmul_blocks(KernelBuilder& builder, const Matmul& product, const Target& target) { Tiles(builder, product, target).write(); }

void schedule_matmul_blocks(Schedule& s, const std::string& prefix) {
  while (!s.loops(prefix + "_bm").empty()) {
    const Schedule::Loop grid = s.fuse(s.loops(prefix + "_bm")[0], s.loops(prefix + "_bn")[0]);
    s.bind(grid, ForKind::grid);
    for (const char* part : {"_f", "_a", "_b", "_c", "_s"}) {
      Schedule::Loop threads = s.fuse(s.loops(prefix + part + "0")[0], s.loops(prefix + part + "1")[0]);
      if (*as_int(s.get(threads).extent) > side * side) {  // operands: several elements a thread
        const Schedule::Split cut = s.split(threads, side * side);
        s.reorder(cut.outer, cut.inner);
        threads = cut.inner;
      }
      s.bind(threads, ForKind::thread);
    }
  }
}

}  // namespace gradloom
