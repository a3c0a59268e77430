#pragma once
// What a schedule step throws when the nest does not allow it, and what lowering throws when it has no form for what the nest holds. Types of their own: a wrong argument or a fault in an op is any other Error, and no code that
// goes on after a refusal (Schedule::attempt, another strategy) can mistake one for the other.
#include "ir/error.h"

namespace gradloom::ir {

class ScheduleRefusal : public Error {
 public:
  explicit ScheduleRefusal(const std::string& why) : Error(ErrorCode::invalid_argument, why) {}
};

// Of a pass or an emitter. `code`: what it means where nothing else serves.
class LoweringRefusal : public Error {
 public:
  LoweringRefusal(ErrorCode code, const std::string& why) : Error(code, why) {}
};

}  // namespace gradloom::ir
