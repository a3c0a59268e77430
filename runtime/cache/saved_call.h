#pragma once
// Calls in their saved form, for the next process.
#include "gradloom/call_key.h"
#include "runtime/planned_call.h"

namespace gradloom {

// The saved form of a call. Requires its request.
CallKey call_key(const PlannedCall& call);
// Throws Error(invalid_argument) when its outputs' alignment is not an alignment class.
void check_output_alignment(const CallKey& call);
// One saved call as bytes, within this process.
std::string save_call(const CallKey& call);
CallKey load_call(std::string_view bytes);

}  // namespace gradloom
