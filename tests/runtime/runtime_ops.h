#pragma once
// Ops defined by the tests, so that the runtime is tested without the library's; the text of a refusal.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

#include "gradloom/op.h"
#include "gradloom/runtime.h"

namespace gradloom::testing {

// y = x * factor + offset and, when requested, z = -x. `factor` is a parameter: its value does not change the code;
// `offset` does.
class ScaleOp final : public Op {
 public:
  mutable std::atomic<int> authored{0};
  mutable std::atomic<int> failures{0};  // this many of the next builds fail
  int author_ms = 0;

  ScaleOp()
      : Op({.name = "Scale",
            .doc = "y = x * factor + offset",
            .inputs = {{.name = "x", .dtypes = {DType::f32}},
                       {.name = "factor", .dtypes = {DType::i64}, .shape_like = true}},
            .outputs = {{.name = "y", .dtypes = {DType::f32}}, {.name = "z", .optional = true, .dtypes = {DType::f32}}},
            .attributes = {{.name = "offset", .type = "int"}}},
           {{.name = "direct",
             .author = [this](KernelFrame& frame, const ir::Target&) { return author(frame, false); }},
            {.name = "two_loops",
             .author = [this](KernelFrame& frame, const ir::Target&) { return author(frame, true); }}}) {}

 private:
  Plan plan(const Request& request) const override {
    const Operand& x = request.input(0);
    Plan plan;
    plan.views.push_back({.index = 0, .dtype = x.dtype, .dims = x.dims, .strides = x.strides});
    for (int o = 0; o < 2; ++o) {
      const bool wanted = request.outputs_wanted >> o & 1;
      plan.outputs.push_back({.wanted = wanted, .dtype = x.dtype, .dims = x.dims});
      if (wanted)
        plan.views.push_back(
            {.output = true, .index = o, .dtype = x.dtype, .dims = x.dims, .strides = dense_strides(x.dims)});
    }
    plan.params.push_back(read_ints(schema(), request, 1)[0]);
    plan.key = {int_attribute(request, "offset", 0), request.accumulate};
    return plan;
  }

  ScheduleNest author(KernelFrame& frame, bool reversed) const {
    ++authored;
    std::this_thread::sleep_for(std::chrono::milliseconds(author_ms));
    if (failures > 0) {
      --failures;
      throw Error(ErrorCode::compile_failed, "Scale: told to fail");
    }
    const Plan& plan = frame.plan();
    const bool accumulate = plan.key[1] != 0;
    const ir::Buffer x = frame.view(0, "x");
    std::vector<std::pair<int, ir::Buffer>> outputs;
    for (int v = 1; v < plan.views.size(); ++v)
      outputs.emplace_back(plan.views[v].index, frame.view(v, v == 1 ? "y" : "z", accumulate));
    const ir::Expr factor = ir::cast(DType::f32, frame.param(0, "factor"));
    const auto write = [&](int o, const ir::Buffer& out) {
      frame.builder.loops("i", x->dims, [&](const std::vector<ir::Expr>& i) {
        ir::Expr value = o == 0 ? ir::load(x, i) * factor + ir::constant(DType::f32, static_cast<double>(plan.key[0]))
                                : ir::unary(ir::UnaryOp::neg, ir::load(x, i));
        if (accumulate) {
          frame.builder.accumulate(out, i, value);
        } else {
          frame.builder.store(out, i, value);
        }
      });
    };
    if (reversed) std::reverse(outputs.begin(), outputs.end());
    for (const auto& [o, out] : outputs) write(o, out);
    return {};
  }
};

// y[i] = table[index[i]], where each index must be in range. A negative y[0] trims y to one element: an output size
// that only the kernel determines.
class LookUpOp final : public Op {
 public:
  LookUpOp()
      : Op({.name = "LookUp",
            .doc = "y = table[index]",
            .inputs = {{.name = "table", .dtypes = {DType::f32}}, {.name = "index", .dtypes = {DType::i64}}},
            .outputs = {{.name = "y", .dtypes = {DType::f32}, .found_size = true}}},
           {{.name = "direct", .author = author}}) {}
  Dims found_dims(const Plan& plan, int, std::span<void* const> outputs) const override {
    float first = 0;
    if (plan.outputs[0].dims[0] == 0) return plan.outputs[0].dims;
    std::memcpy(&first, outputs[0], sizeof(first));
    return first < 0 ? Dims{1} : plan.outputs[0].dims;
  }
  Error explain(const Request&, const Plan&, int64_t bad_position,
                const std::function<int64_t(int, int64_t)>& values) const override {
    return Error(ErrorCode::out_of_range,
                 "LookUp: index[" + std::to_string(bad_position) + "] is " + std::to_string(values(1, bad_position)));
  }

 private:
  Plan plan(const Request& request) const override {
    Plan plan;
    const Operand &table = request.input(0), &index = request.input(1);
    plan.outputs.push_back({.dtype = DType::f32, .dims = index.dims});
    plan.views.push_back({.index = 0, .dtype = DType::f32, .dims = table.dims, .strides = table.strides});
    plan.views.push_back({.index = 1, .dtype = DType::i64, .dims = index.dims, .strides = index.strides});
    plan.views.push_back(
        {.output = true, .index = 0, .dtype = DType::f32, .dims = index.dims, .strides = dense_strides(index.dims)});
    return plan;
  }
  static ScheduleNest author(KernelFrame& frame, const ir::Target&) {
    ir::KernelBuilder& b = frame.builder;
    const ir::Buffer table = frame.view(0, "table"), index = frame.view(1, "index"), y = frame.view(2, "y");
    b.loop("i", 0, index->dims[0], [&](ir::Expr i) {
      const ir::Expr at = b.let("at", ir::load(index, {i}));
      b.check((at >= 0) & (at < table->dims[0]), i, "index", [&] { b.store(y, {i}, ir::load(table, {at})); });
    });
    return {};
  }
};

// Inputs and expected outputs of the tests of these ops.
inline RuntimeOptions interpreted() { return {.target = TargetKind::interpreter, .threads = 2}; }
inline Tensor floats(const Dims& dims, const std::vector<float>& values) {
  return Tensor::of(DType::f32, dims, values);
}
inline Tensor factor(int64_t value) { return Tensor::of(DType::i64, {1}, std::vector<int64_t>{value}); }
inline std::vector<float> values_of(const Tensor& t) {
  return {static_cast<const float*>(t.data()), static_cast<const float*>(t.data()) + t.elements()};
}
using Values = std::vector<float>;

template <class T>
void expect_refused(const Result<T>& result, ErrorCode code, std::initializer_list<const char*> words) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), code) << result.error().what();
  for (const char* word : words)
    EXPECT_NE(std::string(result.error().what()).find(word), std::string::npos)
        << result.error().what() << " lacks " << word;
}

}  // namespace gradloom::testing
