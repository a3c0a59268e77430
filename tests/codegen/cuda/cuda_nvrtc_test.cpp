// NVRTC, where the machine has it: text to cubin and PTX, resource usage of a cubin, and clear errors.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "gradloom/error.h"

#ifdef GRADLOOM_WITH_CUDA
#include "codegen/cuda/nvrtc.h"

namespace gradloom::codegen {
namespace {

const Nvrtc* library(std::string& why) {
  try {
    return &Nvrtc::get();
  } catch (const Error& e) {
    why = e.what();
    return nullptr;
  }
}

#define NEEDS_NVRTC                        \
  std::string why;                         \
  const Nvrtc* const nvrtc = library(why); \
  if (!nvrtc) GTEST_SKIP() << why

CudaModule module_of(const std::string& body, int64_t shared_bytes = 0) {
  CudaModule m;
  m.text = "GL_KERNEL(64) f_0(float* out, const float* in, long long n) {\n" + body + "\n}\n";
  m.functions.push_back({.name = "f_0",
                         .threads = 64,
                         .shared_bytes = shared_bytes,
                         .arguments = {{CudaArgument::buffer, 0}, {CudaArgument::buffer, 1}, {CudaArgument::slot, 0}}});
  return m;
}

const char* const every_word = R"(  GL_SHARED(512);
  float* const tile = (float*)gl_shared;
  tile[gl_thread()] = gl_fma(in[gl_block() + gl_blocks()], gl_sqrt(in[1]), gl_floor(in[2]) + gl_ceil(in[3]) + gl_trunc(in[4]));
  gl_sync_block();
  unsigned v = gl_ballot(tile[63 - gl_thread()] > 1.0f) + gl_match(gl_bits(in[5])) + (unsigned)gl_shuffle(gl_bits(1.5 + in[6]), 3);
  gl_sync_warp();
  gl_atomic_min((long long*)out + 8, n);
  gl_atomic_add((int*)out + 8, 1); gl_atomic_add((unsigned*)out + 8, 1u);
  gl_atomic_add((long long*)out + 8, 1ll); gl_atomic_add((unsigned long long*)out + 8, 1ull);
  out[gl_thread()] = gl_from_f16(gl_to_f16(gl_float(v))) + (float)gl_fma(gl_double(v), gl_sqrt(2.0 + in[7]), 1.0);)";

// Compiled in parts or as a whole, the functions are all present, in order, with the same code.
TEST(CudaNvrtc, ALongTextIsCompiledInParts) {
  NEEDS_NVRTC;
  CudaModule m;
  m.text = "// seven functions\n";
  for (int i = 0; i < 7; ++i) {
    const std::string name = "f_" + std::to_string(i);
    m.text += function_mark + std::string("32) ") + name + "(float* out, const float* in) {\n";
    for (int k = 0; k < 30 * (1 + i % 3); ++k)
      m.text += "  out[" + std::to_string(k) + "] = gl_fma(in[" + std::to_string(k) + "], in[" + std::to_string(i) +
                "], 1.0f);\n";
    m.text += "}\n";
    m.functions.push_back(
        {.name = name, .threads = 32, .arguments = {{CudaArgument::buffer, 0}, {CudaArgument::buffer, 1}}});
  }
  const CudaBinary whole = nvrtc->compile(m, 90);
  ASSERT_EQ(whole.images.size(), 1u);
  EXPECT_EQ(whole.images[0].functions, 7);
  for (const int threads : {2, 3, 16}) {
    const CudaBinary parts = nvrtc->compile(m, 90, true, threads);
    EXPECT_GT(parts.images.size(), 1u);
    EXPECT_LE(parts.images.size(), static_cast<size_t>(threads));
    int next = 0;
    for (const CudaImage& image : parts.images) {
      std::vector<std::string> names;
      for (const CudaResources& r : cubin_resources(image.bytes)) names.push_back(r.function);
      std::vector<std::string> wanted;
      for (int i = 0; i < image.functions; ++i) wanted.push_back("f_" + std::to_string(next++));
      EXPECT_EQ(names, wanted);
    }
    EXPECT_EQ(next, 7);
    ASSERT_EQ(parts.resources.size(), 7u);
    for (size_t i = 0; i < 7; ++i) {
      EXPECT_EQ(parts.resources[i].function, whole.resources[i].function);
      EXPECT_EQ(parts.resources[i].code_bytes, whole.resources[i].code_bytes);
      EXPECT_EQ(parts.resources[i].registers, whole.resources[i].registers);
    }
  }
  // An error is reported whichever part it is in.
  CudaModule wrong = m;
  wrong.text.insert(wrong.text.rfind("gl_fma"), "not_a_word + ");
  try {
    nvrtc->compile(wrong, 90, false, 3);
    FAIL() << "compiled";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::compile_failed);
    EXPECT_NE(std::string(e.what()).find("not_a_word"), std::string::npos) << e.what();
  }
}

TEST(CudaNvrtc, CompilesForEachArchitecture) {
  NEEDS_NVRTC;
  EXPECT_NE(nvrtc->version(), "");
  for (const int architecture : {80, 90, 100}) {
    if (std::find(nvrtc->architectures().begin(), nvrtc->architectures().end(), architecture) ==
        nvrtc->architectures().end())
      continue;
    const CudaBinary binary = nvrtc->compile(module_of(every_word, 512), architecture, true);
    EXPECT_FALSE(binary.ptx);
    EXPECT_EQ(binary.images.at(0).bytes.substr(1, 3), "ELF");
    ASSERT_EQ(binary.resources.size(), 1u);
    const CudaResources& r = binary.resources[0];
    EXPECT_EQ(r.function, "f_0");
    EXPECT_GT(r.registers, 4);
    EXPECT_LT(r.registers, 256);
    EXPECT_EQ(r.local_bytes, 0);
    EXPECT_EQ(r.spill_bytes, 0);
    EXPECT_EQ(r.shared_bytes, 512);
    EXPECT_GT(r.code_bytes, 100);
  }
}

TEST(CudaNvrtc, ANewerDeviceGetsPtx) {
  NEEDS_NVRTC;
  const CudaBinary binary = nvrtc->compile(module_of("  out[gl_thread()] = in[n];"), 999);
  EXPECT_TRUE(binary.ptx);
  EXPECT_NE(binary.images.at(0).bytes.find(".visible .entry f_0("), std::string::npos);
  EXPECT_TRUE(binary.resources.empty());
}

TEST(CudaNvrtc, AnOlderDeviceIsRefused) {
  NEEDS_NVRTC;
  try {
    nvrtc->compile(module_of("  out[0] = 1;"), 20);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::unsupported);
    EXPECT_NE(std::string(e.what()).find("the device is sm_20"), std::string::npos) << e.what();
  }
}

TEST(CudaNvrtc, NothingIsContracted) {
  NEEDS_NVRTC;
  const std::string ptx =
      nvrtc->compile_to_ptx(module_of("  out[0] = in[0] * in[1] + in[2] / in[3];"), 90).images[0].bytes;
  EXPECT_NE(ptx.find("mul.rn.f32"), std::string::npos) << ptx;
  EXPECT_NE(ptx.find("div.rn.f32"), std::string::npos) << ptx;
  EXPECT_EQ(ptx.find("fma"), std::string::npos) << ptx;
  EXPECT_EQ(ptx.find(".ftz"), std::string::npos) << ptx;
}

TEST(CudaNvrtc, ArraysInMemoryAndSpillsAreReported) {
  NEEDS_NVRTC;
  const CudaResources array =
      nvrtc
          ->compile(module_of("  float a[64], s = 0;\n  for (int i = 0; i < 64; ++i) a[i] = in[i * n];\n"
                              "  for (int i = 0; i < n; ++i) s += a[i * 7 % 64];\n  out[0] = s;"),
                    90, true)
          .resources[0];
  EXPECT_EQ(array.local_bytes, 256);
  EXPECT_EQ(array.spill_bytes, 0);
  // A block of 1024 threads leaves each 64 registers; 96 sums are carried through the loop.
  CudaModule sums = module_of(
      "  float v[96] = {};\n  for (long long k = 0; k < n; ++k) {\n    const float x = in[k];\n#pragma unroll\n"
      "    for (int i = 0; i < 96; ++i) v[i] = v[i] * x + v[(i + 1) % 96];\n  }\n#pragma unroll\n  for (int i = 0; i < "
      "96; ++i) out[i] = v[i];");
  sums.text.replace(sums.text.find("64"), 2, "1024");
  const CudaResources spilled = nvrtc->compile(sums, 90, true).resources[0];
  EXPECT_GT(spilled.registers, 32);
  EXPECT_LE(spilled.registers, 64);
  EXPECT_GT(spilled.spill_bytes, 0);
  EXPECT_GT(spilled.local_bytes, 0);
}

TEST(CudaNvrtc, ItsLogIsInTheError) {
  NEEDS_NVRTC;
  try {
    nvrtc->compile(module_of("  out[0] = no_such_name;"), 90);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::compile_failed);
    EXPECT_NE(std::string(e.what()).find("identifier \"no_such_name\" is undefined"), std::string::npos) << e.what();
  }
}

TEST(CudaNvrtc, AMissingLibraryIsOneClearLine) {
  try {
    Nvrtc nowhere("/no/such/toolkit");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::device_error);
    EXPECT_EQ(std::string(e.what()),
              "NVRTC was not found: GRADLOOM_CUDA_PATH is /no/such/toolkit, and neither it nor its lib64 or lib holds "
              "libnvrtc.so.13, libnvrtc.so.12, libnvrtc.so");
  }
}

TEST(CudaNvrtc, WhatIsNoCubinHasNoFunctions) {
  EXPECT_TRUE(cubin_resources("").empty());
  EXPECT_TRUE(cubin_resources("\x7f"
                              "ELF")
                  .empty());
  EXPECT_TRUE(cubin_resources(std::string("\x7f"
                                          "ELF\x02") +
                              std::string(200, '\xff'))
                  .empty());
}

}  // namespace
}  // namespace gradloom::codegen
#endif
