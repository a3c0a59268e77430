// 16-byte aligned operands are loaded 16 bytes at once on a GPU; others get a separate kernel with the same bits.
#include <gtest/gtest.h>

#include <cstring>

#include "gradloom/runtime.h"
#include "tests/support/named_strategy.h"
#ifdef GRADLOOM_WITH_CUDA
#include "codegen/cuda/nvrtc.h"

namespace gradloom {
namespace {

// A target of one multiprocessor, which these few iterations occupy fully: else each thread has one element.
const ir::Target gpu{.name = "sm_90", .vector_bytes = 16, .gpu = true, .multiprocessors = 1, .shared_bytes = 227 << 10};

Tensor ints(std::vector<int64_t> values) {
  return Tensor::of(DType::i64, {static_cast<int64_t>(values.size())}, values);
}
Tensor numbers(const Dims& dims) {
  std::vector<float> values(static_cast<size_t>(element_count(dims)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 97) - 40;
  return Tensor::of(DType::f32, dims, values);
}

struct AlignedCall {
  const char* op;
  std::vector<Tensor> inputs;
  int values;  // the input that is loaded as vectors
};
std::vector<AlignedCall> calls() {
  return {{"SliceGrad", {numbers({3, 5, 768}), ints({3, 8, 768}), ints({2}), ints({7}), ints({1})}, 0},
          {"BroadcastGrad", {numbers({6, 40, 64}), ints({64})}, 0},
          {"BroadcastGrad", {numbers({6, 40, 256}), ints({6, 40, 1})}, 0},
          {"GatherGrad", {ints({9, 64}), ints({3, -1, 3, 0, 5}), numbers({5, 64})}, 2}};
}

std::string text(const AlignedCall& call, int64_t alignment) {
  const Op& op = *find_op(call.op);
  const Operands operands(op.schema(), call.inputs);
  const Attributes attributes;
  const Plan plan = op.check(operands.request(attributes));
  return codegen::emit_cuda(
             build_kernel(op, plan, chosen_strategy(op, plan, gpu), gpu, false, alignment, false).lowered)
      .text;
}

TEST(GpuAlignment, AlignedInputsAreReadInVectors) {
  for (const AlignedCall& call : calls()) {
    SCOPED_TRACE(call.op);
    EXPECT_NE(text(call, 64).find("dY_v = *(const gl_vector<float, 4>*)(dY + "), std::string::npos) << text(call, 64);
    EXPECT_EQ(text(call, 1).find("*(const gl_vector<float, 4>*)(dY"), std::string::npos) << text(call, 1);
  }
}

TEST(GpuAlignment, PtxMovesSixteenBytes) {
  try {
    codegen::Nvrtc::get();
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  for (const AlignedCall& call : calls()) {
    SCOPED_TRACE(call.op);
    const Op& op = *find_op(call.op);
    const Operands operands(op.schema(), call.inputs);
    const Attributes attributes;
    const Plan plan = op.check(operands.request(attributes));
    const auto module =
        codegen::emit_cuda(build_kernel(op, plan, chosen_strategy(op, plan, gpu), gpu, false, 64, false).lowered);
    const std::string ptx = codegen::Nvrtc::get().compile_to_ptx(module, 90).images[0].bytes;
    EXPECT_NE(ptx.find("ld.global.nc.v4"), std::string::npos) << ptx;
  }
}

// The definition's bits at every address; an address that is no multiple of 16 has a separate kernel.
TEST(GpuAlignment, AnyAddressGivesTheSameBits) {
  Runtime host({.target = TargetKind::cuda_host}), reference({.target = TargetKind::interpreter});
  for (const AlignedCall& call : calls()) {
    SCOPED_TRACE(call.op);
    const Tensor want = reference.run(call.op, call.inputs).value()[0];
    const int64_t compiles = host.stats().compiles;
    for (const int64_t shift : {0, 1, 4}) {
      const Tensor& values = call.inputs[call.values];
      std::vector<float> memory(static_cast<size_t>(values.elements()) + 64);
      float* first = memory.data();
      while (reinterpret_cast<uintptr_t>(first) % 64 != 0) ++first;
      first += shift;
      std::memcpy(first, values.data(), static_cast<size_t>(values.elements()) * sizeof(float));
      std::vector<Tensor> inputs = call.inputs;
      inputs[call.values] = Tensor::borrow(first, DType::f32, values.dims());
      const auto got = host.run(call.op, inputs);
      ASSERT_TRUE(got) << got.error().what();
      EXPECT_EQ(std::memcmp(got.value()[0].data(), want.data(), static_cast<size_t>(want.elements()) * sizeof(float)),
                0)
          << shift;
    }
    EXPECT_EQ(host.stats().compiles, compiles + 2);
  }
}

}  // namespace
}  // namespace gradloom
#endif
