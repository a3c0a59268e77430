#include "ir/analysis/races.h"

#include <gtest/gtest.h>

#include "gradloom/builder.h"
#include "gradloom/text.h"

namespace gradloom::ir {
namespace {

// The outermost loop of the kernel's body, below any lets, allocs and blocks, checked in its scope.
template <class Check>
std::string outermost(const Kernel& kernel, Check&& check) {
  Ranges scope(kernel);
  Stmt s = kernel.body;
  for (;;) {
    if (const For* f = s.as<For>()) return check(*f, scope);
    if (const Let* l = s.as<Let>()) {
      scope.enter(*l);
      s = l->body;
    } else if (const Alloc* a = s.as<Alloc>()) {
      s = a->body;
    } else if (const Block* b = s.as<Block>()) {
      s = b->stmts.back();
    } else {
      return "no loop";
    }
  }
}
std::string parallel(KernelBuilder& b) { return outermost(b.build(), loop_carried_conflict); }
std::string vector(KernelBuilder& b) { return outermost(b.build(), lane_order_conflict); }

constexpr DType f32 = DType::f32, i64 = DType::i64;
Expr one() { return constant(f32, 1); }

TEST(LoopCarriedConflict, OwnElementIsFine) {
  KernelBuilder b("k");
  Buffer x = b.input("x", f32, {100}), y = b.output("y", f32, {100});
  b.loop("i", 0, 100, [&](Expr i) { b.store(y, {i}, load(x, {i})); });
  EXPECT_EQ(parallel(b), "");
}

TEST(LoopCarriedConflict, ScatterNamesTheBuffer) {
  KernelBuilder b("k");
  Buffer idx = b.input("idx", i64, {100}), x = b.input("x", f32, {100}), y = b.inout("y", f32, {50});
  b.loop("i", 0, 100, [&](Expr i) { b.accumulate(y, {load(idx, {i})}, load(x, {i})); });
  EXPECT_EQ(parallel(b), "two iterations of loop i may accumulate into the same element of y");
}

TEST(LoopCarriedConflict, ScatterWithinARowIsFine) {
  KernelBuilder b("k");
  Expr n = b.scalar("n", 0), m = b.scalar("m", 0);
  Buffer idx = b.input("idx", i64, {n, m}), x = b.input("x", f32, {n, m}), y = b.inout("y", f32, {n, m});
  b.loop("i", 0, n, [&](Expr i) {
    b.loop("j", 0, m, [&](Expr j) { b.accumulate(y, {i, load(idx, {i, j})}, load(x, {i, j})); });
  });
  EXPECT_EQ(parallel(b), "");
}

TEST(LoopCarriedConflict, AnInnerIndexAloneConflicts) {
  KernelBuilder b("k");
  Buffer y = b.inout("y", f32, {8});
  b.loop("i", 0, 4, [&](Expr) { b.loop("j", 0, 8, [&](Expr j) { b.accumulate(y, {j}, one()); }); });
  EXPECT_NE(parallel(b), "");
}

std::string tile(int64_t step, int64_t inner) {
  KernelBuilder b("k");
  Buffer y = b.output("y", f32, {4096});
  b.loop("io", 0, 100,
         [&](Expr io) { b.loop("ii", 0, Expr(inner), [&](Expr ii) { b.store(y, {io * Expr(step) + ii}, one()); }); });
  return parallel(b);
}
TEST(LoopCarriedConflict, Tiles) {
  EXPECT_EQ(tile(32, 32), "");
  EXPECT_EQ(tile(33, 32), "");
  EXPECT_NE(tile(31, 32), "");
  EXPECT_EQ(tile(-32, 32), "");
  EXPECT_NE(tile(0, 1), "");
}

TEST(LoopCarriedConflict, TileAsALoopOverItsWindow) {
  for (int64_t width : {32, 33}) {
    KernelBuilder b("k");
    Expr n = b.scalar("n", 0);
    Buffer y = b.output("y", f32, {n});
    b.loop("io", 0, floor_div(n + 31, Expr(32)), [&](Expr io) {
      Expr begin = b.let("begin", io * Expr(32));
      b.loop("i", begin, min(Expr(width), n - begin), [&](Expr i) { b.store(y, {i}, one()); });
    });
    EXPECT_EQ(parallel(b).empty(), width == 32);
  }
}

TEST(LoopCarriedConflict, TwoDimsTogether) {
  for (int64_t mod : {20, 19}) {
    KernelBuilder b("k");
    Buffer y = b.output("y", f32, {30, 20});
    b.loop("f", 0, 570, [&](Expr f) { b.store(y, {floor_div(f, Expr(20)), floor_mod(f, Expr(mod))}, one()); });
    EXPECT_EQ(parallel(b).empty(), mod == 20);
  }
}

TEST(LoopCarriedConflict, NeighboursReadConflict) {
  KernelBuilder b("k");
  Buffer y = b.inout("y", f32, {100});
  b.loop("i", 0, 99, [&](Expr i) { b.store(y, {i}, load(y, {i + 1})); });
  EXPECT_EQ(parallel(b), "two iterations of loop i may load from and store to the same element of y");
}

TEST(LoopCarriedConflict, EvenAndOddNeverConflict) {
  KernelBuilder b("k");
  Buffer y = b.inout("y", f32, {100});
  b.loop("i", 0, 49, [&](Expr i) { b.store(y, {i * Expr(2)}, load(y, {i * Expr(2) + 1})); });
  EXPECT_EQ(parallel(b), "");
}

TEST(LoopCarriedConflict, ScalarAccumulatorMustBePrivate) {
  for (bool inside : {false, true}) {
    KernelBuilder b("k");
    Buffer x = b.input("x", f32, {10, 10}), y = b.output("y", f32, {10}), sum;
    if (!inside) sum = b.alloc("sum", f32, {});
    b.loop("i", 0, 10, [&](Expr i) {
      if (inside) sum = b.alloc("sum", f32, {});
      b.store(sum, {}, constant(f32, 0));
      b.loop("j", 0, 10, [&](Expr j) { b.accumulate(sum, {}, load(x, {i, j})); });
      b.store(y, {i}, load(sum, {}));
    });
    EXPECT_EQ(parallel(b).empty(), inside);
  }
}

// Segments of a sorted list: rows k in [off[s], off[s + 1]) belong to segment s.
std::string segments(int64_t past_end, bool nondecreasing, bool lets) {
  KernelBuilder b("k");
  Buffer y = b.output("y", f32, {1000});
  Buffer off = b.parameter(make_buffer({.name = "off",
                                        .dtype = DType::i32,
                                        .dims = {101},
                                        .role = Role::in,
                                        .facts = {.nondecreasing = nondecreasing}}));
  b.loop("s", 0, 100, [&](Expr s) {
    Expr begin = cast(i64, load(off, {s})), end = cast(i64, load(off, {s + 1}));
    if (lets) begin = b.let("begin", begin), end = b.let("end", end);
    b.loop("k", begin, end - begin + past_end, [&](Expr k) { b.store(y, {k}, one()); });
  });
  return parallel(b);
}
TEST(LoopCarriedConflict, SegmentsOfOffsets) {
  EXPECT_EQ(segments(0, true, false), "");
  EXPECT_EQ(segments(0, true, true), "");
  EXPECT_EQ(segments(-1, true, true), "");
  EXPECT_NE(segments(1, true, false), "");
  EXPECT_NE(segments(1, true, true), "");
  EXPECT_NE(segments(0, false, true), "");
}

TEST(LoopCarriedConflict, SegmentsByChunksAndBinsByGuards) {
  for (int64_t chunk : {16, 15}) {
    KernelBuilder b("k");
    Buffer y = b.output("y", f32, {1000});
    Buffer off = b.parameter(
        make_buffer({.name = "off", .dtype = i64, .dims = {1000}, .role = Role::in, .facts = {.nondecreasing = true}}));
    b.loop("c", 0, 10, [&](Expr c) {
      b.loop("j", 0, 16, [&](Expr j) {
        Expr s = b.let("s", c * Expr(chunk) + j);
        b.loop("k", load(off, {s}), load(off, {s + 1}) - load(off, {s}), [&](Expr k) { b.store(y, {k}, one()); });
      });
    });
    EXPECT_EQ(parallel(b).empty(), chunk == 16);
  }
  for (int64_t width : {64, 65}) {
    KernelBuilder b("k");
    Buffer idx = b.input("idx", i64, {1000}), bins = b.inout("bins", f32, {512});
    b.loop("t", 0, 8, [&](Expr t) {
      b.loop("p", 0, 1000, [&](Expr p) {
        Expr k = b.let("k", load(idx, {p}));
        Expr lo = b.let("lo", t * Expr(64));
        b.if_then((lo <= k) & (k < lo + Expr(width)), [&] { b.accumulate(bins, {k}, one()); });
      });
    });
    EXPECT_EQ(parallel(b).empty(), width == 64);
  }
}

TEST(LoopCarriedConflict, OffsetsWrittenInTheLoopOwnNothing) {
  KernelBuilder b("k");
  Buffer y = b.output("y", f32, {1000});
  Buffer off = b.alloc("off", i64, {101}, {.nondecreasing = true});
  b.loop("s", 0, 100, [&](Expr s) {
    b.loop("k", load(off, {s}), load(off, {s + 1}) - load(off, {s}), [&](Expr k) { b.store(y, {k}, one()); });
    b.store(off, {s}, s);
  });
  EXPECT_NE(parallel(b), "");
}

TEST(LoopCarriedConflict, InjectiveIndices) {
  for (bool injective : {true, false})
    for (int64_t step : {1, 0}) {
      KernelBuilder b("k");
      Buffer perm = b.parameter(make_buffer(
          {.name = "perm", .dtype = DType::i32, .dims = {100}, .role = Role::in, .facts = {.injective = injective}}));
      Buffer y = b.output("y", f32, {100});
      b.loop("i", 0, 100, [&](Expr i) {
        Expr k = b.let("k", cast(i64, load(perm, {i * Expr(step)})));
        b.store(y, {k}, one());
      });
      EXPECT_EQ(parallel(b).empty(), injective && step == 1);
    }
}

TEST(LoopCarriedConflict, ExclusiveByTheOpsOwnArgument) {
  for (bool exclusive : {true, false}) {
    KernelBuilder b("k");
    Buffer idx = b.input("idx", i64, {100});
    Buffer slots = b.alloc("slots", f32, {100}, {.exclusive = exclusive});
    b.loop("i", 0, 100, [&](Expr i) { b.store(slots, {load(idx, {i})}, one()); });
    EXPECT_EQ(parallel(b).empty(), exclusive);
  }
}

TEST(LoopCarriedConflict, AtomicsOfOneOpMayConflict) {
  for (AccumulateOp second : {AccumulateOp::max, AccumulateOp::min}) {
    KernelBuilder b("k");
    Buffer idx = b.input("idx", i64, {100}), y = b.inout("y", f32, {50});
    b.loop("i", 0, 100, [&](Expr i) {
      for (AccumulateOp op : {AccumulateOp::max, second})
        b.append(accumulate(y, {load(idx, {i})}, op, one(), {}, {}, true));
    });
    EXPECT_EQ(parallel(b).empty(), second == AccumulateOp::max);
  }
}

TEST(LoopCarriedConflict, VectorStoresCountEveryLane) {
  for (int64_t step : {8, 7}) {
    KernelBuilder b("k");
    Buffer y = b.output("y", f32, {800});
    b.loop("i", 0, 100, [&](Expr i) { b.store(y, {ramp(i * Expr(step), Expr(1), 8)}, broadcast(one(), 8)); });
    EXPECT_EQ(parallel(b).empty(), step == 8);
  }
}

TEST(LoopCarriedConflict, PrefetchIsNoAccess) {
  KernelBuilder b("k");
  Buffer y = b.output("y", f32, {100});
  b.loop("i", 0, 100, [&](Expr i) {
    b.prefetch(y, {i + 8}, 1);
    b.store(y, {i}, one());
  });
  EXPECT_EQ(parallel(b), "");
}

TEST(LoopCarriedConflict, OneIterationNeverConflicts) {
  KernelBuilder b("k");
  Buffer y = b.output("y", f32, {100});
  b.loop("i", 0, 1, [&](Expr) { b.store(y, {0}, one()); });
  EXPECT_EQ(parallel(b), "");
}

TEST(LaneOrderConflict, OneScatterKeepsItsOrder) {
  for (bool reads : {false, true}) {
    KernelBuilder b("k");
    Buffer idx = b.input("idx", i64, {16}), y = b.inout("y", f32, {50}), z = b.output("z", f32, {16});
    b.loop("i", 0, 16, [&](Expr i) {
      b.accumulate(y, {load(idx, {i})}, one());
      if (reads) b.store(z, {i}, load(y, {i}));
    });
    EXPECT_EQ(vector(b).empty(), !reads);
  }
}

// Only the last iteration takes the second branch: its loop variable is a constant there, and must still be
// distinguished from the other iterations'.
TEST(LoopCarriedConflict, ABranchOfOneIteration) {
  KernelBuilder b("blocks");
  const Buffer y = b.output("y", DType::f32, {2000});
  b.loop("i", 0, 12, [&](Expr i) {
    b.loop("j", 0, 7, [&](Expr j) {
      const Expr place = i * Expr(168) + j * Expr(24);
      b.if_then(
          place + Expr(24) <= Expr(2000), [&] { b.store(y, {place}, constant(DType::f32, 1)); },
          [&] { b.store(y, {place}, constant(DType::f32, 2)); });
    });
  });
  const Kernel kernel = b.build();
  EXPECT_EQ(loop_carried_conflict(*kernel.body.as<For>(), Ranges(kernel)), "");
}

TEST(LaneOrderConflict, AnInnerLoopChangesTheOrder) {
  KernelBuilder b("k");
  Buffer idx = b.input("idx", i64, {16, 4}), y = b.inout("y", f32, {50});
  b.loop("i", 0, 16, [&](Expr i) { b.loop("j", 0, 4, [&](Expr j) { b.accumulate(y, {load(idx, {i, j})}, one()); }); });
  EXPECT_NE(vector(b), "");
}

TEST(LaneOrderConflict, ReadModifyWriteByStore) {
  KernelBuilder b("k");
  Buffer idx = b.input("idx", i64, {16}), y = b.inout("y", f32, {50});
  b.loop("i", 0, 16, [&](Expr i) { b.store(y, {load(idx, {i})}, load(y, {load(idx, {i})}) + one()); });
  EXPECT_NE(vector(b), "");
}

TEST(LaneOrderConflict, ColumnsUnderAnInnerLoopAreFine) {
  KernelBuilder b("k");
  Buffer x = b.input("x", f32, {16, 40}), y = b.inout("y", f32, {40});
  b.loop("c", 0, 40, [&](Expr c) { b.loop("r", 0, 16, [&](Expr r) { b.accumulate(y, {c}, load(x, {r, c})); }); });
  EXPECT_EQ(vector(b), "");
}

// A fused loop, delinearised: quotients and remainders by a scalar as well as by a constant, and under a guard on one
// of them.
TEST(Parallel, QuotientsAndRemaindersTellIterationsApart) {
  const auto conflict = [](const std::string& guard, const std::string& column) {
    const Kernel kernel = parse(
        "kernel k(t: i64 in [0, 1], w: i64 in [1, 64]) {\n out p: f32[64, 64, 64]\n for f in 0 .. 512 {\n if " + guard +
        " {\n p[floor_div(floor_div(f, w), 2), floor_mod(floor_div(f, w), 2), " + column + "] = 1.0f32\n }\n }\n}");
    return loop_carried_conflict(*kernel.body.as<For>(), Ranges(kernel));
  };
  EXPECT_EQ(conflict("t < 1", "floor_mod(f, w)"), "");
  EXPECT_EQ(conflict("t * 16 + floor_div(floor_div(f, w), 2) < 19", "floor_mod(f, w)"), "");
  EXPECT_EQ(conflict("t < 1", "floor_mod(f, w + 1)"), "two iterations of loop f may store to the same element of p");
}

}  // namespace
}  // namespace gradloom::ir
