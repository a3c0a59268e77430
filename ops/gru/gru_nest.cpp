// The parts that the nests of GRUTraining and GRUGrad share.
#include "gradloom/schedule_common.h"
#include "ops/gru/gru.h"
#include "ops/patterns/integer_math.h"

namespace gradloom {
namespace {

// The profitable number of threads for a call; all of them in the any-shape kernel.
int64_t useful_threads(const KernelFrame& frame, const ir::Target& target) {
  if (frame.any_shape()) return target.threads;
  const Plan& plan = frame.plan();
  return plan.bytes_read + plan.bytes_written >= parallel_bytes ? target.threads : 1;
}

ir::Target with_units(ir::Target target, bool matrix_units) {
  target.matrix_units = matrix_units;
  return target;
}

}  // namespace

GruNest::GruNest(KernelFrame& frame, const GruWay& way, const ir::Target& target,
                 const std::vector<ArgumentSchema>& arguments)
    : b(frame.builder),
      options(key_of<GruOptions>(frame.plan())),
      threads(useful_threads(frame, target)),
      way_(way),
      target_(with_units(target, way.matrix_units)),
      in(arguments.size()) {
  int v = 0;
  for (size_t i = 0; i < arguments.size(); ++i)
    if (options.has(static_cast<int>(i))) in[i] = frame.view(v++, arguments[i].name);
  dtype = in[gru_x]->dtype;
  sum = accumulator_of(dtype);
}

void GruNest::start(const Buffer& all_states) {
  steps = all_states->dims[0];
  batch = all_states->dims[2];
  hidden = all_states->dims[3];
  inputs = in[gru_x]->dims.back();
  rows = ir::index_mul(steps, batch);
  if (!in[gru_lens]) return;
  lens_ = b.alloc("lens", DType::i64, {batch}, {.min = 0, .max = steps});
  live_ = b.alloc("live", DType::boolean, {rows});
  b.loop("n", 0, batch, [&](Expr n) {
    const Expr len = b.let("len", ir::cast(DType::i64, ir::load(in[gru_lens], {n})));
    b.store(lens_, {n}, 0);
    b.check((len >= 0) & (len <= steps), n, "sequence_lens", [&] { b.store(lens_, {n}, len); });
  });
  b.loop("p", 0, steps, [&](Expr p) {
    b.loop("n", 0, batch, [&](Expr n) { b.store(live_, {row_of(p, n)}, p < ir::load(lens_, {n})); });
  });
}

ir::Buffer GruNest::rows_of_x(bool masked) {
  const Buffer& x = in[gru_x];
  masked = masked && live_;
  if (options.flat_x && !masked && dtype == factor()) return x;
  const Buffer copy = b.alloc("x_rows", factor(), {rows, inputs});
  b.loop("p", 0, steps, [&](Expr p) {
    b.loop("n", 0, batch, [&](Expr n) {
      const Expr row = row_of(p, n);
      const Expr live = masked ? b.let("is_live", ir::load(live_, {row})) : Expr();
      element_loop("i", inputs, [&](Expr i) {
        const Expr element = options.flat_x ? value(x, {row, i}) : value(x, {p, n, i});
        b.store(copy, {row, i}, ir::cast(factor(), masked ? ir::select(live, element, number(0)) : element));
      });
    });
  });
  return copy;
}

void GruNest::add_biases() {
  const Buffer& bias = in[gru_b];
  if (!bias) return;
  bias_ = scratch("bias", {options.directions, 4, hidden});
  for (int d = 0; d < options.directions; ++d)
    each_column([&](Expr j) {
      const auto part = [&](int k) { return value(bias, {d, k, j}); };
      const bool apart = options.linear_before_reset;
      b.store(bias_, {d, 0, j}, part(0) + part(3));
      b.store(bias_, {d, 1, j}, part(1) + part(4));
      b.store(bias_, {d, 2, j}, apart ? part(2) : part(2) + part(5));
      b.store(bias_, {d, 3, j}, part(5));
    });
}

ir::Buffer GruNest::input_products(const Buffer& x) {
  const Buffer& w = in[gru_w];
  const Buffer products = scratch("x_products", {options.directions, rows, ir::index_mul(3, hidden)});
  b.loop("d", 0, options.directions, [&](Expr d) {
    Matmul product{.prefix = "xw", .m = rows, .n = ir::index_mul(3, hidden), .k = inputs, .sum = sum};
    product.a = [&](Expr m, Expr k) { return ir::load(x, {m, k}); };
    product.b = [&](Expr k, Expr n) { return ir::load(w, {d, n, k}); };
    product.store = [&](Expr m, Expr n, Expr total) { b.store(products, {d, m, n}, total); };
    multiply(product);
  });
  return products;
}

ir::Expr GruNest::input_part(const Buffer& products, int d, int g, const Expr& row, const Expr& j) const {
  const Expr product = ir::load(products, {d, row, column(g, j)});
  return bias_ ? product + value(bias_, {d, g, j}) : product;
}

ir::Expr GruNest::candidate_input(const Expr& from_input, const Expr& r, const Expr& recurrent, int d,
                                  const Expr& j) const {
  return ir::fma(r, bias_ ? recurrent + recurrent_bias(d, j) : recurrent, from_input);
}

void GruNest::each_chunk(const std::function<Steps(const Chunk&)>& run) {
  const auto n = ir::as_int(batch);
  Steps all;
  if (threads == 1 || (n && *n < 2)) {
    all = run({0, batch, batch});
    all.outermost = all.loop;
  } else {
    const int64_t chunk = n ? ceil_div(*n, threads) : 16;
    all.outermost = b.loop("chunk", 0, ir::index_div(ir::index_add(batch, chunk - 1), chunk), [&](Expr c) {
      const Expr first = ir::index_mul(c, chunk);
      all = run({first, n && *n % chunk == 0 ? Expr(chunk) : ir::index_min(chunk, ir::index_sub(batch, first)), chunk});
    });
    shared_.push_back(all.outermost);
  }
  all_steps_.push_back(std::move(all));
}

void GruNest::shared_loop(const char* name, const Expr& extent, const std::function<void(Expr)>& body) {
  const ir::Loop loop = b.loop(name, 0, extent, body);
  if (is_shared()) shared_.push_back(loop);
}

bool GruNest::is_shared() const {
  return threads > 1 && ir::as_int(ir::index_mul(rows, hidden)).value_or(1 << 16) >= 1 << 16;
}

void GruNest::each_batch(int d, const Chunk& chunk, const Expr& step, const Visit& live, const Visit& padded) {
  b.loop("i", 0, chunk.count, [&](Expr i) { at_batch(d, i, ir::index_add(chunk.first, i), step, live, padded); });
}

void GruNest::at_batch(int d, const Expr& i, const Expr& n, const Expr& step, const Visit& live, const Visit& padded) {
  const auto visit = [&](const Visit& f, const Expr& position) {
    const Expr p = b.let("p", position);
    f({i, n, p, b.let("row", row_of(p, n))});
  };
  if (!lens_) return visit(live, position(d, step));
  const Expr len = b.let("len", ir::load(lens_, {n}));
  b.if_then(
      step < len, [&] { visit(live, options.reversed(d) ? (len - 1) - step : step); }, [&] { visit(padded, step); });
}

GruNest::Place GruNest::place_of(int d, const Expr& i, const Expr& step) const {
  Expr p = position(d, step);
  if (lens_) {
    const Expr len = ir::load(lens_, {i});
    p = options.reversed(d) ? ir::select(step < len, (len - 1) - step, step) : step;
  }
  return {i, i, p, row_of(p, i)};
}

void GruNest::each_batch(const Chunk& chunk, const std::function<void(Expr i, Expr n)>& body) {
  b.loop("i", 0, chunk.count, [&](Expr i) { body(i, ir::index_add(chunk.first, i)); });
}

ir::Expr GruNest::clipped(const Expr& x) const {
  if (options.clip == 0) return x;
  return ir::select(x < number(-options.clip), number(-options.clip),
                    ir::select(x > number(options.clip), number(options.clip), x));
}

}  // namespace gradloom
