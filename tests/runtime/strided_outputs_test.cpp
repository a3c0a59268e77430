// Outputs with any strides: the dense run's bits in their elements, and nothing written between them.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>

#include "cli/cases.h"
#include "tests/runtime/runtime_ops.h"
#include "tests/support/sampled.h"
#include "tests/support/targets.h"

namespace gradloom {
namespace {

using namespace testing;

constexpr unsigned char poison = 0xa5;

// Memory of an output with gaps, all poison.
struct Gapped {
  Gapped(const Tensor& like, const Dims& strides) : strides_(strides), width(size_of(like.dtype())) {
    int64_t low = 0, high = 0;
    for (int d = 0; d < strides.size() && like.elements() > 0; ++d) {
      const int64_t reach = (like.dims()[d] - 1) * strides[d];
      (reach < 0 ? low : high) += reach;
    }
    bytes.assign(static_cast<size_t>((high - low + 1) * width + 128), poison);
    first = 64 - reinterpret_cast<uintptr_t>(bytes.data()) % 64 - low * width;
    tensor = Tensor::borrow(static_cast<void*>(bytes.data() + first), like.dtype(), like.dims(), strides);
  }
  // The position in memory of each element, row-major.
  void each(const std::function<void(int64_t element, unsigned char* at)>& visit) {
    for (int64_t e = 0; e < tensor.elements(); ++e) {
      int64_t rest = e, offset = 0;
      for (int d = tensor.dims().size(); d-- > 0;) {
        offset += rest % tensor.dims()[d] * strides_[d];
        rest /= tensor.dims()[d];
      }
      visit(e, bytes.data() + first + offset * width);
    }
  }
  void write(const Tensor& dense) {
    each([&](int64_t e, unsigned char* at) {
      std::memcpy(at, static_cast<const char*>(dense.data()) + e * width, width);
    });
  }
  // "" when the elements are those and all else is poison.
  std::string differs(const Tensor& dense) {
    std::string wrong;
    each([&](int64_t e, unsigned char* at) {
      if (std::memcmp(at, static_cast<const char*>(dense.data()) + e * width, width) != 0 && wrong.empty())
        wrong = "element " + std::to_string(e);
      std::memset(at, poison, width);
    });
    for (const unsigned char byte : bytes)
      if (byte != poison && wrong.empty()) wrong = "a byte between";
    return wrong;
  }

  Dims strides_;
  int width;
  std::vector<unsigned char> bytes;
  int64_t first = 0;
  Tensor tensor;
};

// Layouts of dims: rows with a gap, every second element, all reversed, the axes in the other order.
std::vector<Dims> layouts(const Dims& dims) {
  const auto from_last = [&](int64_t innermost, int64_t gap) {
    Dims strides = dims;
    int64_t stride = innermost;
    for (int d = dims.size(); d-- > 0;) {
      strides[d] = stride;
      stride = stride * std::max<int64_t>(dims[d], 1) + (d == dims.size() - 1 ? gap : 0);
    }
    return strides;
  };
  Dims reversed = from_last(1, 3), other = dims;
  for (int64_t& stride : reversed) stride = -stride;
  int64_t stride = 1;
  for (int d = 0; d < dims.size(); ++d) other[d] = stride, stride *= std::max<int64_t>(dims[d], 1);
  return {from_last(1, 5), from_last(2, 0), reversed, other};
}

void run_strided(Runtime& runtime, const cases::Case& c, const std::vector<Tensor>& dense, int layout,
                 const RunOptions& options) {
  std::vector<Gapped> memory;
  std::vector<Tensor> outputs;
  memory.reserve(dense.size());
  for (const Tensor& tensor : dense) {
    memory.emplace_back(tensor.present() ? tensor : Tensor::empty(DType::u8, {0}),
                        tensor.present() ? layouts(tensor.dims())[static_cast<size_t>(layout)] : Dims{1});
    outputs.push_back(tensor.present() ? memory.back().tensor : Tensor());
  }
  const auto done = runtime.run_into(c.op, c.inputs, outputs, c.attributes, options);
  ASSERT_TRUE(done.ok()) << done.error().what();
  for (size_t o = 0; o < dense.size(); ++o)
    if (dense[o].present()) EXPECT_EQ(memory[o].differs(dense[o]), "") << c.name << ", layout " << layout;
}

TEST(StridedOutputs, HaveTheDenseBits) {
  size_t number = 0;
  std::set<std::string> ops;
  for (const TargetKind target : {TargetKind::interpreter, TargetKind::automatic}) {
    Runtime runtime({.target = target, .threads = 2});
    std::map<std::string, int> of_op;
    for (const auto& file : cases::find_cases({GRADLOOM_TEST_DIR "/golden"})) {
      const cases::Case c = cases::read_case(file);
      if (c.error || c.op == "BroadcastGradientArgs") continue;
      if (of_op[c.op]++ % (c.op.find("GRU") != std::string::npos ? 9 : 5) != 0) continue;
      ++number;
      const auto dense = cases::call(runtime, c, {});
      ASSERT_TRUE(dense.ok()) << dense.error().what();
      run_strided(runtime, c, dense.value(), static_cast<int>(number % 4), {.any_shape = number % 3 == 0});
      ops.insert(c.op);
    }
  }
  EXPECT_EQ(ops.size(), all_ops().size() - 1) << "all but BroadcastGradientArgs";
}

std::vector<Tensor> gather(const std::vector<float>& upstream) {
  return {Tensor::of<int64_t>(DType::i64, {2}, {4, 3}), Tensor::of<int64_t>(DType::i64, {5}, {2, 0, 2, -1, 1}),
          floats({5, 3}, upstream)};
}

TEST(StridedOutputs, AddByEveryInterface) {
  for (const TargetKind target : all_targets()) {
    Runtime runtime({.target = target, .threads = 2});
    const std::vector<Tensor> inputs = gather({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
    const RunOptions options{.accumulate = true};
    const Tensor start = floats({4, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
    const Tensor want = floats({4, 3}, {5, 7, 9, 17, 19, 21, 15, 18, 21, 20, 22, 24});
    const PreparedOp prepared = runtime.prepare("GatherGrad", {}, options).value();
    const Executable handle = runtime.compile("GatherGrad", inputs, {}, options).value();
    for (const Dims& strides : layouts({4, 3})) {
      if (target == TargetKind::cuda_host && strides[1] != 1) continue;  // seconds of the host's compiler each
      Gapped memory(start, strides);
      std::vector<Tensor> outputs{memory.tensor};
      const auto run = [&](const char* which, const Result<std::monostate>& done) {
        ASSERT_TRUE(done.ok()) << which << ": " << done.error().what();
        EXPECT_EQ(memory.differs(want), "") << which << to_string(strides);
      };
      memory.write(start);
      run("run_into", runtime.run_into("GatherGrad", inputs, outputs, {}, options));
      for (int repeat = 0; repeat < 2; ++repeat) {
        memory.write(start);
        run("prepared", prepared.run_into(inputs, outputs));
      }
      memory.write(start);
      run("handle", handle(inputs, outputs));
    }
    // Dense ones are not taken for those of before.
    std::vector<Tensor> dense{floats({4, 3}, values_of(start))};
    ASSERT_TRUE(prepared.run_into(inputs, dense).ok());
    EXPECT_EQ(values_of(dense[0]), values_of(want));
  }
}

TEST(StridedOutputs, AreWrittenInPlaceWhereViewsSaySo) {
  Runtime runtime(interpreted());
  const std::vector<Tensor> inputs = gather(std::vector<float>(15, 1));
  Gapped rows(Tensor::empty(DType::f32, {4, 3}), {8, 1});
  std::vector<Tensor> outputs{rows.tensor};
  ASSERT_TRUE(runtime.run_into("GatherGrad", inputs, outputs).ok());
  EXPECT_EQ(runtime.stats().launches, 1) << "no copy";
  EXPECT_EQ(runtime.used_calls().size(), 0u) << "which have no strides of outputs";
}

TEST(StridedOutputs, UnderThePolicyGenericFirst) {
  RuntimeOptions options = interpreted();
  options.policy = Policy::generic_first;
  options.specialise_after = 4;
  Runtime runtime(options);
  const PreparedOp prepared = runtime.prepare("GatherGrad").value();
  const std::vector<Tensor> inputs = gather(std::vector<float>(15, 1));
  const Tensor want = floats({4, 3}, {1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1});
  Gapped rows(Tensor::empty(DType::f32, {4, 3}), {8, 1});
  std::vector<Tensor> outputs{rows.tensor};
  for (int call = 0; call < 12; ++call) {
    ASSERT_TRUE(prepared.run_into(inputs, outputs).ok());
    EXPECT_EQ(rows.differs(want), "");
    if (call == 8) runtime.wait_for_background();
  }
  EXPECT_EQ(runtime.stats().specialised, 1);
  EXPECT_EQ(runtime.stats().specialise_refused, 0);
  EXPECT_FALSE(runtime.last_report().any_shape);
}

TEST(StridedOutputs, OfASizeThatIsFound) {
  Runtime runtime(interpreted());
  const auto ints = [](const std::vector<int64_t>& values) {
    return Tensor::of(DType::i64, {static_cast<int64_t>(values.size())}, values);
  };
  int64_t memory[2][6];
  std::fill(memory[0], memory[2], -1);
  std::vector<Tensor> outputs{Tensor::borrow(static_cast<void*>(memory[0]), DType::i64, {3}, {2}),
                              Tensor::borrow(static_cast<void*>(memory[1] + 5), DType::i64, {3}, {-2})};
  const std::vector<Tensor> inputs{ints({2, 3, 4}), ints({3, 1})};
  ASSERT_TRUE(runtime.run_into("BroadcastGradientArgs", inputs, outputs).ok());
  EXPECT_EQ(to_string(outputs[0].dims()), "[0]");
  EXPECT_EQ(to_string(outputs[1].dims()), "[2]");
  EXPECT_EQ(memory[1][5], 2);
  EXPECT_EQ(memory[1][3], 0);
  for (const int64_t between : {memory[0][1], memory[0][3], memory[1][0], memory[1][2], memory[1][4]})
    EXPECT_EQ(between, -1);
}

TEST(StridedOutputs, ThatOverlapAreRefused) {
  Runtime runtime(interpreted());
  const std::vector<Tensor> inputs = gather(std::vector<float>(15, 1));
  float memory[64] = {};
  for (const Dims& strides : {Dims{0, 1}, Dims{2, 1}, Dims{3, 0}, Dims{1, 1}}) {
    std::vector<Tensor> outputs{Tensor::borrow(static_cast<void*>(memory), DType::f32, {4, 3}, strides)};
    expect_refused(runtime.run_into("GatherGrad", inputs, outputs), ErrorCode::invalid_argument,
                   {"output 0 (dX) has shape [4,3] and strides ", "its elements overlap"});
    expect_refused(runtime.prepare("GatherGrad").value().run_into(inputs, outputs), ErrorCode::invalid_argument,
                   {"its elements overlap"});
  }
}

}  // namespace
}  // namespace gradloom
