// CUDA text: index types, index arithmetic, and loops over threads.
#include <gtest/gtest.h>

#include "tests/codegen/cuda/emit_support.h"

namespace gradloom::codegen {
namespace {

TEST(CudaIndex, IndicesThatMayLeaveIntAreWide) {
  const CudaModule m = emit(R"(kernel far(n: i64 in [1, 1000000]) {
  in x: f32[n, 65536]
  out y: f32[n, 65536]
  for b in 0 .. n grid {
    for i in 0 .. 1024 thread {
      y[b, i] = x[b, i]
    }
  }
})");
  EXPECT_NE(m.text.find("(long long)b * 65536"), std::string::npos) << m.text;
}

TEST(CudaIndex, WhatMayLeaveI64IsNotAddedSigned) {
  const CudaModule m = emit(R"(kernel limits(n: i64, m: i64 in [0, 1000]) {
  inout x: i64[64]
  for b in n .. +2 grid {
    x[2] += b atomic
  }
  for o in 0 .. 1 grid {
    for t in n .. +32 thread {
      x[3] += t atomic
    }
    for i in n .. +m {
      x[0] = x[0] + i
    }
    for i in m .. +5 {
      x[1] = x[1] + i
    }
  }
})");
  for (const char* text :
       {"const long long b = gl_add<long long>(n, gl_block());",
        "const long long t = gl_add<long long>(n, gl_thread());", "for (long long i_k = 0; i_k < count; ++i_k) {\n",
        "const long long i = gl_add<long long>(n, i_k);",
        "for (int i_1 = m_1; i_1 < i_end; ++i_1) {\n"})  // proved to fit: a plain counted loop
    EXPECT_NE(m.text.find(text), std::string::npos) << text << "\n" << m.text;
}

TEST(CudaIndex, AShiftOfAnIntByAWideCountIsWide) {
  const CudaModule m = emit(R"(kernel shift() {
  in x: i64[64]
  out y: i64[64]
  for b in 0 .. 1 grid {
    for i in 0 .. 64 thread {
      y[i] = i >> floor_mod(x[i], 64)
    }
  }
})");
  EXPECT_NE(m.text.find("(long long)i >> (x[i] & 63)"), std::string::npos) << m.text;
}

// Floor division and modulus: right for negative numbers as well.
TEST(CudaIndex, PowersOfTwoShiftAndMask) {
  const CudaModule m = emit(R"(kernel halves() {
  out q: i64[64]
  out r: i64[64]
  out t: i64[64]
  for b in 0 .. 1 grid {
    for i in 0 .. 64 thread {
      q[i] = floor_div(i - 40, 8)
      r[i] = floor_mod(i - 40, 8)
      t[i] = floor_div(i - 40, 6)
    }
  }
})");
  EXPECT_NE(m.text.find("q[i] = (i - 40) >> 3;"), std::string::npos) << m.text;
  EXPECT_NE(m.text.find("r[i] = (i - 40) & 7;"), std::string::npos) << m.text;
  EXPECT_NE(m.text.find("t[i] = gl_floor_div<int>(i - 40, 6);"), std::string::npos) << m.text;
}

TEST(CudaIndex, DivisionsUsedTwiceHaveNamesWhereTheirNumbersAreKnown) {
  const CudaModule m = emit(R"(kernel named() {
  in x: f32[1200]
  out y: f32[1200]
  for b in 0 .. 12 grid {
    for i in 0 .. 100 thread {
      y[floor_div(b, 3) * 300 + floor_mod(b, 3) * 100 + i] = x[floor_div(b, 3) * 300 + floor_mod(b, 3) * 100 + floor_div(i, 10) * 10 + (9 - floor_mod(i, 10))]
    }
  }
})");
  EXPECT_EQ(count(m.text, "b / 3"), 1) << m.text;
  EXPECT_EQ(count(m.text, "b % 3"), 1) << m.text;
  EXPECT_LT(m.text.find("b / 3"), m.text.find("gl_thread()")) << m.text;
  EXPECT_EQ(count(m.text, "const int div"), 1) << "used once, a division stands where it is used\n" << m.text;
}

TEST(CudaIndex, WholeTurnsOfABlockAreCounted) {
  const auto turns = [](const std::string& extent, const std::string& body) {
    return emit("kernel turns() {\n  in x: f32[" + extent + "]\n  out y: f32[" + extent +
                "]\n  for b in 0 .. 1 grid {\n    for j in 0 .. 256 thread {\n      y[j] = 0.0f32\n    }\n    for i in "
                "0 .. " +
                extent + " thread {\n      " + body + "\n    }\n  }\n}")
        .text;
  };
  const std::string whole = turns("3072", "y[i] = x[i]");
  EXPECT_NE(whole.find("#pragma unroll 3\n  for (int i_k = 0; i_k < 3; ++i_k) {"), std::string::npos) << whole;
  EXPECT_NE(whole.find("const int i = i_k * 1024 + gl_thread();"), std::string::npos) << whole;
  const std::string rest = turns("3073", "y[i] = x[i]");
  EXPECT_NE(rest.find("for (int i_k = gl_thread(); i_k < 3073; i_k += 1024) {"), std::string::npos) << rest;
  const std::string loops = turns("3072", "for k in 0 .. 5 {\n        y[i] = x[k]\n      }");
  EXPECT_NE(loops.find("#pragma unroll 1\n  for (int i_k = 0; i_k < 3; ++i_k) {"), std::string::npos) << loops;
}

}  // namespace
}  // namespace gradloom::codegen
