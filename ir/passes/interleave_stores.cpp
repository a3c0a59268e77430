// Merges stores that together fill a dense range with interleaved lanes into one dense store of shuffled lanes.
// Requires: vectors. Gives: the same stores, fewer. Breaks: nothing.
//
// A group is k unguarded stores to one buffer in one block whose innermost indices are ramps of one constant stride, k
// or -k, at offsets that together cover base, ..., base + k * lanes - 1. The merged store replaces the last of them, so
// the statements in between must neither access the buffer nor change what the stored values read.
#include <algorithm>
#include <cstdlib>

#include "ir/analysis/ranges.h"
#include "ir/index_math.h"
#include "ir/passes/passes.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

constexpr int max_lanes = 64;

struct Candidate {
  const Store* store;
  Expr lowest;  // the smallest index of the innermost dim
  int64_t stride;
  int lanes;
};

std::optional<Candidate> candidate(const Stmt& s) {
  const Store* st = s.as<Store>();
  if (!st || st->guard || st->index.empty()) return std::nullopt;
  if (!st->buffer->strides.empty() && !is_const(st->buffer->strides.back(), 1)) return std::nullopt;
  for (size_t d = 0; d + 1 < st->index.size(); ++d)
    if (st->index[d].lanes() > 1) return std::nullopt;
  const Ramp* r = st->index.back().as<Ramp>();
  const std::optional<int64_t> stride = r ? as_int(r->stride) : std::nullopt;
  if (!stride || *stride < -8 || *stride > 8) return std::nullopt;
  const int64_t k = std::abs(*stride);
  if ((k != 2 && k != 3 && k != 4 && k != 8) || k * r->lanes > max_lanes) return std::nullopt;
  return Candidate{st, *stride > 0 ? r->base : index_add(r->base, *stride * (r->lanes - 1)), *stride, r->lanes};
}

// b - a when it is a constant.
std::optional<int64_t> distance(const Expr& a, const Expr& b) {
  const Linear difference = linear(index_sub(b, a));
  if (!difference.terms.empty() || !difference.exact) return std::nullopt;
  return difference.constant;
}

bool same_rows(const Store& a, const Store& b) {
  for (size_t d = 0; d + 1 < a.index.size(); ++d)
    if (!equal(a.index[d], b.index[d])) return false;
  return true;
}

bool reads(const Store& s, const Buffer& b) {
  return reads(s.value, b) || reads(s.guard, b) ||
         std::any_of(s.index.begin(), s.index.end(), [&](const Expr& i) { return reads(i, b); });
}

Expr interleave(const Expr& a, const Expr& b) {
  std::vector<int> lanes;
  for (int l = 0; l < a.lanes(); ++l) lanes.push_back(l), lanes.push_back(a.lanes() + l);
  return shuffle(a, b, std::move(lanes));
}

Expr interleave(const std::vector<Expr>& parts) {
  const size_t k = parts.size();
  const int lanes = parts[0].lanes();
  if (k == 1) return parts[0];
  if (k == 3) {
    std::vector<int> joined, twice, picked;
    for (int l = 0; l < 2 * lanes; ++l) joined.push_back(l), twice.push_back(l % lanes);
    for (int l = 0; l < lanes; ++l)
      for (int p = 0; p < 3; ++p) picked.push_back(p * lanes + l);
    return shuffle(shuffle(parts[0], parts[1], std::move(joined)), shuffle(parts[2], {}, std::move(twice)),
                   std::move(picked));
  }
  std::vector<Expr> even, odd;
  for (size_t p = 0; p < k; p += 2) even.push_back(parts[p]), odd.push_back(parts[p + 1]);
  return interleave(interleave(even), interleave(odd));
}

Expr in_memory_order(const Candidate& c) {
  if (c.stride > 0 || c.store->value.as<Broadcast>()) return c.store->value;
  std::vector<int> lanes;
  for (int l = c.lanes; l-- > 0;) lanes.push_back(l);
  return shuffle(c.store->value, {}, std::move(lanes));
}

struct Coalesce : Rewriter {
  using Rewriter::rewrite;
  Stmt rewrite(const Store&, const Stmt& self) override { return self; }
  Stmt rewrite(const Accumulate&, const Stmt& self) override { return self; }
  Stmt rewrite(const Evaluate&, const Stmt& self) override { return self; }

  Stmt rewrite(const Block& n, const Stmt& self) override {
    std::vector<Stmt> stmts = n.stmts;
    bool changed = false;
    for (size_t first = 0; first < stmts.size(); ++first) changed |= merge_from(stmts, first);
    if (!changed) return Rewriter::rewrite(n, self);
    for (Stmt& s : stmts) s = (*this)(s);
    return block(std::move(stmts));
  }

  // Finds the group that starts at stmts[first]; merged statements become absent.
  static bool merge_from(std::vector<Stmt>& stmts, size_t first) {
    const std::optional<Candidate> head = stmts[first] ? candidate(stmts[first]) : std::nullopt;
    if (!head || reads(*head->store, head->store->buffer)) return false;
    const Buffer& target = head->store->buffer;
    const int64_t k = std::abs(head->stride);
    std::vector<std::pair<int64_t, size_t>> found{{0, first}};  // offset relative to the head's, statement
    std::vector<Candidate> members{*head};
    std::vector<Buffer> written;  // between the members
    for (size_t s = first + 1; s < stmts.size() && static_cast<int64_t>(found.size()) < k; ++s) {
      if (!stmts[s]) continue;
      const Store* st = stmts[s].as<Store>();
      if (!st || reads(*st, target)) return false;
      if (!st->buffer.same_as(target)) {
        written.push_back(st->buffer);
        continue;
      }
      const std::optional<Candidate> next = candidate(stmts[s]);
      if (!next || next->stride != head->stride || next->lanes != head->lanes || !same_rows(*head->store, *st))
        return false;
      const std::optional<int64_t> place = distance(head->lowest, next->lowest);
      if (!place || std::abs(*place) >= k) return false;
      for (const auto& [other, at] : found)
        if (other == *place) return false;
      found.emplace_back(*place, s);
      members.push_back(*next);
    }
    if (static_cast<int64_t>(found.size()) < k) return false;
    int64_t low = 0, high = 0;
    for (const auto& [place, at] : found) low = std::min(low, place), high = std::max(high, place);
    if (high - low != k - 1) return false;
    for (const Candidate& m : members)
      for (const Buffer& w : written)
        if (reads(*m.store, w)) return false;

    std::vector<Expr> parts(static_cast<size_t>(k));
    bool streaming = true, splat = true;
    Expr lowest;
    for (size_t m = 0; m < members.size(); ++m) {
      const int64_t place = found[m].first - low;
      parts[static_cast<size_t>(place)] = in_memory_order(members[m]);
      if (place == 0) lowest = members[m].lowest;
      streaming &= members[m].store->streaming;
      splat &= members[m].store->value.as<Broadcast>() && equal(members[m].store->value, members[0].store->value);
    }
    const int lanes = static_cast<int>(k) * head->lanes;
    std::vector<Expr> index = head->store->index;
    index.back() = ramp(lowest, 1, lanes);
    const Expr value = splat ? broadcast(parts[0].as<Broadcast>()->value, lanes) : interleave(parts);
    const Stmt merged = store(target, std::move(index), value, {}, streaming);
    for (const auto& [place, at] : found) stmts[at] = {};
    stmts[found.back().second] = merged;
    return true;
  }
};

}  // namespace

Kernel interleave_stores(const Kernel& kernel) { return Coalesce()(kernel); }

}  // namespace gradloom::ir
