#include "data.h"

#include <fmt/format.h>

#include <array>
#include <fstream>
#include <sstream>

namespace train_gru {

Text read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  const std::string content = bytes.str();
  if (content.empty())
    throw Error(ErrorCode::invalid_argument,
                fmt::format("cannot read a text from \"{}\"; give one with --text FILE", path));
  std::array<int64_t, 256> place{};
  for (const unsigned char c : content) place[c] = 1;
  Text text;
  for (int c = 0; c < 256; ++c) {
    if (!place[c]) continue;
    place[c] = text.vocabulary();
    text.characters += static_cast<char>(c);
  }
  for (const unsigned char c : content) text.tokens.push_back(place[c]);
  return text;
}

Batch::Batch(int64_t steps, int64_t windows)
    : tokens(Tensor::empty(DType::i64, {steps, windows})), targets(Tensor::empty(DType::i64, {steps, windows})) {}

void draw(Batch& batch, const Text& text, Random& random) {
  const int64_t steps = batch.tokens.dims()[0], windows = batch.tokens.dims()[1];
  const int64_t starts = static_cast<int64_t>(text.tokens.size()) - steps;
  if (starts < 1)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("the text has {} characters; a window of {} and its targets need at least {}",
                            text.tokens.size(), steps, steps + 1));
  auto* tokens = static_cast<int64_t*>(batch.tokens.data());
  auto* targets = static_cast<int64_t*>(batch.targets.data());
  for (int64_t n = 0; n < windows; ++n) {
    const int64_t start = random.below(starts);
    for (int64_t s = 0; s < steps; ++s) {
      tokens[s * windows + n] = text.tokens[start + s];
      targets[s * windows + n] = text.tokens[start + s + 1];
    }
  }
}

}  // namespace train_gru
