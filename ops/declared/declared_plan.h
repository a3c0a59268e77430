#pragma once
// The check of a call of a declared op, forward or gradient.
#include "ops/declared/declaration.h"

namespace gradloom {

// An argument of one of the two ops.
struct DeclaredArgument {
  const DeclaredOperand* operand = nullptr;  // of the forward op
  bool adjoint = false;                      // of it
  bool output = false;                       // of the forward op
};

// What code depends on beyond views and dtypes.
struct DeclaredKey {
  bool accumulate = false;
  int64_t present = 0, wanted = 0;  // bits: which inputs, which outputs
  int rank = 0;
  int64_t reduced = 0;                                  // bit d: whether dim d of the merged ones is
  InlineVector<int64_t, 2 * max_rank> attributes = {};  // two words each: whether it has a value, the value
  template <class Key, class Visit>
  static void fields(Key& key, Visit&& visit) {
    visit(key.accumulate, key.present, key.wanted, key.rank, key.reduced, key.attributes);
  }
  bool is_reduced(int d) const { return reduced >> d & 1; }
};

// The views are those of the inputs that are there, then of the outputs that are wanted, each over merged dims that
// its operand has; of size 1 where it has none of them.
Plan plan_declared(const Declaration& declaration, const OpSchema& schema, const std::vector<DeclaredArgument>& inputs,
                   const std::vector<DeclaredArgument>& outputs, const Request& request);

// The input whose dims are the call's: the first one that has them all.
int main_input(const Declaration& declaration, const std::vector<DeclaredArgument>& inputs,
               const InlineVector<int64_t, 2 * max_rank>& attributes);

// Whether an operand has a dim, given whether that is reduced.
bool has_dim(Over over, bool reduced);

// The dims that an operand has, given the attributes' words.
Over over_of(const Declaration& declaration, const DeclaredOperand& operand,
             const InlineVector<int64_t, 2 * max_rank>& attributes);

}  // namespace gradloom
