#pragma once
// Thrown by a schedule step that is illegal for the nest, and by lowering for a construct that it has no lowered form
// for. They have their own types: a wrong argument or a defect in an op throws any other Error, so that code with a
// fallback (Schedule::attempt, another strategy) cannot confuse the two.
#include "gradloom/error.h"

#pragma GCC visibility push(default)
namespace gradloom::ir {

// Either one: for callers with a fallback.
class Refusal : public Error {
 protected:
  using Error::Error;
};

class ScheduleRefusal : public Refusal {
 public:
  explicit ScheduleRefusal(const std::string& why) : Refusal(ErrorCode::invalid_argument, why) {}
};

// Thrown by a pass or an emitter. `code`: the error code when there is no fallback.
class LoweringRefusal : public Refusal {
 public:
  LoweringRefusal(ErrorCode code, const std::string& why) : Refusal(code, why) {}
};

}  // namespace gradloom::ir

#pragma GCC visibility pop
