#include "ir/schedule/fetch_lines.h"

#include <algorithm>

#include "ir/analysis/linear.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/schedule/nest_shape.h"

namespace gradloom::ir {
namespace {

// As far as the hardware's own prefetchers see, so that several streams and the stores between them do not wait.
constexpr int64_t ahead_bytes = 4096;
constexpr size_t most_places = 2;  // of a buffer that an iteration reads: more are neighbours that were fetched before

struct Stream {
  Loop loop;
  Buffer buffer;
  int64_t distance;   // iterations
  int64_t footprint;  // bytes that the loop reads
};

// Visits loads in the order in which they run; as a rewriter it is the identity.
struct FindStreams : Rewriter {
  FindStreams(const Kernel& kernel, const std::vector<Buffer>& large, const Target& t)
      : ranges(kernel), buffers(large), target(t) {}
  using Rewriter::rewrite;
  Stmt rewrite(const For& n, const Stmt& self) override {
    loops.push_back(&n);
    (*this)(n.body);
    loops.pop_back();
    return self;
  }
  Expr rewrite(const Load& n, const Expr& self) override {
    if (std::any_of(buffers.begin(), buffers.end(), [&](const Buffer& b) { return b.same_as(n.buffer); })) look(n);
    return Rewriter::rewrite(n, self);
  }

  void look(const Load& n) {
    const Linear offset = linear(element_offset(n.buffer, n.index));
    for (size_t i = loops.size(); i-- > 0;) {
      const For& loop = *loops[i];
      if (loop.kind != ForKind::serial && loop.kind != ForKind::parallel) continue;
      const int64_t step = offset.coefficient(var(loop.var)), bytes = std::abs(step) * size_of(n.buffer->dtype);
      const std::optional<int64_t> extent = ranges.of(loop.extent).max;
      if (step == 0 || extent == 1) continue;
      if (bytes >= line_bytes && bytes <= ahead_bytes && places(loop, n.buffer) <= most_places)
        add({loop.var.id, n.buffer, ahead_bytes / bytes, extent ? *extent * bytes : target.l2_bytes});
      return;
    }
  }
  static size_t places(const For& loop, const Buffer& buffer) {
    std::vector<std::vector<Expr>> all;
    walk(loop.body, {}, [&](const Expr& e) {
      const Load* l = e.as<Load>();
      if (!l || !l->buffer.same_as(buffer)) return;
      const bool found = std::any_of(all.begin(), all.end(), [&](const std::vector<Expr>& index) {
        return std::equal(index.begin(), index.end(), l->index.begin(), equal);
      });
      if (!found) all.push_back(l->index);
    });
    return all.size();
  }
  // Unless a loop before it has left what it reads in a cache.
  void add(Stream s) {
    const bool fetched = std::any_of(found.begin(), found.end(), [&](const Stream& f) {
      return f.buffer.same_as(s.buffer) && (f.loop == s.loop || f.footprint <= target.l2_bytes / 4);
    });
    if (!fetched) found.push_back(std::move(s));
  }

  const Ranges ranges;
  const std::vector<Buffer>& buffers;
  const Target& target;
  std::vector<const For*> loops;
  std::vector<Stream> found;
};

}  // namespace

void fetch_lines(Schedule& schedule, const std::vector<Buffer>& large, const Target& target) {
  FindStreams streams(schedule.kernel(), large, target);
  streams(schedule.kernel().body);
  for (const Stream& s : streams.found)
    schedule.attempt([&](Schedule& trial) { trial.prefetch(s.loop, s.buffer, s.distance, 1); });
}

}  // namespace gradloom::ir
