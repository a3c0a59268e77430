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
constexpr int64_t most_streams = 2;  // of one buffer; of more the near cache cannot hold as much

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
    int64_t lines = 1;  // of an iteration
    for (size_t i = loops.size(); i-- > 0;) {
      const For& loop = *loops[i];
      const int64_t bytes = std::abs(offset.coefficient(var(loop.var))) * size_of(n.buffer->dtype);
      const Range extents = ranges.of(loop.extent);
      if (bytes == 0 || (extents.single() && extents.max == 1)) continue;
      if (loop.kind != ForKind::serial && loop.kind != ForKind::parallel) {  // of a known extent
        lines *= (*extents.max * std::min(bytes, line_bytes) + line_bytes - 1) / line_bytes;
        continue;
      }
      const int64_t streams = lines * places(loop, n.buffer) * line_bytes;
      if (bytes >= line_bytes && bytes <= ahead_bytes && streams <= most_streams * bytes)
        add({loop.var.id, n.buffer, ahead_bytes / bytes, extents.max ? *extents.max * bytes : target.l2_bytes});
      return;
    }
  }
  static int64_t places(const For& loop, const Buffer& buffer) {
    std::vector<std::vector<Expr>> all;
    walk(loop.body, {}, [&](const Expr& e) {
      const Load* l = e.as<Load>();
      if (!l || !l->buffer.same_as(buffer)) return;
      const bool found = std::any_of(all.begin(), all.end(), [&](const std::vector<Expr>& index) {
        return std::equal(index.begin(), index.end(), l->index.begin(), equal);
      });
      if (!found) all.push_back(l->index);
    });
    return static_cast<int64_t>(all.size());
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
