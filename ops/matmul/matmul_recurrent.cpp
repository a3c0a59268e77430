#include "ops/matmul/matmul_recurrent.h"

#include <algorithm>

#include "ir/index_math.h"
#include "ops/patterns/integer_math.h"

namespace gradloom {

using namespace ir;

namespace {

constexpr int64_t access_bytes = 16, most_side = 64, most_tile = 1024;
constexpr int64_t busy_threads = 128;  // per block: more columns per thread before more threads, as sums of
                                       // independent columns hide one another's latency
constexpr int64_t most_parts = 8, most_threads = 512,
                  least_of_part = 32;    // of split sums: threads per block, elements along k
constexpr int64_t most_sums_bytes = 96;  // per thread: operands and epilogue operands take registers as well
constexpr int64_t moving_threads = 128;  // stage operands, or all with sums, where these are more
constexpr int64_t in_flight = 48,
                  most_groups = 16;  // elements, and groups of them, that a thread loads before it stores the first
constexpr int64_t side_by_side = 32,
                  held_bytes = 128;  // steps along k whose operands are loaded before the first Fma; bytes of each B's

}  // namespace

RecurrentMatmul::RecurrentMatmul(KernelBuilder& builder, Matmul shape, const Target& target, const Limits& limits,
                                 int64_t count)
    : b_(builder), p_(std::move(shape)), target_(target), count_(count) {
  const std::optional<int64_t> m = as_int(p_.m), n = as_int(p_.n), k = as_int(p_.k);
  if (!target.cooperative || !m || !n || !k || *m < 1 || *n < 1 || *k < 1) return;
  m_ = *m, n_ = *n, k_ = *k;
  choose(limits);
}

// As many concurrent blocks as possible, each as square as possible; then the largest part of A at a time that fits.
void RecurrentMatmul::choose(const Limits& limits) {
  int64_t blocks = 0, rows = 0, columns = 0;
  for (int64_t r = 1; r <= most_side; r *= 2)
    for (int64_t c = 1; c <= most_side && r * c <= most_tile; c *= 2) {
      if (r * c == 1) continue;  // a loop of one thread would fold away
      const int64_t count = ceil_div(m_, r) * ceil_div(n_, c);
      if (count > target_.multiprocessors || count < blocks || (count == blocks && r + c >= rows + columns)) continue;
      blocks = count, rows = r, columns = c;
    }
  if (blocks == 0) return;
  const int64_t bytes = size_of(p_.sum), lanes = k_ % (access_bytes / bytes) == 0 ? access_bytes / bytes : 1,
                pad = access_bytes / bytes;
  int64_t each = std::min(columns, std::max<int64_t>(1, rows * columns / busy_threads));
  while (each > 1 && count_ * each * bytes > most_sums_bytes) each /= 2;
  const int64_t threads = rows * columns / each;
  // As many parts as leave room for B: the partial sums are reduced through shared memory too.
  for (int64_t parts = limits.in_order ? 1 : most_parts; parts >= 1; parts /= 2) {
    if (parts > 1 && parts * threads > most_threads) continue;
    const int64_t left =
        limits.shared_bytes / bytes - count_ * columns * (k_ + pad) - count_ * each * (parts - 1) * threads;
    int64_t depth = 0;
    for (int64_t turns = 1; turns <= 16 && depth == 0; ++turns)
      if (k_ % (turns * lanes) == 0 && rows * (k_ / turns + pad) <= left) depth = k_ / turns;
    if (depth == 0 || (parts > 1 && (depth % (parts * lanes) != 0 || depth / parts < least_of_part))) continue;
    rows_ = rows, columns_ = columns, lanes_ = lanes, depth_ = depth;
    row_blocks_ = ceil_div(m_, rows), column_blocks_ = ceil_div(n_, columns);
    each_ = each, threads_ = threads, parts_ = parts;
    return;
  }
}

Expr RecurrentMatmul::in_row(const Expr& block, const Expr& m) const {
  return floor_div(block, Expr(column_blocks_)) * rows_ + m;
}
Expr RecurrentMatmul::in_column(const Expr& block, const Expr& n) const {
  return floor_mod(block, Expr(column_blocks_)) * columns_ + n;
}
Expr RecurrentMatmul::of_b(int64_t g, const Expr& n) const { return index_add(g * n_, n); }
Expr RecurrentMatmul::of_thread(int64_t g, const Expr& j) const { return index_add(g * each_, j); }
Expr RecurrentMatmul::first_of(const Expr& t) const { return parts_ == 1 ? t : floor_mod(t, Expr(threads_)); }

// Runs `body` in the threads of the first part along k, within bounds.
void RecurrentMatmul::guarded(const Expr& t, const Expr& m, const Expr& n, const std::function<void()>& body) {
  const Expr first_part = parts_ == 1 ? Expr() : t < threads_;
  const Expr in_m = m_ % rows_ == 0 ? Expr() : m < m_, in_n = n_ % columns_ == 0 ? Expr() : n < n_;
  b_.guarded(both(both(first_part, in_m), in_n), body);
}

// A thread's columns, interleaved: neighbouring threads have neighbouring columns, so that they read different banks.
// Indices are those of the threads of the first part along k.
void RecurrentMatmul::each(const char* name, const Expr& block, const Expr& t,
                           const std::function<void(const Expr& j, const Expr& m, const Expr& n)>& body) {
  const int64_t across = columns_ / each_;
  loop(ForKind::unroll, name, each_, [&](Expr j) {
    body(j, in_row(block, floor_div(t, Expr(across))), in_column(block, floor_mod(t, Expr(across)) + j * across));
  });
}

// All threads take part, each group is copied once, with several loads per thread in flight: no more at a time than
// rounds of equal length need, as groups that some threads or rounds lack are guarded one by one.
void RecurrentMatmul::move(const std::string& name, const Moved& moved) {
  const int64_t movers = std::max(moving_threads, parts_ * threads_), turns = ceil_div(moved.groups, movers);
  const int64_t most = std::min(most_groups, std::max<int64_t>(1, in_flight / moved.lanes));
  const int64_t together = ceil_div(turns, ceil_div(turns, most));
  const bool whole = moved.groups == ceil_div(turns, together) * together * movers;
  loop(ForKind::thread, name + "t", movers, [&](Expr t) {
    b_.loop(p_.prefix + name + "o", 0, ceil_div(turns, together), [&](Expr o) {
      const Buffer held = b_.alloc(p_.prefix + "_held", p_.sum, {together * moved.lanes}, {}, Space::registers);
      const auto each_group = [&](const char* part,
                                  const std::function<void(const Expr& group, const Expr& place)>& body) {
        loop(ForKind::unroll, name + part, together, [&](Expr u) {
          const Expr group = (o * together + u) * movers + t;
          const auto one = [&] { body(group, u * moved.lanes); };
          whole ? one() : b_.if_then(group < moved.groups, one);
        });
      };
      const auto each_lane = [&](const char* part, const std::function<void(Expr lane)>& body) {
        loop(ForKind::vector, name + part, moved.lanes, body);
      };
      each_group("u", [&](const Expr& group, const Expr& place) {
        const auto read = [&] {
          each_lane("v", [&](const Expr& lane) { b_.store(held, {place + lane}, moved.value(group, lane)); });
        };
        const Expr guard = moved.guard ? moved.guard(group) : Expr();
        if (!guard) return read();
        each_lane("z", [&](const Expr& lane) { b_.store(held, {place + lane}, zero({p_.sum, 1})); });
        b_.if_then(guard, read);
      });
      each_group("w", [&](const Expr& group, const Expr& place) {
        each_lane("x", [&](const Expr& lane) { moved.put(group, lane, load(held, {place + lane})); });
      });
    });
  });
}

void RecurrentMatmul::load_resident_b() {
  if (!rows_) return;
  const int64_t columns = count_ * columns_;  // of product 0, then of product 1, ...
  kept_ = b_.alloc(p_.prefix + "_kept", p_.sum, {row_blocks_ * column_blocks_, columns, k_ + lanes_},
                   {.exclusive = true}, Space::per_block);
  // Coalesced: neighbouring threads load neighbours in memory.
  const Var probe_k = make_var("k"), probe_n = make_var("n");
  const bool along_k = matmul_blocks::runs_along(p_.b(var(probe_k), var(probe_n)), probe_k);
  const int64_t lanes = along_k ? lanes_ : 1, across = k_ / lanes;
  loop(ForKind::grid, "_kb", row_blocks_ * column_blocks_, [&](Expr block) {
    const auto column = [&](const Expr& at) {
      return along_k ? floor_div(at, Expr(across)) : floor_mod(at, Expr(columns));
    };
    const auto k = [&](const Expr& at, const Expr& lane) {
      return along_k ? floor_mod(at, Expr(across)) * lanes + lane : floor_div(at, Expr(columns));
    };
    const auto n = [&](const Expr& at) {
      return in_column(block, count_ == 1 ? column(at) : floor_mod(column(at), Expr(columns_)));
    };
    const auto of_product = [&](const Expr& at) {
      return count_ == 1 ? Expr(0) : floor_div(column(at), Expr(columns_)) * n_;
    };
    move("_b",
         {.groups = columns * across,
          .lanes = lanes,
          .value = [&](const Expr& at,
                       const Expr& lane) { return cast(p_.sum, p_.b(k(at, lane), index_add(of_product(at), n(at)))); },
          .guard = [&](const Expr& at) { return n_ % columns_ == 0 ? Expr() : n(at) < n_; },
          .put =
              [&](const Expr& at, const Expr& lane, const Expr& v) {
                b_.store(kept_, {block, column(at), k(at, lane)}, v);
              }});
  });
}

void RecurrentMatmul::multiply(std::function<Expr(Expr, Expr)> a, std::function<Expr(Expr, Expr)> first,
                               std::function<void(Expr, Expr, Expr)> store) {
  multiply(std::move(a), std::move(first),
           [&](Expr m, Expr n, const std::vector<Expr>& sums) { store(m, n, sums[0]); });
}

void RecurrentMatmul::multiply(std::function<Expr(Expr, Expr)> a, std::function<Expr(Expr, Expr)> first,
                               const Epilogue& store, const EpilogueOperands& epilogue_operands) {
  if (!rows_) {
    Matmul product = p_;
    product.a = std::move(a), product.first = std::move(first);
    const Epilogue with_values = [&](const Expr& m, const Expr& n, std::vector<Expr> sums) {
      for (const Expr& value : epilogue_operands(m, n)) sums.push_back(value);
      store(m, n, sums);
    };
    loops_.turns.push_back(author_matmul_blocks(b_, product, count_, epilogue_operands ? with_values : store, target_));
    return;
  }
  const int64_t values = epilogue_operands ? std::ssize(epilogue_operands(0, 0)) : 0, all_threads = parts_ * threads_;
  loop(ForKind::grid, "_rb", row_blocks_ * column_blocks_, [&](Expr block) {
    const Buffer sums = b_.alloc(p_.prefix + "_sums", p_.sum, {all_threads, count_ * each_}, {}, Space::per_thread);
    const Buffer held =
        values ? b_.alloc(p_.prefix + "_epilogue", p_.sum, {all_threads, values * each_}, {}, Space::per_thread)
               : Buffer();
    const Buffer rows = b_.alloc(p_.prefix + "_rows", p_.sum, {rows_, depth_ + lanes_}, {.exclusive = true});
    loop(ForKind::thread, "_ft", all_threads, [&](Expr t) {
      each("_fj", block, t, [&](const Expr& j, const Expr& m, const Expr& n) {
        for (int64_t g = 0; g < count_; ++g) {
          b_.store(sums, {t, of_thread(g, j)}, zero({p_.sum, 1}));
          if (first)
            guarded(t, m, n, [&] { b_.store(sums, {t, of_thread(g, j)}, cast(p_.sum, first(m, of_b(g, n)))); });
        }
        if (!values) return;
        guarded(t, m, n, [&] {
          const std::vector<Expr> now = epilogue_operands(m, n);
          for (int64_t v = 0; v < values; ++v) b_.store(held, {t, of_thread(v, j)}, now[static_cast<size_t>(v)]);
        });
      });
    });
    b_.loop(p_.prefix + "_kp", 0, k_ / depth_, [&](Expr part) {
      const int64_t across = depth_ / lanes_;
      const auto row = [&](const Expr& group) { return floor_div(group, Expr(across)); };
      const auto k = [&](const Expr& group, const Expr& lane) {
        return floor_mod(group, Expr(across)) * lanes_ + lane;
      };
      move("_a", {.groups = rows_ * across,
                  .lanes = lanes_,
                  .value =
                      [&](const Expr& group, const Expr& lane) {
                        return cast(p_.sum, a(in_row(block, row(group)), part * depth_ + k(group, lane)));
                      },
                  .guard = [&](const Expr& group) { return m_ % rows_ == 0 ? Expr() : in_row(block, row(group)) < m_; },
                  .put =
                      [&](const Expr& group, const Expr& lane, const Expr& v) {
                        b_.store(rows, {row(group), k(group, lane)}, v);
                      }});
      loop(ForKind::thread, "_mt", all_threads, [&](Expr t) {
        const int64_t own = depth_ / parts_,
                      wide = std::max(lanes_,
                                      std::min(side_by_side, held_bytes / size_of(p_.sum) / each_) / lanes_ * lanes_);
        add("_g", t, sums, rows, block, part, 0, wide, own / wide);
        add("_h", t, sums, rows, block, part, own / wide * wide, lanes_, own % wide / lanes_);
      });
    });
    Buffer partial_sums;
    if (parts_ > 1) {
      partial_sums =
          b_.alloc(p_.prefix + "_partial_sums", p_.sum, {count_ * each_, all_threads - threads_}, {}, Space::shared);
      loop(ForKind::thread, "_pt", all_threads, [&](Expr t) {
        b_.if_then(t >= threads_, [&] {
          loop(ForKind::unroll, "_pj", count_ * each_, [&](Expr j) {
            b_.store(partial_sums, {j, t - threads_}, load(sums, {t, j}));
          });
        });
      });
    }
    loop(ForKind::thread, "_st", all_threads, [&](Expr t) {
      each("_sj", block, t, [&](const Expr& j, const Expr& m, const Expr& n) {
        guarded(t, m, n, [&] {
          std::vector<Expr> together;
          for (int64_t g = 0; g < count_; ++g) {
            Expr total = load(sums, {t, of_thread(g, j)});
            for (int64_t part = 1; part < parts_; ++part)
              total = total + load(partial_sums, {of_thread(g, j), t + (part - 1) * threads_});
            together.push_back(parts_ == 1 ? total : b_.let("total", total));
          }
          for (int64_t v = 0; v < values; ++v) together.push_back(load(held, {t, of_thread(v, j)}));
          store(m, n, together);
        });
      });
    });
  });
}

// `turns` iterations of `count` steps along k, from `from` of the thread's own share of this part of A: the operands of
// an iteration are loaded before its first Fma.
void RecurrentMatmul::add(const std::string& name, const Expr& t, const Buffer& sums, const Buffer& rows,
                          const Expr& block, const Expr& part, int64_t from, int64_t count, int64_t turns) {
  if (turns == 0) return;
  const int64_t across = columns_ / each_,
                own = count_ *
                      each_;  // a thread's columns of all products; the stride across products equals that within one
  const Expr row = floor_div(first_of(t), Expr(across)), column = floor_mod(t, Expr(across));
  const Expr own_part = parts_ == 1 ? Expr(0) : floor_div(t, Expr(threads_)) * (depth_ / parts_);
  b_.loop(p_.prefix + name, 0, turns, [&](Expr turn) {
    const Buffer x = b_.alloc(p_.prefix + "_x", p_.sum, {count}, {}, Space::registers),
                 y = b_.alloc(p_.prefix + "_y", p_.sum, {own, count}, {}, Space::registers);
    const Expr first = index_add(own_part, turn * count + from);
    const auto read = [&](const std::string& part, const std::function<void(const Expr& k)>& body) {
      loop(ForKind::unroll, name + part, count / lanes_,
           [&](Expr u) { loop(ForKind::vector, name + part + "v", lanes_, [&](Expr v) { body(u * lanes_ + v); }); });
    };
    read("x", [&](const Expr& k) { b_.store(x, {k}, load(rows, {row, first + k})); });
    loop(ForKind::unroll, name + "yj", own, [&](Expr j) {
      read("y", [&](const Expr& k) {
        b_.store(y, {j, k}, load(kept_, {block, column + j * across, part * depth_ + (first + k)}));
      });
    });
    loop(ForKind::unroll, name + "k", count, [&](Expr k) {
      loop(ForKind::unroll, name + "j", own, [&](Expr j) {
        b_.accumulate(sums, {t, j}, load(x, {k}), AccumulateOp::fma, load(y, {j, k}));
      });
    });
  });
}

void schedule_matmul_recurrent(Schedule& s, const RecurrentLoops& product) {
  product.kept.schedule(s);
  for (const MatmulBlocks& turn : product.turns) schedule_matmul_blocks(s, turn);
}

}  // namespace gradloom
