// The gather gradients where they accumulate: what no index names keeps its bits and, where little is named, its pages
// untouched; what is named is rounded once, by every strategy.
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <set>

#include "tests/ops/ops_expect.h"
#include "tests/support/targets.h"

namespace gradloom {
namespace {

using namespace testing_ops;

struct GatherCall {
  const char* op;
  Dims shape, indices;
  int axis;
  std::vector<Tensor> inputs(DType dtype, DType index, uint64_t seed = 7) const {
    const bool elements = op == std::string("GatherElementsGrad");
    Dims dy;
    for (int d = 0; d < axis && !elements; ++d) dy.push_back(shape[d]);
    for (const int64_t d : indices) dy.push_back(d);
    for (int d = axis + 1; d < shape.size() && !elements; ++d) dy.push_back(shape[d]);
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < element_count(indices); ++i) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      // Every third is the one before it again, counted from the end.
      rows.push_back(i % 3 == 2 ? rows.back() - shape[axis] : static_cast<int64_t>(seed >> 33) % shape[axis]);
      if (rows.back() < -shape[axis]) rows.back() += shape[axis];
    }
    const Tensor values = filled(dtype, dy, 5), at = Tensor::of(index, indices, rows);
    const Tensor sizes = ints({shape.begin(), shape.end()});
    return elements ? std::vector<Tensor>{values, sizes, at} : std::vector<Tensor>{sizes, at, values};
  }
  Attributes attributes() const { return {{"axis", int64_t{axis}}}; }
};

const std::vector<DType> floats = dtypes_where(is_float);
const std::vector<GatherCall> calls{
    {"GatherGrad", {70, 24}, {5}, 0},
    {"GatherGrad", {3, 70, 5}, {4, 2}, 1},
    {"GatherGrad", {9, 90}, {4}, 1},
    {"GatherGrad", {700}, {7}, 0},
    {"GatherElementsGrad", {700}, {7}, 0},
    {"GatherElementsGrad", {70, 40}, {1, 30}, 0},
    {"GatherElementsGrad", {70, 300}, {6, 270}, 0},
    {"GatherElementsGrad", {6, 90}, {4, 9}, 1},
    {"GatherElementsGrad", {2, 70, 32}, {2, 3, 32}, 1},
    {"GatherElementsGrad", {5, 3, 70}, {4, 2, 6}, 2},
    {"GatherElementsGrad", {40, 3, 5}, {6, 2, 4}, 0},
};

// -0.0, a signalling NaN with a payload, infinity, the least denormal, then values; the index decides which.
Tensor old_values(DType dtype, const Dims& dims) {
  const Tensor t = filled(dtype, dims, 99);
  const DTypeInfo& info = info_of(dtype);
  const uint64_t sign = uint64_t{1} << (8 * info.bytes - 1),
                 infinity = (sign - 1) >> info.mantissa_bits << info.mantissa_bits;
  const uint64_t special[] = {sign, infinity | 5, infinity, 1, sign | infinity | 3};
  for (int64_t i = 0; i < t.elements(); ++i)
    if (i % 7 < 5) set_bits(t, i, special[i % 7]);
  return t;
}
bool is_nan(DType dtype, uint64_t bits) { return std::isnan(ir::double_from_bits(dtype, bits)); }

// Sums in index order from +0.0, and what is named, from the fresh gradient's definition: dY's values have no zero sum.
struct Expected {
  Expected(const GatherCall& c, const std::vector<Tensor>& inputs, DType dtype) : old(old_values(dtype, c.shape)) {
    std::vector<Tensor> wide = inputs;
    Tensor& dy = wide[c.op == std::string("GatherGrad") ? 2 : 0];
    const DType sum = accumulator_of(dtype);
    const Tensor narrow = dy;
    dy = Tensor::empty(sum, narrow.dims());
    for (int64_t i = 0; i < dy.elements(); ++i) set_bits(dy, i, ir::eval_cast(dtype, sum, bits_at(narrow, i)));
    const Tensor totals = run(op(c.op), wide, c.attributes())[0];
    for (int64_t i = 0; i < old.elements(); ++i) {
      const uint64_t total = bits_at(totals, i), before = ir::eval_cast(dtype, sum, bits_at(old, i));
      named += total != 0;
      want.push_back(total == 0 ? bits_at(old, i)
                                : ir::eval_cast(sum, dtype, ir::eval_binary(ir::BinaryOp::add, sum, before, total)));
    }
  }
  void expect(const Tensor& got, DType dtype, const std::string& what) const {
    for (int64_t i = 0; i < got.elements(); ++i) {
      // A NaN that was added to may have any payload.
      const bool added = want[i] != bits_at(old, i) && is_nan(dtype, want[i]) && is_nan(dtype, bits_at(got, i));
      ASSERT_TRUE(added || bits_at(got, i) == want[i])
          << what << ", element " << i << ": " << std::hex << bits_at(got, i) << ", not " << want[i] << ", of "
          << bits_at(old, i);
    }
  }
  Tensor old;
  std::vector<uint64_t> want;
  int64_t named = 0;
};

std::vector<How> every_how() {
  std::vector<How> all = hows(true);
  for (How how : hows(true)) {
    if (!how.scheduled || how.target.vector_bytes != 16) continue;
    how.target.gpu = true;
    all.push_back(how);
  }
  return all;
}

TEST(GatherAccumulate, WhatIsNotNamedKeepsItsBits) {
  std::set<std::string> seen;
  for (size_t i = 0; i < calls.size(); ++i)
    for (const DType dtype : {floats[i % 4], floats[(i + 1) % 4]}) {
      const std::vector<Tensor> inputs = calls[i].inputs(dtype, i % 2 ? DType::i32 : DType::i64);
      const Expected expected(calls[i], inputs, dtype);
      ASSERT_GT(expected.named, 0);
      const Operands operands(op(calls[i].op).schema(), inputs);
      const Attributes attributes = calls[i].attributes();
      const Plan plan = op(calls[i].op).check(operands.request(attributes, ~0u, true));
      for (How how : every_how())
        for (const std::string& strategy : serving_names(op(calls[i].op), plan, how.target, how.any_shape)) {
          how.strategy = strategy;
          seen.insert(strategy);
          const Tensor got = run(op(calls[i].op), inputs, attributes, how, {old_values(dtype, calls[i].shape)})[0];
          expected.expect(got, dtype,
                          std::string(calls[i].op) + " " + to_string(calls[i].shape) + " " + to_string(dtype) + ", " +
                              strategy + ", " + describe(how) + (how.target.gpu ? ", gpu" : ""));
          if (HasFatalFailure()) return;
        }
    }
  for (const char* strategy : {"direct", "row", "strip", "pipelined", "grouped", "partition", "touched", "touched_rows",
                               "block", "sorted", "bins"})
    EXPECT_TRUE(seen.contains(strategy)) << strategy;
}

// Large enough for threads, compiled, with remainders of strips and vectors: the bits of one thread.
TEST(GatherAccumulate, TheSameBitsOnAnyThreads) {
  const std::vector<GatherCall> large{{"GatherGrad", {1500, 130}, {180}, 0},
                                      {"GatherGrad", {300, 560}, {60}, 1},
                                      {"GatherElementsGrad", {230, 2600}, {7, 2501}, 0},
                                      {"GatherElementsGrad", {2, 40, 8401}, {2, 1, 8401}, 1}};
  for (const TargetKind target : compiled_targets()) {
    if (target == TargetKind::cuda_host) continue;
    Runtime one({.target = target, .threads = 1, .disk_cache = "off"}),
        three({.target = target, .threads = 3, .disk_cache = "off"});
    for (size_t i = 0; i < large.size(); ++i) {
      const DType dtype = floats[i % floats.size()];
      const std::vector<Tensor> inputs = large[i].inputs(dtype, i % 2 ? DType::i32 : DType::i64);
      const Expected expected(large[i], inputs, dtype);
      for (Runtime* runtime : {&one, &three})
        for (const bool any_shape : {false, true}) {
          std::vector<Tensor> into{old_values(dtype, large[i].shape)};
          const auto done = runtime->run_into(large[i].op, inputs, into, large[i].attributes(),
                                              {.accumulate = true, .any_shape = any_shape});
          ASSERT_TRUE(done.ok()) << done.error().what();
          EXPECT_TRUE(runtime->last_report().strategy.starts_with("touched")) << runtime->last_report().strategy;
          EXPECT_EQ(runtime->stats().strategies_refused, 0);
          expected.expect(into[0], dtype, std::to_string(i) + (any_shape ? ", any shape" : ""));
          if (HasFatalFailure()) return;
        }
    }
  }
}

// f16 positions are 16 bits: the kernel for any shape serves more of them by the definition.
TEST(GatherAccumulate, MorePositionsThanAnElementHolds) {
  const GatherCall many{"GatherElementsGrad", {3}, {65537}, 0}, few{"GatherElementsGrad", {700}, {7}, 0};
  for (const TargetKind target : all_targets()) {
    Runtime runtime({.target = target, .threads = 2, .disk_cache = "off"});
    const RunOptions options{.accumulate = true, .strategy = "touched", .any_shape = true};
    const auto handle = runtime.compile(few.op, few.inputs(DType::bf16, DType::i64), few.attributes(), options);
    ASSERT_TRUE(handle.ok()) << handle.error().what();
    const std::vector<Tensor> inputs = many.inputs(DType::bf16, DType::i64);
    std::vector<Tensor> into{filled(DType::bf16, many.shape, 99)}, want{filled(DType::bf16, many.shape, 99)};
    const auto done = handle.value()(inputs, into);
    ASSERT_TRUE(done.ok()) << done.error().what();
    const How how{.accumulate = true};
    const Tensor defined = run(op(many.op), inputs, many.attributes(), how, want)[0];
    for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(bits_at(into[0], i), bits_at(defined, i)) << runtime.target_name();
  }
}

#ifdef GRADLOOM_WITH_LLVM
// A dX of which only the pages of named elements may be accessed at all.
class Guarded {
 public:
  Guarded(int64_t bytes, const std::vector<int64_t>& named, int64_t each) : bytes_(bytes) {
    memory_ = static_cast<char*>(
        mmap(nullptr, static_cast<size_t>(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (memory_ == MAP_FAILED) throw std::runtime_error("mmap failed");
    const int64_t page = sysconf(_SC_PAGESIZE);
    for (const int64_t at : named)
      for (int64_t p = at / page * page; p < at + each; p += page)
        mprotect(memory_ + p, static_cast<size_t>(page), PROT_READ | PROT_WRITE);
  }
  ~Guarded() { munmap(memory_, static_cast<size_t>(bytes_)); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  float* data() const { return reinterpret_cast<float*>(memory_); }

 private:
  char* memory_;
  int64_t bytes_;
};

TEST(GatherAccumulate, TouchesOnlyThePagesThatAreNamed) {
  constexpr int64_t rows = 50257, width = 768, columns = 4096;
  const std::vector<int64_t> tokens{50256, 0, 17, -1, 4711, 17, 30000, 257};
  for (const int threads : {1, 2})
    for (const bool any_shape : {false, true}) {
      Runtime runtime({.target = TargetKind::llvm, .threads = threads, .disk_cache = "off"});
      const RunOptions options{.accumulate = true, .any_shape = any_shape};
      std::vector<int64_t> named;
      for (const int64_t token : tokens) named.push_back((token < 0 ? token + rows : token) * width * 4);
      const Guarded embedding(rows * width * 4, named, width * 4);
      std::vector<Tensor> into{Tensor::borrow(embedding.data(), DType::f32, {rows, width})};
      const std::vector<float> ones(columns, 1);
      auto done = runtime.run_into("GatherGrad",
                                   std::vector{ints({rows, width}), ints(tokens),
                                               Tensor::of(DType::f32, {8, width}, std::vector<float>(8 * width, 1))},
                                   into, {}, options);
      ASSERT_TRUE(done.ok()) << done.error().what();
      EXPECT_EQ(embedding.data()[17 * width], 2);
      EXPECT_EQ(embedding.data()[50256 * width + width - 1], 2);

      // One row of indices, along either axis.
      for (const int64_t axis : {0, 1}) {
        std::vector<int64_t> index;
        named.clear();
        for (int64_t c = 0; c < columns; ++c) {
          index.push_back(axis == 0 ? c % 3 * 1365 : c * 7 % columns);
          named.push_back((axis == 0 ? index.back() * columns + c : index.back()) * 4);
        }
        const Guarded square(columns * columns * 4, named, 4);
        std::vector<Tensor> output{Tensor::borrow(square.data(), DType::f32, {columns, columns})};
        done = runtime.run_into("GatherElementsGrad",
                                std::vector{Tensor::of(DType::f32, {1, columns}, ones), ints({columns, columns}),
                                            Tensor::of(DType::i64, {1, columns}, index)},
                                output, {{"axis", axis}}, options);
        ASSERT_TRUE(done.ok()) << done.error().what();
        for (int64_t c = 0; c < columns; ++c)
          ASSERT_EQ(square.data()[axis == 0 ? index[c] * columns + c : index[c]], 1) << c;
      }
    }
}
#endif

TEST(GatherAccumulate, ABadIndexIsNamed) {
  const GatherCall c{"GatherGrad", {70, 24}, {5}, 0}, e{"GatherElementsGrad", {70, 40}, {2, 30}, 0};
  for (const TargetKind target : all_targets()) {
    Runtime runtime({.target = target, .threads = 2, .disk_cache = "off"});
    for (const GatherCall& call : {c, e}) {
      std::vector<Tensor> inputs = call.inputs(DType::f32, DType::i64);
      set_bits(inputs[call.op == std::string("GatherGrad") ? 1 : 2], 3, 70);
      std::vector<Tensor> into{filled(DType::f32, call.shape, 1)};
      const auto done = runtime.run_into(call.op, inputs, into, call.attributes(), {.accumulate = true});
      ASSERT_FALSE(done.ok());
      EXPECT_NE(std::string(done.error().what()).find("is 70; it must be in [-70, 69]"), std::string::npos)
          << done.error().what();
    }
  }
}

}  // namespace
}  // namespace gradloom
