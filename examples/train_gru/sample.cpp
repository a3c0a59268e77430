#include "sample.h"

#include <cstring>

#include "nests.h"

namespace train_gru {
namespace {

// The first index at which the running sum of the probabilities exceeds u.
int64_t choose(const float* probabilities, int64_t n, double u) {
  for (int64_t i = 0; i < n - 1; ++i) {
    u -= probabilities[i];
    if (u < 0) return i;
  }
  return n - 1;
}

}  // namespace

std::string sample(Runtime& runtime, const Parameters& p, const Sizes& sizes, const std::string& characters,
                   int64_t length, double sharpness, Random& random) {
  const DType dtype = DType::f32;
  const int64_t vocabulary = sizes.vocabulary, embedding = sizes.embedding, hidden = sizes.hidden;
  const Tensor token = Tensor::empty(DType::i64, {1}), x = Tensor::empty(dtype, {1, 1, embedding}),
               gates = Tensor::empty(dtype, {1, 1, 1, 3 * hidden});
  const Tensor before = Tensor::empty(dtype, {1, 1, hidden}), after = Tensor::empty(dtype, {1, 1, 1, hidden});
  const Tensor logits = Tensor::empty(dtype, {1, vocabulary}), probabilities = Tensor::empty(dtype, {1, vocabulary});
  const std::vector<Call> step{
      bind(runtime, embed(dtype, 1, vocabulary, embedding), {token, p.table, x.trimmed({1, embedding})}),
      bind(runtime, "GRUTraining", {x, p.w, p.r, p.b, {}, before}, {after, {}, gates}, gru_attributes),
      bind(runtime, output_layer(dtype, 1, vocabulary, hidden), {after.trimmed({1, hidden}), p.v, p.c, logits}),
  };
  const ScalarCall to_probabilities = bind(runtime, softmax(dtype, vocabulary), {logits, probabilities}, dtype);

  const size_t line_end = characters.find('\n');
  int64_t current = line_end == std::string::npos ? 0 : static_cast<int64_t>(line_end);
  std::memset(before.data(), 0, sizeof(float) * hidden);
  std::string text;
  while (static_cast<int64_t>(text.size()) < length) {
    *static_cast<int64_t*>(token.data()) = current;
    run(step);
    to_probabilities({sharpness});
    std::memcpy(before.data(), after.data(), sizeof(float) * hidden);
    current = choose(static_cast<const float*>(probabilities.data()), vocabulary, random.uniform());
    text += characters[current];
  }
  return text;
}

}  // namespace train_gru
