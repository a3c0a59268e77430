#pragma once
// Text from a trained model, one character at a time.
#include "model.h"

namespace train_gru {

// Starts as after a line end. Sharpness above 1 prefers likely characters.
std::string sample(Runtime& runtime, const Parameters& parameters, const Sizes& sizes, const std::string& characters,
                   int64_t length, double sharpness, Random& random);

}  // namespace train_gru
