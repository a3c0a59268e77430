#pragma once
// What the derivation knows of the forward nest: every access to memory with what encloses it, and which buffers a
// gradient goes through.
#include <deque>
#include <functional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "gradloom/differentiate.h"

namespace gradloom::ir {

// A statement around an access, and on which side of an If it is.
struct Enclosing {
  Stmt stmt;
  bool otherwise = false;
};
bool operator==(const Enclosing& a, const Enclosing& b);
Stmt with_body(const Enclosing& around, const Stmt& body);  // with that statement in it alone

// A loop, condition or check in the nest.
struct Place {
  Enclosing around;
  const Place* up;  // nullptr: in none
  size_t depth;     // of this one, counted from 1
};

struct Event {
  enum Kind : uint8_t { read, store, accumulate } kind;
  Buffer buffer;
  std::vector<Expr> index;
  Expr guard;            // absent: always
  const Place* place;    // the innermost
  Stmt stmt;             // that accesses
  bool carries = false;  // of a read: its value reaches a float that is written
  bool writes() const { return kind != read; }
};
std::vector<const Place*> path(const Place* innermost);  // outermost first
inline size_t depth_of(const Place* place) { return place ? place->depth : 0; }

// The forward nest. What is active: a float that a wanted input reaches and that reaches an output, with a derivative;
// not through indices, guards and conditions.
class Forward {
 public:
  Forward(const Kernel& kernel, const Derivation& how);

  const Kernel& kernel() const { return kernel_; }
  const Derivation& how() const { return how_; }
  const std::vector<Event>& events() const { return events_; }  // in the order of the text
  std::vector<const Event*> events_of(const Buffer& b) const;   // in the order of the text
  // How often the text stores to it or accumulates into it, and one accumulate, if there is any.
  struct Writes {
    int64_t count = 0;
    const Accumulate* accumulate = nullptr;
  };
  const Writes& writes_of(const Buffer& b) const;
  bool is_active(const Buffer& b) const { return active_.contains(b->id); }
  bool is_active(const Expr& e) const;  // whether an active load's value reaches it
  struct Definition {
    Stmt let;
    const Place* place;
    size_t order;  // in the text
  };
  const Definition* definition(int64_t var_id) const;  // nullptr: no let
  const Expr* let_value(int64_t var_id) const;
  const Place* place_of_alloc(const Buffer& b) const;  // where a buffer of the nest's own is allocated
  // Visits the operands of e that its derivative goes to.
  void each_operand(const Expr& e, const std::function<void(const Expr&)>& visit) const;
  bool is_kept(const Buffer& b) const;
  bool is_seeded(const Buffer& output) const;
  // Of statements that a reduction was made of: the reduction in place of the first, nothing in place of the second.
  const Stmt* reduction(const Stmt& s) const {
    const auto found = reductions_.find(s.get());
    return found == reductions_.end() ? nullptr : &found->second;
  }
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  void require_form() const;
  void collect(const Stmt& s);
  void collect_reads(const Expr& e, bool carries);
  void find_active();
  bool is_reached(const Expr& e) const;  // by a wanted input
  void require_no_bits() const;
  std::vector<Buffer> named(const std::string& name, const char* what, bool allocated) const;

  std::unordered_map<const StmtNode*, Stmt> reductions_;
  const Kernel kernel_;  // reductions as loops: the order of a sum is none of its derivative
  const Derivation& how_;
  std::vector<Event> events_;
  std::unordered_map<int64_t, std::vector<size_t>> by_buffer_;  // their positions
  std::unordered_map<int64_t, Writes> writes_;
  std::unordered_map<int64_t, Definition> lets_;
  std::unordered_map<int64_t, const Place*> allocs_;
  std::deque<Place> places_;
  std::unordered_set<int64_t> active_, reached_;
  mutable std::unordered_map<const ExprNode*, bool> active_values_;
  mutable std::vector<Expr> held_;  // those values, so that no other gets its address
  const Place* place_ = nullptr;    // while collecting
  Stmt current_;
};

// Where a write to a buffer that accumulates a value: the statement's value, with fma's factor multiplied in.
Expr written_value(const Stmt& s);

}  // namespace gradloom::ir
