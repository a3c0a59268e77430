// Adversarial inputs of GPU kernels, through cuda-host: arbitrary indices, empty tensors, strides that are negative,
// zero or reach past 2^31 elements; and plans of tensors larger than any memory, whose launches are walked without
// running.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <limits>

#include "codegen/cuda/module.h"
#include "ir/analysis/verify_gpu.h"
#include "runtime/backend/backend.h"
#include "tests/support/named_strategy.h"
#include "tests/support/op_calls.h"

namespace gradloom {
namespace {

using namespace testing_ops;

constexpr int64_t most64 = std::numeric_limits<int64_t>::max(), least64 = std::numeric_limits<int64_t>::min();

Runtime& host_gpu() {
  static Runtime runtime({.target = TargetKind::cuda_host});
  return runtime;
}
Runtime& interpreter() {
  static Runtime runtime({.target = TargetKind::interpreter});
  return runtime;
}

// An output between guard bytes that must stay unmodified.
class Guarded {
 public:
  Guarded(DType dtype, const Dims& dims)
      : bytes_(element_count(dims) * size_of(dtype)), memory_(Tensor::empty(DType::u8, {bytes_ + 2 * margin})) {
    std::memset(memory_.data(), pattern, static_cast<size_t>(bytes_ + 2 * margin));
    tensor = Tensor::borrow(static_cast<char*>(memory_.data()) + margin, dtype, dims);
  }
  bool intact() const {
    const auto* p = static_cast<const uint8_t*>(memory_.data());
    const auto clean = [](const uint8_t* from) {
      return std::all_of(from, from + margin, [](uint8_t b) { return b == pattern; });
    };
    return clean(p) && clean(p + margin + bytes_);
  }
  Tensor tensor;

 private:
  static constexpr int64_t margin = 4096;
  static constexpr uint8_t pattern = 0xab;
  int64_t bytes_;
  Tensor memory_;
};

// A call whose input `indices` has `bad` at `position`.
std::vector<Tensor> with_index(std::vector<Tensor> inputs, size_t indices, int64_t position, int64_t bad) {
  const Tensor& old = inputs[indices];
  Tensor copy = Tensor::empty(old.dtype(), old.dims());
  std::memcpy(copy.data(), old.data(), static_cast<size_t>(old.elements() * size_of(old.dtype())));
  std::memcpy(static_cast<char*>(copy.data()) + position * size_of(old.dtype()), &bad,
              static_cast<size_t>(size_of(old.dtype())));
  inputs[indices] = copy;
  return inputs;
}

TEST(CudaBounds, ABadIndexIsReportedAndWritesNothingOutside) {
  Random random(11);
  struct BadCall {
    std::string op;
    Dims shape, indices, dy;
    int64_t axis;
  };
  const std::vector<BadCall> calls{{"GatherElementsGrad", {7, 40}, {11, 40}, {11, 40}, 0},
                                   {"GatherElementsGrad", {5, 33}, {5, 70}, {5, 70}, 1},
                                   {"GatherElementsGrad", {3001}, {300}, {300}, 0},
                                   {"GatherGrad", {50, 24}, {36}, {36, 24}, 0},
                                   {"GatherGrad", {4, 31}, {9}, {4, 9}, 1},
                                   {"GatherGrad", {2000}, {300}, {300}, 0}};
  for (const BadCall& call : calls)
    for (const DType index_type : {DType::i64, DType::i32}) {
      const int64_t extent = call.shape[static_cast<int>(call.axis)];
      const Tensor dy = random.values(DType::f32, call.dy), indices = random.indices(index_type, call.indices, extent),
                   shape = shape_tensor(call.shape);
      const bool elements = call.op == "GatherElementsGrad";
      const std::vector<Tensor> good =
          elements ? std::vector<Tensor>{dy, shape, indices} : std::vector<Tensor>{shape, indices, dy};
      const size_t at = elements ? 2 : 1;
      const Attributes attributes{{"axis", call.axis}};
      const Operands operands(find_op(call.op)->schema(), good);
      const Plan plan = find_op(call.op)->check(operands.request(attributes));
      std::vector<int64_t> bad{extent, -extent - 1, 2147483647, -2147483647 - 1};
      if (index_type == DType::i64)
        bad.insert(bad.end(), {most64, least64, int64_t{1} << 31, int64_t{1} << 32, (int64_t{1} << 32) + 1,
                               -(int64_t{1} << 32), (int64_t{1} << 63 >> 1) + 2});
      for (const bool any_shape : {false, true})
        for (const std::string& strategy : serving_names(*find_op(call.op), plan, host_gpu().target(), any_shape))
          for (size_t k = 0; k < bad.size(); ++k) {
            const int64_t value = bad[k], n = indices.elements();
            const int64_t position = k % 3 == 0 ? 0 : k % 3 == 1 ? n / 2 + 1 : n - 1;
            {
              SCOPED_TRACE(fmt::format("{} {} {} {}: index {} at {}", call.op, to_string(call.shape), strategy,
                                       any_shape ? "any shape" : "", value, position));
              const std::vector<Tensor> inputs = with_index(good, at, position, value);
              const auto want = interpreter().run(call.op, inputs, attributes);
              ASSERT_FALSE(want);
              Guarded out(DType::f32, call.shape);
              const auto got = host_gpu().run_into(call.op, inputs, std::span(&out.tensor, 1), attributes,
                                                   {.strategy = strategy, .any_shape = any_shape});
              ASSERT_FALSE(got);
              EXPECT_EQ(got.error().code(), ErrorCode::out_of_range);
              EXPECT_STREQ(got.error().what(), want.error().what());
              ASSERT_TRUE(out.intact());
            }
          }
      // And the next call succeeds.
      EXPECT_TRUE(host_gpu().run(call.op, good, attributes));
    }
}

// The interpreter's bits, by the specialised and the any-shape kernel.
void expect_same(const std::string& op, const std::vector<Tensor>& inputs, const Attributes& attributes,
                 const std::vector<Tensor>& reference_inputs) {
  const auto want = interpreter().run(op, reference_inputs, attributes);
  ASSERT_TRUE(want) << want.error().what();
  for (const bool any_shape : {false, true}) {
    const auto got = host_gpu().run(op, inputs, attributes, {.any_shape = any_shape});
    ASSERT_TRUE(got) << got.error().what();
    ASSERT_EQ(got.value().size(), want.value().size());
    for (size_t o = 0; o < want.value().size(); ++o) {
      const Tensor &g = got.value()[o], &w = want.value()[o];
      EXPECT_EQ(g.dims(), w.dims());
      if (w.elements() == 0) continue;
      EXPECT_EQ(std::memcmp(g.data(), w.data(), static_cast<size_t>(w.elements() * size_of(w.dtype()))), 0)
          << op << (any_shape ? " any shape" : "") << ", output " << o;
    }
  }
}
void expect_same(const std::string& op, const std::vector<Tensor>& inputs, const Attributes& attributes = {}) {
  expect_same(op, inputs, attributes, inputs);
}

TEST(CudaBounds, NothingIsNothingEverywhere) {
  Random random(12);
  const auto values = [&](const Dims& dims) { return random.values(DType::f32, dims); };
  const auto none = [&](const Dims& dims) { return Tensor::empty(DType::i64, dims); };
  const Attributes axis0{{"axis", int64_t{0}}}, axis1{{"axis", int64_t{1}}};
  expect_same("SliceGrad", {values({0, 4}), shape_tensor({3, 4}), ints({2}), ints({2}), ints({0})});
  expect_same("SliceGrad", {values({0}), shape_tensor({0}), ints({0}), ints({5}), ints({0})});
  expect_same("SliceGrad", {values({3, 0}), shape_tensor({3, 0}), ints({0}), ints({5}), ints({0})});
  expect_same("GatherElementsGrad", {values({0, 4}), shape_tensor({3, 4}), none({0, 4})}, axis0);
  expect_same("GatherElementsGrad", {values({3, 0}), shape_tensor({3, 4}), none({3, 0})}, axis1);
  expect_same("GatherElementsGrad", {values({0}), shape_tensor({0}), none({0})}, axis0);
  expect_same("GatherElementsGrad", {values({0, 2}), shape_tensor({0, 4}), none({0, 2})}, axis1);
  expect_same("GatherGrad", {shape_tensor({0, 3}), none({0}), values({0, 3})}, axis0);
  expect_same("GatherGrad", {shape_tensor({4, 3}), none({0}), values({0, 3})}, axis0);
  expect_same("GatherGrad", {shape_tensor({4, 0}), ints({1, 2}), values({2, 0})}, axis0);
  expect_same("GatherGrad", {shape_tensor({0, 4}), ints({1, 2}), values({0, 2})}, axis1);
  expect_same("GatherGrad", {shape_tensor({4, 3}), none({2, 0, 5}), values({2, 0, 5, 3})}, axis0);
  expect_same("BroadcastGrad", {values({3, 0}), shape_tensor({0})});
  expect_same("BroadcastGrad", {values({0, 3}), shape_tensor({3})});
  expect_same("BroadcastGrad", {values({3, 0}), shape_tensor({3, 1})});
  expect_same("BroadcastGrad", {values({0, 0}), shape_tensor({})});
  expect_same("BroadcastGrad", {values({0, 5, 0}), shape_tensor({5, 0})});
  expect_same("BroadcastGrad", {values({}), shape_tensor({})});
  for (const auto& [s, n, i] : {std::tuple<int64_t, int64_t, int64_t>{0, 2, 3}, {3, 0, 3}, {3, 2, 0}, {0, 0, 0}}) {
    SCOPED_TRACE(fmt::format("GRU of {} steps, {} rows, {} inputs", s, n, i));
    std::vector<Tensor> in{values({s, n, i}), values({1, 12, i}), values({1, 12, 4}), values({1, 24}), {},
                           values({1, n, 4})};
    expect_same("GRUTraining", in);
    const auto forward = interpreter().run("GRUTraining", in);
    ASSERT_TRUE(forward) << forward.error().what();
    in.insert(in.end(), {forward.value()[0], forward.value()[2], values({s, 1, n, 4}), values({1, n, 4})});
    expect_same("GRUGrad", in);
  }
}

// The same elements, from last to first along every axis.
Tensor backwards(const Tensor& t) {
  Tensor copy = Tensor::empty(t.dtype(), t.dims());
  const int size = size_of(t.dtype());
  const int64_t n = t.elements();
  for (int64_t i = 0; i < n; ++i)
    std::memcpy(static_cast<char*>(copy.data()) + (n - 1 - i) * size, static_cast<const char*>(t.data()) + i * size,
                static_cast<size_t>(size));
  Dims strides = t.strides();
  for (int64_t& s : strides) s = -s;
  // The copy owns the memory.
  auto owner = std::make_shared<Tensor>(copy);
  return Tensor::share(owner, static_cast<char*>(copy.data()) + (n - 1) * size, t.dtype(), t.dims(), strides);
}

TEST(CudaBounds, StridesMayGoBackwards) {
  Random random(13);
  const Attributes axis0{{"axis", int64_t{0}}}, axis1{{"axis", int64_t{1}}};
  const Tensor rows = random.values(DType::f32, {11, 40}), many = random.values(DType::bf16, {6, 5, 33});
  const Tensor at = random.indices(DType::i64, {11, 40}, 7), along = random.indices(DType::i32, {11, 40}, 7),
               few = random.indices(DType::i64, {11}, 9);
  const auto both = [](const std::string& op, const std::vector<Tensor>& plain, std::initializer_list<size_t> turned,
                       const Attributes& attributes = {}) {
    std::vector<Tensor> inputs = plain;
    for (const size_t i : turned) inputs[i] = backwards(plain[i]);
    expect_same(op, inputs, attributes, plain);
  };
  both("SliceGrad", {rows, shape_tensor({20, 50}), ints({2, 3}), ints({13, 43})}, {0});
  both("GatherElementsGrad", {rows, shape_tensor({7, 40}), at}, {0, 2}, axis0);
  both("GatherElementsGrad", {rows, shape_tensor({11, 7}), along}, {0, 2}, axis1);
  both("GatherGrad", {shape_tensor({9, 40}), few, rows}, {1, 2}, axis0);
  both("BroadcastGrad", {many, shape_tensor({5, 1})}, {0});
  both("BroadcastGrad", {many, shape_tensor({33})}, {0});
}

TEST(CudaBounds, StridesMayStandStill) {
  Random random(14);
  const Tensor row = random.values(DType::f32, {40}), one = random.values(DType::f32, {1});
  const Tensor rows = Tensor::borrow(row.data(), DType::f32, {11, 40}, {0, 1}),
               all = Tensor::borrow(one.data(), DType::f32, {11, 40}, {0, 0});
  const Tensor at = random.indices(DType::i64, {11, 40}, 7);
  expect_same("SliceGrad", {rows, shape_tensor({20, 50}), ints({2, 3}), ints({13, 43})});
  expect_same("GatherElementsGrad", {all, shape_tensor({7, 40}), at}, {{"axis", int64_t{0}}});
  expect_same("GatherGrad", {shape_tensor({9, 40}), random.indices(DType::i64, {11}, 9), rows}, {{"axis", int64_t{0}}});
  expect_same("BroadcastGrad", {rows, shape_tensor({11, 1})});
}

// Rows 2^31 elements and more apart, in reserved but untouched memory.
class Far {
 public:
  static constexpr int64_t apart = (int64_t{1} << 31) + 8, rows = 3;
  Far() { memory_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0); }
  ~Far() {
    if (memory_ != MAP_FAILED) munmap(memory_, bytes);
  }
  bool there() const { return memory_ != MAP_FAILED; }
  // The rows of a dense tensor, from the first on or from the last.
  Tensor scattered(const Tensor& dense, bool reverse) const {
    const int64_t length = dense.elements() / rows, size = size_of(dense.dtype());
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(static_cast<char*>(memory_) + (reverse ? rows - 1 - r : r) * apart * size,
                  static_cast<const char*>(dense.data()) + r * length * size, static_cast<size_t>(length * size));
    Dims strides = dense.strides();
    strides[0] = reverse ? -apart : apart;
    return Tensor::borrow(static_cast<char*>(memory_) + (reverse ? (rows - 1) * apart * size : 0), dense.dtype(),
                          dense.dims(), strides);
  }

 private:
  static constexpr size_t bytes = static_cast<size_t>(rows * apart * 8);
  void* memory_;
};

TEST(CudaBounds, OffsetsPastThirtyOneBits) {
  const Far far, farther;
  if (!far.there() || !farther.there()) GTEST_SKIP() << "this machine names no 100 GB of memory";
  Random random(15);
  const Tensor dy = random.values(DType::f32, {3, 40}), at = random.indices(DType::i64, {3, 40}, 7),
               few = random.indices(DType::i64, {3}, 9);
  for (const bool reverse : {false, true}) {
    const Tensor far_dy = far.scattered(dy, reverse), far_at = farther.scattered(at, reverse);
    expect_same("SliceGrad", {far_dy, shape_tensor({20, 50}), ints({2, 3}), ints({5, 43})}, {},
                {dy, shape_tensor({20, 50}), ints({2, 3}), ints({5, 43})});
    for (const int64_t axis : {0, 1}) {
      const Dims shape = axis == 0 ? Dims{7, 40} : Dims{3, 7};
      expect_same("GatherElementsGrad", {far_dy, shape_tensor(shape), far_at}, {{"axis", axis}},
                  {dy, shape_tensor(shape), at});
    }
    const Tensor far_few = farther.scattered(few, reverse);
    expect_same("GatherGrad", {shape_tensor({9, 40}), far_few, far_dy}, {{"axis", int64_t{0}}},
                {shape_tensor({9, 40}), few, dy});
    for (const Dims& to : {Dims{40}, Dims{3, 1}, Dims{}})
      expect_same("BroadcastGrad", {far_dy, shape_tensor(to)});  // the summation order depends on gaps
  }
}

// Launch dims and scratch of plans whose tensors are never allocated.
TEST(CudaBounds, LaunchesOfHugeTensors) {
  static const float nothing = 0;
  const auto claimed = [](DType dtype, const Dims& dims) {
    return Tensor::borrow(static_cast<const void*>(&nothing), dtype, dims);
  };
  const int64_t big = 3'000'000'000, wide = 70'000, vast = 3'000'000;
  const std::vector<Call> calls{
      {"slice_bytes",
       "SliceGrad",
       {claimed(DType::u8, {wide, wide - 2}), shape_tensor({wide, wide}), ints({1}), ints({-1}), ints({1})},
       {}},
      {"slice_vast",
       "SliceGrad",
       {claimed(DType::u8, {vast, vast}), shape_tensor({vast, vast + 1}), ints({0}), ints({-1}), ints({1})},
       {}},
      {"slice_rows",
       "SliceGrad",
       {claimed(DType::f64, {3, big}), shape_tensor({5, big}), ints({1}), ints({4}), ints({0})},
       {}},
      {"elements_flat",
       "GatherElementsGrad",
       {claimed(DType::f32, {100}), shape_tensor({big}), claimed(DType::i64, {100})},
       {{"axis", int64_t{0}}}},
      {"elements_columns",
       "GatherElementsGrad",
       {claimed(DType::f32, {4, big}), shape_tensor({5, big}), claimed(DType::i64, {4, big})},
       {{"axis", int64_t{0}}}},
      {"elements_tall",
       "GatherElementsGrad",
       {claimed(DType::f32, {big, 2}), shape_tensor({big, 2}), claimed(DType::i64, {big, 2})},
       {{"axis", int64_t{0}}}},
      {"elements_rows",
       "GatherElementsGrad",
       {claimed(DType::bf16, {big, 5}), shape_tensor({big, 4}), claimed(DType::i64, {big, 5})},
       {{"axis", int64_t{1}}}},
      {"rows",
       "GatherGrad",
       {shape_tensor({big, 4}), claimed(DType::i64, {1000}), claimed(DType::f32, {1000, 4})},
       {{"axis", int64_t{0}}}},
      {"long_rows",
       "GatherGrad",
       {shape_tensor({4, big}), claimed(DType::i32, {9}), claimed(DType::f32, {9, big})},
       {{"axis", int64_t{0}}}},
      {"sum_rows", "BroadcastGrad", {claimed(DType::f32, {big, 3}), shape_tensor({3})}, {}},
      {"sum_columns", "BroadcastGrad", {claimed(DType::f32, {big, 3}), shape_tensor({big, 1})}, {}},
      {"sum_all", "BroadcastGrad", {claimed(DType::f16, {wide, wide}), shape_tensor({})}, {}},
      {"sum_vast", "BroadcastGrad", {claimed(DType::f16, {vast, 2, vast}), shape_tensor({vast, 1, vast})}, {}},
  };
  const ir::Target target = host_gpu_target();
  int64_t walked = 0, strided = 0;
  for (const Call& call : calls) {
    const Op& op = *find_op(call.op);
    const Operands operands(op.schema(), call.inputs);
    const Plan plan = op.check(operands.request(call.attributes));
    for (const bool any_shape : {false, true})
      for (const std::string& strategy : serving_names(op, plan, target, any_shape)) {
        if (strategy == "direct" && any_shape)
          continue;  // the definition: a loop not proved parallel runs on the host, one launch per iteration
        const std::string name = call.op + " " + call.name + " " + strategy + (any_shape ? " any shape" : "");
        SCOPED_TRACE(name);
        const BuiltKernel built = build_kernel(op, plan, strategy, target, any_shape, 64, false);
        const codegen::CudaModule module = codegen::emit_cuda(built.lowered);
        std::vector<int64_t> scalars(built.sources.size());
        fill_scalars(plan, built.sources, scalars.data());
        std::vector<void*> buffers(static_cast<size_t>(module.buffers));
        char memory = 0;
        int64_t launches = 0, threads = 0;
        const codegen::LaunchSink sink{
            .acquire =
                [&](int64_t bytes) {
                  EXPECT_GT(bytes, 0);
                  return static_cast<void*>(&memory);
                },
            .release = [](void*, int64_t) {},
            .zero = [](void*, int64_t) {},
            .launch =
                [&](const codegen::CudaFunction& function, int64_t blocks, std::span<void*>) {
                  if (++launches > 10000) throw Error(ErrorCode::internal, name + " has a launch a row or an element");
                  EXPECT_GE(blocks, 1);
                  EXPECT_LE(blocks, 2147483647);
                  EXPECT_EQ(function.threads % 32, 0);
                  EXPECT_LE(function.threads, 1024);
                  EXPECT_LE(function.shared_bytes, target.shared_bytes);
                  threads += blocks;
                  strided += blocks == 2147483647;
                }};
        codegen::launch_all(module, buffers, scalars, nullptr, sink);
        EXPECT_GT(threads, 0);
        ++walked;
      }
  }
  std::cout << walked << " kernels walked, " << strided << " launches whose grid strides\n";
  EXPECT_GT(strided, 0);
}

}  // namespace
}  // namespace gradloom
