#pragma once
// Calls of every op of the library.
#include "tests/support/declared_calls.h"
#include "tests/support/op_calls.h"

namespace gradloom::testing_ops {

inline std::vector<Call> all_calls() {
  std::vector<Call> calls;
  for (auto make : {slice_calls, gather_elements_calls, gather_calls, broadcast_calls, bag_calls, index_calls,
                    sparse_gather_calls, gru_calls, declared_calls})
    for (Call& call : make()) calls.push_back(std::move(call));
  return calls;
}

}  // namespace gradloom::testing_ops
