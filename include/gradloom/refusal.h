#pragma once
// What a schedule step throws when the nest does not allow it, and what lowering throws when it has no form for what
// the nest holds. Types of their own: a wrong argument or a fault in an op is any other Error, and no code that goes on
// after a refusal (Schedule::attempt, another strategy) can mistake one for the other.
#include "gradloom/error.h"

namespace gradloom::ir {

// Either: for who has another way.
class Refusal : public Error {
 protected:
  using Error::Error;
};

class ScheduleRefusal : public Refusal {
 public:
  explicit ScheduleRefusal(const std::string& why) : Refusal(ErrorCode::invalid_argument, why) {}
};

// Of a pass or an emitter. `code`: what it means where nothing else serves.
class LoweringRefusal : public Refusal {
 public:
  LoweringRefusal(ErrorCode code, const std::string& why) : Refusal(code, why) {}
};

}  // namespace gradloom::ir
