#include "nests.h"

#include <gradloom/math.h>
#include <gradloom/matmul.h>

namespace train_gru {

using namespace gradloom::ir;

namespace {

struct Exponentials {
  Expr largest, sum;
};
// exps[v] = exp(logit(v) - the largest logit), so that none overflows. `logit` builds a new expression for each v.
Exponentials exponentials(KernelBuilder& b, const Buffer& exps, const std::function<Expr(Expr v)>& logit) {
  const DType dtype = exps->dtype;
  const Expr n = exps->dims[0];
  const Buffer largest = b.alloc("largest", dtype, {}, {}, Space::registers),
               sum = b.alloc("sum", dtype, {}, {}, Space::registers);
  b.store(largest, {}, logit(0));
  b.loop("v", 0, n, [&](Expr v) { b.accumulate(largest, {}, logit(v), AccumulateOp::max); });
  b.loop("exp", 0, n, [&](Expr v) { b.store(exps, {v}, exp(b, logit(v) - load(largest, {}))); });
  b.store(sum, {}, zero({dtype, 1}));
  b.loop("v", 0, n, [&](Expr v) { b.accumulate(sum, {}, load(exps, {v})); });
  return {b.let("most", load(largest, {})), b.let("total", load(sum, {}))};
}

}  // namespace

Kernel embed(DType dtype, int64_t rows, int64_t vocabulary, int64_t width) {
  KernelBuilder b("embed");
  const Buffer tokens = b.input("tokens", DType::i64, {rows}), table = b.input("table", dtype, {vocabulary, width}),
               x = b.output("x", dtype, {rows, width});
  b.loop("row", 0, rows, [&](Expr row) {
    const Expr token = b.let("token", load(tokens, {row}));
    b.check((token >= 0) & (token < vocabulary), row, "tokens", [&] {
      b.loop("column", 0, width, [&](Expr column) { b.store(x, {row, column}, load(table, {token, column})); });
    });
  });
  return b.build();
}

Kernel output_layer(DType dtype, int64_t rows, int64_t vocabulary, int64_t hidden) {
  KernelBuilder b("output_layer");
  const Buffer states = b.input("states", dtype, {rows, hidden}),
               weights = b.input("weights", dtype, {vocabulary, hidden});
  const Buffer bias = b.input("bias", dtype, {vocabulary}), logits = b.output("logits", dtype, {rows, vocabulary});
  Matmul product{.prefix = "logits", .m = rows, .n = vocabulary, .k = hidden, .sum = dtype};
  product.a = [&](Expr m, Expr k) { return load(states, {m, k}); };
  product.b = [&](Expr k, Expr n) { return load(weights, {n, k}); };
  product.store = [&](Expr m, Expr n, Expr sum) { b.store(logits, {m, n}, sum + load(bias, {n})); };
  author_matmul(b, product);
  return b.build();
}

Kernel output_layer_grad(DType dtype, int64_t rows, int64_t vocabulary, int64_t hidden) {
  KernelBuilder b("output_layer_grad");
  const Buffer dlogits = b.input("dlogits", dtype, {rows, vocabulary}),
               states = b.input("states", dtype, {rows, hidden});
  const Buffer weights = b.input("weights", dtype, {vocabulary, hidden});
  const Buffer dstates = b.output("dstates", dtype, {rows, hidden}),
               dweights = b.output("dweights", dtype, {vocabulary, hidden});
  Matmul to_states{.prefix = "dstates", .m = rows, .n = hidden, .k = vocabulary, .sum = dtype};
  to_states.a = [&](Expr m, Expr k) { return load(dlogits, {m, k}); };
  to_states.b = [&](Expr k, Expr n) { return load(weights, {k, n}); };
  to_states.store = [&](Expr m, Expr n, Expr sum) { b.store(dstates, {m, n}, sum); };
  author_matmul(b, to_states);
  Matmul to_weights{.prefix = "dweights", .m = vocabulary, .n = hidden, .k = rows, .sum = dtype};
  to_weights.a = [&](Expr m, Expr k) { return load(dlogits, {k, m}); };
  to_weights.b = [&](Expr k, Expr n) { return load(states, {k, n}); };
  to_weights.store = [&](Expr m, Expr n, Expr sum) { b.store(dweights, {m, n}, sum); };
  author_matmul(b, to_weights);
  return b.build();
}

Kernel cross_entropy(DType dtype, int64_t rows, int64_t vocabulary) {
  KernelBuilder b("cross_entropy");
  const Buffer logits = b.input("logits", dtype, {rows, vocabulary}), targets = b.input("targets", DType::i64, {rows});
  const Buffer losses = b.output("losses", dtype, {rows}), dlogits = b.output("dlogits", dtype, {rows, vocabulary});
  b.loop("row", 0, rows, [&](Expr row) {
    const Expr wanted = b.let("wanted", load(targets, {row}));
    b.check((wanted >= 0) & (wanted < vocabulary), row, "targets", [&] {
      const Buffer exps = b.alloc("exps", dtype, {vocabulary});
      const auto [largest, sum] = exponentials(b, exps, [&](Expr v) { return load(logits, {row, v}); });
      b.store(losses, {row}, log(b, sum) + (largest - load(logits, {row, wanted})));
      const double weight = 1.0 / static_cast<double>(rows);
      b.loop("gradient", 0, vocabulary, [&](Expr v) {
        const Expr right = select(v == wanted, constant(dtype, 1), constant(dtype, 0));
        b.store(dlogits, {row, v}, (load(exps, {v}) / sum - right) * weight);
      });
    });
  });
  return b.build();
}

Kernel softmax(DType dtype, int64_t vocabulary) {
  KernelBuilder b("softmax");
  const Expr sharpness = b.scalar("sharpness", {}, {}, dtype);
  const Buffer logits = b.input("logits", dtype, {1, vocabulary}),
               probabilities = b.output("probabilities", dtype, {1, vocabulary});
  const Buffer exps = b.alloc("exps", dtype, {vocabulary});
  const Expr sum = exponentials(b, exps, [&](Expr v) { return load(logits, {0, v}) * sharpness; }).sum;
  b.loop("scale", 0, vocabulary, [&](Expr v) { b.store(probabilities, {0, v}, load(exps, {v}) / sum); });
  return b.build();
}

Kernel adam(DType dtype, int64_t n) {
  KernelBuilder b("adam");
  const Expr rate = b.scalar("rate", {}, {}, dtype), correction1 = b.scalar("correction1", {}, {}, dtype),
             correction2 = b.scalar("correction2", {}, {}, dtype);
  const Buffer gradient = b.input("gradient", dtype, {n}), parameters = b.inout("parameters", dtype, {n});
  const Buffer mean = b.inout("mean", dtype, {n}), square = b.inout("square", dtype, {n});
  b.loop("i", 0, n, [&](Expr i) {
    const Expr g = b.let("g", load(gradient, {i}));
    const Expr m = b.let("m", adam_beta1 * load(mean, {i}) + (1 - adam_beta1) * g);
    const Expr s = b.let("s", adam_beta2 * load(square, {i}) + (1 - adam_beta2) * g * g);
    b.store(mean, {i}, m);
    b.store(square, {i}, s);
    const Expr size = unary(UnaryOp::sqrt, s * correction2) + adam_epsilon;
    b.store(parameters, {i}, load(parameters, {i}) - rate * (m * correction1 / size));
  });
  return b.build();
}

}  // namespace train_gru
