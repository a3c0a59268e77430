#pragma once
// Which buffers and variables from outside it a statement uses, remembered by statement: a search for one of them
// passes by what does not use it, so that the time of a derivation is linear in its nest's size.
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "gradloom/stmt.h"

namespace gradloom::ir {

class Accesses {
 public:
  bool reads(const Stmt& s, const Buffer& b) { return uses(s, b->id, Way::read); }
  bool writes(const Stmt& s, const Buffer& b) { return uses(s, b->id, Way::written_to); }
  bool mentions(const Stmt& s, const Var& v) { return uses(s, v.id, Way::variable); }
  bool uses(const Stmt& s, const Buffer& b) { return reads(s, b) || writes(s, b); }
  // The ids of the buffers that it writes and does not allocate.
  std::vector<int64_t> written(const Stmt& s);

 private:
  enum Way : uint8_t { read, written_to, variable };
  struct Use {
    int64_t id;
    Way way;
    auto operator<=>(const Use&) const = default;
  };
  using Uses = std::vector<Use>;  // sorted
  bool uses(const Stmt& s, int64_t id, Way way);
  const Uses& of(const Stmt& s);
  Uses found_in(const Stmt& s);

  struct Known {
    Stmt held;  // so that no other statement gets its address
    Uses uses;
  };
  std::unordered_map<const StmtNode*, Known> known_;
};

}  // namespace gradloom::ir
