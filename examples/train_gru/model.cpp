#include "model.h"

#include <cmath>
#include <cstring>

#include "nests.h"

namespace train_gru {
namespace {

double scalar(const Tensor& tensor) {
  return tensor.dtype() == DType::f64 ? *static_cast<const double*>(tensor.data())
                                      : *static_cast<const float*>(tensor.data());
}

void set(const Tensor& tensor, int64_t i, double value) {
  if (tensor.dtype() == DType::f64)
    static_cast<double*>(tensor.data())[i] = value;
  else
    static_cast<float*>(tensor.data())[i] = static_cast<float>(value);
}

}  // namespace

Parameters::Parameters(DType dtype, const Sizes& sizes) {
  const int64_t vocabulary = sizes.vocabulary, embedding = sizes.embedding, hidden = sizes.hidden;
  struct Layout {
    const char* name;
    Tensor Parameters::*tensor;
    Dims dims;
    double range;
  };
  const double range = 1 / std::sqrt(static_cast<double>(hidden));
  const Layout layouts[] = {
      {"embedding", &Parameters::table, {vocabulary, embedding}, 1},
      {"W", &Parameters::w, {1, 3 * hidden, embedding}, range},
      {"R", &Parameters::r, {1, 3 * hidden, hidden}, range},
      {"B", &Parameters::b, {1, 6 * hidden}, range},
      {"output weights", &Parameters::v, {vocabulary, hidden}, range},
      {"output bias", &Parameters::c, {vocabulary}, range},
  };
  const int64_t line = 64 / size_of(dtype);
  const auto padded = [&](const Dims& dims) { return (element_count(dims) + line - 1) / line * line; };
  int64_t total = 0;
  for (const Layout& layout : layouts) total += padded(layout.dims);
  flat = Tensor::empty(dtype, {total});
  std::memset(flat.data(), 0, static_cast<size_t>(total * size_of(dtype)));
  int64_t at = 0;
  for (const Layout& layout : layouts) {
    this->*layout.tensor = flat.view(layout.dims, {}, at);
    parts.push_back({layout.name, this->*layout.tensor, layout.range});
    at += padded(layout.dims);
  }
}

int64_t Parameters::count() const {
  int64_t sum = 0;
  for (const Part& part : parts) sum += part.tensor.elements();
  return sum;
}

void draw(Parameters& parameters, Random& random) {
  for (const Parameters::Part& part : parameters.parts)
    for (int64_t i = 0; i < part.tensor.elements(); ++i) set(part.tensor, i, part.range * (2 * random.uniform() - 1));
}

Model::Model(Runtime& runtime, DType dtype, const Sizes& sizes)
    : batch(sizes.sequence, sizes.batch),
      parameters(dtype, sizes),
      gradient(dtype, sizes),
      characters_(static_cast<double>(sizes.sequence * sizes.batch)) {
  const int64_t steps = sizes.sequence, windows = sizes.batch, rows = steps * windows;
  const int64_t vocabulary = sizes.vocabulary, embedding = sizes.embedding, hidden = sizes.hidden;
  const auto tensor = [&](const Dims& dims) { return Tensor::empty(dtype, dims); };
  // One row per character: the same memory with steps and windows collapsed to one dim.
  const auto as_rows = [&](const Tensor& t, int64_t width) { return t.trimmed({rows, width}); };
  const Tensor tokens = batch.tokens.trimmed({rows}), targets = batch.targets.trimmed({rows});
  const Parameters& p = parameters;
  const Parameters& g = gradient;

  const Tensor x = tensor({steps, windows, embedding}), states = tensor({steps, 1, windows, hidden}),
               gates = tensor({steps, 1, windows, 3 * hidden});
  const Tensor logits = tensor({rows, vocabulary}), losses = tensor({rows}), dlogits = tensor({rows, vocabulary});
  const Tensor dstates = tensor({steps, 1, windows, hidden}), dx = tensor({steps, windows, embedding});
  const Tensor none, one = Tensor::of(DType::i64, {1}, std::vector<int64_t>{1});
  const Tensor table_shape = Tensor::of(DType::i64, {2}, std::vector<int64_t>{vocabulary, embedding});
  const Tensor bias_shape = Tensor::of(DType::i64, {1}, std::vector<int64_t>{vocabulary});
  loss_sum_ = tensor({1});

  forward_ = {
      bind(runtime, embed(dtype, rows, vocabulary, embedding), {tokens, p.table, as_rows(x, embedding)}),
      bind(runtime, "GRUTraining", {x, p.w, p.r, p.b}, {states, none, gates}, gru_attributes),
      bind(runtime, output_layer(dtype, rows, vocabulary, hidden), {as_rows(states, hidden), p.v, p.c, logits}),
      bind(runtime, cross_entropy(dtype, rows, vocabulary), {logits, targets, losses, dlogits}),
      bind(runtime, "BroadcastGrad", {losses, one}, {loss_sum_}),
  };
  backward_ = {
      bind(runtime, "BroadcastGrad", {dlogits, bias_shape}, {g.c}),
      bind(runtime, output_layer_grad(dtype, rows, vocabulary, hidden),
           {dlogits, as_rows(states, hidden), p.v, as_rows(dstates, hidden), g.v}),
      bind(runtime, "GRUGrad", {x, p.w, p.r, p.b, none, none, states, gates, dstates}, {dx, g.w, g.r, g.b},
           gru_attributes),
      bind(runtime, "GatherGrad", {table_shape, tokens, as_rows(dx, embedding)}, {g.table}),
  };
}

double Model::loss() {
  run(forward_);
  return scalar(loss_sum_) / characters_;
}

}  // namespace train_gru
