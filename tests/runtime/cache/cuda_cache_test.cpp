// Cubins in the disk cache, without a GPU: the stand-in NVRTC (tests/stand_in) counts its compiles.
#include <gtest/gtest.h>

#include "runtime/backend/cuda_code.h"

#ifdef GRADLOOM_STAND_IN
#include <dlfcn.h>

#include <cstdlib>

#include "gradloom/builder.h"
#include "runtime/cache/cache_entry.h"
#include "runtime/cache/disk_cache.h"
#include "tests/support/warm_cache.h"

namespace gradloom {
namespace {

using namespace testing;

// Before the first use of either library.
const bool chosen = [] {
  return setenv("GRADLOOM_LIBCUDA", GRADLOOM_STAND_IN "/libcuda.so", 1) == 0 &&
         setenv("GRADLOOM_CUDA_PATH", GRADLOOM_STAND_IN, 1) == 0;
}();

int nvrtc_compiles() {
  static const auto count = reinterpret_cast<int (*)()>(
      dlsym(dlopen(GRADLOOM_STAND_IN "/libnvrtc.so", RTLD_NOW | RTLD_LOCAL), "stand_in_compiles"));
  return count();
}

class CudaCache : public WarmCacheTest {
 protected:
  RuntimeOptions options() const { return {.target = TargetKind::cuda, .disk_cache = cache_}; }

  static bool right_on_device(Runtime& runtime, int k, const RunOptions& options = {}) {
    std::vector<Tensor> inputs = inputs_of(k);
    Runtime reference({.target = TargetKind::interpreter});
    const Tensor expected = reference.run("GatherGrad", inputs).value()[0];
    for (size_t i = 1; i < inputs.size(); ++i) inputs[i] = runtime.to_device(inputs[i]).value();
    const auto outputs = runtime.run("GatherGrad", inputs, {}, options);
    if (!outputs) return false;
    const Tensor got = runtime.to_host(outputs.value()[0]).value();
    return std::memcmp(got.data(), expected.data(), static_cast<size_t>(expected.elements()) * sizeof(float)) == 0;
  }
};

// First: NVRTC is not loaded yet, so that a child may load another version.
TEST_F(CudaCache, AnotherVersionOfNvrtcAndAnotherGpuAreMisses) {
  const auto run = [&](const char* variable, const char* value) {
    return in_child([&] {
      if (variable) setenv(variable, value, 1);
      Runtime runtime(options());
      if (!right_on_device(runtime, 0)) return 100;
      const Stats s = runtime.stats();
      if (nvrtc_compiles() != s.compiles) return 101;
      return static_cast<int>(s.compiles * 10 + s.disk_hits);
    });
  };
  EXPECT_EQ(run(nullptr, ""), 10);
  EXPECT_EQ(run(nullptr, ""), 1);
  EXPECT_EQ(run("STAND_IN_NVRTC_MINOR", "1"), 10);
  EXPECT_EQ(run("STAND_IN_MAJOR", "10"), 10);
  for (const auto& [variable, value] :
       {std::pair{"STAND_IN_NVRTC_MINOR", "1"}, {"STAND_IN_MAJOR", "10"}, {"STAND_IN_MAJOR", "9"}})
    EXPECT_EQ(run(variable, value), 1);
  EXPECT_EQ(files("k-").size(), 3u);
  std::vector<std::string> features;
  for (const std::string& path : files("k-")) {
    const KernelRecord record = decode_kernel(bytes_of(path));
    features.emplace_back(features_of_content_key(record.key));
    EXPECT_NE(record.key.find("toolchain nvrtc 13."), std::string::npos);
    EXPECT_NE(decode_cuda_code(record.code).images.at(0).bytes.find("GL_KERNEL("),
              std::string::npos);  // the stand-in's output
  }
  std::sort(features.begin(), features.end());
  EXPECT_EQ(features, (std::vector<std::string>{"sm_100", "sm_90", "sm_90"}));
}

TEST_F(CudaCache, AWarmRuntimeCompilesNothing) {
  {
    Runtime cold(options());
    for (int k = 0; k < 3; ++k) EXPECT_TRUE(right_on_device(cold, k));
    EXPECT_TRUE(right_on_device(cold, 3, {.any_shape = true}));
    EXPECT_EQ(cold.stats().compiles, 4);
  }
  const int before = nvrtc_compiles();
  Runtime warm(options());
  for (int k = 0; k < 3; ++k) EXPECT_TRUE(right_on_device(warm, k));
  for (int k = 3; k < 6; ++k) EXPECT_TRUE(right_on_device(warm, k, {.any_shape = true}));
  EXPECT_EQ(nvrtc_compiles(), before);
  EXPECT_EQ(warm.stats().compiles, 0);
  EXPECT_EQ(warm.stats().disk_hits, 4);
  EXPECT_TRUE(warm.last_report().from_disk);
  EXPECT_GT(warm.stats().code_bytes, 0);
  EXPECT_EQ(log_, "");
}

TEST_F(CudaCache, AnOwnKernelIsFoundByItsContent) {
  ir::KernelBuilder b("own");
  const ir::Buffer x = b.input("x", DType::f32, {4}), y = b.output("y", DType::f32, {4});
  b.loop("i", 0, 4, [&](ir::Expr i) { b.store(y, {i}, ir::load(x, {i}) + ir::load(x, {i})); });
  const ir::Kernel kernel = b.build();
  for (const int compiles : {1, 0}) {
    Runtime runtime(options());
    const auto compiled = runtime.compile(kernel);
    ASSERT_TRUE(compiled.ok()) << compiled.error().what();
    const Tensor in = Tensor::of(DType::f32, {4}, std::vector<float>{1, 2, 3, 4});
    const std::vector<Tensor> buffers{runtime.to_device(in).value(), runtime.to_device(in).value()};
    ASSERT_TRUE(compiled.value()(buffers).ok());
    EXPECT_EQ(static_cast<const float*>(runtime.to_host(buffers[1]).value().data())[3], 8);
    EXPECT_EQ(runtime.stats().compiles, compiles);
  }
}

TEST_F(CudaCache, AnOpOfShapesIsNotLookedFor) {
  Runtime runtime(options());
  const Tensor inputs[] = {Tensor::of(DType::i64, {2}, std::vector<int64_t>{3, 1}),
                           Tensor::of(DType::i64, {2}, std::vector<int64_t>{1, 4})};
  ASSERT_TRUE(runtime.run("BroadcastGradientArgs", inputs).ok());
  EXPECT_TRUE(runtime.stats().disk_miss_parts.empty());
  EXPECT_TRUE(fs::is_empty(cache_));
}

// Valid frames around an invalid cubin, or an invalid host part.
TEST_F(CudaCache, CodeThatDoesNotLoadIsAMiss) {
  ASSERT_TRUE(right_on_device(*std::make_unique<Runtime>(options()), 0));
  const std::string path = files("k-").at(0);
  const KernelRecord whole = decode_kernel(bytes_of(path));
  for (int damage = 0; damage < 3; ++damage) {
    KernelRecord record = whole;
    if (damage == 0) record.code = "none";
    if (damage == 1) record.code.resize(record.code.size() / 2);
    if (damage == 2) {
      CudaCode code = decode_cuda_code(whole.code);
      code.images.at(0).bytes = "no image";
      record.code = encode(code);
    }
    put_bytes(path, encode(record));
    log_.clear();
    Runtime runtime(options());
    ASSERT_TRUE(right_on_device(runtime, 0)) << damage;
    EXPECT_EQ(runtime.stats().compiles, 1) << damage;
    EXPECT_NE(log_.find("is not used"), std::string::npos) << damage << log_;
  }
}

TEST(CudaCode, IsReadAsWritten) {
  using namespace codegen;
  CudaModule m;
  m.buffers = 2, m.scalars = 1, m.slots = 4, m.scratch_blocks = 1;
  m.functions = {{"f", 128, 4096, {{CudaArgument::buffer, 1}, {CudaArgument::status, 0}, {CudaArgument::slot, 3}}},
                 {"g", 32, 0, {{CudaArgument::barrier, 0}}, 12}};
  const HostStep launch{.kind = HostStep::launch,
                        .index = 1,
                        .value = {{HostCode::constant, 7},
                                  {HostCode::slot, 2},
                                  {.op = HostCode::binary, .what = static_cast<uint8_t>(ir::BinaryOp::mul)}},
                        .begin = {},
                        .body = {},
                        .otherwise = {}};
  HostStep loop{.kind = HostStep::loop,
                .index = 2,
                .value = {{HostCode::constant, -5}},
                .begin = {{HostCode::slot, 0}},
                .body = {launch, launch},
                .otherwise = {}};
  m.steps = {{.kind = HostStep::branch,
              .index = 0,
              .value = {{HostCode::slot, 1}},
              .begin = {},
              .body = {loop},
              .otherwise = {launch}}};
  const std::string bytes = encode(CudaCode{m, {{std::string("im\0age", 6), 1}, {"another", 1}}});
  const CudaCode again = decode_cuda_code(bytes);
  EXPECT_EQ(encode(again), bytes);
  ASSERT_EQ(again.images.size(), 2u);
  EXPECT_EQ(again.images[0].bytes, std::string("im\0age", 6));
  EXPECT_EQ(again.images[1].functions, 1);
  EXPECT_EQ(again.module.buffers, 2);
  EXPECT_EQ(again.module.slots, 4);
  EXPECT_EQ(again.module.functions[0].arguments[2].kind, CudaArgument::slot);
  EXPECT_EQ(again.module.functions[0].shared_bytes, 4096);
  EXPECT_EQ(again.module.functions[1].cooperative, 12);
  EXPECT_EQ(again.module.steps[0].body[0].body[1].value[2], m.steps[0].body[0].body[1].value[2]);
  EXPECT_EQ(again.module.steps[0].body[0].value[0].value, -5);
  EXPECT_EQ(again.module.steps[0].otherwise[0].index, 1);
  // Images whose functions differ from the code's are rejected.
  EXPECT_THROW(decode_cuda_code(encode(CudaCode{m, {{"image", 1}}})), Error);
  EXPECT_THROW(decode_cuda_code(encode(CudaCode{m, {{"image", -1}, {"image", 3}}})), Error);
  // Truncated anywhere, it is rejected.
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_THROW(decode_cuda_code(bytes.substr(0, length)), Error) << length;
}

}  // namespace
}  // namespace gradloom
#endif
