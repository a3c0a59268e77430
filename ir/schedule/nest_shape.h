#pragma once
// For schedules: what a nest looks like.
#include <optional>
#include <vector>

#include "gradloom/schedule.h"
#include "gradloom/target.h"

namespace gradloom::ir {

// The outermost loops of a statement.
std::vector<Loop> outermost_loops(const Stmt& s);
// The perfect nest of serial loops rooted at the loop, whose bounds are independent of one another.
std::vector<Loop> perfect_nest(const Schedule& s, Loop loop);
// Whether the loop is serial and proved independent.
bool is_parallel(const Schedule& s, Loop loop);
// The value of a sum of integer constants.
std::optional<int64_t> known(const Expr& e);
// The product of the loops' extents, at most 2^40; absent: not constant, or more.
std::optional<int64_t> extent_of(const Schedule& s, const std::vector<Loop>& loops);

// An element's distance from the buffer's first one.
Expr element_offset(const Buffer& buffer, const std::vector<Expr>& index);

// The accesses below a loop, without those to shared or register memory, by how they move along it. Those that do not
// move are not counted, nor are those by a few elements, whose vectors are shuffled together.
struct StepsAlong {
  int contiguous = 0, others = 0;
  int scattered = 0;  // of the others, those that write
  int summed = 0;     // accumulates into an element that does not move, in any memory

  int score() const { return contiguous - others; }
  // Whether iterations add to one element, or write where only their data says.
  bool waits() const { return scattered > 0 || summed > 0; }
};
StepsAlong steps_along(const Schedule& s, Loop loop);

// At most so many lanes, and copies of their vector, that fit a loop of this extent; absent: not even two lanes.
struct Vectors {
  int lanes, copies;
};
std::optional<Vectors> fitting_vectors(const Expr& extent, int lanes, int copies);

}  // namespace gradloom::ir
