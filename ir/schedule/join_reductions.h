#pragma once
// For the default schedule of a CPU: reductions that read the same memory read it once.
#include <vector>

#include "gradloom/schedule.h"
#include "gradloom/target.h"

namespace gradloom::ir {

struct ExpandedReduction {
  ReductionLoops loops;
  std::vector<Loop> roots;  // of its loops, those that no other of them is around
  Loop blocks = 0;          // the first of them with a loop in it: over blocks or parts of terms
  Expr terms;               // of the innermost variable
  int64_t block = 0;        // of its order; 0: no tree
  int bytes = 0;            // of an element of the total
  bool vectors = true;      // its terms are to be vectors
};

bool has_loop(const Schedule& s, Loop loop);
// The loops that were not there before, but for those in one of them.
std::vector<Loop> new_roots(const Schedule& s, const std::vector<Loop>& before);

// Neighbouring reductions of the same terms: their loops as one, at every level.
void join_reductions(Schedule& s, std::vector<ExpandedReduction>& all);
// Sums of columns, and a nest before them that goes through the same rows: as many rows as a block of the sums has,
// then their columns, while they are in a near cache. Returns the loops that the nests became.
std::vector<Loop> join_rows(Schedule& s, const std::vector<ExpandedReduction>& all, const Target& target);

}  // namespace gradloom::ir
