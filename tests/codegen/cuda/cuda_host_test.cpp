// The host executor on small kernel texts: semantics, barriers, scheduling orders, and the errors that it must detect.
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <numeric>

#include "codegen/cuda_host/host_executor.h"
#include "gradloom/error.h"

#ifdef GRADLOOM_WITH_CUDA

namespace gradloom::codegen {
namespace {

constexpr HostOrder orders[] = {HostOrder::forward, HostOrder::reverse, HostOrder::shuffled};

// A module of one function whose arguments are buffer 0, a second buffer, and a slot.
CudaModule module_of(const std::string& body, int threads = 64, int64_t shared_bytes = 0, int64_t blocks = 2) {
  CudaModule m;
  m.text = "GL_KERNEL(" + std::to_string(threads) +
           ") f(long long* out, const long long* in, long long n, long long* status) {\n" + body + "\n}\n";
  m.functions.push_back(
      {.name = "f",
       .threads = threads,
       .shared_bytes = shared_bytes,
       .arguments = {
           {CudaArgument::buffer, 0}, {CudaArgument::buffer, 1}, {CudaArgument::slot, 0}, {CudaArgument::status, 0}}});
  m.steps.push_back({.kind = HostStep::launch, .index = 0, .value = {{HostCode::constant, blocks}}});
  m.buffers = 2, m.scalars = 1, m.slots = 1;
  return m;
}

std::vector<int64_t> run(const CudaModule& m, const HostModule& loaded, HostOrder order, int64_t n,
                         int64_t* bad = nullptr, uint64_t seed = 1) {
  std::vector<int64_t> out(256, -1), in(256);
  std::iota(in.begin(), in.end(), 100);
  void* const buffers[] = {out.data(), in.data()};
  const int64_t status = run_on_host(m, loaded, buffers, std::span(&n, 1), order, seed);
  if (bad) *bad = status;
  return out;
}

std::string failure(const CudaModule& m, ErrorCode code) {
  try {
    const auto loaded = HostModule::compile(m);
    run(m, *loaded, HostOrder::forward, 0);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST(CudaHost, EveryThreadOfEveryBlockRuns) {
  const CudaModule m = module_of("  out[gl_block() * 64 + gl_thread()] = in[gl_thread()] + n + 1000 * gl_blocks();");
  const auto loaded = HostModule::compile(m);
  for (const HostOrder order : orders) {
    const std::vector<int64_t> out = run(m, *loaded, order, 5);
    for (int i = 0; i < 256; ++i) EXPECT_EQ(out[i], i < 128 ? 2105 + i % 64 : -1) << i;
  }
}

// g++ 12 compiles this loop wrongly at -O1, in its pass ivopts, but not where it is unrolled.
TEST(CudaHost, ALoopIsWhatItIsUnrolled) {
  const auto result = [](int unrolled) {
    const CudaModule m = module_of(
        "  const unsigned* __restrict__ x = (const unsigned*)in;\n"
        "  int* __restrict__ g = (int*)out;\n"
        "  const int o = (int)gl_block(), t = gl_thread(), div = t >> 2, mod = t & 3, mod_1 = div & 3;\n"
        "  #pragma GCC unroll " +
            std::to_string(unrolled) +
            "\n"
            "  for (int i = 0; i < 4; ++i) {\n"
            "    const unsigned short v = (unsigned short)(((unsigned short)9360) ^ ((unsigned short)x[130 + mod_1 * "
            "8]));\n"
            "    if ((i >= 2 ? ((((unsigned short)x[101 + i * 8]) <= ((unsigned short)x[195 + mod * 8]))\n"
            "                       ? x[133 + mod_1 * 8] : 14u)\n"
            "                : x[i * 8 + 1]) >= ((unsigned)v))\n"
            "      g[(o * 2 + (div >> 2)) * 16 + mod_1 * 4 + mod] =\n"
            "          gl_mul<int>(g[(o * 2 + (div >> 2)) * 16 + mod_1 * 4 + mod], (int)x[199 + (3 - i) * 8]);\n"
            "  }\n",
        32);
    std::vector<int> g(64, -10);
    std::vector<uint32_t> x(256);
    uint32_t random = 12345;
    for (uint32_t& v : x) {
      random = random * 1664525 + 1013904223;
      v = (random >> 20 & 15) * ((random >> 16) % 3 == 0 ? ~uint32_t{0} : 1);
    }
    void* const buffers[] = {g.data(), x.data()};
    const int64_t n = 0;
    run_on_host(m, *HostModule::compile(m), buffers, std::span(&n, 1), HostOrder::forward, 1);
    return g;
  };
  EXPECT_EQ(result(1), result(4));
}

TEST(CudaHost, ABarrierIsForAllThreads) {
  // A reversal through shared memory, repeated, so that a barrier also separates reads from the next writes.
  const CudaModule m = module_of(
      "  GL_SHARED(512);\n"
      "  long long* tile = (long long*)gl_shared;\n"
      "  long long v = in[gl_thread()];\n"
      "  for (long long k = 0; k < n; ++k) {\n"
      "    tile[gl_thread()] = v;\n"
      "    gl_sync_block();\n"
      "    v = tile[63 - gl_thread()] + 1;\n"
      "    gl_sync_block();\n"
      "  }\n"
      "  out[gl_block() * 64 + gl_thread()] = v;",
      64, 512);
  const auto loaded = HostModule::compile(m);
  for (const HostOrder order : orders) {
    const std::vector<int64_t> out = run(m, *loaded, order, 3);
    for (int i = 0; i < 128; ++i) EXPECT_EQ(out[i], 100 + 63 - i % 64 + 3) << i;
  }
}

TEST(CudaHost, AMissingBarrierShows) {
  // Each thread reads its right neighbour's cell: in forward thread order it reads poison, in reverse order it happens
  // to be right.
  const CudaModule m = module_of(
      "  GL_SHARED(512);\n"
      "  long long* tile = (long long*)gl_shared;\n"
      "  tile[gl_thread()] = in[gl_thread()];\n"
      "  out[gl_block() * 64 + gl_thread()] = tile[(gl_thread() + 1) % 64];",
      64, 512);
  const auto loaded = HostModule::compile(m);
  EXPECT_EQ(run(m, *loaded, HostOrder::forward, 0)[5], -1);
  EXPECT_EQ(run(m, *loaded, HostOrder::reverse, 0)[5], 106);
  bool poison = false, right = false;
  for (uint64_t seed = 1; seed < 30; ++seed) {
    const int64_t got = run(m, *loaded, HostOrder::shuffled, 0, nullptr, seed)[5];
    (got == -1 ? poison : right) = true;
  }
  EXPECT_TRUE(poison && right);
}

TEST(CudaHost, SignedArithmeticThatOverflowsEndsTheProcessWhereAsked) {
  const CudaModule m = module_of("  out[gl_thread()] = n + 1;");
  const CudaModule* const one = &m;
  const auto loaded = HostModule::compile(std::span(&one, 1), HostOverflow::traps).front();
  EXPECT_EQ(run(m, *loaded, HostOrder::forward, 7)[3], 8);
  EXPECT_DEATH(run(m, *loaded, HostOrder::forward, std::numeric_limits<int64_t>::max()), "");
}

// A cooperative function: its blocks synchronise at grid barriers.
CudaModule cooperative(const std::string& body, int64_t at_least = 1, int64_t blocks = 4) {
  CudaModule m = module_of(body, 32, 0, blocks);
  m.functions[0].cooperative = at_least;
  return m;
}

TEST(CudaHost, AllBlocksMeetAtTheGridsBarrier) {
  // A block reads what the next block wrote, n times; the values are double-buffered.
  const std::string turn =
      "  long long v = gl_block();\n"
      "  for (long long k = 0; k < n; ++k) {\n"
      "    if (gl_thread() == 7) out[k % 2 * 64 + gl_block()] = v;\n"
      "    BARRIER\n"
      "    v = out[k % 2 * 64 + (gl_block() + 1) % gl_blocks()] + 10;\n"
      "  }\n"
      "  out[128 + gl_block() * 32 + gl_thread()] = v;";
  const auto text = [&](const std::string& barrier) {
    std::string body = turn;
    return cooperative(body.replace(body.find("BARRIER"), 7, barrier));
  };
  const CudaModule with = text("gl_sync_grid((unsigned*)status);"), without = text("gl_sync_block();");
  const auto loaded = HostModule::compile(with), broken = HostModule::compile(without);
  bool shown = false;
  for (const HostOrder order : orders) {
    const std::vector<int64_t> out = run(with, *loaded, order, 3);
    for (int i = 0; i < 128; ++i) EXPECT_EQ(out[128 + i], (i / 32 + 3) % 4 + 30) << i;
    shown |= run(without, *broken, order, 3) != out;
  }
  EXPECT_TRUE(shown) << "a missing barrier of the grid must show";
}

TEST(CudaHost, BlocksThatPartAreReported) {
  EXPECT_EQ(failure(cooperative("  if (gl_block() != 2) gl_sync_grid(0);"), ErrorCode::internal),
            "the blocks of kernel function f part: block 0 is at gl_sync_grid in line 2, block 2 has ended");
  EXPECT_EQ(failure(cooperative("  if (gl_block() == 2) gl_sync_grid(0);"), ErrorCode::internal),
            "the blocks of kernel function f part: block 0 has ended, block 2 is at gl_sync_grid in line 2");
  EXPECT_EQ(
      failure(cooperative("  if (gl_thread() == 2) gl_sync_grid(0);"), ErrorCode::internal),
      "the threads of kernel function f, block 0, part: thread 1 has ended, thread 2 is at gl_sync_grid in line 2");
  EXPECT_EQ(failure(module_of("  gl_sync_grid(0);"), ErrorCode::internal),
            "kernel function f waits for the whole grid in a launch that is not cooperative");
}

TEST(CudaHost, ACooperativeLaunchHasAsManyBlocksAsItNeeds) {
  const auto blocks = [](int64_t at_least, int64_t useful) {
    const CudaModule m = cooperative("  out[0] = gl_blocks();\n  gl_sync_grid(0);", at_least, useful);
    return run(m, *HostModule::compile(m), HostOrder::forward, 0)[0];
  };
  EXPECT_EQ(blocks(1, 3), 3);
  EXPECT_EQ(blocks(1, 100), 5);  // few, so that they use grid-stride loops
  EXPECT_EQ(blocks(40, 100), 40);
}

TEST(CudaHost, ABlockDoesNotSeeTheSharedMemoryOfAnother) {
  const CudaModule m = module_of(
      "  GL_SHARED(8);\n"
      "  if (gl_thread() == 0) out[gl_block()] = *(long long*)gl_shared;\n"
      "  gl_sync_block();\n"
      "  if (gl_thread() == 1) *(long long*)gl_shared = 7;",
      32, 8);
  const auto loaded = HostModule::compile(m);
  for (const HostOrder order : orders) {
    const std::vector<int64_t> out = run(m, *loaded, order, 0);
    EXPECT_EQ(out[0], -1);
    EXPECT_EQ(out[1], -1);
  }
}

TEST(CudaHost, WarpWords) {
  const CudaModule m = module_of(
      "  const int lane = gl_thread() % 32;\n"
      "  const long long a = gl_ballot(lane % 3 == 0);\n"
      "  const long long b = gl_match(lane / 4);\n"
      "  const long long c = (long long)gl_shuffle(in[gl_thread()], (lane + 1) % 32);\n"
      "  gl_sync_warp();\n"
      "  out[gl_thread()] = c;\n"
      "  out[64 + gl_thread()] = a;\n"
      "  out[128 + gl_thread()] = b;",
      64, 0, 1);
  const auto loaded = HostModule::compile(m);
  for (const HostOrder order : orders) {
    const std::vector<int64_t> out = run(m, *loaded, order, 0);
    for (int i = 0; i < 64; ++i) {
      EXPECT_EQ(out[i], 100 + i / 32 * 32 + (i + 1) % 32);
      EXPECT_EQ(out[64 + i], 0x49249249);
      EXPECT_EQ(out[128 + i], int64_t{15} << (i % 32 / 4 * 4));
    }
  }
}

TEST(CudaHost, WarpsGoTheirOwnWays) {
  // Each warp runs a different number of iterations before the block barrier.
  const CudaModule m = module_of(
      "  GL_SHARED(8);\n"
      "  const int warp = gl_thread() / 32;\n"
      "  if (gl_thread() == 0) *(int*)gl_shared = 0;\n"
      "  gl_sync_block();\n"
      "  for (int k = 0; k < 3 * warp; ++k) if (gl_ballot(true) == 0xffffffffu && gl_thread() % 32 == k % 32) "
      "gl_atomic_add((int*)gl_shared, 1);\n"
      "  gl_sync_block();\n"
      "  out[gl_thread()] = *(int*)gl_shared;",
      128, 8, 1);
  const auto loaded = HostModule::compile(m);
  for (const HostOrder order : orders) EXPECT_EQ(run(m, *loaded, order, 0)[77], 3 + 6 + 9);
}

TEST(CudaHost, AtomicsAndTheStatus) {
  const CudaModule m = module_of(
      "  gl_atomic_min(status, 50 + (gl_thread() * 37 + gl_block()) % 64);\n"
      "  gl_atomic_add(out, 1ll);\n"
      "  gl_atomic_add((unsigned long long*)out + 1, 2ull);\n"
      "  gl_atomic_add((int*)(out + 2), -1);\n"
      "  gl_atomic_add((unsigned*)(out + 3), 1u);");
  const auto loaded = HostModule::compile(m);
  for (const HostOrder order : orders) {
    int64_t bad = 0;
    const std::vector<int64_t> out = run(m, *loaded, order, 0, &bad);
    EXPECT_EQ(bad, 50);
    EXPECT_EQ(out[0], 127);
    EXPECT_EQ(out[1], 255);
    EXPECT_EQ(static_cast<int32_t>(out[2]), -129);
    EXPECT_EQ(static_cast<uint32_t>(out[3]), 127u);
  }
}

TEST(CudaHost, FloatWordsAreExact) {
  const CudaModule m = module_of(
      "  if (gl_thread() != 0) return;\n"
      "  out[0] = gl_bits(gl_fma(gl_float(0x3f800002u), gl_float(0x3f800002u), -1.0f));\n"
      "  out[1] = (long long)gl_bits(gl_sqrt(2.0));\n"
      "  out[2] = (long long)gl_floor(-1.5f) * 100 + (long long)gl_ceil(-1.5) * 10 + (long long)gl_trunc(1.5f);\n"
      "  out[3] = (long long)gl_double(0x4008000000000000ull) + (long long)gl_float(0x40800000u);\n"
      "  const float x = gl_float(0x3f800002u);\n"
      "  out[4] = gl_bits(x * x - 1.0f);",  // not contracted
      32, 0, 1);
  const auto loaded = HostModule::compile(m);
  const std::vector<int64_t> out = run(m, *loaded, HostOrder::forward, 0);
  EXPECT_EQ(out[0], 0x35000001);
  EXPECT_EQ(out[1], 0x3ff6a09e667f3bcd);
  EXPECT_EQ(out[2], -200 - 10 + 1);
  EXPECT_EQ(out[3], 3 + 4);
  EXPECT_EQ(out[4], 0x35000000);
}

TEST(CudaHost, ThreadsThatPartAreReported) {
  EXPECT_EQ(
      failure(module_of("  if (gl_thread() < 40) gl_sync_block();"), ErrorCode::internal),
      "the threads of kernel function f, block 0, part: thread 39 is at gl_sync_block in line 2, thread 40 has ended");
  EXPECT_EQ(
      failure(module_of("  if (gl_thread() < 40) gl_sync_block();\n  else gl_sync_block();"), ErrorCode::internal),
      "the threads of kernel function f, block 0, part: thread 39 is at gl_sync_block in line 2, thread 40 is at "
      "gl_sync_block in line 3");
  EXPECT_EQ(failure(module_of("  if (gl_thread() != 33) gl_ballot(true);\n  gl_sync_block();"), ErrorCode::internal),
            "the threads of kernel function f, block 0, part: thread 31 is at gl_sync_block in line 3, thread 32 is at "
            "gl_ballot in line 2");
  // And the executor is unaffected.
  const CudaModule m = module_of("  gl_sync_block();\n  out[gl_thread()] = 3;");
  EXPECT_EQ(run(m, *HostModule::compile(m), HostOrder::forward, 0)[63], 3);
}

TEST(CudaHost, SharedMemoryBeyondTheLaunchIsReported) {
  EXPECT_EQ(failure(module_of("  GL_SHARED(16);\n  gl_shared[0] = 1;", 32, 8), ErrorCode::internal),
            "kernel function f wants 16 bytes of shared memory, its launch has 8");
}

TEST(CudaHost, CompileErrorsGiveTheCompilersLine) {
  const std::string message = failure(module_of("  out[0] = no_such_name;"), ErrorCode::compile_failed);
  EXPECT_NE(message.find("no_such_name"), std::string::npos) << message;
  EXPECT_NE(message.find("kernel:2"), std::string::npos) << message;
  CudaModule short_of_one = module_of("  out[0] = 1;");
  short_of_one.functions[0].arguments.pop_back();
  EXPECT_NE(failure(short_of_one, ErrorCode::compile_failed).find("other parameters"), std::string::npos);
}

TEST(CudaHost, WithoutACompilerThereIsAClearError) {
  const char* before = std::getenv("CXX");
  const std::string kept = before ? before : "";
  setenv("CXX", "/no/such/compiler -x", 1);
  const std::string message = failure(module_of("  out[0] = 1;"), ErrorCode::device_error);
  before ? setenv("CXX", kept.c_str(), 1) : unsetenv("CXX");
  EXPECT_NE(message.find("needs a C++ compiler: \"/no/such/compiler\""), std::string::npos) << message;
}

TEST(CudaHost, SeveralModulesInOneCompilation) {
  const CudaModule a = module_of("  out[gl_thread()] = 1;"),
                   b = module_of("  out[gl_thread()] = 2;");  // both have a function f
  const CudaModule* const both[] = {&a, &b};
  const auto loaded = HostModule::compile(both);
  EXPECT_EQ(run(a, *loaded[0], HostOrder::forward, 0)[1], 1);
  EXPECT_EQ(run(b, *loaded[1], HostOrder::forward, 0)[1], 2);
}

TEST(CudaHost, ScratchIsPoisoned) {
  CudaModule m = module_of("  if (gl_thread() == 0) out[gl_block()] = in[1];", 32, 0, 1);
  m.functions[0].arguments[1] = {CudaArgument::scratch, 0};
  HostStep scratch{
      .kind = HostStep::scratch, .index = 0, .value = {{HostCode::constant, 16}}, .body = std::move(m.steps)};
  m.steps = {scratch};
  m.scratch_blocks = 1;
  std::vector<int64_t> out(1, 0);
  void* const buffers[] = {out.data(), nullptr};
  const int64_t n = 0;
  run_on_host(m, *HostModule::compile(m), buffers, std::span(&n, 1));
  EXPECT_EQ(out[0], -1);
}

}  // namespace
}  // namespace gradloom::codegen

#endif
