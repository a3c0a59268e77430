#pragma once
// What a schedule step throws when the nest does not allow it. A type of its own: a wrong argument or a fault in an op is any other Error, and no code that
// goes on after a refusal (Schedule::attempt, another strategy) can mistake one for the other.
#include "ir/error.h"

namespace gradloom::ir {

class ScheduleRefusal : public Error {
 public:
  explicit ScheduleRefusal(const std::string& why) : Error(ErrorCode::invalid_argument, why) {}
};

}  // namespace gradloom::ir
