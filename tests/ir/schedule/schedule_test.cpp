// Properties of schedules that no trace expresses: handles, attempts, arguments without a text form, per-iteration
// extents. The effect of each step on a nest and its refusals are in tests/text/schedule.
#include "tests/support/schedule_support.h"

namespace gradloom::ir {
namespace {

// A refused step leaves the schedule unchanged, and so does one with an invalid argument.
template <class Step>
std::string unchanged(Schedule& schedule, Step&& step) {
  const std::string before = print(schedule.kernel());
  const size_t steps = schedule.trace().size();
  const std::string message = step();
  EXPECT_EQ(print(schedule.kernel()), before);
  EXPECT_EQ(schedule.trace().size(), steps);
  return message;
}
template <class Step>
std::string refused(Schedule& schedule, Step&& step) {
  return unchanged(schedule, [&] { return refusal(step); });
}
template <class Step>
std::string wrong_argument(Schedule& schedule, Step&& step) {
  return unchanged(schedule, [&] { return wrong(step); });
}

constexpr const char* scale = R"(kernel scale(n: i64 in [0, 1000]) {
  in x: f32[n]
  out y: f32[n]
  for i in 0 .. n {
    y[i] = x[i] * 2.0f32
  }
})";

std::string scale_of(int64_t n) {
  const std::string s = std::to_string(n);
  return "kernel scale() {\n  in x: f32[" + s + "]\n  out y: f32[" + s + "]\n  for i in 0 .. " + s +
         " {\n    y[i] = x[i] * 2.0f32\n  }\n}";
}

constexpr const char* sums = R"(kernel sums() {
  in x: f32[12, 20]
  out y: f32[12]
  for r in 0 .. 12 {
    y[r] = 0.0f32
    for c in 0 .. 20 {
      y[r] += x[r, c]
    }
  }
})";

constexpr const char* product = R"(kernel product() {
  in a: f32[6, 5]
  in b: f32[5, 16]
  inout y: f32[6, 16]
  for i in 0 .. 6 {
    for k in 0 .. 5 {
      for j in 0 .. 16 {
        y[i, j] fma= (a[i, k], b[k, j])
      }
    }
  }
})";

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

  // An invalid argument, or an error in building a step's expressions, propagates.
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

TEST(Handles, OfWhatAStepMakes) {
  Schedule s(parse(scale));
  const Schedule::Split parts = s.split(s.loop("i"), 8);
  EXPECT_EQ(s.loop("i_o"), parts.outer);
  EXPECT_EQ(s.loop("i_i"), parts.inner);
  EXPECT_EQ(s.loop("i_t"), parts.tail);
  EXPECT_EQ(s.loop("i_o_i_i"), s.fuse(parts.outer, parts.inner));
  const auto [low, high] = s.partition(parts.tail, 5);
  EXPECT_EQ(s.get(low).var.name, "i_t_a");
  EXPECT_EQ(s.get(high).var.name, "i_t_z");
  EXPECT_EQ(s.split_guarded(low, 2).tail, 0);
  EXPECT_EQ(s.loop("i_t_z_o"), s.vectorize(high, 8, 2));
  check(scale, s, {{{"n", 3}}, {{"n", 33}}});
  for (int64_t n : {0, 1, 7, 8, 16, 19}) {
    Schedule known(parse(scale_of(n)));
    const Schedule::Split some = known.split(known.loop("i"), 8);
    EXPECT_EQ(some.outer != 0, n >= 8) << n;
    EXPECT_EQ(some.tail != 0, n % 8 != 0) << n;
  }
  Schedule rows(parse(sums));
  const std::vector<Schedule::Loop> statements = rows.distribute(rows.loop("r"));
  EXPECT_EQ(statements, rows.loops("r"));
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

// The sums of each row, by a scatter; `zeros`, `last` and `also` are the text of the loops that zero and read them and
// of further statements in the row's body.
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

TEST(CarryZeros, Refusals) {
  const auto says = [](const std::string& text) {
    Schedule s(parse(text));
    return refused(s, [&] { s.hoist_zeroed_buffer(s.loop("p"), s.buffer("acc")); });
  };
  const std::string not_first = "hoist_zeroed_buffer of loop p: buffer acc is not filled with zeros first",
                    not_last = "hoist_zeroed_buffer of loop p: buffer acc is not read last, each element once";
  EXPECT_EQ(says(row_sums("for z in 0 .. 5 {\n acc[z] = 1.0f32\n }\n", read_out)), not_first);
  EXPECT_EQ(says(row_sums("for z in 1 .. 5 {\n acc[z] = 0.0f32\n }\n acc[0] = 0.0f32\n", read_out)), not_first);
  EXPECT_EQ(says(row_sums(zeroed, "for i in 1 .. 5 {\n dx[p, i] = acc[i]\n }\n")), not_last);
  EXPECT_EQ(says(row_sums(zeroed, "for i in 0 .. 5 {\n dx[p, i] = acc[4 - i]\n }\n")), not_last);
  EXPECT_EQ(says(row_sums(zeroed, "for i in 0 .. 5 {\n for t in 0 .. 2 {\n dx[p, i] = acc[i]\n }\n }\n")),
            not_last);  // the second read would be of a zero
  EXPECT_EQ(says(row_sums(zeroed, "for i in 0 .. 4 {\n dx[p, i] = acc[i] + acc[i + 1]\n }\n")), not_last);
  EXPECT_EQ(says(row_sums(zeroed, read_out, "dx[p, 0] = acc[1]\n")), not_last);
  // Zeroed, but by a loop that cannot be hoisted.
  EXPECT_EQ(says(row_sums("for z in 0 .. 5 {\n acc[z + p - p] = 0.0f32\n }\n", read_out)),
            "hoist_zeroed_buffer of loop p: where buffer acc is zeroed depends on it");
  EXPECT_EQ(says(row_sums(zeroed, "for i in 0 .. 5 {\n let q: i64 = idx[p, 0]\n dx[p, i] = acc[i + q - q]\n }\n")),
            not_last);
  // Sizes that are nonnegative only by a condition that remains inside the loop.
  const auto sized = [](const std::string& loop, const std::string& condition) {
    return "kernel k(n: i64 in [-3, 4]) {\n in x: f32[6]\n inout dx: f32[6, 5]\n for p in 0 .. " + loop + " {\n if " +
           condition + " {\n alloc acc: f32[n]\n" +
           "for z in 0 .. n {\n acc[z] = 0.0f32\n }\n for z in 0 .. n {\n acc[z] += x[z]\n }\n for i in 0 .. n {\n "
           "dx[p, i] = acc[i]\n }\n }\n }\n}";
  };
  for (const std::string& text : {sized("6", "n > 0"), sized("n", "p < 6")})
    EXPECT_EQ(says(text), "hoist_zeroed_buffer of loop p: a dim of buffer acc may be negative");
  Schedule s(parse(row_sums(zeroed, read_out)));
  EXPECT_EQ(refused(s, [&] { s.hoist_zeroed_buffer(s.loop("p"), s.kernel().buffers[2]); }),
            "hoist_zeroed_buffer of loop p: an iteration does more than to allocate buffer dx and use it");
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
  EXPECT_EQ(wrong_argument(s,
                           [&] {
                             s.replay({"split k 2", "rotate k_o"});
                           }),  // all steps or none
            "trace: unknown step rotate in \"rotate k_o\"");
}

}  // namespace
}  // namespace gradloom::ir
