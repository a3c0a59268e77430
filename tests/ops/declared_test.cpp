// Ops by declaration: that each gradient is derived, and is the forward op's; what both refuse. Values at limits are
// golden cases.
#include <gtest/gtest.h>

#include "tests/ops/ops_harness.h"
#include "tests/support/declared_calls.h"

namespace gradloom {
namespace {

using namespace testing_ops;

struct Shape {
  Dims dims;
  Attributes attributes;
};
std::vector<Shape> shapes_of(const Declaration& d) {
  const bool axis = d.reduced == Reduced::axis || d.reduced == Reduced::from_axis;
  std::vector<Shape> shapes{{{3, 4}, {}}, {{2, 3, 4}, {}}, {{2, 1}, {}}, {{1, 17}, {}}};
  if (axis)
    shapes.push_back({{2, 3, 4}, {{"axis", int64_t{0}}}}), shapes.push_back({{2, 3, 4}, {{"axis", int64_t{-2}}}});
  for (const AttributeSchema& attribute : d.attributes)
    if (attribute.name == "reduction")
      for (const char* value : {"none", "sum"}) shapes.push_back({{4, 5}, {{"reduction", std::string(value)}}});
  if (!d.indices.empty()) shapes.push_back({{4, 5, 2}, {{"ignore_index", int64_t{3}}}});
  return shapes;
}

class Declared : public testing::TestWithParam<const DeclaredOps*> {
 protected:
  const Declaration& d() const { return GetParam()->declaration(); }
  static std::vector<Tensor> forward(const Op& op, const std::vector<Tensor>& inputs, const Attributes& attributes) {
    return testing_ops::run(op, inputs, attributes);
  }
};

double dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.elements(); ++i)
    sum += ir::double_from_bits(a.dtype(), bits_at(a, i)) * ir::double_from_bits(b.dtype(), bits_at(b, i));
  return sum;
}
double size(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.elements(); ++i)
    sum += std::abs(ir::double_from_bits(a.dtype(), bits_at(a, i)) * ir::double_from_bits(b.dtype(), bits_at(b, i)));
  return sum;
}
// x + step * v, in f64.
Tensor moved(const Tensor& x, const Tensor& v, double step) {
  Tensor y = Tensor::empty(x.dtype(), x.dims());
  for (int64_t i = 0; i < x.elements(); ++i)
    set_bits(y, i,
             ir::bits_from_double(DType::f64, ir::double_from_bits(DType::f64, bits_at(x, i)) +
                                                  step * ir::double_from_bits(DType::f64, bits_at(v, i))));
  return y;
}

// <w, (f(x + h v) - f(x - h v)) / 2h> == <f's gradient of w, v>, in f64 but for what is kept in f32.
TEST_P(Declared, TheGradientIsTheForwardOpsDerivative) {
  Random random(7);
  const auto in_f32 = [](const DeclaredOperand& o) { return !o.dtypes.empty() && o.dtypes[0] == DType::f32; };
  const double tolerance = std::any_of(d().outputs.begin(), d().outputs.end(), in_f32) ? 1e-4 : 3e-6;
  for (const Shape& shape : shapes_of(d())) {
    SCOPED_TRACE(d().name + to_string(shape.dims));
    const std::vector<Tensor> inputs = declared_inputs(d(), shape.dims, shape.attributes, DType::f64, random);
    const std::vector<Tensor> outputs = forward(GetParam()->forward(), inputs, shape.attributes);
    const std::vector<Tensor> given = gradient_inputs(d(), inputs, outputs, random);
    const std::vector<Tensor> gradients =
        testing_ops::run(GetParam()->gradient(), given, gradient_attributes(d(), shape.attributes));
    for (size_t g = 0; g < gradients.size(); ++g) {
      size_t x = 0;
      while ("d_" + d().inputs[x].name != d().gradient.outputs[g].of) ++x;
      const Tensor direction = random.values(DType::f64, inputs[x].dims());
      const double step = 1e-5;
      std::vector<Tensor> ahead = inputs, behind = inputs;
      ahead[x] = moved(inputs[x], direction, step), behind[x] = moved(inputs[x], direction, -step);
      const std::vector<Tensor> after = forward(GetParam()->forward(), ahead, shape.attributes),
                                before = forward(GetParam()->forward(), behind, shape.attributes);
      double difference = 0, scale = 0;
      for (size_t i = 0; i < given.size(); ++i) {
        if (!d().gradient.inputs[i].of.starts_with("d_")) continue;
        size_t o = 0;
        while ("d_" + d().outputs[o].name != d().gradient.inputs[i].of) ++o;
        difference += (dot(after[o], given[i]) - dot(before[o], given[i])) / (2 * step);
        scale += size(outputs[o], given[i]);
      }
      scale += size(gradients[g], direction);
      EXPECT_NEAR(dot(gradients[g], direction), difference, tolerance * scale) << "by " << d().inputs[x].name;
    }
  }
}

// Every dtype, dense and strided, specialised and any-shape, scheduled; accumulated: what was there and the gradient.
TEST_P(Declared, EveryCallOfTheGradientIsDerived) {
  Random random(8);
  for (const DType dtype : floats)
    for (const Shape& shape : shapes_of(d())) {
      const std::vector<Tensor> inputs = declared_inputs(d(), shape.dims, shape.attributes, dtype, random);
      const std::vector<Tensor> outputs = forward(GetParam()->forward(), inputs, shape.attributes);
      const std::vector<Tensor> given = gradient_inputs(d(), inputs, outputs, random);
      std::vector<Strided> copies;
      copies.reserve(given.size());  // tensors point into them
      std::vector<Tensor> strided;
      for (const Tensor& t : given) copies.push_back(strided_copy(t)), strided.push_back(copies.back().tensor);
      const Attributes attributes = gradient_attributes(d(), shape.attributes);
      const Op& op = GetParam()->gradient();
      for (const bool any_shape : {false, true})
        for (const bool scheduled : {false, true}) {
          SCOPED_TRACE(fmt::format("{} {} {} any shape {} scheduled {}", op.schema().name, to_string(dtype),
                                   to_string(shape.dims), any_shape, scheduled));
          const How how{.any_shape = any_shape, .scheduled = scheduled};
          const std::vector<Tensor> dense = testing_ops::run(op, given, attributes, how);
          How adding = how;
          adding.accumulate = true;
          std::vector<Tensor> old;
          for (const Tensor& t : dense)
            old.push_back(Tensor::of(t.dtype(), t.dims(), std::vector<int>(t.elements(), 2)));
          const std::vector<Tensor> sums = testing_ops::run(op, strided, attributes, adding, old);
          for (size_t o = 0; o < dense.size(); ++o)
            for (int64_t i = 0; i < dense[o].elements(); ++i) {
              const double fresh = ir::double_from_bits(dense[o].dtype(), bits_at(dense[o], i)),
                           sum = ir::double_from_bits(dense[o].dtype(), bits_at(sums[o], i));
              const double ulp = std::ldexp(1.0, -info_of(dense[o].dtype()).mantissa_bits);
              ASSERT_NEAR(sum, fresh + 2, 4 * ulp * (std::abs(fresh) + 3)) << op.schema().outputs[o].name << " " << i;
            }
        }
    }
}

TEST_P(Declared, AForwardOpDoesNotAccumulate) {
  Random random(9);
  const std::vector<Tensor> inputs = declared_inputs(d(), {3, 4}, {}, DType::f32, random);
  const Operands operands(GetParam()->forward().schema(), inputs);
  const Attributes none;
  EXPECT_THROW(GetParam()->forward().check(operands.request(none, ~0u, true)), Error);
}

INSTANTIATE_TEST_SUITE_P(Ops, Declared, testing::ValuesIn(all_declared_ops()),
                         [](const auto& info) { return info.param->declaration().name; });

std::string refusal(const std::string& op, const std::vector<Tensor>& inputs, const Attributes& attributes = {}) {
  try {
    testing_ops::run(*find_op(op), inputs, attributes);
  } catch (const Error& error) {
    return error.what();
  }
  return "taken";
}

// The sum of 20,000 weights that are no binary fractions, which the gradient divides by, keeps the forward op's tree.
TEST(DeclaredSums, ThatAGradientComputesAgainKeepTheirOrder) {
  constexpr int64_t n = 20000;
  const std::vector<float> log_half(2 * n, std::log(0.5f));
  std::vector<int64_t> labels(n);
  double total = 0;
  const std::vector<float> weights{0.1f, 0.7f};
  for (int64_t i = 0; i < n; ++i) labels[i] = i % 3 == 0, total += static_cast<double>(weights[labels[i]]);
  const Tensor gradient = run(*find_op("SoftmaxCrossEntropyLossGrad"),
                              {Tensor::of(DType::f32, {}, std::vector{1.0f}), Tensor::of(DType::f32, {n, 2}, log_half),
                               Tensor::of(DType::i64, {n}, labels), Tensor::of(DType::f32, {2}, weights)},
                              {})[0];
  const double want = 0.5 * static_cast<double>(weights[1]) / total;  // of label 1 and class 0
  EXPECT_NEAR(ir::double_from_bits(DType::f32, bits_at(gradient, 0)), want, 1e-6 * want);
}

// The chain rule from the upstream gradient on would be inf * 0.
TEST(DeclaredElementwise, TheUpstreamGradientIsMultipliedLast) {
  for (const char* op : {"GeluGrad", "FastGeluGrad"}) {
    const std::vector<float> upstream{HUGE_VALF, -HUGE_VALF, 3e38f, HUGE_VALF, 3e38f}, x{30, 2, 30, -3, 0};
    const Tensor gradient =
        run(*find_op(op), {Tensor::of(DType::f32, {5}, upstream), Tensor::of(DType::f32, {5}, x)}, {})[0];
    const std::vector<double> want{HUGE_VAL, -HUGE_VAL, upstream[2], -HUGE_VAL, 1.5e38f};
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_EQ(ir::double_from_bits(DType::f32, bits_at(gradient, static_cast<int64_t>(i))), want[i]) << op << i;
  }
  const Tensor gradient = run(*find_op("ReluGrad"),
                              {Tensor::of(DType::f32, {2}, std::vector{HUGE_VALF, HUGE_VALF}),
                               Tensor::of(DType::f32, {2}, std::vector{-1.0f, 1.0f})},
                              {})[0];
  EXPECT_EQ(ir::double_from_bits(DType::f32, bits_at(gradient, 0)), 0);
  EXPECT_EQ(ir::double_from_bits(DType::f32, bits_at(gradient, 1)), HUGE_VAL);
}

TEST(DeclaredRefusals, SayWhatIsWrong) {
  Random random(10);
  const auto f32 = [&](const Dims& dims) { return random.values(DType::f32, dims); };
  EXPECT_EQ(refusal("ReluGrad", {f32({2, 3}), f32({3, 2})}),
            "ReluGrad: input 1 (X) has shape [3,2]; with input 0 (dY) of shape [2,3] it must be [2,3]");
  EXPECT_EQ(refusal("ReluGrad", {f32({2}), random.values(DType::f64, {2})}),
            "ReluGrad: input 1 (X) is float64; it must be float32 as input 0 (dY)");
  EXPECT_EQ(refusal("Softmax", {f32({2, 3})}, {{"axis", int64_t{2}}}),
            "Softmax: attribute axis is 2; it must be in [-2, 1] for rank 2");
  EXPECT_EQ(refusal("Softmax", {f32({})}), "Softmax: attribute axis is -1; rank 0 has no axes");
  EXPECT_EQ(refusal("LayerNormalization", {f32({2, 3}), f32({2})}),
            "LayerNormalization: input 1 (Scale) has shape [2]; with input 0 (X) of shape [2,3] it must be [3]");
  const std::vector<Tensor> loss{f32({2, 3}), Tensor::of(DType::i64, {2}, std::vector<int>{0, 3})};
  EXPECT_EQ(refusal("SoftmaxCrossEntropyLoss", loss),
            "SoftmaxCrossEntropyLoss: input 1 (labels)[1] is 3; it must be in [0, 2]");
  EXPECT_EQ(refusal("SoftmaxCrossEntropyLoss", {f32({2, 0}), loss[1]}),
            "SoftmaxCrossEntropyLoss: input 1 (labels)[0] is 0; no index is allowed, since the dim that it is of is 0");
  EXPECT_EQ(refusal("SoftmaxCrossEntropyLoss", {f32({2}), loss[1]}),
            "SoftmaxCrossEntropyLoss: input 0 (scores) has rank 1 (shape [2]); it must have at least rank 2");
  EXPECT_EQ(refusal("SoftmaxCrossEntropyLoss", loss, {{"reduction", std::string("all")}}),
            "SoftmaxCrossEntropyLoss: attribute reduction is \"all\"; it must be one of mean, none, sum");
  EXPECT_EQ(refusal("SoftmaxCrossEntropyLossGrad", {f32({}), loss[0], loss[1]}),
            "SoftmaxCrossEntropyLossGrad: input 2 (label)[1] is 3; it must be in [0, 2]");
}

}  // namespace
}  // namespace gradloom
