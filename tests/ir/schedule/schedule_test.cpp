// Each step: what it makes, that the interpreter computes the same bits before and after (and after lowering), what it
// refuses, and that its trace replays.
#include "tests/support/schedule_kernels.h"

namespace gradloom::ir {
namespace {

TEST(Refusal, IsATypeOfItsOwn) {
  Schedule s(parse(sums));
  const std::string before = print(s.kernel());
  const Schedule::Loop r = s.loop("r");
  const Schedule::Attempt refused = s.attempt([&](Schedule& trial) {
    trial.split(r, 4);
    trial.unroll(trial.loop("r_o"));
    trial.parallel(trial.loop("c"));
  });
  EXPECT_FALSE(refused);
  EXPECT_EQ(refused.refusal, "parallel of loop c: two iterations of loop c may accumulate into the same element of y");
  EXPECT_EQ(print(s.kernel()), before);
  EXPECT_TRUE(s.trace().empty());

  // A wrong argument, or a fault in what builds the expressions of a step, passes through.
  EXPECT_EQ(wrong_argument(s, [&] { s.attempt([&](Schedule& trial) { trial.split(r, 0); }); }),
            "split of loop r: the factor must be at least 1, got 0");
  EXPECT_EQ(wrong_argument(s, [&] { s.attempt([&](Schedule& trial) { trial.fuse(r, -1); }); }),
            "schedule: kernel sums has no loop with this handle (a step has consumed it)");
  EXPECT_EQ(
      wrong_argument(
          s, [&] { s.attempt([&](Schedule& trial) { trial.partition(r, Expr(1) + constant_int(DType::i32, 1)); }); }),
      "ir: add: operands of i64 and i32");
  EXPECT_EQ(wrong_argument(s, [&] { s.attempt([](Schedule& trial) { trial.parallel(trial.loop("rows")); }); }),
            "schedule: kernel sums has no loop rows; its loops are: r c");

  const Schedule::Attempt done = s.attempt([&](Schedule& trial) { trial.split(r, 4); });
  EXPECT_TRUE(done);
  EXPECT_EQ(done.refusal, "");
  EXPECT_EQ(s.trace().size(), 1u);
}

// Nor is what was wrong before the step.
TEST(Refusal, IsNotAFaultOfTheKernel) {
  Schedule s(parse(R"(kernel k() {
  out y: f32[4]
  for i in 0 .. 4 parallel {
    for j in 0 .. 4 {
      y[j] = 1.0f32
    }
  }
})"));
  EXPECT_EQ(wrong_argument(s, [&] { s.split(s.loop("j"), 2); }).substr(0, 80),
            "kernel k (scheduled): for i in 0 .. 4 parallel: the parallel loop is not proved:");
}

TEST(Handles, GoByNameAndNumber) {
  Schedule s(parse(sums));
  EXPECT_EQ(s.loops().size(), 2u);
  EXPECT_EQ(s.get(s.loop("c")).var.name, "c");
  s.split(s.loop("r"), 5);
  EXPECT_EQ(s.loops("c").size(), 2u);
  EXPECT_EQ(s.loop("c#1"), s.loops("c")[1]);
  EXPECT_EQ(wrong_argument(s, [&] { s.loop("c"); }), "schedule: kernel sums has 2 loops named c: use c#0 to c#1");
  EXPECT_EQ(wrong_argument(s, [&] { s.loop("q"); }),
            "schedule: kernel sums has no loop q; its loops are: r_o r_i c r_t c");
  EXPECT_EQ(wrong_argument(s, [&] { s.get(-1); }),
            "schedule: kernel sums has no loop with this handle (a step has consumed it)");
}

TEST(Split, DividesOrLeavesATail) {
  for (int64_t n : {0, 1, 7, 8, 16, 19}) {
    Schedule s(parse(scale_of(n)));
    const Schedule::Split parts = s.split(s.loop("i"), 8);
    EXPECT_EQ(parts.outer != 0, n >= 8) << n;
    EXPECT_EQ(parts.tail != 0, n % 8 != 0) << n;
    check(scale_of(n), s);
  }
}

TEST(Split, OfAnUnknownExtent) {
  Schedule s(parse(scale));
  const Schedule::Split parts = s.split(s.loop("i"), 8);
  EXPECT_EQ(s.loop("i_o"), parts.outer);
  EXPECT_EQ(s.loop("i_i"), parts.inner);
  EXPECT_EQ(s.loop("i_t"), parts.tail);
  EXPECT_EQ(s.trace(), std::vector<std::string>{"split i 8"});
  check(scale, s, lengths({0, 1, 7, 8, 33}));
}

TEST(Split, OfALoopThatMayBeEmptyOrBeginAnywhere) {
  const char* text = R"(kernel part(n: i64 in [0, 40], m: i64 in [0, 40]) {
  in x: f32[40]
  inout y: f32[40]
  for i in m .. n {
    y[i] = x[i]
  }
})";
  Schedule s(parse(text));
  s.split(s.loop("i"), 4);
  check(text, s, {{{"n", 3}, {"m", 30}}, {{"n", 33}, {"m", 2}}, {{"n", 40}, {"m", 39}}});
}

TEST(Split, ReadsBoundsFromMemoryOnce) {
  const char* text = R"(kernel lists() {
  in starts: i64[5] in [0, 12] nondecreasing
  inout ends: i64[1] in [0, 30]
  inout y: f32[30]
  for i in 0 .. ends[0] {
    y[i] = 1.0f32
    ends[0] = 3
  }
})";
  Schedule s(parse(text));
  s.split(s.loop("i"), 4);
  check(text, s);
}

TEST(Split, KnownMultipleNeedsNoTail) {
  const char* text =
      "kernel k(n: i64 in [0, 10]) {\n inout y: f32[n * 16]\n for i in 0 .. n * 16 {\n y[i] = 1.0f32\n }\n}";
  Schedule s(parse(text));
  EXPECT_EQ(s.split(s.loop("i"), 8).tail, 0);
  check(text, s, lengths({0, 1, 3}));
}

TEST(Split, Refusals) {
  Schedule s(parse(scale));
  EXPECT_EQ(wrong_argument(s, [&] { s.split(s.loop("i"), 0); }),
            "split of loop i: the factor must be at least 1, got 0");
  s.parallel(s.loop("i"));
  EXPECT_EQ(refused(s, [&] { s.split(s.loop("i"), 4); }), "split of loop i: it is a parallel loop, not a serial one");
}

TEST(SplitGuarded, MasksTheLastPart) {
  Schedule s(parse(scale));
  const Schedule::Split parts = s.split_guarded(s.loop("i"), 8);
  EXPECT_EQ(parts.tail, 0);
  s.vectorize(parts.inner);
  check(scale, s, lengths({0, 1, 7, 8, 33}));
}

TEST(Parallel, NeedsDisjointIterations) {
  Schedule s(parse(sums));
  s.parallel(s.loop("r"));
  EXPECT_EQ(refused(s, [&] { s.parallel(s.loop("c")); }), "parallel of loop c: it is inside the parallel loop r");
  check(sums, s);
  Schedule bad(parse(scatter));
  const std::string message = refused(bad, [&] { bad.parallel(bad.loop("i")); });
  EXPECT_EQ(message.rfind("parallel of loop i: ", 0), 0u) << message;
  EXPECT_NE(message.find("y"), std::string::npos) << message;
}

TEST(Unroll, NeedsASmallConstantExtent) {
  Schedule s(parse(scale));
  EXPECT_EQ(refused(s, [&] { s.unroll(s.loop("i")); }), "unroll of loop i: its extent is not a constant");
  Schedule large(parse(scale_of(65)));
  EXPECT_EQ(refused(large, [&] { large.unroll(large.loop("i")); }),
            "unroll of loop i: the extent must be 0 to 64, got 65");
  Schedule good(parse(sums));
  good.unroll(good.loop("c"));
  check(sums, good);
}

TEST(Vectorize, ByLanesAndCopiesMasksAtMostOneVector) {
  Schedule s(parse(scale));
  const Schedule::Loop whole = s.vectorize(s.loop("i"), 8, 2);
  EXPECT_EQ(s.get(whole).var.name, "i_o");
  EXPECT_EQ(s.trace(), std::vector<std::string>{"vectorize i 8 2"});
  check(scale, s, lengths({0, 1, 7, 8, 9, 15, 16, 17, 24, 31, 32, 100}));
  EXPECT_EQ(count(print(s.kernel()), "if "), 1u) << print(s.kernel());
}

TEST(Vectorize, ByLanesForEveryConstantExtent) {
  for (int64_t n = 0; n <= 40; ++n) {
    Schedule s(parse(scale_of(n)));
    s.vectorize(s.loop("i"), 4, 3);
    check(scale_of(n), s);
    const std::string text = print(lower(s.kernel()));
    EXPECT_EQ(text.find(" where ") != std::string::npos, n % 4 != 0) << text;
  }
}

TEST(Vectorize, Refusals) {
  Schedule s(parse("kernel k() {\n inout y: f32[9]\n for i in 0 .. 8 {\n y[i + 1] = y[i]\n }\n}"));
  const std::string message = refused(s, [&] { s.vectorize(s.loop("i")); });
  EXPECT_EQ(message.rfind("vectorize of loop i: ", 0), 0u) << message;
  EXPECT_NE(message, "vectorize of loop i: ");
  refused(s, [&] { s.vectorize(s.loop("i"), 4, 2); });
  Schedule nest(
      parse("kernel k() {\n inout y: f32[8, 8]\n for i in 0 .. 8 {\n for j in 0 .. i {\n y[i, j] = 1.0f32\n }\n }\n}"));
  EXPECT_EQ(refused(nest, [&] { nest.vectorize(nest.loop("i")); }),
            "vectorize of loop i: the bounds of its inner loop j depend on it");
  EXPECT_EQ(refused(nest, [&] { nest.vectorize(nest.loop("j")); }),
            "vectorize of loop j: its extent is not a constant");
  EXPECT_EQ(wrong_argument(nest, [&] { nest.vectorize(nest.loop("i"), 1); }),
            "vectorize of loop i: the lanes must be 2 to 64, got 1");
  Schedule twice(parse(product));
  twice.vectorize(twice.loop("j"));
  EXPECT_EQ(refused(twice, [&] { twice.vectorize(twice.loop("i")); }),
            "vectorize of loop i: it holds the vector loop j");
}

TEST(Unroll, OfMoreStatementsThanANestMayHave) {
  Schedule s(parse(R"(kernel many() {
  inout y: i64[64]
  for i in 0 .. 64 {
    for j in 0 .. 64 {
      for k in 0 .. 64 {
        for l in 0 .. 16 {
          y[i] += j * k * l
        }
      }
    }
  }
})"));
  for (const char* name : {"k", "i", "l"}) s.unroll(s.loop(name));
  EXPECT_EQ(refused(s, [&] { s.unroll(s.loop("j")); }),
            "unroll of loop j: with the unrolled loops around and in it, it would be more than 4194304 statements");
}

TEST(Partition, FoldsTheConditionOnBothSides) {
  const char* text = R"(kernel edge(n: i64 in [0, 40], p: i64 in [-5, 50]) {
  in x: f32[n]
  out y: f32[n]
  for i in 0 .. n {
    if i < p {
      y[i] = 0.0f32
    } else {
      y[i] = x[i]
    }
  }
})";
  Schedule s(parse(text));
  const auto [low, high] = s.partition(s.loop("i"), var(s.kernel().scalars[1].var));
  EXPECT_EQ(s.get(low).var.name, "i_a");
  EXPECT_EQ(s.get(high).var.name, "i_z");
  EXPECT_EQ(s.trace(), std::vector<std::string>{"partition i p"});
  EXPECT_EQ(count(print(s.kernel()), "if "), 0u) << print(s.kernel());
  check(text, s,
        {{{"n", 0}, {"p", 3}},
         {{"n", 20}, {"p", -4}},
         {{"n", 20}, {"p", 7}},
         {{"n", 20}, {"p", 20}},
         {{"n", 20}, {"p", 50}}});
}

TEST(Partition, Refusals) {
  Schedule s(parse(sums));
  const Schedule::Loop r = s.loop("r");
  EXPECT_EQ(wrong_argument(s, [&] { s.partition(r, var(s.get(r).var)); }),
            "partition of loop r: the point uses a variable that is not known outside the loop");
  EXPECT_EQ(wrong_argument(s,
                           [&] {
                             s.partition(r, load(s.kernel().buffers[0], {0, 0}));
                           }),
            "partition of loop r: the point must be an i64 scalar");
}

TEST(Fuse, MakesOneLoopOfTwo) {
  const char* text =
      "kernel k(n: i64 in [0, 50]) {\n in x: f32[n, 6]\n out y: f32[n, 6]\n for i in 0 .. n {\n for j in 0 .. 6 {\n "
      "y[i, j] = x[i, j]\n }\n }\n}";
  Schedule s(parse(text));
  const Schedule::Loop both = s.fuse(s.loop("i"), s.loop("j"));
  EXPECT_EQ(s.loop("i_j"), both);
  check(text, s, lengths({0, 1, 9}));
  const char* open =
      "kernel k(n: i64 in [0, 50], m: i64 in [0, 50]) {\n in x: f32[n, m]\n out y: f32[n, m]\n for i in 0 .. n {\n for "
      "j in 0 .. m {\n y[i, j] = x[i, j]\n }\n "
      "}\n}";
  Schedule o(parse(open));
  o.fuse(o.loop("i"), o.loop("j"));
  check(open, o, {{{"n", 4}, {"m", 0}}, {{"n", 0}, {"m", 4}}, {{"n", 5}, {"m", 3}}});
  Schedule bad(parse(sums));
  EXPECT_EQ(refused(bad, [&] { bad.fuse(bad.loop("r"), bad.loop("c")); }),
            "fuse of loop r: its body is not just the inner loop");
  const char* triangle =
      "kernel k() {\n inout y: f32[8, 8]\n for i in 0 .. 8 {\n for j in 0 .. i {\n y[i, j] = 1.0f32\n }\n }\n}";
  Schedule t(parse(triangle));
  EXPECT_EQ(refused(t, [&] { t.fuse(t.loop("i"), t.loop("j")); }),
            "fuse of loop i: the bounds of its inner loop j depend on it");
}

TEST(Reorder, KeepsTheOrderOfSums) {
  Schedule s(parse(product));
  s.reorder(s.loop("k"), s.loop("j"));
  check(product, s);
  s.reorder(s.loop("j"), s.loop("k"));
  s.reorder(s.loop("i"), s.loop("k"));
  check(product, s);
  const char* order =
      "kernel k() {\n in x: f32[4, 5]\n inout s: f32[]\n for i in 0 .. 4 {\n for j in 0 .. 5 {\n s[] += x[i, j]\n }\n "
      "}\n}";
  Schedule bad(parse(order));
  const std::string message = refused(bad, [&] { bad.reorder(bad.loop("i"), bad.loop("j")); });
  EXPECT_EQ(message.rfind("reorder of loop i: with loop j: ", 0), 0u) << message;
}

TEST(Distribute, SeparatesIndependentStatements) {
  Schedule s(parse(sums));
  const std::vector<Schedule::Loop> parts = s.distribute(s.loop("r"));
  EXPECT_EQ(parts.size(), 2u);
  s.vectorize(parts[0], 4);
  check(sums, s);
}

TEST(Distribute, GivesEachIterationItsBuffer) {
  const char* text = R"(kernel k() {
  in x: f32[8, 5]
  out y: f32[8]
  for i in 0 .. 8 {
    alloc t: f32[5]
    for j in 0 .. 5 {
      t[j] = x[i, j] + 1.0f32
    }
    y[i] = 0.0f32
    for j in 0 .. 5 {
      y[i] += t[j] * t[4 - j]
    }
  }
})";
  Schedule s(parse(text));
  EXPECT_EQ(s.distribute(s.loop("i")).size(), 3u);
  EXPECT_NE(print(s.kernel()).find("alloc t: f32[5, 8]"), std::string::npos) << print(s.kernel());
  check(text, s);
}

TEST(Distribute, Refusals) {
  Schedule one(parse(scale));
  EXPECT_EQ(refused(one, [&] { one.distribute(one.loop("i")); }), "distribute of loop i: its body is one statement");
  // b[i] reads what the first statement of the next iteration overwrites.
  Schedule s(parse(
      "kernel k() {\n inout a: f32[9]\n out b: f32[8]\n for i in 0 .. 8 {\n a[i] = 1.0f32\n b[i] = a[i + 1]\n }\n}"));
  const std::string message = refused(s, [&] { s.distribute(s.loop("i")); });
  EXPECT_EQ(message.rfind("distribute of loop i: ", 0), 0u) << message;
  EXPECT_NE(message.find("a"), std::string::npos);
}

TEST(Vectorize, ByCopiesForEveryExtentWhereNamesRepeat) {
  for (int64_t n = 0; n <= 20; ++n) {
    const std::string e = std::to_string(n);
    const std::string text = "kernel twice() {\n inout y: f32[3, " + e + "]\n for r in 0 .. 3 {\n for i in 0 .. " + e +
                             " {\n y[r, i] = y[r, i] + 1.0f32\n }\n for i in 0 .. " + e +
                             " {\n y[r, i] = y[r, i] * 2.0f32\n }\n }\n}";
    for (int copies : {1, 2, 3}) {
      Schedule s(parse(text));
      s.split(s.loop("r"), 2);
      for (const Schedule::Loop loop : s.loops("i")) EXPECT_EQ(s.vectorize(loop, 4, copies) != 0, n > 0);
      check(text, s);
    }
  }
}

TEST(Vectorize, OneElementUnderAMask) {
  const char* text = R"(kernel rows() {
  inout y: f32[9]
  in x: f32[9]
  for i in 0 .. 9 {
    y[i] = y[i] + x[i]
  }
})";
  Schedule s(parse(text));
  s.vectorize(s.loop("i"), 4, 2);
  EXPECT_EQ(count(print(s.kernel()), "vector"), 2u);
  check(text, s);
}

}  // namespace
}  // namespace gradloom::ir
