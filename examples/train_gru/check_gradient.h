#pragma once
#include <gradloom/runtime.h>

namespace train_gru {

// Checks the whole model's gradient against central differences of its loss, in f64 at a small size: prints one line
// per part. Returns whether all agree.
bool check_gradient(gradloom::Runtime& runtime, int64_t seed);

}  // namespace train_gru
