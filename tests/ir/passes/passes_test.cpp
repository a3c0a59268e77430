// Each pass: what it prints before and after, and that the interpreter computes the same bits.
#include "ir/passes/passes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/analysis/verify.h"
#include "tests/support/schedule_support.h"

namespace gradloom::ir {
namespace {

std::string body(const Kernel& kernel) { return print(kernel.body); }

// Runs a pass, checks that nothing that the interpreter sees has changed, and gives the new body.
std::string after(Kernel (*pass)(const Kernel&), const char* text, const ScalarValues& scalars = {}) {
  const Kernel before = parse(text), result = pass(before);
  expect_same(before, result, scalars);
  return body(result);
}

std::string printed(const char* text) { return body(parse(text)); }

TEST(Unroll, CopiesInOrderWithFreshDeclarations) {
  const Kernel kernel = unroll(parse(R"(kernel k() {
  in x: f32[8]
  out y: f32[8]
  for i in 2 .. +3 unroll {
    let a: f32 = x[i]
    for j in 0 .. 1 { y[i] = a }
  }
})"));
  std::vector<int64_t> ids;
  walk(kernel.body, [&](const Stmt& s) {
    if (const Let* l = s.as<Let>()) ids.push_back(l->var.id);
    if (const For* f = s.as<For>()) ids.push_back(f->var.id);
  });
  EXPECT_EQ(ids.size(), 6u);
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(std::unique(ids.begin(), ids.end()), ids.end());
}

TEST(Unroll, PutsConstantsInPlace) {
  EXPECT_EQ(after(unroll,
                  "kernel k() {\n in x: f32[8]\n out y: f32[8]\n for i in 0 .. 2 {\n for j in 1 .. +3 unroll {\n y[i * "
                  "4 + j] = x[j]\n }\n }\n}"),
            "for i in 0 .. 2 {\n  y[i * 4 + 1] = x[1]\n  y[i * 4 + 2] = x[2]\n  y[i * 4 + 3] = x[3]\n}\n");
}

TEST(Unroll, RefusesAnUnknownExtent) {
  const Kernel kernel = parse("kernel k(n: i64) {\n out y: f32[8]\n for i in 0 .. n unroll {\n y[i] = 0.0f32\n }\n}");
  EXPECT_EQ(wrong([&] { unroll(kernel); }), "unroll: loop i has no constant extent");
}

TEST(Vectorize, MakesRampsAndKeepsUniformValuesScalar) {
  EXPECT_EQ(after(vectorize, R"(kernel k() {
  in x: f32[64]
  in s: f32[4]
  out y: f32[64]
  for r in 0 .. 4 {
    for i in 0 .. 16 vector {
      let a: f32 = s[r]
      let b: f32 = x[r * 16 + i]
      y[r * 16 + i] = a * b
    }
  }
})"),
            R"(for r in 0 .. 4 {
  let a: f32 = s[r]
  let b: f32x16 = x[ramp(r * 16, 1, 16)]
  y[ramp(r * 16, 1, 16)] = broadcast(a, 16) * b
}
)");
}

TEST(Vectorize, TurnsConditionsIntoMasksAndReadsNothingOutside) {
  const char* text = R"(kernel k(n: i64 in [0, 16]) {
  in x: f32[n]
  in d: i32[n] in [1, 5]
  out y: f32[16]
  out z: i32[16]
  for i in 0 .. 16 vector {
    y[i] = -1.0f32
    z[i] = 0i32
    if i < n {
      y[i] = x[i]
      if x[i] > 2.0f32 {
        z[i] = floor_div(100i32, d[i])
      } else {
        y[i] = x[n - 1] + 1.0f32
        z[i] = i32(i)
      }
    }
  }
})";
  for (int64_t n : {0, 1, 7, 16}) after(vectorize, text, {{"n", n}});
}

TEST(Vectorize, ReadsAConditionOnceBeforeItsBranchChangesIt) {
  after(vectorize, R"(kernel k() {
  inout x: f32[8]
  inout y: f32[8]
  for i in 0 .. 8 vector {
    if x[i] > 2.0f32 {
      x[i] = -1.0f32
      y[i] = 5.0f32
    } else {
      y[i] = x[i]
      x[i] = 3.0f32
    }
  }
})");
}

TEST(Vectorize, GivesEachLaneItsOwnBuffer) {
  EXPECT_EQ(after(vectorize, R"(kernel k() {
  in x: f32[3, 8]
  out y: f32[8]
  for i in 0 .. 8 vector {
    alloc t: f32[3] registers
    for j in 0 .. 3 {
      t[j] = x[j, i]
    }
    y[i] = t[0] + t[2]
  }
})"),
            R"(alloc t: f32[3, 8] registers
for j in 0 .. 3 {
  t[j, ramp(0, 1, 8)] = x[j, ramp(0, 1, 8)]
}
y[ramp(0, 1, 8)] = t[0, ramp(0, 1, 8)] + t[2, ramp(0, 1, 8)]
)");
}

TEST(Vectorize, LoopsUnderAMaskRunWhenSomeLaneIsOn) {
  const char* text = R"(kernel k(n: i64 in [0, 8]) {
  in x: f32[n, 4]
  in c: f32[4]
  inout y: f32[8]
  for i in 0 .. 8 vector {
    if i < n {
      for j in 0 .. 4 {
        y[i] += x[i, j] * c[j]
      }
    }
  }
})";
  for (int64_t n : {0, 3, 8}) {
    const std::string result = after(vectorize, text, {{"n", n}});
    EXPECT_NE(result.find("if any("), std::string::npos) << result;
  }
}

TEST(Vectorize, AccumulatesIntoOnePlaceLaneAfterLane) {
  after(vectorize, R"(kernel k() {
  in x: f32[8]
  in v: f32[1]
  inout s: f32[2]
  for i in 0 .. 8 vector {
    s[0] += x[i]
  }
  for i in 0 .. 8 vector {
    s[1] += v[0]
  }
})");
}

TEST(Vectorize, ChecksAllLanesAndOnlyThoseThatAreOn) {
  const char* text = R"(kernel k(n: i64 in [0, 8]) {
  in idx: i64[n] in [-2, 9]
  inout y: f32[8]
  for i in 0 .. 8 vector {
    if i < n {
      let j: i64 = idx[i]
      check j >= 1 & j < 8 at i "idx" {
        y[j] += 1.0f32
      }
    }
  }
})";
  for (int64_t n : {0, 1, 2, 8}) after(vectorize, text, {{"n", n}});
}

TEST(Vectorize, RefusesInnerBoundsThatDependOnTheLane) {
  const Kernel kernel = parse(
      "kernel k() {\n out y: f32[8]\n for i in 0 .. 8 vector {\n y[i] = 0.0f32\n for j in 0 .. i {\n y[i] = 1.0f32\n "
      "}\n }\n}");
  EXPECT_EQ(wrong([&] { vectorize(kernel); }), "vectorize: loop i: the bounds of its inner loop j depend on it");
}

TEST(CoalesceStores, TwoOfEveryTwo) {
  EXPECT_EQ(after(coalesce_stores, R"(kernel k() {
  in x: f32[8]
  out y: f32[32]
  for r in 0 .. 2 {
    y[ramp(r * 16 + 1, 2, 8)] = broadcast(0.0f32, 8)
    y[ramp(r * 16, 2, 8)] = x[ramp(0, 1, 8)]
  }
})"),
            R"(for r in 0 .. 2 {
  y[ramp(r * 16, 1, 16)] = shuffle(x[ramp(0, 1, 8)], broadcast(0.0f32, 8), [0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15])
}
)");
}

TEST(CoalesceStores, ThreeFourAndBackwards) {
  for (const char* text : {R"(kernel k() {
  in x: f32[8]
  out y: f32[24]
  out z: f32[2]
  y[ramp(1, 3, 8)] = x[ramp(0, 1, 8)]
  y[ramp(0, 3, 8)] = x[ramp(7, -1, 8)]
  z[0] = 1.0f32
  y[ramp(2, 3, 8)] = broadcast(0.0f32, 8)
})",
                           R"(kernel k() {
  in x: f32[2, 4]
  out y: f32[1, 16]
  y[0, ramp(2, 4, 4)] = x[1, ramp(0, 1, 4)]
  y[0, ramp(0, 4, 4)] = x[0, ramp(0, 1, 4)]
  y[0, ramp(3, 4, 4)] = -x[0, ramp(0, 1, 4)]
  y[0, ramp(1, 4, 4)] = broadcast(0.0f32, 4)
})",
                           R"(kernel k() {
  in x: f32[8]
  out y: f32[16]
  y[ramp(14, -2, 8)] = x[ramp(0, 1, 8)]
  y[ramp(15, -2, 8)] = broadcast(0.0f32, 8)
})"}) {
    const std::string result = after(coalesce_stores, text);
    EXPECT_NE(result.find("shuffle"), std::string::npos) << result;
    EXPECT_EQ(result.find("y["), result.rfind("y[")) << result;
  }
}

TEST(CoalesceStores, LeavesWhatWouldChangeResults) {
  for (const char* text : {// a read between
                           R"(kernel k() {
  in x: f32[8]
  out y: f32[16]
  out z: f32[1]
  y[ramp(0, 2, 8)] = x[ramp(0, 1, 8)]
  z[0] = y[2]
  y[ramp(1, 2, 8)] = broadcast(0.0f32, 8)
})",
                           // a gap
                           R"(kernel k() {
  in x: f32[8]
  out y: f32[32]
  y[ramp(0, 2, 8)] = x[ramp(0, 1, 8)]
  y[ramp(3, 2, 8)] = broadcast(0.0f32, 8)
})",
                           // three places that are not neighbours
                           R"(kernel k() {
  in x: f32[4]
  out y: f32[16]
  y[ramp(1, 3, 4)] = x[ramp(0, 1, 4)]
  y[ramp(3, 3, 4)] = broadcast(0.0f32, 4)
  y[ramp(0, 3, 4)] = broadcast(0.0f32, 4)
})",
                           // the stored value changes between
                           R"(kernel k() {
  inout x: f32[8]
  out y: f32[16]
  y[ramp(0, 2, 8)] = x[ramp(0, 1, 8)]
  x[0] = 9.0f32
  y[ramp(1, 2, 8)] = broadcast(0.0f32, 8)
})"})
    EXPECT_EQ(after(coalesce_stores, text), printed(text));
}

Kernel split_lanes(const Kernel& kernel) { return split_updates(kernel, false); }
Kernel split_clashes(const Kernel& kernel) { return split_updates(kernel, true); }

// A row of sums, and a strip of columns, whose indices are in the range given.
std::string row_updates(const std::string& range) {
  return "kernel k() {\n in idx: i64[4] in " + range + R"(
  in dy: f32[4]
  inout acc: f32[6]
  let raw: i64x4 = idx[ramp(0, 1, 4)]
  let j: i64x4 = select(raw < broadcast(0, 4), raw + broadcast(6, 4), raw)
  check j >= broadcast(0, 4) & j < broadcast(6, 4) at ramp(0, 1, 4) "indices" {
    acc[j] += dy[ramp(0, 1, 4)]
  }
})";
}
constexpr const char* column_updates = R"(kernel k() {
  in idx: i32[8] in [-6, 5]
  in dy: bf16[8]
  inout acc: f32[6, 8]
  let raw: i64x4 = i64(idx[ramp(4, 1, 4)])
  let j: i64x4 = select(raw < broadcast(0, 4), raw + broadcast(6, 4), raw)
  check j >= broadcast(0, 4) & j < broadcast(6, 4) at ramp(0, 1, 4) "indices" {
    acc[j, ramp(4, 1, 4)] += f32(dy[ramp(4, 1, 4)])
  }
})";

TEST(SplitUpdates, LoadsPlacesAndValuesOfEachLane) {
  const std::string text = after(split_lanes, row_updates("[0, 5]").c_str());
  EXPECT_EQ(text, R"(let raw: i64x4 = idx[ramp(0, 1, 4)]
let j: i64x4 = select(raw < broadcast(0, 4), raw + broadcast(6, 4), raw)
if all(raw >= broadcast(0, 4) & raw < broadcast(6, 4)) {
  acc[idx[0]] += dy[0]
  acc[idx[1]] += dy[1]
  acc[idx[2]] += dy[2]
  acc[idx[3]] += dy[3]
} else {
  check j >= broadcast(0, 4) & j < broadcast(6, 4) at ramp(0, 1, 4) "indices" {
    acc[j] += dy[ramp(0, 1, 4)]
  }
}
)");
  EXPECT_EQ(after(split_clashes, row_updates("[0, 5]").c_str()), text);  // lanes may meet: no scatter is fast enough
  for (const char* range : {"[-6, -1]", "[-1, 0]", "[4, 6]", "[-7, 7]"}) after(split_lanes, row_updates(range).c_str());
}

TEST(SplitUpdates, ConvertsValuesTogether) {
  const std::string text = after(split_lanes, column_updates);
  EXPECT_NE(text.find("let acc_values: f32x4 = f32(dy[ramp(4, 1, 4)])\n  acc[i64(idx[4]), 4] += shuffle(acc_values"),
            std::string::npos)
      << text;
}

TEST(SplitUpdates, LeavesWhatIsFasterOrMayHaveChanged) {
  EXPECT_EQ(after(split_clashes, column_updates), printed(column_updates));
  std::string written =
      row_updates("[0, 5]");  // the indices are no input: what a lane would read again may be another number by then
  written.replace(written.find("in idx"), 2, "inout");
  EXPECT_EQ(after(split_lanes, written.c_str()), printed(written.c_str()));
}

TEST(SplitUpdates, WrapsWhereTheConditionDoesNotAskWhetherThePlaceIsNegative) {
  const std::string asks = "j >= broadcast(0, 4) & j < broadcast(6, 4)";
  for (const char* condition :
       {"j < broadcast(6, 4)", "idx[ramp(0, 1, 4)] != broadcast(3, 4)", "j >= broadcast(-6, 4)"}) {
    std::string text = row_updates("[-6, 5]");
    text.replace(text.find(asks), asks.size(), condition);
    EXPECT_EQ(after(split_lanes, text.c_str()), printed(text.c_str()));
  }
}

TEST(SplitUpdates, LeavesWhatALaneBeforeMayHaveChanged) {
  for (const char* column : {"broadcast(min(acc[0, 0], 5), 4)", "ramp(min(acc[0, 0], 5), 1, 4)",
                             "broadcast(min(acc[0, 0], 5), 4) + ramp(0, 1, 4)"}) {
    const std::string text =
        std::string(
            "kernel k() {\n in idx: i64[4] in [0, 0]\n in dy: i64[4] in [1, 2]\n inout acc: i64[1, 9] in [0, 1]\n") +
        "let j: i64x4 = idx[ramp(0, 1, 4)]\n check j >= broadcast(0, 4) & j < broadcast(1, 4) at ramp(0, 1, 4) "
        "\"indices\" {\n acc[j, " +
        column + "] += dy[ramp(0, 1, 4)]\n }\n}";
    after(split_lanes, text.c_str());
  }
}

// Each let mentions the one before twice: what is known of one is found once, and no lane repeats a chain of loads.
TEST(SplitUpdates, LongChainsOfLets) {
  for (const char* next : {"min(NAME, NAME)", "x[NAME, NAME]"}) {
    std::string text =
        "kernel k() {\n in x: i64[4, 4] in [0, 3]\n in dy: f32[4]\n inout acc: f32[4]\n let a0: i64x4 = x[ramp(0, 1, "
        "4), ramp(0, 1, 4)]\n";
    for (int i = 1; i < 100; ++i) {
      std::string value = next;
      for (size_t at; (at = value.find("NAME")) != std::string::npos;) value.replace(at, 4, fmt::format("a{}", i - 1));
      text += fmt::format("let a{}: i64x4 = {}\n", i, value);
    }
    text += "check a99 >= broadcast(0, 4) at ramp(0, 1, 4) \"x\" {\n acc[a99] += dy[ramp(0, 1, 4)]\n }\n}";
    EXPECT_EQ(after(split_lanes, text.c_str()), printed(text.c_str()));
  }
}

TEST(Lower, LeavesNoVectorOrUnrollLoopAndReportsItsPasses) {
  const Kernel kernel = parse(R"(kernel k(n: i64 in [0, 100]) {
  in x: f32[n]
  out y: f32[2 * n]
  for i in 0 .. floor_div(n, 16) {
    for c in 0 .. 2 unroll {
      for l in 0 .. 8 vector {
        y[2 * (i * 16 + c * 8 + l)] = x[i * 16 + c * 8 + l]
        y[2 * (i * 16 + c * 8 + l) + 1] = 0.0f32
      }
    }
  }
  for i in floor_div(n, 16) * 16 .. n {
    y[2 * i] = x[i]
    y[2 * i + 1] = 0.0f32
  }
})");
  std::vector<PassTime> times;
  std::vector<std::string> dumped;
  const Kernel lowered =
      lower(kernel, {[&](const std::string& pass, const Kernel&) { dumped.push_back(pass); }, &times});
  verify(lowered, Stage::lowered);
  EXPECT_EQ(dumped, (std::vector<std::string>{"simplify", "vectorize", "unroll", "simplify", "split_updates",
                                              "coalesce_stores", "demote_registers"}));
  EXPECT_EQ(times.size(), dumped.size());
  const std::string text = body(lowered);
  size_t shuffles = 0;
  for (size_t at = 0; (at = text.find("shuffle", at)) != std::string::npos; ++at) ++shuffles;
  EXPECT_EQ(shuffles, 2u) << text;
  for (int64_t n : {0, 1, 15, 16, 50}) expect_same(kernel, lowered, {{"n", n}});
}

}  // namespace
}  // namespace gradloom::ir
