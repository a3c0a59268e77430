// Steps that change where values live or how memory is touched: stage, privatise, carry_zeros, hints. As in
// schedule_test.
#include "ir/passes/passes.h"
#include "tests/support/schedule_kernels.h"

namespace gradloom::ir {
namespace {

TEST(Stage, CopiesTheWindowInAndOut) {
  Schedule s(parse(scatter));
  const Schedule::Split parts = s.split(s.loop("j"), 4);
  (void)parts;
  const Buffer y = s.kernel().buffers[2];
  s.stage(s.loop("i"), y, {0, 0}, {7, 8});
  check(scatter, s, lengths({0, 1, 20}));
}

TEST(Stage, SkipsTheCopyInOfWhatIsFilledFirst) {
  Schedule s(parse(sums));
  const Buffer y = s.kernel().buffers[1];
  const Schedule::Loop r = s.loop("r");
  s.stage(r, y, {var(s.get(r).var)}, {1});
  EXPECT_EQ(s.trace(), std::vector<std::string>{"stage r y r 1"});
  EXPECT_EQ(count(print(s.kernel()), "= y["), 0u) << print(s.kernel());
  s.parallel(r);
  check(sums, s);
}

TEST(Stage, Refusals) {
  Schedule s(parse(scatter));
  const Schedule::Loop i = s.loop("i");
  const Buffer idx = s.kernel().buffers[0], y = s.kernel().buffers[2];
  EXPECT_EQ(refused(s,
                    [&] {
                      s.stage(i, y, {0, 0}, {6, 8});
                    }),
            "stage of loop i: an access to buffer y is not proved inside the window in dim 0");
  EXPECT_EQ(wrong_argument(s, [&] { s.stage(i, y, {0}, {6}); }), "stage of loop i: buffer y has rank 2, the window 1");
  EXPECT_EQ(refused(s, [&] { s.stage(s.loop("j"), idx, {0}, {6}); }),
            "stage of loop j: nothing in it touches buffer idx");
}

// Only a copy that is read by nobody may hold what was never written.
TEST(Stage, CopiesNothingUnwritten) {
  const std::string part =
      "kernel part() {\n out y: f32[8]\n for i in 0 .. 2 {\n for j in 0 .. 3 {\n y[j] = 1.0f32\n }\n }\n}";
  Schedule s(parse(part));
  const Buffer y = s.kernel().buffers[0];
  EXPECT_EQ(refused(s, [&] { s.stage(s.loop("i"), y, {0}, {8}); }),
            "stage of loop i: it would copy in elements of buffer y that are not proved to be written earlier");
  s.stage(s.loop("i"), y, {0}, {3});
  check(part, s);
  const char* cleared = R"(kernel cleared() {
  in x: f32[4, 8]
  out y: f32[8]
  for c in 0 .. 8 {
    y[c] = 0.0f32
  }
  for i in 0 .. 4 {
    for j in 0 .. 8 {
      y[j] += x[i, j]
    }
  }
})";
  Schedule after(parse(cleared));
  after.stage(after.loop("i"), after.kernel().buffers[1], {0}, {8});
  check(cleared, after);
}

TEST(Privatise, AddsCopiesInOrder) {
  const char* text =
      "kernel k() {\n in idx: i64[24] in [0, 4]\n inout y: i32[5]\n for b in 0 .. 4 {\n for i in 0 .. 6 {\n y[idx[b * "
      "6 + i]] += 1i32\n }\n }\n}";
  Schedule s(parse(text));
  const Schedule::Loop b = s.loop("b");
  s.privatise(b, s.kernel().buffers[1]);
  s.parallel(b);
  check(text, s);
  for (const char* op : {"min=", "max="}) {
    const std::string extreme = std::string(
                                    "kernel k() {\n in x: f64[24]\n inout y: f64[2]\n for b in 0 .. 4 {\n for i in 0 "
                                    ".. 6 {\n y[floor_mod(i, 2)] ") +
                                op + " x[b * 6 + i]\n }\n }\n}";
    Schedule e(parse(extreme));
    e.privatise(e.loop("b"), e.kernel().buffers[1]);
    check(extreme, e);
  }
}

TEST(Privatise, Refusals) {
  const char* text = "kernel k() {\n in x: f32[24]\n inout y: f32[5]\n for i in 0 .. 24 {\n y[0] += x[i]\n }\n}";
  Schedule s(parse(text));
  EXPECT_EQ(refused(s, [&] { s.privatise(s.loop("i"), s.kernel().buffers[1]); }),
            "privatise of loop i: it would change the order in which sums of f32 are rounded");
  EXPECT_EQ(refused(s, [&] { s.privatise(s.loop("i"), s.kernel().buffers[0]); }),
            "privatise of loop i: buffer x is not only accumulated into, by one operation");
}

// The sums of each row, scattered to; `zeros`, `last` and `also` stand for the loops that zero and read them and for
// more in the row's body.
std::string row_sums(const std::string& zeros, const std::string& last, const std::string& also = "") {
  return R"(kernel k() {
  in idx: i64[6, 4] in [0, 4]
  in dy: f32[6, 4]
  inout dx: f32[6, 5]
  for p in 0 .. 6 {
    if p < 5 {
      alloc acc: f32[5]
)" + zeros +
         R"(
      for k in 0 .. 4 {
        acc[idx[p, k]] += dy[p, k]
      }
)" + last +
         also + R"(
    }
  }
})";
}
const std::string zeroed = "for z in 0 .. 5 {\n acc[z] = 0.0f32\n }\n";
const std::string read_out = "for i in 0 .. 5 {\n let old: f32 = dx[p, i]\n dx[p, i] = old + acc[i]\n }\n";

TEST(CarryZeros, AllocatesOnceAndZeroesWhereItReads) {
  const std::string text = row_sums(zeroed, read_out);
  Schedule s(parse(text));
  const Schedule::Split parts = s.split(s.loop("p"), 3);
  s.parallel(parts.outer);
  s.carry_zeros(parts.inner, s.buffer("acc"));
  EXPECT_EQ(s.trace().back(), "carry_zeros p_i acc");
  const std::string after = print(s.kernel());
  EXPECT_LT(after.find("alloc acc"), after.find("for p_i")) << after;
  EXPECT_LT(after.find("for z"), after.find("for p_i")) << after;
  EXPECT_NE(after.find("        }\n          acc[i] = 0.0f32\n"), std::string::npos) << after;
  s.vectorize(s.loop("i"), 4);
  check(text, s);
}

TEST(CarryZeros, Refusals) {
  const auto says = [](const std::string& text) {
    Schedule s(parse(text));
    return refused(s, [&] { s.carry_zeros(s.loop("p"), s.buffer("acc")); });
  };
  const std::string not_first = "carry_zeros of loop p: buffer acc is not filled with zeros first",
                    not_last = "carry_zeros of loop p: buffer acc is not read last, each element once";
  EXPECT_EQ(says(row_sums("for z in 0 .. 5 {\n acc[z] = 1.0f32\n }\n", read_out)), not_first);
  EXPECT_EQ(says(row_sums("for z in 1 .. 5 {\n acc[z] = 0.0f32\n }\n acc[0] = 0.0f32\n", read_out)), not_first);
  EXPECT_EQ(says(row_sums(zeroed, "for i in 1 .. 5 {\n dx[p, i] = acc[i]\n }\n")), not_last);
  EXPECT_EQ(says(row_sums(zeroed, "for i in 0 .. 5 {\n dx[p, i] = acc[4 - i]\n }\n")), not_last);
  EXPECT_EQ(says(row_sums(zeroed, "for i in 0 .. 5 {\n for t in 0 .. 2 {\n dx[p, i] = acc[i]\n }\n }\n")),
            not_last);  // the second read would be of a zero
  EXPECT_EQ(says(row_sums(zeroed, "for i in 0 .. 4 {\n dx[p, i] = acc[i] + acc[i + 1]\n }\n")), not_last);
  EXPECT_EQ(says(row_sums(zeroed, read_out, "dx[p, 0] = acc[1]\n")), not_last);
  // Sums to zero, but not where the zeros would go.
  EXPECT_EQ(says(row_sums("for z in 0 .. 5 {\n acc[z + p - p] = 0.0f32\n }\n", read_out)),
            "carry_zeros of loop p: where buffer acc is zeroed depends on it");
  EXPECT_EQ(says(row_sums(zeroed, "for i in 0 .. 5 {\n let q: i64 = idx[p, 0]\n dx[p, i] = acc[i + q - q]\n }\n")),
            not_last);
  // Sizes that only what is left inside keeps from being negative.
  const auto sized = [](const std::string& loop, const std::string& condition) {
    return "kernel k(n: i64 in [-3, 4]) {\n in x: f32[6]\n inout dx: f32[6, 5]\n for p in 0 .. " + loop + " {\n if " +
           condition + " {\n alloc acc: f32[n]\n" +
           "for z in 0 .. n {\n acc[z] = 0.0f32\n }\n for z in 0 .. n {\n acc[z] += x[z]\n }\n for i in 0 .. n {\n "
           "dx[p, i] = acc[i]\n }\n }\n }\n}";
  };
  for (const std::string& text : {sized("6", "n > 0"), sized("n", "p < 6")})
    EXPECT_EQ(says(text), "carry_zeros of loop p: a dim of buffer acc may be negative");
  Schedule s(parse(row_sums(zeroed, read_out)));
  EXPECT_EQ(refused(s, [&] { s.carry_zeros(s.loop("p"), s.kernel().buffers[2]); }),
            "carry_zeros of loop p: an iteration does more than to allocate buffer dx and use it");
}

TEST(Hints, StreamingAndPrefetchChangeNoValue) {
  Schedule s(parse(scatter));
  const Schedule::Loop i = s.loop("i");
  s.prefetch(i, s.kernel().buffers[1], 4, 2);
  s.prefetch(i, s.kernel().buffers[2], 4, 1);
  EXPECT_EQ(s.trace()[1], "prefetch i y 4 1");
  const std::string text = print(s.kernel());
  EXPECT_EQ(count(text, "evaluate prefetch"), 2u) << text;
  EXPECT_NE(text.find("idx[i + 4 where i + 4 < n"), std::string::npos) << text;
  check(scatter, s, lengths({0, 3, 30}));
  Schedule stream(parse(scale));
  stream.streaming(stream.kernel().buffers[1]);
  EXPECT_EQ(count(print(stream.kernel()), "streaming"), 1u);
  check(scale, stream, lengths({9}));
}

TEST(Hints, PrefetchesALineOnceThroughSplitLoops) {
  const char* text =
      "kernel k() {\n in x: f32[9, 40]\n inout y: f32[32]\n for k in 0 .. 9 {\n for j in 0 .. 32 {\n y[j] += x[k, j]\n "
      "}\n }\n}";
  Schedule s(parse(text));
  const Schedule::Split j = s.split(s.loop("j"), 8);  // a vector is half a line
  s.vectorize(j.inner);
  s.unroll(j.outer);
  s.prefetch(s.loop("k"), s.kernel().buffers[0], 2, 1);
  const std::string lowered = print(lower(s.kernel()));
  EXPECT_EQ(count(lowered, "evaluate prefetch"), 2u) << lowered;
  for (const char* line : {"prefetch(x[k + 2, 0], 1)", "prefetch(x[k + 2, 16], 1)"})
    EXPECT_NE(lowered.find(line), std::string::npos) << lowered;
  check(text, s);
}

TEST(Hints, Refusals) {
  Schedule s(parse(scale));
  const Schedule::Loop i = s.loop("i");
  EXPECT_EQ(refused(s, [&] { s.streaming(s.kernel().buffers[0]); }), "streaming of buffer x: nothing stores to it");
  EXPECT_EQ(wrong_argument(s, [&] { s.prefetch(i, s.kernel().buffers[0], 0, 2); }),
            "prefetch of loop i: the distance must be at least 1, got 0");
  EXPECT_EQ(wrong_argument(s, [&] { s.prefetch(i, s.kernel().buffers[0], 1, 4); }),
            "prefetch of loop i: the level must be 1 to 3, got 4");
}

}  // namespace
}  // namespace gradloom::ir
