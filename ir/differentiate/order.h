#pragma once
// In which order the forward nest accesses an element: what must not be, and which loops the gradient runs backwards.
#include "ir/analysis/ranges.h"
#include "ir/differentiate/forward.h"

namespace gradloom::ir {

class Order {
 public:
  explicit Order(const Forward& forward) : forward_(forward), scope_(forward.kernel()) {}

  // Refuses a nest in which an element that a gradient goes through is written again once it was stored by an active
  // value or read.
  void require_single_assignment();
  // The same for a buffer whose values the gradient reads again: no write to an element after a read of it.
  void require_final(const Buffer& buffer);
  // The loops, by their variables' ids, in which an iteration may read an active element that an earlier one has
  // written.
  std::unordered_set<int64_t> carried_loops();

 private:
  // Some of a buffer's accesses, in the order of the text.
  using Accesses = std::vector<const Event*>;
  // What stands around an access and has a bearing on which element it is.
  struct Around {
    std::vector<const Place*> places;              // outermost first
    std::vector<const Forward::Definition*> lets;  // that its index and they depend on, in the order of the text
    bool has(const Forward::Definition* let) const;
  };
  class Instance;

  std::vector<Accesses> that_may_share_elements(const Buffer& buffer) const;
  void require_single_assignment(const Buffer& buffer);
  bool may_follow_in_loop(const Event& a, const Event& b, size_t depth);
  bool may_follow_here(const Event& a, const Event& b);
  bool may_follow(const Event& a, const Event& b);
  const For* carrying_loop(const Event& a, const Event& b);
  bool apart_in_all_iterations(const Event& a, const Event& b, size_t depth);
  const Around& around(const Event& e);
  size_t common(const Event& a, const Event& b);
  Stmt alone(const Event& e, size_t depth);

  const Forward& forward_;
  Ranges scope_;  // of the kernel: a query's own facts are dropped at its end
  std::unordered_map<const Event*, Around> around_;
  std::unordered_set<int64_t> final_;  // buffers that are
};

}  // namespace gradloom::ir
