#pragma once
// The scope of a public function that computes, waits or touches a file.
#include "support/float_mode.h"
#include "support/no_cancel.h"

namespace gradloom {

struct Entry {
  NoCancel no_cancel;
  FloatMode mode;
};

}  // namespace gradloom
