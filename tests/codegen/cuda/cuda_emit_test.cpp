// CUDA text: barrier placement, which threads write, and rejected kernels.
#include <gtest/gtest.h>

#include "gradloom/builder.h"
#include "gradloom/schedule.h"
#include "gradloom/text.h"
#include "ir/passes/passes.h"
#include "tests/codegen/cuda/emit_support.h"

namespace gradloom::codegen {
namespace {

// The whole kernel is one function with the given block size, launched once.
void expect_one_launch(const CudaModule& m, int threads) {
  ASSERT_EQ(m.functions.size(), 1u);
  EXPECT_EQ(m.functions[0].threads, threads);
  ASSERT_EQ(m.steps.size(), 1u);
  EXPECT_EQ(m.steps[0].kind, HostStep::launch);
}

TEST(CudaEmit, AScatterThroughSharedMemory) {
  const CudaModule m = emit(R"(kernel strip(n: i64 in [1, 4096]) {
  in indices: i64[n, 16]
  in dY: f32[n, 16]
  inout dX: f32[100, 16] align 64
  for b in 0 .. 2 grid {
    alloc acc: f32[100, 8] shared
    for i in 0 .. 800 thread {
      acc[floor_div(i, 8), floor_mod(i, 8)] = 0.0f32
    }
    for q in 0 .. 8 warp {
      for c in 0 .. floor_div(n + 31, 32) {
        for l in 0 .. 32 lane {
          if c * 32 + l < n {
            let j: i64 = indices[c * 32 + l, b * 8 + q]
            check j >= 0 & j < 100 at (c * 32 + l) * 16 + b * 8 + q "indices" {
              acc[j, q] += dY[c * 32 + l, b * 8 + q]
            }
          }
        }
      }
    }
    for i in 0 .. 800 thread {
      dX[floor_div(i, 8), b * 8 + floor_mod(i, 8)] = acc[floor_div(i, 8), floor_mod(i, 8)]
    }
  }
})");
  ASSERT_NO_FATAL_FAILURE(expect_one_launch(m, 800));
  EXPECT_EQ(m.functions[0].shared_bytes, 3200);
  // Between zeroing and accumulating, and between accumulating and copying out; none at the end.
  EXPECT_EQ(count(m.text, "gl_sync_block();"), 2) << m.text;
  EXPECT_EQ(count(m.text, "gl_ordered<true>("), 1) << m.text;
  // All indices fit in int; the checked one is narrowed where the check proves it.
  EXPECT_NE(m.text.find("const int n_1 = (int)n;"), std::string::npos) << m.text;
  EXPECT_NE(m.text.find("acc[(int)j * 8 + q]"), std::string::npos) << m.text;
  EXPECT_NE(m.text.find("gl_atomic_min(gl_status, position);"), std::string::npos) << m.text;
}

TEST(CudaEmit, NoBarrierWhereThreadsMeetNothing) {
  const CudaModule m = emit(R"(kernel two() {
  in x: f32[256]
  out y: f32[256]
  out z: f32[256]
  for b in 0 .. 1 grid {
    for i in 0 .. 256 thread {
      y[i] = x[i]
    }
    for i in 0 .. 256 thread {
      z[i] = x[255 - i]
    }
  }
})");
  EXPECT_EQ(count(m.text, "gl_sync_block"), 0) << m.text;
}

// Through a __restrict__ pointer NVRTC keeps the value of y[0] that was read before the barrier.
TEST(CudaEmit, WhatThreadsExchangeIsNotRestricted) {
  const CudaModule m = emit(R"(kernel exchange() {
  in x: f32[1]
  inout y: f32[256]
  out z: f32[2, 256]
  for b in 0 .. 1 grid {
    for t in 0 .. 256 thread {
      z[0, t] = y[0]
    }
    for t in 3 .. 4 thread {
      y[t - 3] = x[0]
    }
    for t in 0 .. 256 thread {
      z[1, t] = y[0]
    }
  }
})");
  EXPECT_EQ(count(m.text, "gl_sync_block();"), 2) << m.text;
  EXPECT_NE(m.text.find("float* y"), std::string::npos) << m.text;
  EXPECT_NE(m.text.find("float* z"), std::string::npos) << m.text;
  EXPECT_NE(m.text.find("const float* __restrict__ x"), std::string::npos) << m.text;
}

TEST(CudaEmit, ASerialLoopOverSharedTilesHasABarrierAtItsStartToo) {
  const CudaModule m = emit(R"(kernel tiles() {
  in x: f32[4, 32]
  inout y: f32[32]
  for b in 0 .. 1 grid {
    alloc tile: f32[32] shared
    for k in 0 .. 4 {
      for i in 0 .. 32 thread {
        tile[i] = x[k, i]
      }
      for i in 0 .. 32 thread {
        y[i] += tile[31 - i]
      }
    }
  }
})");
  EXPECT_EQ(count(m.text, "gl_sync_block"), 2) << m.text;
}

TEST(CudaEmit, TheBlockWritesOnce) {
  const CudaModule m = emit(R"(kernel once() {
  inout y: i64[2]
  for b in 0 .. 1 grid {
    let old: i64 = y[0]
    y[0] = old + 1
    for i in 0 .. 32 thread {
      if i == 3 {
        y[1] = y[0]
      }
    }
  }
})");
  EXPECT_NE(m.text.find("if (gl_thread() == 0) {"), std::string::npos) << m.text;
  // A barrier between all reads and the write, and one between the write and the next reads.
  EXPECT_EQ(count(m.text, "gl_sync_block"), 2) << m.text;
}

TEST(CudaEmit, ACooperativeLoopIsOneFunctionWhoseBlocksMeetBetweenPhases) {
  const CudaModule m = emit(R"(kernel turns() {
  in x: f32[300]
  inout y: f32[300]
  inout z: f32[300]
  for t in 0 .. 9 cooperative {
    for b in 0 .. 10 grid {
      for i in 0 .. 30 thread {
        y[b * 30 + i] = z[299 - (b * 30 + i)] * x[b * 30 + i]
      }
    }
    for b in 0 .. 3 grid {
      for i in 0 .. 100 thread {
        z[b * 100 + i] = y[b * 100 + i]
      }
    }
  }
})");
  ASSERT_NO_FATAL_FAILURE(expect_one_launch(m, 128));
  EXPECT_EQ(m.functions[0].cooperative, 1);
  // One grid barrier before each phase: the first orders it after the second phase of the previous iteration.
  EXPECT_EQ(count(m.text, "gl_sync_grid(gl_grid);"), 2) << m.text;
  EXPECT_EQ(count(m.text, "gl_at += gl_blocks()"), 2) << m.text;
  // Data exchanged between blocks is reloaded from memory.
  EXPECT_NE(m.text.find("float* y)"), std::string::npos) << m.text;
  EXPECT_EQ(count(m.text, "__restrict__"), 1) << m.text;
  EXPECT_NE(m.text.find("const float* __restrict__ x"), std::string::npos) << m.text;
}

TEST(CudaEmit, PhasesThatHaveNothingInCommonNeedNoMeeting) {
  const CudaModule m = emit(R"(kernel apart() {
  inout y: f32[64]
  inout z: f32[64]
  for once in 0 .. 1 cooperative {
    alloc kept: f32[2, 32] per_block
    for b in 0 .. 2 grid {
      for i in 0 .. 32 thread {
        kept[b, i] = y[b * 32 + i]
      }
    }
    for t in 0 .. 5 {
      for b in 0 .. 2 grid {
        for i in 0 .. 32 thread {
          z[b * 32 + i] += kept[b, 31 - i]
        }
      }
    }
  }
})");
  EXPECT_EQ(m.functions[0].cooperative, 2);  // each block keeps its part resident: no grid-stride loop
  EXPECT_EQ(m.functions[0].shared_bytes, 128);
  EXPECT_EQ(count(m.text, "gl_at"), 0) << m.text;
  EXPECT_EQ(count(m.text, "gl_sync_grid(gl_grid);"), 1) << m.text;  // z, a loop-carried dependence
  EXPECT_GE(count(m.text, "gl_sync_block();"), 1) << m.text;        // `kept` is shared within one block
}

TEST(CudaEmit, TheHostPartIsAProgram) {
  const CudaModule m = emit(R"(kernel steps(n: i64 in [0, 1000]) {
  inout y: i64[1000]
  alloc scratch: i64[n]
  for t in 0 .. 3 {
    if n > 4 {
      for b in 0 .. floor_div(n + 255, 256) grid {
        for i in 0 .. 256 thread {
          if b * 256 + i < n {
            scratch[b * 256 + i] = y[b * 256 + i] + t
          }
        }
      }
    }
    for b in 0 .. floor_div(n + 255, 256) grid {
      for i in 0 .. 256 thread {
        if b * 256 + i < n {
          y[b * 256 + i] = t
        }
      }
    }
  }
})");
  std::vector<int64_t> memory(1000);
  void* buffers[] = {memory.data()};
  std::vector<std::string> seen;
  const LaunchSink sink{.acquire =
                            [&](int64_t bytes) {
                              return seen.push_back("acquire " + std::to_string(bytes)),
                                     static_cast<void*>(memory.data());
                            },
                        .release = [&](void*, int64_t) { seen.push_back("release"); },
                        .launch = [&](const CudaFunction& f, int64_t blocks,
                                      std::span<void*>) { seen.push_back(f.name + " " + std::to_string(blocks)); }};
  int64_t n = 300;
  launch_all(m, buffers, {&n, 1}, nullptr, sink);
  EXPECT_EQ(seen, (std::vector<std::string>{"acquire 2400", "steps_0 2", "steps_1 2", "steps_0 2", "steps_1 2",
                                            "steps_0 2", "steps_1 2", "release"}));
  seen.clear(), n = 3;
  launch_all(m, buffers, {&n, 1}, nullptr, sink);
  EXPECT_EQ(seen, (std::vector<std::string>{"acquire 24", "steps_1 1", "steps_1 1", "steps_1 1", "release"}));
  seen.clear(), n = 0;
  launch_all(m, buffers, {&n, 1}, nullptr, sink);
  EXPECT_EQ(seen, (std::vector<std::string>{"acquire 1", "release"}));  // no empty grid
}

TEST(CudaEmit, ScratchOfMoreBytesThanThereAreIsNotASmallOne) {
  // 2^61 times 8 bytes is 0 in 64 bits.
  const CudaModule m = emit(R"(kernel far(n: i64 in [0, 4611686018427387904]) {
  inout y: i64[1000]
  alloc scratch: i64[n]
  for b in 0 .. 1 grid {
    for i in 0 .. 32 thread {
      scratch[i] = y[i]
    }
  }
})");
  const int64_t n = int64_t{1} << 61;
  int64_t asked = 0;
  void* buffers[] = {nullptr};
  const LaunchSink sink{.acquire = [&](int64_t bytes) { return asked = bytes, static_cast<void*>(nullptr); },
                        .release = [](void*, int64_t) {},
                        .launch = {}};
  try {
    launch_all(m, buffers, {&n, 1}, nullptr, sink);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::resource_exhausted);
    EXPECT_STREQ(error.what(), "no device memory for the kernel's scratch of more bytes than can be counted");
  }
  EXPECT_EQ(asked, 0);  // a size beyond any address space is never requested
}

TEST(CudaEmit, RegistersAreVariables) {
  const CudaModule m = emit(R"(kernel variables() {
  in x: f32[64]
  inout y: f32[64]
  for b in 0 .. 1 grid {
    for i in 0 .. 16 thread {
      alloc own: f32[4] registers
      own[ramp(0, 1, 4)] = x[ramp(i * 4, 1, 4)]
      own[ramp(1, 1, 3)] = own[ramp(0, 1, 3)]
      y[ramp(i * 4, 1, 4)] = own[ramp(0, 1, 4)]
    }
  }
})");
  EXPECT_NE(m.text.find("float own_0, own_1, own_2, own_3;"), std::string::npos) << m.text;
  // Every source element is loaded before the first of the three stores.
  EXPECT_NE(m.text.find("const float v_5 = own_1;"), std::string::npos) << m.text;
  EXPECT_NE(m.text.find("own_2 = v_5;"), std::string::npos) << m.text;
}

TEST(CudaEmit, NamesAreNoneOfTheLanguages) {
  ir::KernelBuilder b("odd name \\");
  const ir::Buffer x = b.input("nullptr", DType::f32, {32}), y = b.output("gl_thread", DType::f32, {32});
  b.loop("typeid", 0, 32, [&](ir::Expr i) { b.store(y, {i}, ir::load(x, {i})); });
  ir::Schedule s(b.build());
  s.bind(s.split(s.loop("typeid"), 32).outer, ir::ForKind::grid);
  s.bind(s.loops()[1], ir::ForKind::thread);
  const CudaModule m = emit_cuda(ir::lower(s.kernel()));
  EXPECT_EQ(m.text.substr(0, m.text.find('\n')), "// kernel odd_name__");
  EXPECT_EQ(m.functions[0].name, "odd_name___0");
  EXPECT_NE(m.text.find("__restrict__ nullptr_"), std::string::npos) << m.text;
  EXPECT_NE(m.text.find("__restrict__ xgl_thread"), std::string::npos) << m.text;
}

TEST(CudaEmit, ABufferOfTooManyBytesForABlockIsRefused) {
  const ir::Kernel kernel = ir::parse(R"(kernel wide() {
  out y: f32[32]
  for b in 0 .. 1 grid {
    alloc tile: f32[4611686018427387904, 8] shared
    for i in 0 .. 32 thread {
      tile[i, 0] = 0.0f32
    }
  }
})");
  EXPECT_THROW(emit_cuda(kernel), Error);
  EXPECT_THROW(ir::lower(kernel), Error);
}

TEST(CudaEmit, ALoopOfManyThreadsIsABlockOfAThousand) {
  const CudaModule m = emit(R"(kernel many() {
  out y: f32[4611686018427387904]
  for b in 0 .. 1 grid {
    for w in 0 .. 288230376151711744 warp {
      for l in 0 .. 16 lane {
        y[w * 16 + l] = 0.0f32
      }
    }
  }
})");
  EXPECT_EQ(m.functions[0].threads, 1024);
}

TEST(CudaEmit, WhatHasNoCudaFormIsRefused) {
  const auto refusal = [](const std::string& text) {
    try {
      emit_cuda(ir::parse(text));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  EXPECT_EQ(refusal("kernel host() {\n  out y: f32[4]\n  for i in 0 .. 4 {\n    y[i] = 0.0f32\n  }\n}"),
            "CUDA: kernel host: a store to y stands outside every grid loop");
  EXPECT_EQ(refusal("kernel adds() {\n  inout y: f32[4]\n  for b in 0 .. 4 grid {\n    for i in 0 .. 32 thread {\n     "
                    " y[0] max= 1.0f32 atomic\n    }\n  }\n}"),
            "CUDA: an atomic accumulate adds to a number of 32 or 64 bits, got max to f32 y");
}

}  // namespace
}  // namespace gradloom::codegen
