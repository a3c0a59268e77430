#pragma once
// The reference executor, for a kernel of any stage: the oracle of all tests. It checks bounds of every access, facts,
// scalar ranges, reads of elements never written (out and temp buffers start poisoned), and races between iterations of
// a parallel loop. A violation throws an Error that names the buffer, the index and the loop: it is a fault of the
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
  // Threads and blocks of a GPU wait for one another at barriers only, as after lower(); so they do in a kernel that
  // holds a barrier. Else where a loop over them ends, too.
  bool explicit_barriers = false;
  bool reverse_parallel = false;  // runs parallel loops from the last iteration to the first
  ErrorCode fault =
      ErrorCode::internal;  // a violation's code: of a kernel that is not gradloom's own, invalid_argument
};

// buffers: one pointer a kernel.buffers entry, at its element [0, ..., 0]. scalars: one 64-bit slot a kernel.scalars
// entry (value bits, integers sign-extended). Elements of out buffers that the kernel never wrote are left as they
// were.
Outcome interpret(const Kernel& kernel, std::span<void* const> buffers, std::span<const int64_t> scalars,
                  const InterpretOptions& options = {});

}  // namespace gradloom::ir
