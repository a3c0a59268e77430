// Target cuda without a GPU: a stand-in driver and NVRTC (tests/stand_in) run launches on the host and record all
// requests.
#include <gtest/gtest.h>

#ifdef GRADLOOM_STAND_IN
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>

#include "gradloom/dlpack.h"
#include "gradloom/runtime.h"
#include "gradloom/text.h"
#include "runtime/backend/cuda_driver.h"

namespace gradloom {
namespace {

constexpr const char* library = GRADLOOM_STAND_IN "/libcuda.so";
// Before the first use of either library.
const bool chosen = [] {
  return setenv("GRADLOOM_LIBCUDA", library, 1) == 0 && setenv("GRADLOOM_CUDA_PATH", GRADLOOM_STAND_IN, 1) == 0;
}();

template <class F>
F* symbol(const char* name) {
  static void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<F*>(dlsym(handle, name));
}
std::string take_log() { return symbol<const char*()>("stand_in_log")(); }
int count(const std::string& text, const std::string& what) {
  int n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

// GatherGrad of 3 rows of 4 out of 5.
std::vector<Tensor> host_inputs(std::vector<int64_t> indices) {
  std::vector<float> dy(12);
  for (size_t i = 0; i < dy.size(); ++i) dy[i] = static_cast<float>(i) + 0.5f;
  return {Tensor::of(DType::i64, {2}, std::vector<int64_t>{5, 4}), Tensor::of(DType::i64, {3}, indices),
          Tensor::of(DType::f32, {3, 4}, dy)};
}
std::vector<Tensor> to_device(Runtime& runtime, std::vector<Tensor> inputs, void* stream = nullptr) {
  for (size_t i = 1; i < inputs.size(); ++i) inputs[i] = runtime.to_device(inputs[i], stream).value();
  return inputs;
}
std::vector<float> values(Runtime& runtime, const Tensor& tensor) {
  const Tensor host = runtime.to_host(tensor).value();
  const auto* data = static_cast<const float*>(host.data());
  return {data, data + host.elements()};
}
Runtime cuda() { return Runtime({.target = TargetKind::cuda}); }
void* const stream = reinterpret_cast<void*>(uintptr_t{77});

TEST(CudaRuntime, TellsTheDevice) {
  Runtime runtime = cuda();
  EXPECT_EQ(runtime.target_name(), "cuda sm_90 Stand-in");
  EXPECT_EQ(runtime.device(), 0);
  EXPECT_EQ(runtime.target().multiprocessors, 132);
  EXPECT_EQ(runtime.target().shared_bytes, 227 << 10);
}

TEST(CudaRuntime, RunsOnTheCallersStreamWithoutWaiting) {
  Runtime runtime = cuda(), reference({.target = TargetKind::interpreter});
  const std::vector<Tensor> host = host_inputs({4, 0, 4}), inputs = to_device(runtime, host, stream);
  take_log();
  RunOptions options;
  options.launch.stream = stream;
  const auto outputs = runtime.run("GatherGrad", inputs, {}, options);
  ASSERT_TRUE(outputs) << outputs.error().what();
  const std::string log = take_log();
  EXPECT_EQ(count(log, "synchronize"), 0) << log;
  EXPECT_EQ(count(log, "copy"), 0) << log;
  EXPECT_GE(count(log, "launch"), 1) << log;
  EXPECT_EQ(count(log, "stream 77"), count(log, "launch") + count(log, "allocate") + count(log, "free")) << log;
  EXPECT_EQ(outputs.value()[0].device(), 0);
  EXPECT_EQ(values(runtime, outputs.value()[0]), values(reference, reference.run("GatherGrad", host).value()[0]));
  EXPECT_TRUE(runtime.synchronize(stream));
}

TEST(CudaRuntime, AHandleTakesTheStreamWithEachCall) {
  Runtime runtime = cuda();
  const std::vector<Tensor> inputs = to_device(runtime, host_inputs({1, 2, 3}));
  const Executable handle = runtime.compile("GatherGrad", inputs).value();
  const Tensor output = runtime.to_device(Tensor::of(DType::f32, {5, 4}, std::vector<float>(20, 7))).value();
  take_log();
  ASSERT_TRUE(handle(inputs, std::span(&output, 1), {.stream = stream}));
  const std::string log = take_log();
  EXPECT_EQ(count(log, "load"), 0) << log;
  EXPECT_GE(count(log, "stream 77"), 1) << log;
  EXPECT_EQ(count(log, "synchronize"), 0) << log;
  EXPECT_EQ(values(runtime, output)[4], 0.5f);
}

TEST(CudaRuntime, ABadIndexIsReportedAtTheNextSynchronisation) {
  Runtime runtime = cuda();
  const auto outputs = runtime.run("GatherGrad", to_device(runtime, host_inputs({1, 9, 2})));
  ASSERT_TRUE(outputs) << outputs.error().what();
  const auto first = runtime.synchronize();
  ASSERT_FALSE(first);
  EXPECT_EQ(first.error().code(), ErrorCode::out_of_range);
  EXPECT_NE(std::string(first.error().what()).find("at position 1"), std::string::npos) << first.error().what();
  EXPECT_TRUE(runtime.synchronize()) << "reported once";
}

TEST(CudaRuntime, ABadIndexOfAKernelThatIsGoneIsReportedToo) {
  Runtime runtime = cuda();
  ASSERT_TRUE(runtime.run("GatherGrad", to_device(runtime, host_inputs({1, 9, 2}))));
  runtime.clear_cache();
  EXPECT_FALSE(runtime.synchronize());
  EXPECT_TRUE(runtime.synchronize());
}

TEST(CudaRuntime, ABadIndexIsReportedAtOnceWhereAsked) {
  Runtime runtime = cuda(), reference({.target = TargetKind::interpreter});
  RunOptions options;
  options.launch.check = CheckMode::sync;
  const auto got = runtime.run("GatherGrad", to_device(runtime, host_inputs({1, 2, -6})), {}, options),
             want = reference.run("GatherGrad", host_inputs({1, 2, -6}));
  ASSERT_FALSE(got);
  ASSERT_FALSE(want);
  EXPECT_EQ(got.error().code(), want.error().code());
  EXPECT_STREQ(got.error().what(), want.error().what());
  EXPECT_TRUE(runtime.synchronize());
}

TEST(CudaRuntime, NoMemoryIsAnErrorThatLeaksNothing) {
  Runtime runtime = cuda();
  const std::vector<Tensor> inputs = to_device(runtime, host_inputs({1, 2, 3}));
  ASSERT_TRUE(runtime.run("GatherGrad", inputs));
  const size_t before = symbol<size_t()>("stand_in_in_use")();
  symbol<void(size_t)>("stand_in_limit")(before + 16);
  const auto failed = runtime.run("GatherGrad", inputs);
  symbol<void(size_t)>("stand_in_limit")(size_t{1} << 30);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), ErrorCode::resource_exhausted);
  EXPECT_EQ(symbol<size_t()>("stand_in_in_use")(), before);
  EXPECT_TRUE(runtime.run("GatherGrad", inputs));
}

TEST(CudaRuntime, MemoryOfTheWrongSideIsRefused) {
  Runtime runtime = cuda(), cpu({.target = TargetKind::interpreter});
  const auto on_host = runtime.run("GatherGrad", host_inputs({1, 2, 3}));
  ASSERT_FALSE(on_host);
  EXPECT_EQ(on_host.error().code(), ErrorCode::invalid_argument);
  EXPECT_NE(std::string(on_host.error().what()).find("is in host memory; it must be in memory of cuda device 0"),
            std::string::npos)
      << on_host.error().what();
  const auto on_device = cpu.run("GatherGrad", to_device(runtime, host_inputs({1, 2, 3})));
  ASSERT_FALSE(on_device);
  EXPECT_EQ(on_device.error().code(), ErrorCode::invalid_argument);
  std::vector<Tensor> shape_there = to_device(runtime, host_inputs({1, 2, 3}));
  shape_there[0] = runtime.to_device(shape_there[0]).value();
  EXPECT_FALSE(runtime.run("GatherGrad", shape_there));
}

TEST(CudaRuntime, TensorsOfAnotherDeviceAreRefused) {
  Runtime runtime = cuda(), cpu({.target = TargetKind::interpreter}), host({.target = TargetKind::cuda_host});
  const auto elsewhere = [](const Tensor& t) {
    return Tensor::share_device(nullptr, t.data(), 1, t.dtype(), t.dims());
  };
  const std::vector<Tensor> inputs = to_device(runtime, host_inputs({1, 2, 3}));
  const Executable handle = runtime.compile("GatherGrad", inputs).value();
  const Tensor output = runtime.to_device(Tensor::of(DType::f32, {5, 4}, std::vector<float>(20, 7))).value(),
               far_output = elsewhere(output);
  take_log();
  for (const size_t which : {1, 2}) {
    std::vector<Tensor> mixed = inputs;
    mixed[which] = elsewhere(mixed[which]);
    EXPECT_FALSE(handle(mixed, std::span(&output, 1)));
    const auto refused = runtime.run("GatherGrad", mixed);
    EXPECT_EQ(refused.error().code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(refused.error().what())
                  .find("is in memory of cuda device 1; it must be in memory of cuda device 0"),
              std::string::npos)
        << refused.error().what();
  }
  EXPECT_FALSE(handle(inputs, std::span(&far_output, 1)));
  EXPECT_EQ(count(take_log(), "launch"), 0);
  // A runtime without a device rejects a copy from one.
  for (Runtime* other : {&cpu, &host}) {
    const auto copied = other->to_host(inputs[2]);
    ASSERT_FALSE(copied);
    EXPECT_EQ(copied.error().code(), ErrorCode::invalid_argument);
  }
  EXPECT_TRUE(runtime.run("GatherGrad", inputs));
}

TEST(CudaRuntime, EmptyTensorsHaveNoMemory) {
  Runtime runtime = cuda();
  const auto empty = [&](DType dtype, const Dims& dims) {
    return runtime.to_device(Tensor::empty(dtype, dims)).value();
  };
  const std::vector<Tensor> inputs{Tensor::of(DType::i64, {2}, std::vector<int64_t>{5, 0}), empty(DType::i64, {0}),
                                   empty(DType::f32, {0, 0})};
  take_log();
  const auto outputs = runtime.run("GatherGrad", inputs);
  ASSERT_TRUE(outputs) << outputs.error().what();
  EXPECT_EQ(outputs.value()[0].device(), 0);
  EXPECT_EQ(outputs.value()[0].dims(), (Dims{5, 0}));
  EXPECT_EQ(outputs.value()[0].data(), nullptr);
  EXPECT_EQ(count(take_log(), "allocate"), 0);
  EXPECT_EQ(runtime.to_host(outputs.value()[0]).value().dims(), (Dims{5, 0}));
}

TEST(CudaRuntime, AnOpOfShapesStaysOnTheHost) {
  Runtime runtime = cuda();
  const Tensor a = Tensor::of(DType::i64, {2}, std::vector<int64_t>{3, 1}),
               b = Tensor::of(DType::i64, {2}, std::vector<int64_t>{1, 4});
  const Tensor inputs[] = {a, b};
  const auto outputs = runtime.run("BroadcastGradientArgs", inputs);
  ASSERT_TRUE(outputs) << outputs.error().what();
  EXPECT_EQ(outputs.value()[0].device(), -1);
  EXPECT_EQ(outputs.value()[0].elements(), 1);
}

TEST(CudaRuntime, DlpackKeepsTheDevice) {
  Runtime runtime = cuda();
  const Tensor tensor = runtime.to_device(Tensor::of(DType::f32, {2}, std::vector<float>{1, 2})).value();
  DLManagedTensor* const out = tensor.to_dlpack();
  EXPECT_EQ(out->dl_tensor.device.device_type, kDLCUDA);
  EXPECT_EQ(out->dl_tensor.device.device_id, 0);
  const Tensor back = Tensor::from_dlpack(out);
  EXPECT_EQ(back.device(), 0);
  EXPECT_EQ(values(runtime, back), (std::vector<float>{1, 2}));
}

TEST(CudaRuntime, AnOwnKernelWithMuchSharedMemory) {
  Runtime runtime = cuda();
  const KernelExecutable kernel = runtime
                                      .compile(ir::parse(R"(kernel turn() {
  in x: f32[20000]
  out y: f32[20000]
  for b in 0 .. 1 grid {
    alloc tile: f32[20000] shared
    for i in 0 .. 256 thread {
      for k in 0 .. 79 {
        if k * 256 + i < 20000 {
          tile[k * 256 + i] = x[k * 256 + i]
        }
      }
    }
    for i in 0 .. 256 thread {
      for k in 0 .. 79 {
        if k * 256 + i < 20000 {
          y[k * 256 + i] = tile[19999 - (k * 256 + i)]
        }
      }
    }
  }
})"))
                                      .value();
  std::vector<float> x(20000);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  const Tensor buffers[] = {runtime.to_device(Tensor::of(DType::f32, {20000}, x)).value(),
                            runtime.to_device(Tensor::of(DType::f32, {20000}, x)).value()};
  ASSERT_TRUE(kernel(buffers));
  std::reverse(x.begin(), x.end());
  EXPECT_EQ(values(runtime, buffers[1]), x);
}

// Blocks that synchronise: as many as are co-resident on the device, a grid barrier that starts at 0.
TEST(CudaRuntime, ACooperativeLoopIsOneLaunch) {
  Runtime runtime = cuda();
  const KernelExecutable kernel = runtime
                                      .compile(ir::parse(R"(kernel turns() {
  inout x: f32[400, 32]
  inout y: f32[400, 32]
  for t in 0 .. 3 cooperative {
    for b in 0 .. 400 grid {
      for i in 0 .. 32 thread {
        y[b, i] = x[399 - b, i] + 1.0f32
      }
    }
    for b in 0 .. 400 grid {
      for i in 0 .. 32 thread {
        x[b, i] = y[399 - b, 31 - i] * 2.0f32
      }
    }
  }
})"))
                                      .value();
  std::vector<float> x(400 * 32), want(400 * 32);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 1000);
  for (size_t i = 0; i < x.size(); ++i)
    want[i] = x[i / 32 * 32 + (31 - i % 32)] * 8 + 14;  // reversed an odd number of times
  const Tensor buffers[] = {runtime.to_device(Tensor::of(DType::f32, {400, 32}, x)).value(),
                            runtime.to_device(Tensor::of(DType::f32, {400, 32}, x)).value()};
  take_log();
  ASSERT_TRUE(kernel(buffers, {}, {.stream = stream}));
  const std::string log = take_log();
  EXPECT_EQ(count(log, "launch"), 1) << log;
  EXPECT_EQ(count(log, "cooperative 132"), 1) << log;
  EXPECT_LT(log.find("set stream 77"), log.find("cooperative")) << log;
  EXPECT_EQ(values(runtime, buffers[0]), want);
}

TEST(CudaRuntime, AMissingDriverIsOneClearLine) {
  try {
    CudaDriver nowhere("/no/such/libcuda.so");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::device_error);
    EXPECT_EQ(std::string(e.what()).find("target cuda: the NVIDIA driver's /no/such/libcuda.so is not on this machine"),
              0u)
        << e.what();
  }
  EXPECT_THROW(Runtime({.target = TargetKind::cuda, .device = 3}), Error);
}

}  // namespace
}  // namespace gradloom
#endif
