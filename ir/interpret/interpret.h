#pragma once
// The reference executor, for a kernel of any stage: the oracle of all tests. It checks bounds of every access, facts,
// scalar ranges, reads of elements never written (out and temp buffers start poisoned), and races between iterations of
// a parallel loop. A violation throws an Error that names the buffer, the index and the loop: it is a defect of the
// kernel, never of the data.
#include <limits>
#include <span>

#include "gradloom/error.h"
#include "gradloom/stmt.h"

namespace gradloom::ir {

struct Outcome {
  int64_t bad_position =
      std::numeric_limits<int64_t>::max();  // the smallest position of a failed Check; max: none failed
  bool ok() const { return bad_position == std::numeric_limits<int64_t>::max(); }
};

struct InterpretOptions {
  bool check_races = true;
  // Whether GPU threads and blocks synchronise only at explicit barriers, as after lower(); always so in a kernel that
  // contains a barrier. Otherwise the end of a loop over them synchronises, too.
  bool explicit_barriers = false;
  bool reverse_parallel = false;  // runs parallel loops from the last iteration to the first
  ErrorCode fault =
      ErrorCode::internal;  // error code of a violation: for a kernel that is not gradloom's own, invalid_argument
};

// buffers: one pointer per kernel.buffers entry, to its element [0, ..., 0]. scalars: one 64-bit slot per
// kernel.scalars entry (value bits, integers sign-extended). Elements of out buffers that the kernel never wrote are
// left unchanged.
Outcome interpret(const Kernel& kernel, std::span<void* const> buffers, std::span<const int64_t> scalars,
                  const InterpretOptions& options = {});

}  // namespace gradloom::ir
