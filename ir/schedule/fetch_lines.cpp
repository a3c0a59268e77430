#include "ir/schedule/fetch_lines.h"

#include <algorithm>
#include <map>

#include "ir/analysis/linear.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/schedule/nest_shape.h"

namespace gradloom::ir {
namespace {

// As far as the hardware's own prefetchers see, so that several streams and the stores between them do not wait.
constexpr int64_t ahead_bytes = 4096;
constexpr int64_t row_bytes = 8192;  // longer rows are not fetched whole, next to another one
constexpr int64_t most_streams = 2;  // of one buffer; of more the near cache cannot hold as much

struct Stream {
  // The loops around the load, outermost first, and how many bytes on the next iteration reads, at most so many.
  struct Level {
    Loop loop;
    int64_t bytes;
    std::optional<int64_t> extent;
  };
  Loop loop;
  Buffer buffer;
  int64_t bytes;  // from one iteration of `loop` to the next
  int64_t ahead;  // bytes
  std::vector<Level> levels;

  // How many bytes are read by what is in the first loops of both; absent: not known.
  std::optional<int64_t> row_beside(const Stream& other) const {
    int64_t row = size_of(buffer->dtype);
    for (size_t i = 0; i < levels.size(); ++i) {
      if (i < other.levels.size() && levels[i].loop == other.levels[i].loop) continue;
      if (levels[i].bytes > 0 && !levels[i].extent) return {};
      if (levels[i].bytes > 0) row += levels[i].bytes * (*levels[i].extent - 1);
    }
    return row;
  }
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
    std::vector<Stream::Level> levels;
    for (const For* f : loops)
      levels.push_back(
          {f->var.id, std::abs(offset.coefficient(var(f->var))) * size_of(n.buffer->dtype), ranges.of(f->extent).max});
    int64_t lines = 1;  // of an iteration
    for (size_t i = loops.size(); i-- > 0;) {
      const For& loop = *loops[i];
      const int64_t bytes = levels[i].bytes;
      const Range extents = ranges.of(loop.extent);
      if (extents.single() && extents.max == 1) continue;
      if (bytes == 0 &&
          std::any_of(n.index.begin(), n.index.end(), [&](const Expr& e) { return mentions(e, loop.var.id); }))
        return;  // moves as what the index is loaded from says
      if (bytes == 0) continue;
      // Where addresses are loaded, they are so below the loop's end alone.
      if (std::any_of(n.index.begin(), n.index.end(), has_load) && extents.max && *extents.max <= ahead_bytes / bytes)
        return;
      if (loop.kind != ForKind::serial && loop.kind != ForKind::parallel) {  // of a known extent
        lines *= (*extents.max * std::min(bytes, line_bytes) + line_bytes - 1) / line_bytes;
        continue;
      }
      if (bytes < line_bytes || bytes > ahead_bytes || lines * line_bytes > most_streams * bytes) return;
      if (places(loop, n.buffer) * lines * line_bytes <= most_streams * bytes)
        add({loop.var.id, n.buffer, bytes, ahead_bytes, std::move(levels)});
      return;
    }
  }
  // How many elements of the buffer the loop's body loads.
  int64_t places(const For& loop, const Buffer& buffer) {
    const auto [counted, first] = places_.try_emplace({loop.var.id, buffer->id});
    if (!first) return counted->second;
    std::vector<std::vector<Expr>> all;
    walk(loop.body, {}, [&](const Expr& e) {
      const Load* l = e.as<Load>();
      if (!l || !l->buffer.same_as(buffer)) return;
      const bool found = std::any_of(all.begin(), all.end(), [&](const std::vector<Expr>& index) {
        return std::equal(index.begin(), index.end(), l->index.begin(), equal);
      });
      if (!found) all.push_back(l->index);
    });
    return counted->second = static_cast<int64_t>(all.size());
  }
  // What a loop before it has left in a cache is not fetched again. Of loops that go through one row the last fetches
  // the next row, since it is then that nothing else is read.
  void add(Stream s) {
    for (size_t i = found.size(); i-- > 0;) {
      if (!found[i].buffer.same_as(s.buffer)) continue;
      if (found[i].loop == s.loop) return;
      const std::optional<int64_t> row = found[i].row_beside(s), own = s.row_beside(found[i]);
      if (!row || *row > target.l2_bytes / 4) break;
      if (*row <= row_bytes && own == row) s.ahead = std::max(*row, ahead_bytes), found[i] = std::move(s);
      return;
    }
    found.push_back(std::move(s));
  }

  const Ranges ranges;
  const std::vector<Buffer>& buffers;
  const Target& target;
  std::vector<const For*> loops;
  std::vector<Stream> found;
  std::map<std::pair<Loop, int64_t>, int64_t> places_;
};

}  // namespace

void fetch_lines(Schedule& schedule, const std::vector<Buffer>& large, const Target& target) {
  FindStreams streams(schedule.kernel(), large, target);
  streams(schedule.kernel().body);
  for (const Stream& s : streams.found)
    schedule.attempt([&](Schedule& trial) { trial.prefetch(s.loop, s.buffer, s.ahead / s.bytes, 1); });
}

}  // namespace gradloom::ir
