// GRUGrad (ORT, com.microsoft): the gradient of GRUTraining, from its saved states and gates.
#include "ops/gru/gru_grad.h"

#include "ops/registry.h"
#include "support/lasting.h"

namespace gradloom {
namespace {

OpSchema make_schema() {
  const std::vector<DType> t = dtypes_where(is_float);
  OpSchema s;
  s.name = "GRUGrad";
  s.doc =
      "The gradient of a gated recurrent unit: of its inputs, weights, biases and first state. Any outputs may be left "
      "out.";
  s.inputs = gru_inputs(t);
  s.inputs.push_back({.name = "HAll", .dtypes = t, .doc = "[S, D, N, H]: GRUTraining's", .type = "T"});
  s.inputs.push_back({.name = "ZRH", .dtypes = t, .doc = "[S, D, N, 3H]: GRUTraining's", .type = "T"});
  s.inputs.push_back({.name = "dHAll",
                      .optional = true,
                      .dtypes = t,
                      .doc = "[S, D, N, H]: the gradient of HAll; default 0; ignored beyond a sequence's end",
                      .type = "T"});
  s.inputs.push_back({.name = "dHFinal",
                      .optional = true,
                      .dtypes = t,
                      .doc = "[D, N, H]: the gradient of HFinal; default 0",
                      .type = "T"});
  s.outputs = {
      {.name = "dX", .optional = true, .dtypes = t, .doc = "[S, N, I]; 0 beyond a sequence's end", .type = "T"},
      {.name = "dW", .optional = true, .dtypes = t, .doc = "[D, 3H, I]", .type = "T"},
      {.name = "dR", .optional = true, .dtypes = t, .doc = "[D, 3H, H]", .type = "T"},
      {.name = "dB", .optional = true, .dtypes = t, .doc = "[D, 6H]; also without B", .type = "T"},
      {.name = "dH0", .optional = true, .dtypes = t, .doc = "[D, N, H]; also without initial_h", .type = "T"}};
  s.attributes = gru_attributes();
  return s;
}

class GruGrad final : public GruOp {
 public:
  GruGrad() : GruOp(make_schema(), author_gru_grad) {}

 private:
  Plan plan(const Request& request) const override {
    GruSizes sizes;
    GruOptions options = check_gru(schema(), request, sizes);
    const Dims states{sizes.steps, sizes.directions, sizes.batch, sizes.hidden},
        last{sizes.directions, sizes.batch, sizes.hidden};
    for (const int input : {gru_hall, gru_zrh, gru_dhall, gru_dhfinal}) check_gru_dtype(schema(), request, input);
    check_gru_shape(schema(), request, gru_hall, states, "[S, D, N, H]");
    check_gru_shape(schema(), request, gru_zrh, {sizes.steps, sizes.directions, sizes.batch, 3 * sizes.hidden},
                    "[S, D, N, 3H]");
    check_gru_shape(schema(), request, gru_dhall, states, "[S, D, N, H]");
    check_gru_shape(schema(), request, gru_dhfinal, last, "[D, N, H]");
    Plan plan;
    const DType dtype = request.input(gru_x).dtype;
    const GruSizes loops = looped_sizes(sizes, request, options, out_dh0);
    const Dims &w = request.input(gru_w).dims, &r = request.input(gru_r).dims,
               biases{sizes.directions, 6 * sizes.hidden};
    add_gru_views(request, static_cast<int>(schema().inputs.size()), loops, options, plan);
    // dX's view is the matrix [steps * batch, inputs] that a product writes.
    add_gru_output(plan, options, out_dx, dtype, {sizes.steps, sizes.batch, sizes.inputs},
                   {loops.steps * loops.batch, sizes.inputs});
    add_gru_output(plan, options, out_dw, dtype, w, w);
    add_gru_output(plan, options, out_dr, dtype, r, r);
    add_gru_output(plan, options, out_db, dtype, biases, biases);
    add_gru_output(plan, options, out_dh0, dtype, last, {sizes.directions, loops.batch, sizes.hidden});
    for (View& view : plan.views)
      if (view.output && view.index == out_db) split_gates(view, 6);
    finish_gru_plan(plan, options);
    return plan;
  }
};

}  // namespace

const Op& gru_grad_op() {
  static constinit Lasting<const GruGrad> op;
  return *op;
}

}  // namespace gradloom
