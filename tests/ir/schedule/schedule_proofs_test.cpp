// Proofs that outlast later steps and lowering, and traces that replay.
#include "tests/support/schedule_kernels.h"

namespace gradloom::ir {
namespace {

TEST(Proofs, OfALoopOutlastTheStepsInsideIt) {
  const char* text = R"(kernel rows(n: i64 in [0, 64]) {
  inout y: f32[n]
  for i in 0 .. n {
    y[i] = y[i] + 1.0f32
  }
})";
  Schedule s(parse(text));
  const Schedule::Split parts = s.split(s.loop("i"), 5);
  s.reorder(parts.outer, parts.inner);
  s.parallel(parts.inner);
  s.vectorize(parts.outer, 4);
  check(text, s, lengths({0, 3, 5, 24, 64}));
}

TEST(Proofs, AStepThatWouldBreakOneIsRefused) {
  const char* text = R"(kernel rows() {
  inout y: i32[4]
  for i in 0 .. 4 {
    for j in 0 .. 1 {
      y[i] += 1i32
    }
  }
})";
  for (const bool vector : {false, true}) {
    Schedule s(parse(text));
    vector ? s.vectorize(s.loop("i")) : s.parallel(s.loop("i"));
    const std::string kind = vector ? "vector" : "parallel";
    EXPECT_EQ(refused(s, [&] { s.stage(s.loop("j"), s.kernel().buffers[0], {0}, {4}); })
                  .rfind("stage of loop j: the " + kind + " loop i would not be proved any more: ", 0),
              0u);
    check(text, s);
  }
}

TEST(Proofs, LoweringKeepsThem) {
  const char* text = R"(kernel rows() {
  out y: f32[8]
  for i in 0 .. 8 {
    y[i] = 1.0f32
  }
})";
  Schedule s(parse(text));
  const Schedule::Split parts = s.split(s.loop("i"), 4);
  s.parallel(parts.outer);
  s.vectorize(s.split_guarded(parts.inner, 5).inner);
  check(text, s);
}

TEST(Proofs, OfADivisorNeedNoLoopAround) {
  const char* text = R"(kernel squares(n: i64 in [0, 64]) {
  inout y: f32[n, n]
  for k in 0 .. n {
    for i in 0 .. n {
      for j in 0 .. n {
        y[i, j] max= f32(k)
      }
    }
  }
})";
  for (const bool divided : {false, true}) {
    Schedule s(parse(text));
    const Schedule::Loop both = s.fuse(s.loop("i"), s.loop("j"));
    s.split(s.loop("k"), 2);  // the loop that shows n > 0 becomes two over parts of n
    if (divided) s.split(both, 3);
    check(text, s, lengths({0, 1, 2, 5}));
  }
}

TEST(Replay, RefusesWhatItCannotRead) {
  Schedule s(parse(scale));
  EXPECT_EQ(wrong_argument(s,
                           [&] {
                             s.replay({"split i 8", "rotate i_o"});
                           }),
            "trace: unknown step rotate in \"rotate i_o\"");
  EXPECT_EQ(wrong_argument(s, [&] { s.replay({"split i x"}); }), "trace: no number: x in \"split i x\"");
  EXPECT_EQ(wrong_argument(s, [&] { s.replay({"split i"}); }), "trace: split takes 2 words, got 1 in \"split i\"");
  EXPECT_EQ(wrong_argument(s, [&] { s.replay({"partition i add(n,"}); }),
            "trace: no expression at column 7 in \"add(n,\"");
}

TEST(Replay, AWholeSchedule) {
  Schedule s(parse(product));
  s.split(s.loop("i"), 2);
  s.reorder(s.loop("k"), s.loop("j"));
  s.reorder(s.loop("j"), s.loop("k"));
  s.vectorize(s.loop("j"), 8);
  s.unroll(s.loop("i_i"));
  s.parallel(s.loop("i_o"));
  check(product, s);
}

}  // namespace
}  // namespace gradloom::ir
