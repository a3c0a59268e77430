// Machine code against the interpreter: memory access patterns, loops, parallel bodies, scratch, checks.
#include <array>

#include "tests/support/llvm_run.h"

namespace gradloom {
namespace {

using namespace ir;
using testing::agree;
using testing::agree_on;
using testing::Bytes;
using testing::elements;
using testing::indices;

class OfDType : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(All, OfDType, ::testing::ValuesIn(testing::all_dtypes),
                         [](const auto& info) { return std::string(to_string(info.param)); });

Expr lanes_below(int lanes, Expr n) { return ramp(0, 1, lanes) < broadcast(n, lanes); }

// Loads and stores with every kind of lane stride, masked and unmasked; one row of y per case.
TEST_P(OfDType, Access) {
  const DType t = GetParam();
  for (const int lanes : {2, 3, 8, 16, 64}) {
    std::vector<std::array<int64_t, 3>> cases;
    for (const int64_t in : {1, -1, 0, 2, -2, 3, 7})
      for (const int64_t out : {1, -1, 3})
        for (const int64_t guarded : {0, 1})
          if (in == 1 || out == 1 || in == out) cases.push_back({in, out, guarded});
    const int64_t n = lanes * 7 + 1;
    KernelBuilder b("access_" + std::string(to_string(t)) + "_" + std::to_string(lanes));
    const Expr limit = b.scalar("limit");
    const Buffer x = b.input("x", t, {n}), y = b.inout("y", t, {static_cast<int64_t>(cases.size()), n});
    for (size_t row = 0; row < cases.size(); ++row) {
      const auto [in, out, guarded] = cases[row];
      const Expr from = ramp(in < 0 ? -in * (lanes - 1) : 0, in, lanes),
                 to = ramp(out < 0 ? -out * (lanes - 1) : 0, out, lanes);
      const Expr guard = guarded ? lanes_below(lanes, limit) : Expr();
      b.store(y, {static_cast<int64_t>(row), to},
              guard ? load(x, {from}, guard, broadcast(load(x, {n - 1}), lanes)) : load(x, {from}), guard);
    }
    agree_on(b.build(), {elements(t, n, 1), elements(t, n * static_cast<int64_t>(cases.size()), 2)},
             {{0}, {1}, {lanes - 1}, {lanes}});
  }
}

// Index vectors from memory: gathers, scatters (the last lane wins), accumulates whose lanes conflict.
TEST_P(OfDType, GatherScatter) {
  const DType t = GetParam();
  const std::vector<int64_t> places{5, 3, 5, 0, 31, 30, 5, 3, 9, 9, 9, 9, 1, 2, 4, 31};
  for (const int lanes : {2, 4, 8, 16}) {
    for (const bool guarded : {false, true}) {
      KernelBuilder b("scatter_" + std::string(to_string(t)) + "_" + std::to_string(lanes) +
                      (guarded ? "_guarded" : ""));
      const Expr limit = b.scalar("limit");
      const Buffer k = b.input("k", DType::i64, {16}), x = b.input("x", t, {32}), y = b.inout("y", t, {32}),
                   z = b.inout("z", t, {32});
      const Expr at = load(k, {ramp(0, 1, lanes)});
      const Expr guard = guarded ? lanes_below(lanes, limit) : Expr();
      b.store(y, {at}, guard ? load(x, {at}, guard) : load(x, {at}), guard);
      if (!is_storage_float(t) && t != DType::boolean)
        for (const AccumulateOp op : {AccumulateOp::add, AccumulateOp::min, AccumulateOp::max})
          b.append(accumulate(z, {at}, op, load(x, {ramp(3, 1, lanes)}), {}, guard));
      agree_on(b.build(), {indices(places), elements(t, 32, 3), elements(t, 32, 4), elements(t, 32, 5)},
               {{0}, {1}, {3}, {16}});
    }
  }
}

TEST_P(OfDType, AccumulateDense) {
  const DType t = GetParam();
  if (is_storage_float(t) || t == DType::boolean) GTEST_SKIP();
  for (const int lanes : {1, 4, 16}) {
    KernelBuilder b("accumulate_" + std::string(to_string(t)) + "_" + std::to_string(lanes));
    const Expr limit = b.scalar("limit");
    const Buffer x = b.input("x", t, {64}), y = b.inout("y", t, {8, 64});
    int64_t row = 0;
    for (const int64_t stride : {1, -1, 0, 2}) {
      for (const bool guarded : {false, true}) {
        const Expr from = lanes == 1 ? Expr(3) : ramp(5, 1, lanes);
        const Expr to = lanes == 1 ? Expr(9) : ramp(stride < 0 ? lanes : 1, stride, lanes);
        const Expr guard = !guarded ? Expr() : lanes == 1 ? Expr(1) < limit : lanes_below(lanes, limit);
        for (const AccumulateOp op : {AccumulateOp::add, AccumulateOp::min, AccumulateOp::max})
          b.append(accumulate(y, {row, to}, op, load(x, {from}), {}, guard));
        if (is_float(t))
          b.append(accumulate(y, {row, to}, AccumulateOp::fma, load(x, {from}), load(x, {from + 2}), guard));
        ++row;
      }
    }
    agree_on(b.build(), {elements(t, 64, 1), elements(t, 512, 2)}, {{0}, {3}, {64}});
  }
}

// A masked load must not access memory beyond the mask: the inactive lanes are past the allocation. (The interpreter
// checks bounds; here the addresses are huge.)
TEST(Llvm, MaskedLanesTouchNothing) {
  for (const DType t : {DType::u8, DType::i16, DType::f32, DType::f64}) {
    KernelBuilder b("far");
    const Buffer x = b.input("x", t, {16}), y = b.inout("y", t, {16});
    const Expr keep = ramp(0, 1, 8) < broadcast(load(b.input("n", DType::i64, {1}), {0}), 8);
    const Expr at = ramp(0, int64_t{1} << 40, 8);
    b.store(y, {at}, load(x, {at}, keep), keep);
    agree(b.build(), {elements(t, 16, 1), elements(t, 16, 2), indices({1})});
  }
}

// One lane of a narrowed vector is stored as wide as its element: neighbours keep their values (LLVM 22 stored it
// unnarrowed with AVX-512).
TEST(Llvm, OneLaneOfANarrowedVectorIsStoredAlone) {
  const std::pair<DType, DType> conversions[] = {
      {DType::f32, DType::bf16}, {DType::f32, DType::f16}, {DType::f64, DType::f32}, {DType::i64, DType::i32},
      {DType::i64, DType::u8},   {DType::i32, DType::i16}, {DType::i32, DType::i8},  {DType::i16, DType::u8}};
  for (const auto& [wide, narrow] : conversions)
    for (const int lanes : {4, 8, 16, 32})
      for (const int64_t lane : {int64_t{0}, int64_t{1}, int64_t{lanes - 1}}) {
        KernelBuilder b("one_lane_" + std::string(to_string(wide)) + "_" + std::string(to_string(narrow)) + "_" +
                        std::to_string(lanes));
        const Buffer x = b.input("x", wide, {64}), y = b.inout("y", narrow, {64});
        const Expr only = lanes_below(lanes, lane + 1) & (broadcast(lane - 1, lanes) < ramp(0, 1, lanes));
        b.append(store(y, {ramp(8, 1, lanes)}, cast(narrow, load(x, {ramp(0, 1, lanes)})), only));
        const ir::Kernel kernel = b.build();
        agree(kernel, {elements(wide, 64, 1), elements(narrow, 64, 2)});
        EXPECT_EQ(
            codegen::emit_llvm(kernel, codegen::isa_named("x86-64-v4"), true).find("call void @llvm.masked.store"),
            std::string::npos);
      }
}

// The result of a masked load must not change when its address is overwritten before a select by the same mask uses it
// (LLVM 22 reloaded at the select).
TEST(Llvm, MaskedLoadsStayBeforeStores) {
  for (const DType t : {DType::u8, DType::i16, DType::bf16, DType::i32, DType::f32, DType::f64})
    for (const int lanes : {4, 8, 16})
      for (const bool turned : {false, true}) {
        KernelBuilder b("swap_" + std::string(to_string(t)) + "_" + std::to_string(lanes));
        const Buffer x = b.input("x", t, {64}), g = b.inout("g", t, {64}), y = b.inout("y", t, {64});
        const Expr limit = b.scalar("n"), first = 40, at = ramp(first, 1, lanes), keep = lanes_below(lanes, limit);
        const Expr old = b.let("old", load(g, {at}, keep, broadcast(constant_bits(t, 0), lanes)));
        b.append(store(g, {at}, load(x, {at})));
        b.append(store(y, {at},
                       turned ? select(broadcast(limit, lanes) <= ramp(0, 1, lanes), load(x, {at}), old)
                              : select(keep, old, load(x, {at}))));
        agree_on(b.build(), {elements(t, 64, 1), elements(t, 64, 2), elements(t, 64, 3)},
                 {{0}, {1}, {lanes - 1}, {lanes}});
      }
}

// A bitwise select of two values by a constant mask, with some lanes blended (LLVM 22 took the operands of the one
// instruction in the wrong order).
TEST(Llvm, BitsOfTwoValuesInSomeLanes) {
  for (const DType t : {DType::u8, DType::i16, DType::i32, DType::u32, DType::i64})
    for (const int lanes : {4, 8, 16})
      for (const uint64_t bits : {uint64_t{0x7}, uint64_t{0x5a}, ~(uint64_t{1} << (8 * size_of(t) - 1))}) {
        KernelBuilder b("bits_" + std::string(to_string(t)) + "_" + std::to_string(lanes));
        const Expr limit = b.scalar("n"), at = ramp(40, 1, lanes), keep = lanes_below(lanes, limit);
        const Buffer x = b.input("x", t, {64}), z = b.input("z", t, {64}), y = b.inout("y", t, {4, 64});
        const Expr mask = broadcast(constant_bits(t, bits), lanes), rest = broadcast(constant_bits(t, ~bits), lanes);
        const Expr v = b.let("v", load(x, {at}) + load(z, {at}));
        const auto w = [&](int64_t row) { return load(z, {at + row}); };  // one use each: only then it is folded
        b.append(store(y, {0, at}, select(keep, (w(1) & mask) | (v & rest), v)));
        b.append(store(y, {1, at}, select(keep, (v & mask) | (w(2) & rest), v)));
        b.append(store(y, {2, at}, select(keep, (w(3) & rest) | (v & mask), v)));
        b.append(store(y, {3, at}, select(keep, v, (w(4) & mask) | (v & rest))));
        agree_on(b.build(), {elements(t, 64, 1), elements(t, 64, 2), elements(t, 256, 3)},
                 {{0}, {1}, {lanes - 1}, {lanes}});
      }
}

// Lanes of a mask computed from a vector's sign bits, extracted one by one.
TEST(Llvm, LanesOfSignMasks) {
  for (const DType t : {DType::i8, DType::i16, DType::i32, DType::i64})
    for (const int lanes : {2, 4, 8, 16, 32}) {
      KernelBuilder b("signs_" + std::string(to_string(t)) + "_" + std::to_string(lanes));
      const Buffer x = b.input("x", t, {64}), s = b.inout("s", t, {8}), y = b.inout("y", t, {64}),
                   z = b.inout("z", DType::f64, {8});
      const Expr v = load(x, {ramp(24, 1, lanes)}), negative = v < broadcast(constant_int(t, 0), lanes);
      for (const AccumulateOp op : {AccumulateOp::add, AccumulateOp::max})
        b.append(accumulate(s, {broadcast(op == AccumulateOp::add ? 1 : 3, lanes)}, op, v, {}, negative));
      for (int lane = 0; lane < std::min(lanes, 4); ++lane)
        b.append(store(y, {lane}, select(shuffle(negative, {}, {lane}), load(x, {lane}), load(x, {lane + 9}))));
      b.append(accumulate(z, {broadcast(1, lanes)}, AccumulateOp::add, cast(DType::f64, v), {}, negative));
      b.append(store(y, {ramp(32, 1, lanes)}, v, negative));
      agree(b.build(), {elements(t, 64, 1), elements(t, 8, 2), elements(t, 64, 3), elements(DType::f64, 8, 4)});
    }
}

TEST(Llvm, StridedAndNegativeViews) {
  KernelBuilder b("views");
  const Expr pitch = b.scalar("pitch");
  const Buffer x = b.input("x", DType::f32, {4, 6}, {-12, 2}), y = b.output("y", DType::f32, {4, 6});
  const Buffer u = b.input("u", DType::i32, {4, 6}, {pitch, 1}), v = b.output("v", DType::i32, {4, 6});
  b.loop("i", 0, 4, [&](Expr i) {
    b.store(y, {i, ramp(0, 1, 6)}, load(x, {i, ramp(0, 1, 6)}));
    b.store(v, {i, ramp(0, 1, 6)}, load(u, {i, ramp(5, -1, 6)}));
  });
  agree(b.build(), {elements(DType::f32, 48, 1), Bytes(96), elements(DType::i32, 48, 2), Bytes(96)}, {9},
        {36 * 4, 0, 0, 0});
}

TEST(Llvm, LoopsReadTheirBoundsOnceAndMayBeEmpty) {
  KernelBuilder b("bounds");
  const Buffer n = b.inout("n", DType::i64, {4}), y = b.inout("y", DType::i64, {16});
  for (int d = 0; d < 4; ++d)
    b.loop("i", d, load(n, {d}), [&](Expr i) {
      b.store(n, {d}, load(n, {d}) - 1);
      b.accumulate(y, {i}, i + 1);
    });
  agree(b.build(), {indices({5, 0, -3, 9}), indices(std::vector<int64_t>(16, 1))});
}

TEST(Llvm, ParallelBodiesCaptureWhatTheyUse) {
  KernelBuilder b("fork");
  const Expr n = b.scalar("n"), factor = b.scalar("factor", {}, {}, DType::f32);
  const Buffer x = b.input("x", DType::f32, {n, 8}), y = b.output("y", DType::f32, {n, 8});
  const Expr shift = b.let("shift", n * 2), wide = b.let("wide", broadcast(factor, 8)), flag = b.let("flag", n > 2);
  b.loop(
      "i", 1, n - 1,
      [&](Expr i) {
        const Buffer row = b.alloc("row", DType::f32, {8}), big = b.alloc("big", DType::f64, {n, 1024});
        b.store(row, {ramp(0, 1, 8)}, load(x, {i, ramp(0, 1, 8)}) * wide + cast(DType::f32, broadcast(shift, 8)));
        b.store(big, {n - 1, 1023}, constant(DType::f64, 3));
        // A nested parallel loop runs inline.
        b.loop(
            "j", 0, 8,
            [&](Expr j) {
              b.store(y, {i, j},
                      load(row, {7 - j}) + cast(DType::f32, load(big, {n - 1, 1023})) +
                          select(flag, factor, wide.lanes() ? factor * factor : factor));
            },
            ForKind::parallel);
      },
      ForKind::parallel);
  const Kernel kernel = b.build();
  int32_t factor_bits;
  const float f = 1.25f;
  std::memcpy(&factor_bits, &f, 4);
  agree(kernel, {elements(DType::f32, 80, 1), Bytes(320)}, {10, factor_bits});
  agree(kernel, {elements(DType::f32, 80, 1), Bytes(320)}, {1, factor_bits});
}

TEST(Llvm, MissingScratchIsReported) {
  KernelBuilder b("scratch");
  const Buffer y = b.inout("y", DType::i32, {1});
  const Buffer big = b.alloc("big", DType::i32, {1 << 20});
  b.store(big, {77}, constant_int(DType::i32, 5));
  b.store(y, {0}, load(big, {77}));
  const Kernel kernel = b.build();
  agree(kernel, {elements(DType::i32, 1, 1)});
  const codegen::CompiledKernel compiled = codegen::compile(kernel, codegen::host_isa());
  testing::Launcher launcher;
  launcher.scratch_limit = 1000;
  int32_t value = 1;
  void* pointers[] = {&value};
  compiled.function(&launcher.context, pointers, nullptr);
  EXPECT_EQ(launcher.context.out_of_scratch, 1);
  EXPECT_EQ(value, 1);
}

TEST(Llvm, ChecksKeepTheSmallestPosition) {
  for (const int lanes : {1, 4, 16}) {
    for (const bool affine : {true, false}) {
      KernelBuilder b("check");
      const Buffer k = b.input("k", DType::i64, {32}), p = b.input("p", DType::i64, {32}),
                   y = b.inout("y", DType::i64, {8});
      b.loop("i", 0, 32 / lanes, [&](Expr i) {
        const Expr at = lanes == 1 ? i : ramp(i * lanes, 1, lanes);
        const Expr j = b.let("j", load(k, {at}));
        b.check((broadcast(0, lanes) <= j) & (j < broadcast(8, lanes)), affine ? at : load(p, {at}), "indices",
                [&] { b.accumulate(y, {j}, broadcast(1, lanes)); });
      });
      const Kernel kernel = b.build();
      std::vector<int64_t> k_values(32), p_values(32);
      for (int i = 0; i < 32; ++i) k_values[i] = i % 8, p_values[i] = (i * 7 + 3) % 32;
      agree(kernel, {indices(k_values), indices(p_values), indices(std::vector<int64_t>(8, 0))});
      k_values[9] = -1, k_values[21] = 8, k_values[22] = INT64_MIN;
      agree(kernel, {indices(k_values), indices(p_values), indices(std::vector<int64_t>(8, 0))});
    }
  }
}

TEST(Llvm, AtomicAccumulates) {
  for (const DType t : {DType::i8, DType::u16, DType::i32, DType::u64, DType::f32, DType::f64}) {
    KernelBuilder b("atomic");
    const Buffer x = b.input("x", t, {16}), y = b.inout("y", t, {4});
    b.append(accumulate(y, {1}, AccumulateOp::add, load(x, {2}), {}, {}, true));
    b.append(accumulate(y, {floor_mod(ramp(0, 1, 16), 3)}, AccumulateOp::max, load(x, {ramp(0, 1, 16)}), {}, {}, true));
    agree(b.build(), {elements(t, 16, 1), elements(t, 4, 2)});
  }
}

TEST(Llvm, ShufflesAndPrefetch) {
  KernelBuilder b("shuffles");
  const Buffer x = b.input("x", DType::f32, {16}), y = b.output("y", DType::f32, {16}),
               z = b.output("z", DType::boolean, {3});
  const Expr lo = load(x, {ramp(0, 1, 8)}), hi = load(x, {ramp(8, 1, 8)});
  b.prefetch(x, {int64_t{1} << 33}, 2);
  b.store(y, {ramp(0, 1, 16)}, shuffle(lo, hi, {0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15}));
  b.store(y, {4}, extract(hi, 3));
  b.store(z, {0}, all_lanes(lo < hi));
  b.store(z, {1}, any_lane(lo < hi));
  b.store(z, {2}, all_lanes(lo == lo));
  agree(b.build(), {elements(DType::f32, 16, 1), Bytes(64), Bytes(3)});
}

}  // namespace
}  // namespace gradloom
