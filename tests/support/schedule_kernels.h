#pragma once
// The kernels that the schedule tests rewrite, and what holds after every step.
#include "ir/analysis/verify.h"
#include "ir/passes/passes.h"
#include "ir/schedule/schedule.h"
#include "tests/support/schedule_support.h"

namespace gradloom::ir {

// Equal bits as scheduled and as lowered, and the same kernel from the trace.
inline void check(const std::string& text, const Schedule& schedule, const std::vector<ScalarValues>& cases = {{}}) {
  const Kernel authored = parse(text);
  SCOPED_TRACE(print(schedule.kernel()));
  verify(schedule.kernel(), Stage::scheduled);
  const Kernel lowered = lower(schedule.kernel());
  verify(lowered, Stage::lowered);
  for (const ScalarValues& scalars : cases) {
    expect_same(authored, schedule.kernel(), scalars);
    expect_same(authored, lowered, scalars);
  }
  Schedule replayed(authored);
  replayed.replay(schedule.trace());
  EXPECT_EQ(print(replayed.kernel()), print(schedule.kernel()));
  EXPECT_EQ(replayed.trace(), schedule.trace());
}

// A refused step leaves the schedule as it was, and so does one with a wrong argument.
template <class Step>
inline std::string unchanged(Schedule& schedule, Step&& step) {
  const std::string before = print(schedule.kernel());
  const size_t steps = schedule.trace().size();
  const std::string message = step();
  EXPECT_EQ(print(schedule.kernel()), before);
  EXPECT_EQ(schedule.trace().size(), steps);
  return message;
}
template <class Step>
inline std::string refused(Schedule& schedule, Step&& step) {
  return unchanged(schedule, [&] { return refusal(step); });
}
template <class Step>
inline std::string wrong_argument(Schedule& schedule, Step&& step) {
  return unchanged(schedule, [&] { return wrong(step); });
}

inline size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

inline std::vector<ScalarValues> lengths(std::initializer_list<int64_t> values) {
  std::vector<ScalarValues> result;
  for (int64_t n : values) result.push_back({{"n", n}});
  return result;
}

constexpr const char* scale = R"(kernel scale(n: i64 in [0, 1000]) {
  in x: f32[n]
  out y: f32[n]
  for i in 0 .. n {
    y[i] = x[i] * 2.0f32
  }
})";

inline std::string scale_of(int64_t n) {
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

constexpr const char* scatter = R"(kernel scatter(n: i64 in [0, 1000]) {
  in idx: i64[n] in [0, 6]
  in x: i32[n, 8]
  inout y: i32[7, 8]
  for i in 0 .. n {
    let k: i64 = idx[i]
    for j in 0 .. 8 {
      y[k, j] += x[i, j]
    }
  }
})";

}  // namespace gradloom::ir
