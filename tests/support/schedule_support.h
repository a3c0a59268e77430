#pragma once
// Runs two kernels with the same parameters on the same memory, through the interpreter, and compares every byte.
// Invariants after schedule steps, and the messages of refusals.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <vector>

#include "gradloom/schedule.h"
#include "gradloom/text.h"
#include "ir/analysis/verify.h"
#include "ir/interpret/interpret.h"
#include "ir/passes/passes.h"
#include "ir/rewrite.h"
#include "ir/scalar_math.h"

namespace gradloom::ir {

using ScalarValues = std::map<std::string, int64_t>;

inline int64_t value_of(const Expr& e, const ScalarValues& scalars) {
  if (auto n = as_int(e)) return *n;
  if (const Var* v = e.as<Var>()) return scalars.at(v->name);
  const Binary* b = e.as<Binary>();
  return static_cast<int64_t>(eval_binary(b->op, DType::i64, static_cast<uint64_t>(value_of(b->a, scalars)),
                                          static_cast<uint64_t>(value_of(b->b, scalars))));
}

// Scalars of about `size`, within their ranges.
inline ScalarValues scalars_near(const Kernel& kernel, int64_t size) {
  ScalarValues values;
  for (const Scalar& s : kernel.scalars)
    values[s.var.name] =
        std::clamp(size, s.min ? value_of(s.min, values) : size, s.max ? value_of(s.max, values) : size);
  return values;
}

struct Run {
  std::vector<std::vector<std::byte>> buffers;
  int64_t bad_position = 0;
};

// Inputs are small numbers that depend on the position, some of them -0, integers within the buffer's facts and in
// order where those say so; outputs are initialised with a pattern.
inline Run filled(const Kernel& kernel, const ScalarValues& scalars, uint32_t seed) {
  Run result;
  for (const Buffer& b : kernel.buffers) {
    int64_t count = 1;
    for (const Expr& d : b->dims) count *= value_of(d, scalars);
    const size_t size = static_cast<size_t>(size_of(b->dtype));
    std::vector<std::byte> data(static_cast<size_t>(count) * size, std::byte{0x5a});
    const int64_t low = b->facts.min ? value_of(b->facts.min, scalars) : -3,
                  high = b->facts.max ? value_of(b->facts.max, scalars) : 9;
    const int64_t row = b->dims.empty() ? 1 : value_of(b->dims.back(), scalars);
    int64_t before = 0;
    for (int64_t i = 0; b->role != Role::out && i < count; ++i) {
      seed = seed * 1664525u + 1013904223u;
      int64_t whole = low + static_cast<int64_t>((seed >> 8) % static_cast<uint32_t>(high - low + 1));
      if (b->facts.nondecreasing && i % row != 0) whole = std::max(whole, before);
      before = whole;
      const double real = (seed >> 16) % 16 == 0 && low <= 0 && high >= 0 ? -0.0 : whole + (seed >> 12) % 1000 * 0.001;
      const uint64_t bits = is_float(b->dtype) ? bits_from_double(b->dtype, real) : bits_from_int(b->dtype, whole);
      std::memcpy(data.data() + static_cast<size_t>(i) * size, &bits, size);
    }
    result.buffers.push_back(std::move(data));
  }
  return result;
}

inline Run run(const Kernel& kernel, const ScalarValues& scalars, uint32_t seed, const InterpretOptions& options = {}) {
  Run result = filled(kernel, scalars, seed);
  std::vector<void*> pointers;
  for (auto& b : result.buffers) pointers.push_back(b.data());
  std::vector<int64_t> slots;
  for (const Scalar& s : kernel.scalars) slots.push_back(scalars.at(s.var.name));
  result.bad_position = interpret(kernel, pointers, slots, options).bad_position;
  return result;
}

// `lowered`: `after` is the result of lower(), so that a GPU's threads synchronise at barriers only.
inline void expect_same(const Kernel& before, const Kernel& after, const ScalarValues& scalars = {},
                        bool lowered = false) {
  for (uint32_t seed : {1u, 77u}) {
    const Run a = run(before, scalars, seed), b = run(after, scalars, seed, {.explicit_barriers = lowered});
    EXPECT_EQ(a.bad_position, b.bad_position) << print(after);
    for (size_t i = 0; i < a.buffers.size(); ++i)
      EXPECT_TRUE(a.bad_position != std::numeric_limits<int64_t>::max() || a.buffers[i] == b.buffers[i])
          << "buffer " << before.buffers[i]->name << " differs\n"
          << print(before) << print(after);
  }
}

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

// The reason that a step is refused; any other error propagates.
template <class Step>
std::string refusal(Step&& step) {
  try {
    step();
  } catch (const ScheduleRefusal& refused) {
    EXPECT_EQ(refused.code(), ErrorCode::invalid_argument);
    return refused.what();
  }
  return "not refused";
}

// The message for an invalid argument of a step, which is no refusal.
template <class Step>
std::string wrong(Step&& step) {
  try {
    step();
  } catch (const ScheduleRefusal& refused) {
    return std::string("refused: ") + refused.what();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "no error";
}

}  // namespace gradloom::ir
