#include "ir/interpret/interpret.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "gradloom/builder.h"
#include "tests/support/error_of.h"

namespace gradloom::ir {
namespace {

Expr f32(double value) { return constant(DType::f32, value); }

template <class... Vectors>
Outcome run(const Kernel& kernel, std::vector<int64_t> scalars, const InterpretOptions& options, Vectors&... data) {
  const std::vector<void*> pointers{data.data()...};
  return interpret(kernel, pointers, scalars, options);
}

// The message of the Error(internal) that the run must end in.
template <class... Vectors>
std::string fault(const Kernel& kernel, std::vector<int64_t> scalars, const InterpretOptions& options,
                  Vectors&... data) {
  const std::string message = error_of([&] { run(kernel, std::move(scalars), options, data...); });
  EXPECT_TRUE(message.starts_with("internal: ")) << message;
  return message;
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(Interpret, RunsLoopsLetsAndConditions) {
  KernelBuilder b("prefix");
  Expr n = b.scalar("n", 0, 100);
  Buffer x = b.input("x", DType::f32, {n}), y = b.output("y", DType::f32, {n});
  Buffer sum = b.alloc("sum", DType::f32, {1});
  b.store(sum, {0}, f32(0));
  b.loop("i", 0, n, [&](Expr i) {
    Expr v = b.let("v", load(x, {i}));
    b.if_then(
        floor_mod(i, 2) == 1, [&] { b.accumulate(sum, {0}, v); },
        [&] { b.accumulate(sum, {0}, v, AccumulateOp::fma, f32(10)); });
    b.store(y, {i}, load(sum, {0}));
  });
  const Kernel kernel = b.build();
  std::vector<float> in{1, 2, 3, 4}, out(5, -1);
  EXPECT_TRUE(run(kernel, {4}, {}, in, out).ok());
  EXPECT_EQ(out, (std::vector<float>{10, 12, 42, 46, -1}));
  EXPECT_TRUE(run(kernel, {0}, {}, in, out).ok());
  EXPECT_HAS(fault(kernel, {101}, {}, in, out), "kernel prefix: scalar n is 101, above its maximum 100");
  EXPECT_HAS(fault(kernel, {-1}, {}, in, out), "scalar n is -1, below its minimum 0");
  EXPECT_HAS(fault(kernel, {}, {}, in, out), "got 0 scalars");
}

TEST(Interpret, ChecksBoundsWithIndices) {
  KernelBuilder b("shift");
  Buffer x = b.input("x", DType::f32, {3, 4}), y = b.output("y", DType::f32, {3, 4});
  b.loops("i", {3, 4}, [&](const std::vector<Expr>& i) { b.store(y, i, load(x, {i[0], i[1] + 1})); });
  const Kernel kernel = b.build();
  std::vector<float> in(12), out(12);
  EXPECT_HAS(fault(kernel, {}, {}, in, out), "buffer x[0, 4]: a load out of bounds, dims are [3, 4]");

  KernelBuilder c("below");
  Buffer z = c.output("z", DType::i8, {2});
  c.store(z, {-1}, constant_int(DType::i8, 1));
  std::vector<int8_t> small(2);
  EXPECT_HAS(fault(c.build(), {}, {}, small), "buffer z[-1]: a store out of bounds");
}

TEST(Interpret, ReadsStridedInputsAndUnalignedMemory) {
  KernelBuilder b("transpose");
  Buffer x = b.input("x", DType::i32, {2, 3}, {-3, 1}), s = b.input("s", DType::i32, {2, 3}, {0, 0}),
         y = b.output("y", DType::i32, {3, 2});
  b.loops("i", {2, 3}, [&](const std::vector<Expr>& i) { b.store(y, {i[1], i[0]}, load(x, i) + load(s, i)); });
  const Kernel kernel = b.build();
  std::vector<char> bytes(1 + 6 * 4);
  for (int32_t k = 0; k < 6; ++k) std::memcpy(&bytes[1 + 4 * k], &k, 4);
  int32_t hundred = 100;
  std::vector<int32_t> out(6);
  const std::vector<void*> pointers{&bytes[1 + 12], &hundred, out.data()};  // x starts at its last row
  EXPECT_TRUE(interpret(kernel, pointers, {}).ok());
  EXPECT_EQ(out, (std::vector<int32_t>{103, 100, 104, 101, 105, 102}));
}

TEST(Interpret, ReportsReadsOfWhatWasNeverWritten) {
  KernelBuilder b("unwritten");
  Buffer y = b.output("y", DType::f32, {4});
  Buffer t = b.alloc("t", DType::f32, {4});
  b.loop("i", 0, 3, [&](Expr i) { b.store(t, {i}, f32(1)); });
  b.loop("i", 0, 4, [&](Expr i) { b.store(y, {i}, load(t, {i})); });
  std::vector<float> out(4, 7);
  EXPECT_HAS(fault(b.build(), {}, {}, out), "buffer t[3]: read, but never written");
  EXPECT_EQ(out, (std::vector<float>{1, 1, 1, 7}));

  KernelBuilder c("accumulate");
  Buffer z = c.output("z", DType::f32, {2});
  c.accumulate(z, {1}, f32(1));
  EXPECT_HAS(fault(c.build(), {}, {}, out), "buffer z[1]: read, but never written");

  KernelBuilder d("again");  // an alloc in a loop is fresh in each iteration
  d.loop("i", 0, 2, [&](Expr i) {
    Buffer u = d.alloc("u", DType::i64, {2});
    d.store(u, {i}, i);
    Expr first = d.let("first", load(u, {0}));
    d.store(u, {1}, first);
  });
  EXPECT_HAS(fault(d.build(), {}, {}), "buffer u[0]: read, but never written");
}

TEST(Interpret, GuardedLoadsAreLazyAndSelectsAreEager) {
  KernelBuilder b("lazy");
  Buffer x = b.input("x", DType::f32, {2}), y = b.output("y", DType::f32, {4});
  b.loop("i", 0, 4, [&](Expr i) { b.store(y, {i}, load(x, {i}, i < 2, f32(9))); });
  std::vector<float> in{1, 2}, out(4);
  EXPECT_TRUE(run(b.build(), {}, {}, in, out).ok());
  EXPECT_EQ(out, (std::vector<float>{1, 2, 9, 9}));

  KernelBuilder c("eager");
  Buffer u = c.input("u", DType::f32, {2}), v = c.output("v", DType::f32, {4});
  c.loop("i", 0, 4, [&](Expr i) { c.store(v, {i}, select(i < 2, load(u, {i}), f32(9))); });
  EXPECT_HAS(fault(c.build(), {}, {}, in, out), "buffer u[2]: a load out of bounds");
}

TEST(Interpret, VectorStatementsWorkInLaneOrder) {
  KernelBuilder b("vectors");
  Buffer x = b.input("x", DType::i64, {4}), y = b.output("y", DType::i64, {8}), z = b.output("z", DType::i64, {3});
  Expr i = ramp(0, 1, 4);
  Expr v = b.let("v", load(x, {i}, i < broadcast(3, 4), broadcast(-1, 4)));
  b.store(y, {ramp(0, 2, 4)}, v, v != broadcast(20, 4));
  b.store(y, {ramp(1, 2, 4)}, shuffle(v, v + v, {3, 2, 5, 4}));
  b.store(z, {0}, extract(v, 1));
  b.store(z, {1}, cast(DType::i64, any_lane(v == broadcast(-1, 4))));
  b.store(z, {2}, cast(DType::i64, all_lanes(v == broadcast(-1, 4))));
  b.accumulate(z, {broadcast(2, 4)}, v);                                           // all lanes to one element
  b.store(z, {broadcast(0, 4)}, ramp(5, 1, 4), load(x, {i}) <= broadcast(30, 4));  // the last active lane wins
  b.prefetch(x, {1 << 20}, 1);
  std::vector<int64_t> in{10, 20, 30, 40}, out(8, 0), few(3);
  EXPECT_TRUE(run(b.build(), {}, {}, in, out, few).ok());
  EXPECT_EQ(out, (std::vector<int64_t>{10, -1, 0, 30, 30, 40, -1, 20}));
  EXPECT_EQ(few, (std::vector<int64_t>{7, 1, 59}));
}

TEST(Interpret, VectorLoopsRunStatementByStatement) {
  KernelBuilder b("lanes");
  Buffer y = b.inout("y", DType::i64, {5}), z = b.output("z", DType::i64, {4});
  b.loop(
      "i", 0, 4,
      [&](Expr i) {
        Buffer t = b.alloc("t", DType::i64, {1});  // one per lane
        b.store(t, {0}, load(y, {i}));
        b.store(y, {i + 1}, load(y, {i}) * 10);  // all lanes read before any writes
        b.if_then(i < 2, [&] { b.accumulate(t, {0}, load(y, {i + 1})); });
        b.loop("k", 0, 3, [&](Expr k) { b.accumulate(t, {0}, k); });
        b.store(z, {i}, load(t, {0}));
      },
      ForKind::vector);
  std::vector<int64_t> data{1, 2, 3, 4, 5}, out(4);
  EXPECT_TRUE(run(b.build(), {}, {}, data, out).ok());
  EXPECT_EQ(data, (std::vector<int64_t>{1, 10, 20, 30, 40}));
  EXPECT_EQ(out, (std::vector<int64_t>{1 + 10 + 3, 2 + 20 + 3, 3 + 3, 4 + 3}));

  KernelBuilder c("ragged");
  Buffer w = c.output("w", DType::i64, {4});
  c.loop(
      "i", 0, 4, [&](Expr i) { c.loop("k", 0, i, [&](Expr k) { c.store(w, {i}, k); }); }, ForKind::vector);
  EXPECT_HAS(fault(c.build(), {}, {}, out), "loop k has bounds that differ");
}

TEST(Interpret, ChecksRecordTheSmallestPosition) {
  const auto gather = [](bool vector) {
    KernelBuilder b("gather");
    Buffer index = b.input("index", DType::i64, {8}), y = b.output("y", DType::i64, {8});
    const auto body = [&](Expr at, Expr position) {
      Expr i = b.let("i", load(index, {at}));
      b.check((i >= 0) & (i < 10), position, "indices", [&] { b.store(y, {at}, i); });
    };
    if (vector)
      body(ramp(0, 1, 8), ramp(0, 1, 8));
    else
      b.loop("k", 0, 8, [&](Expr k) { body(7 - k, 7 - k); });
    return b.build();
  };
  std::vector<int64_t> good{0, 1, 2, 3, 4, 5, 6, 9}, bad{0, 1, -2, 3, 10, 5, 6, 9}, out(8, -7);
  for (bool vector : {false, true}) {
    EXPECT_TRUE(run(gather(vector), {}, {}, good, out).ok());
    EXPECT_EQ(out, good);
    out.assign(8, -7);
    EXPECT_EQ(run(gather(vector), {}, {}, bad, out).bad_position, 2);
    EXPECT_EQ(out[2], -7);
    EXPECT_EQ(out[0], vector ? -7 : 0);
  }
}

TEST(Interpret, AfterAFailedCheckOnlyBoundsStillCount) {
  const auto kernel = [](Expr use) {
    KernelBuilder b("after");
    Buffer x = b.input("x", DType::i64, {1}), y = b.output("y", DType::i64, {1});
    Buffer t = b.alloc("t", DType::i64, {1});
    b.check(load(x, {0}) < 5, 3, "x", [&] { b.store(t, {0}, 0); });
    b.store(y, {load(t, {0}) * use}, 1);
    return b.build();
  };
  std::vector<int64_t> in{9}, out(1);
  EXPECT_EQ(run(kernel(0), {}, {}, in, out).bad_position, 3);
  EXPECT_HAS(fault(kernel(1), {}, {}, in, out), "a store out of bounds");
}

TEST(Interpret, ChecksFactsWhenABufferIsRead) {
  const auto copy = [](Facts facts, DType dtype = DType::i32) {
    KernelBuilder b("facts");
    Buffer x = b.parameter(
        make_buffer({.name = "x", .dtype = dtype, .dims = {4}, .role = Role::in, .facts = std::move(facts)}));
    Buffer y = b.output("y", dtype, {4});
    b.loop("i", 0, 4, [&](Expr i) { b.store(y, {i}, load(x, {i})); });
    return b.build();
  };
  std::vector<int32_t> in{1, 3, 3, 7}, out(4);
  EXPECT_TRUE(run(copy({.min = 1, .max = 7, .nondecreasing = true}), {}, {}, in, out).ok());
  EXPECT_HAS(fault(copy({.min = 2}), {}, {}, in, out), "buffer x[0]: is 1, below its declared minimum 2");
  EXPECT_HAS(fault(copy({.max = constant_int(DType::i32, 6)}), {}, {}, in, out),
             "buffer x[3]: is 7, above its declared maximum 6");
  EXPECT_HAS(fault(copy({.injective = true}), {}, {}, in, out), "buffer x[1]: is 3 like another element");
  in = {1, 3, 2, 7};
  EXPECT_HAS(fault(copy({.nondecreasing = true}), {}, {}, in, out),
             "buffer x[1]: is 3 before 2, but declared nondecreasing");
  EXPECT_TRUE(run(copy({.injective = true}), {}, {}, in, out).ok());

  KernelBuilder b("temp");  // overwritten values are ignored
  Buffer t = b.alloc("t", DType::i64, {3}, {.injective = true});
  b.loop("i", 0, 3, [&](Expr i) { b.store(t, {i}, 5); });
  b.loop("i", 0, 3, [&](Expr i) { b.store(t, {i}, i); });
  Expr first = b.let("first", load(t, {0}));
  b.store(t, {2}, first);
  b.let("again", load(t, {1}));
  b.store(t, {1}, load(t, {2}));
  EXPECT_HAS(fault(b.build(), {}, {}), "buffer t[2]: is 0 like another element");
}

Kernel parallel_kernel(const std::function<void(KernelBuilder&, const Buffer&, Expr)>& body) {
  KernelBuilder b("parallel");
  Buffer y = b.inout("y", DType::i64, {8});
  b.loop(
      "p", 0, 4, [&](Expr p) { body(b, y, p); }, ForKind::parallel);
  return b.build();
}

TEST(Interpret, FindsRacesBetweenIterations) {
  std::vector<int64_t> data(8);
  const auto expect_race = [&](const Kernel& kernel, const std::string& message) {
    for (bool reverse : {false, true}) {
      InterpretOptions options{.reverse_parallel = reverse};
      EXPECT_HAS(fault(kernel, {}, options, data), "race, iterations p = ");
      options.check_races = false;
      EXPECT_TRUE(run(kernel, {}, options, data).ok());
    }
    EXPECT_HAS(fault(kernel, {}, {}, data), message);
  };
  expect_race(parallel_kernel([](auto& b, auto& y, Expr p) { b.store(y, {floor_div(p, 2)}, p); }),
              "buffer y[0]: race, iterations p = 0 and 1 of parallel loop p: a write after a write");
  expect_race(parallel_kernel([](auto& b, auto& y, Expr p) { b.store(y, {p}, load(y, {p + 1})); }),
              "buffer y[1]: race, iterations p = 0 and 1");
  expect_race(parallel_kernel([](auto& b, auto& y, Expr p) { b.store(y, {p + 1}, load(y, {p})); }),
              "a read after a write");
  // Both iterations read; the second one's own read must not hide the first one's.
  expect_race(parallel_kernel([](auto& b, auto& y, Expr p) {
                Expr v = b.let("v", load(y, {7}));
                b.if_then(p == 1, [&] { b.store(y, {7}, v); });
              }),
              "iterations p = 0 and 1 of parallel loop p: a write after a read");
  expect_race(parallel_kernel([](auto& b, auto& y, Expr) { b.accumulate(y, {0}, 1); }), "a write after a write");
  expect_race(parallel_kernel([](auto& b, auto& y, Expr p) {
                b.append(accumulate(y, {0}, AccumulateOp::add, 1, {}, p < 3, true));
                b.append(accumulate(y, {0}, AccumulateOp::max, 1, {}, p == 3, true));
              }),
              "an accumulate of another operation");
}

TEST(Interpret, AllowsWhatNoOrderChanges) {
  std::vector<int64_t> data(8);
  const auto expect_clean = [&](const Kernel& kernel) { EXPECT_TRUE(run(kernel, {}, {}, data).ok()); };
  expect_clean(parallel_kernel([](auto& b, auto& y, Expr p) {
    b.store(y, {p}, load(y, {7}));
    b.accumulate(y, {p}, 1);
  }));
  expect_clean(parallel_kernel(
      [](auto& b, auto& y, Expr) { b.append(accumulate(y, {0}, AccumulateOp::add, 1, {}, {}, true)); }));
  EXPECT_EQ(data[0], 5);
  expect_clean(parallel_kernel([](auto& b, auto& y, Expr p) {
    Buffer t = b.alloc("t", DType::i64, {1});  // private
    b.store(t, {0}, p);
    b.store(y, {p}, load(t, {0}));
  }));
  // Two consecutive executions of a loop may access the same elements.
  KernelBuilder b("steps");
  Buffer y = b.inout("y", DType::i64, {8});
  b.loop("t", 0, 3, [&](Expr t) {
    b.loop(
        "p", 0, 8, [&](Expr p) { b.store(y, {floor_mod(p + t, 8)}, p); }, ForKind::parallel);
  });
  expect_clean(b.build());
}

TEST(Interpret, FollowsNestedParallelLoops) {
  const auto nested = [](Expr (*place)(Expr, Expr), bool twice) {
    KernelBuilder b("nested");
    Buffer y = b.inout("y", DType::i64, {8});
    b.loop(
        "p", 0, 2,
        [&](Expr p) {
          for (int k = 0; k < (twice ? 2 : 1); ++k)
            b.loop(
                "q", 0, 4, [&](Expr q) { b.store(y, {place(p, k ? 3 - q : q)}, q); }, ForKind::parallel);
          b.store(y, {place(p, 0)}, 1);
        },
        ForKind::parallel);
    return b.build();
  };
  std::vector<int64_t> data(8);
  EXPECT_TRUE(run(nested([](Expr p, Expr q) { return p * 4 + q; }, true), {}, {}, data).ok());
  EXPECT_HAS(fault(nested([](Expr, Expr q) { return q; }, false), {}, {}, data),
             "iterations p = 0 and 1 of parallel loop p");
  EXPECT_HAS(fault(nested([](Expr p, Expr) { return p; }, false), {}, {}, data),
             "iterations q = 0 and 1 of parallel loop q");
}

TEST(Interpret, ReversesParallelLoopsOnly) {
  KernelBuilder b("order");
  Buffer y = b.inout("y", DType::i64, {4}), count = b.inout("count", DType::i64, {1});
  b.loop(
      "p", 0, 4,
      [&](Expr p) {
        b.loop("s", 0, 1, [&](Expr) { b.append(accumulate(count, {0}, AccumulateOp::add, 1, {}, {}, true)); });
        b.store(y, {p}, load(count, {0}));
      },
      ForKind::parallel);
  const Kernel kernel = b.build();
  std::vector<int64_t> data(4), counter{0};
  run(kernel, {}, {.check_races = false, .reverse_parallel = true}, data, counter);
  EXPECT_EQ(data, (std::vector<int64_t>{4, 3, 2, 1}));
}

TEST(Interpret, NamesWhatAnUnverifiedKernelLacks) {
  std::vector<int64_t> data(4);
  const auto message = [&](const std::function<void(KernelBuilder&, const Buffer&)>& body) {
    KernelBuilder b("bad");
    Buffer y = b.output("y", DType::i64, {4});
    body(b, y);
    return fault(b.build(), {}, {}, data);
  };
  EXPECT_HAS(message([](auto& b, auto& y) { b.store(y, {0}, var(make_var("v"))); }),
             "variable v is used but not declared");
  EXPECT_HAS(message([](auto& b, auto& y) {
               Expr inner;
               b.loop("i", 0, 1, [&](Expr i) { inner = i; });
               b.store(y, {inner}, 1);
             }),
             "variable i is used but not declared");
  EXPECT_HAS(
      message([](auto& b, auto&) { b.store(make_buffer({.name = "w", .dtype = DType::i64, .dims = {1}}), {0}, 1); }),
      "buffer w is used but not declared");
  EXPECT_HAS(message([](auto& b, auto& y) { b.loop("i", 0, 4, [&](Expr i) { b.store(y, {i}, floor_div(4, i)); }); }),
             "division by zero");
  EXPECT_HAS(message([](auto& b, auto& y) {
               b.loop("i", 0, 4, [&](Expr i) { b.store(y, {i}, binary(BinaryOp::shl, 1, i * 30)); });
             }),
             "shl of i64 by 90");
  EXPECT_HAS(message([](auto& b, auto& y) { b.store(y, {0}, binary(BinaryOp::shr, 1, -1)); }), "shr of i64 by -1");
}

TEST(Interpret, SaysWhatItCannotHold) {
  KernelBuilder b("large");
  b.alloc("huge", DType::i64, {int64_t{1} << 40, int64_t{1} << 40});
  const Kernel kernel = b.build();
  EXPECT_EQ(error_of([&] { run(kernel, {}, {}); }),
            "resource_exhausted: kernel large: buffer huge has too many elements: dims [1099511627776, 1099511627776]");
}

}  // namespace
}  // namespace gradloom::ir
