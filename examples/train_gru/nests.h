#pragma once
// The loop nests that the model needs besides the library's ops. All get the default schedule. Shapes are constants of
// the kernel.
#include <gradloom/stmt.h>

namespace train_gru {
using namespace gradloom;

// tokens i64 [rows], table [vocabulary, width] -> x [rows, width]: the table row indexed by each token.
ir::Kernel embed(DType dtype, int64_t rows, int64_t vocabulary, int64_t width);

// states [rows, hidden], weights [vocabulary, hidden], bias [vocabulary] -> logits [rows, vocabulary] = states weights'
// + bias.
ir::Kernel output_layer(DType dtype, int64_t rows, int64_t vocabulary, int64_t hidden);
// dlogits, states, weights -> dstates = dlogits weights, dweights = dlogits' states. (The bias gets dlogits summed over
// its rows: BroadcastGrad.)
ir::Kernel output_layer_grad(DType dtype, int64_t rows, int64_t vocabulary, int64_t hidden);

// logits [rows, vocabulary], targets i64 [rows] -> losses [rows] = -log softmax(logits)[target], dlogits: the gradient
// of their mean.
ir::Kernel cross_entropy(DType dtype, int64_t rows, int64_t vocabulary);
// logits [1, vocabulary], scalar `sharpness` -> probabilities [1, vocabulary] = softmax(sharpness * logits).
ir::Kernel softmax(DType dtype, int64_t vocabulary);

// One step of Adam (Kingma and Ba, 2015) over all parameters: gradient, parameters, and the running means of the
// gradient and of its square [n]. Scalars: the learning rate, and 1 / (1 - beta^t) for both means.
inline constexpr double adam_beta1 = 0.9, adam_beta2 = 0.999, adam_epsilon = 1e-8;
ir::Kernel adam(DType dtype, int64_t n);

}  // namespace train_gru
