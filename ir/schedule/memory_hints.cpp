#include "ir/schedule/memory_hints.h"

#include <algorithm>
#include <limits>

#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/schedule/fetch_lines.h"
#include "ir/schedule/nest_shape.h"
#include "ir/schedule/site.h"

namespace gradloom::ir {
namespace {

constexpr int64_t caches = 4;                // a buffer of more than so many second-level caches is too large for them
constexpr int64_t longest_short_line = 256;  // elements; a part before its first cache line would cost too much
constexpr int64_t ahead = 32;                // iterations of one update

std::optional<int64_t> bytes_of(const Buffer& b) {
  int64_t bytes = size_of(b->dtype);
  for (const Expr& d : b->dims) {
    const std::optional<int64_t> n = known(d);
    if (!n || *n < 0 || __builtin_mul_overflow(bytes, *n, &bytes)) return std::nullopt;
  }
  return bytes;
}

constexpr double stores_of_an_access = 64;  // it waits for memory as long as so many streaming stores take

// How often a kernel stores to a buffer at least, and accesses it otherwise at most.
struct CountAccesses : Rewriter {
  explicit CountAccesses(const Buffer& b) : buffer(b) {}
  using Rewriter::rewrite;
  Stmt rewrite(const For& n, const Stmt& self) override {
    const std::optional<int64_t> extent = known(n.extent);
    const double times = static_cast<double>(std::max<int64_t>(extent.value_or(1), 1));
    return within(times, extent ? times : std::numeric_limits<double>::infinity(), n, self);
  }
  Stmt rewrite(const Reduce& n, const Stmt& self) override {
    if (n.buffer.same_as(buffer)) others += most;
    return within(1, std::numeric_limits<double>::infinity(), n, self);
  }
  Stmt rewrite(const Store& n, const Stmt& self) override {
    if (n.buffer.same_as(buffer)) stores += least;
    return Rewriter::rewrite(n, self);
  }
  Stmt rewrite(const Accumulate& n, const Stmt& self) override {
    if (n.buffer.same_as(buffer)) others += most;
    return Rewriter::rewrite(n, self);
  }
  Expr rewrite(const Load& n, const Expr& self) override {
    if (n.buffer.same_as(buffer)) others += most;
    return Rewriter::rewrite(n, self);
  }
  template <class Node>
  Stmt within(double at_least, double at_most, const Node& n, const Stmt& self) {
    const double outer_least = least, outer_most = most;
    least *= at_least, most *= at_most;
    const Stmt same = Rewriter::rewrite(n, self);
    least = outer_least, most = outer_most;
    return same;
  }

  const Buffer& buffer;
  double least = 1, most = 1;  // times that the statement at hand runs
  double stores = 0, others = 0;
};

// Whether it is stored to, and hardly accessed otherwise.
bool mostly_stored_to(const Kernel& kernel, const Buffer& b) {
  CountAccesses count(b);
  count(kernel.body);
  return count.stores > 0 && count.others * stores_of_an_access <= count.stores;
}

// Whether it is, or names in the body, a value from memory.
bool loaded_index(const Expr& e, const Stmt& body) {
  if (has_load(e)) return true;
  bool loaded = false;
  walk(body, [&](const Stmt& s) {
    const auto* l = s.as<Let>();
    loaded |= l && has_load(l->value) && mentions(e, l->var.id);
  });
  return loaded;
}

}  // namespace

MemoryHints::MemoryHints(const Kernel& kernel, const Target& target) : target_(target) {
  for (const Buffer& b : kernel.buffers) {
    if (bytes_of(b).value_or(0) <= caches * target.l2_bytes) continue;
    if (b->role != Role::out) read_.push_back(b);
    if (b->role == Role::out && target.streaming_stores && mostly_stored_to(kernel, b)) streamed_.push_back(b);
    if (b->role != Role::in) fetched_.push_back(b);
  }
}

std::pair<Loop, Loop> MemoryHints::at_lines(Schedule& schedule, Loop loop) const {
  const auto no = [] { throw ScheduleRefusal("no line of a streamed output is to be cut"); };
  const Site site = find_loop(schedule.kernel(), loop);
  const Store* s = site.loop->body.as<Store>();
  for (Stmt body = site.loop->body; body && !s;) {  // under lets
    const Let* l = body.as<Let>();
    body = l ? l->body : Stmt();
    s = body ? body.as<Store>() : nullptr;
  }
  if (known(site.loop->extent).value_or(longest_short_line) <= longest_short_line) no();
  if (!s || std::none_of(streamed_.begin(), streamed_.end(), [&](const Buffer& b) { return b.same_as(s->buffer); }))
    no();
  const int64_t line = line_bytes / size_of(s->buffer->dtype);
  const Expr offset = element_offset(s->buffer, s->index);
  const Linear place = linear(substitute(offset, {{loop, site.loop->begin}}));
  if (linear(offset).coefficient(var(site.loop->var)) != 1 || !place.exact) no();
  Linear past;  // of the line that the first element is in
  for (const auto& [term, coefficient] : place.terms)
    if (coefficient % line != 0 && known_multiple(index_mul(term, coefficient), site.scope) % line != 0)
      past.add(term, coefficient % line);
  past.constant = place.constant % line;
  if (past.terms.empty() && past.constant == 0) no();
  Linear before;
  for (const auto& [term, coefficient] : past.terms) before.add(term, -coefficient);
  before.constant = -past.constant;
  const auto parts = schedule.partition(loop, index_add(site.loop->begin, index_mod(to_expr(before), line)));
  if (parts.first == 0 || parts.second == 0) no();
  return parts;
}

void MemoryHints::stream(Scheduled& scheduled) const {
  Schedule all(scheduled.kernel);
  for (const Buffer& b : streamed_) all.streaming(b);
  scheduled.kernel = all.kernel();
  scheduled.trace.insert(scheduled.trace.end(), all.trace().begin(), all.trace().end());
}

void MemoryHints::fetch(Schedule& schedule) const {
  if (!read_.empty()) fetch_lines(schedule, read_, target_);
  if (fetched_.empty()) return;
  std::vector<std::pair<Loop, Buffer>> found;
  for (const For* f : loops_below(schedule.kernel().body)) {
    if (f->kind != ForKind::serial || holds_loop(f->body)) continue;
    std::vector<const Accumulate*> added;
    walk(f->body, [&](const Stmt& s) {
      if (const auto* a = s.as<Accumulate>()) added.push_back(a);
    });
    if (added.size() != 1 || added[0]->value.lanes() > 1) continue;
    const bool large =
        std::any_of(fetched_.begin(), fetched_.end(), [&](const Buffer& b) { return b.same_as(added[0]->buffer); });
    const bool loaded = std::any_of(added[0]->index.begin(), added[0]->index.end(),
                                    [&](const Expr& e) { return loaded_index(e, f->body); });
    if (large && loaded) found.emplace_back(f->var.id, added[0]->buffer);
  }
  for (const auto& [loop, table] : found)
    schedule.attempt([&](Schedule& trial) { trial.prefetch(loop, table, ahead, 1); });
}

}  // namespace gradloom::ir
