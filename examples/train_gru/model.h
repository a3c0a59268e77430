#pragma once
// A character-level language model: embedding -> GRU -> output layer -> softmax cross-entropy, and all its gradients.
#include <string>
#include <vector>

#include "call.h"
#include "data.h"
#include "random.h"

namespace train_gru {

struct Sizes {
  int64_t vocabulary = 0, embedding = 32, hidden = 128;  // of the model
  int64_t sequence = 64, batch = 16;                     // of a batch: characters in a window, windows
};

// The weights, or their gradients: slices of one flat tensor in this order, so that the optimizer is one call. Each
// slice is 64-byte aligned.
struct Parameters {
  Parameters(DType dtype, const Sizes& sizes);  // all 0

  struct Part {
    std::string name;
    Tensor tensor;
    double range = 0;  // of the initial values: uniform in [-range, range)
  };
  int64_t count() const;  // of weights

  Tensor flat;
  std::vector<Part> parts;
  // The same tensors by name. W, R, B: ONNX GRU's, [1, 3H, E], [1, 3H, H], [1, 6H].
  Tensor table;    // the embedding, [vocabulary, E]
  Tensor w, r, b;  // of the GRU
  Tensor v, c;     // the output layer's weights [vocabulary, H] and bias [vocabulary]
};
// Initial values, drawn slice by slice, element by element.
void draw(Parameters& parameters, Random& random);

// The candidate's reset gate is applied after the recurrent product, as in PyTorch: one product per step for all gates.
inline const Attributes gru_attributes{{"linear_before_reset", int64_t{1}}};

// A model bound to one batch: its tensors are allocated and its kernels compiled here, once.
class Model {
 public:
  Model(Runtime& runtime, DType dtype, const Sizes& sizes);

  double loss();                            // of the batch: the mean over its characters, in nats
  void differentiate() { run(backward_); }  // fills `gradient`; after loss()

  Batch batch;
  Parameters parameters, gradient;

 private:
  Tensor loss_sum_;
  double characters_;
  std::vector<Call> forward_, backward_;
};

}  // namespace train_gru
