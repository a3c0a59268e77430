#pragma once
// The strategies of both gather gradients, one per file, and what their fits and schedules share. A flat call has no
// inner dim; one with columns has one.
//
// On a CPU:
//   direct     the definition: a column of dX at a time
//   row        flat: one row of sums in cache, scattered to by scalar adds, streamed out
//   strip      columns: a strip of neighbouring ones in cache, vectors of indices and values per row
//   pipelined  columns of whole cache lines, a few of which fit in cache: narrow strips, each written while the
//              next ones are summed
//   grouped    GatherGrad with columns: positions sorted by row, each row summed in registers and written once
//   partition  flat, larger than the cache: sorted into bins of neighbouring destinations first
//   in_place   few indices, or narrow rows: dX filled with zeros, then added to
// Anywhere, where few elements of dX are accumulated into:
//   touched       each element that is named is summed for itself
//   touched_rows  GatherGrad with columns: the same for whole rows
// On a GPU:
//   block      a thread block accumulates a few columns or rows in shared memory
//   sorted     GatherGrad with columns, or one row: keys of row and position, sorted by thread blocks and merged
//   chunked    as sorted, but long groups are summed in chunks, in a fixed order (run_to_run)
//   bins       one row: runs of indices sorted by bin, then one thread block per bin
//   atomic     every element is added to dX in memory by an atomic (relaxed)
// For any shape, a GPU has grouped and partition in place of sorted and bins; partition also where bins are too many.
#include <optional>

#include "gradloom/schedule_common.h"
#include "ops/gather/gather_common.h"

namespace gradloom {

Strategy gather_direct();
Strategy gather_in_place();
Strategy gather_row();
Strategy gather_strip();
Strategy gather_pipelined();
Strategy gather_grouped();
Strategy gather_partition();
Strategy gather_block();
Strategy gather_sorted();
Strategy gather_chunked();
Strategy gather_bins();
Strategy gather_atomic();
Strategy gather_touched();
Strategy gather_touched_rows();

struct GatherSizes {
  explicit GatherSizes(const Plan& plan);
  GatherRoles roles;
  int64_t outer = 1, extent = 1, inner = 1;  // of dX; where it is accumulated into, outer and inner are dY's
  int64_t count = 1, traffic = 0;            // indices per column
  int sum_bytes = 4, read_bytes = 12;        // per element: its sum; its index and dY's element

  int64_t row_bytes() const { return inner * sum_bytes; }
  bool flat() const { return !roles.empty && roles.inner == 0 && roles.middle == 1; }
  bool columns() const { return !roles.empty && roles.inner == 1 && roles.middle == 1; }
  bool one_row() const { return flat() && roles.outer == 0; }
  bool sortable() const { return (columns() && !roles.varying) || one_row(); }
  // Whether dX is too large to stay in a cache.
  bool large(const ir::Target& target) const { return target.streaming_stores && traffic > 4 * target.l2_bytes; }
};

inline Fit preferred_if(bool good) { return good ? Fit::preferred : Fit::possible; }

// The fit of bins on a GPU (gather_bins.cpp) for a known shape: none unless the call has one row and few enough bins,
// preferred where it is long.
Fit gather_bins_fit(const Plan& plan, const ir::Target& target);

// On a CPU, how what is summed in dX's own dtype is written fastest: added to dX filled with zeros ("in_place"), sorted
// by row ("grouped"), or summed in a cache by one of the others.
enum class GatherBy : uint8_t { adding, sorting, caching };
GatherBy gather_by(const GatherSizes& s, const ir::Target& target);

// The definition's nest, which row, strip, grouped and atomic schedule as well.
struct GatherColumns {
  std::vector<ir::Loop> outer, middle, inner;  // over dX's outer dims, dY's middle ones, dX's inner ones
  ir::Loop zero = 0, store = 0;                // over the sums of a column, or over dX where nothing is gathered
  ir::Buffer sums;                             // of a column
};
GatherColumns author_gather_columns(const GatherFrame& frame);

// Sizes of "partition": sums per bin, indices per chunk, expected run length (records of one bin in a chunk), bins and
// chunks per task.
struct PartitionLengths {
  int64_t bin = 0, chunk = 0, run = 64, bins = 1, chunks = 1;
};
PartitionLengths partition_lengths(DType sum, const ir::Expr& size, const ir::Expr& count, const ir::Target& target);

// Schedules.

// Vectorises over full registers, `copies` at a time, with a masked remainder.
inline ir::Loop vectorize_sums(ir::Schedule& s, ir::Loop loop, int element_bytes, const ir::Target& target,
                               int copies = 4) {
  return s.vectorize(loop, target.lanes(element_bytes), copies);
}
// Streaming (non-temporal) stores to dX where it is too large for the caches.
void stream_large(ir::Schedule& schedule, const GatherSizes& s, const ir::Target& target);
// The same where dX is written row by row: only if rows are whole cache lines.
void stream_rows(ir::Schedule& schedule, const GatherSizes& s, const ir::Target& target);
// Parallelises a loop in few pieces, so that an iteration reuses what the previous one left in the cache. Returns the
// loop over a piece, if any.
std::optional<ir::Loop> share_in_pieces(ir::Schedule& schedule, ir::Loop loop, const ir::Target& target);
// Hoists the buffer of sums that each iteration allocates: zeroed once before the loop, then again where it is read.
void carry_sums(ir::Schedule& schedule, ir::Loop loop);

}  // namespace gradloom
