#pragma once
// A tokenised text, and batches of it.
#include <gradloom/tensor.h>

#include <string>
#include <vector>

#include "random.h"

namespace train_gru {
using namespace gradloom;

struct Text {
  std::string characters;       // the vocabulary: each character that occurs, in the order of their codes
  std::vector<int64_t> tokens;  // the text, each character as its index in the vocabulary

  int64_t vocabulary() const { return static_cast<int64_t>(characters.size()); }
};
// Throws Error(invalid_argument).
Text read_text(const std::string& path);

// One batch of windows of the text. Column n is one window; row s contains the s-th character of each.
struct Batch {
  Batch(int64_t steps, int64_t windows);
  Tensor tokens, targets;  // i64 [steps, windows]; a target is the character that follows
};
// Fills the batch with windows at random start positions, drawn in order of n. Throws Error(invalid_argument) for a
// text shorter than one window.
void draw(Batch& batch, const Text& text, Random& random);

}  // namespace train_gru
