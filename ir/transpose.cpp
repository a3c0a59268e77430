#include "ir/transpose.h"

#include <algorithm>

namespace gradloom::ir {
namespace {

// In-lane shuffles (within 128 bits) are single instructions on every target with wider vectors.
constexpr int bits_of_a_lane = 128;

// Pairs rows i and i + distance: swaps their off-diagonal blocks of `size` lanes.
std::vector<int> exchanged(int lanes, int size, bool upper) {
  std::vector<int> picked;
  for (int l = 0; l < lanes; ++l) {
    const bool high = (l / size) % 2 == 1;
    picked.push_back(high ? lanes + l - (upper ? 0 : size) : l + (upper ? size : 0));
  }
  return picked;
}
// Interleaves blocks of `size` lanes within 128-bit groups of `group` lanes.
std::vector<int> interleaved(int lanes, int size, int group, bool upper) {
  std::vector<int> picked;
  for (int g = 0; g < lanes; g += group)
    for (int block = 0; block < group / 2 / size; ++block)
      for (const int from : {0, lanes})
        for (int l = 0; l < size; ++l) picked.push_back(from + g + (upper ? group / 2 : 0) + block * size + l);
  return picked;
}

}  // namespace

Expr Transposer::named(const Expr& e) {
  const Var v = make_var(name_ + std::to_string(lets_.size()), e.type());
  lets_.emplace_back(v, e);
  return var(v);
}

std::vector<Expr> Transposer::transpose(std::vector<Expr> rows) {
  const int n = static_cast<int>(rows.size());
  const int group = std::min(n, bits_of_a_lane / (8 * size_of(rows[0].dtype())));
  // Within 128-bit groups: after the rounds, row r of each run of `group` rows holds column r of every group.
  for (int size = 1; size < group; size *= 2) {
    std::vector<Expr> next(rows.size());
    for (int base = 0; base < n; base += 2 * size)
      for (int i = 0; i < size; ++i) {
        // Rows base+i and base+i+size hold the same lanes' runs of `size`.
        next[base + 2 * i] = named(shuffle(rows[base + i], rows[base + size + i], interleaved(n, size, group, false)));
        next[base + 2 * i + 1] =
            named(shuffle(rows[base + i], rows[base + size + i], interleaved(n, size, group, true)));
      }
    rows = std::move(next);
  }
  for (int size = group; size < n; size *= 2) {
    std::vector<Expr> next(rows.size());
    for (int i = 0; i < n; ++i) {
      if ((i / size) % 2 == 1) continue;
      next[i] = named(shuffle(rows[i], rows[i + size], exchanged(n, size, false)));
      next[i + size] = named(shuffle(rows[i], rows[i + size], exchanged(n, size, true)));
    }
    rows = std::move(next);
  }
  return rows;
}

Stmt Transposer::wrap(Stmt body) const {
  for (size_t i = lets_.size(); i-- > 0;) body = let(lets_[i].first, lets_[i].second, body);
  return body;
}

}  // namespace gradloom::ir
