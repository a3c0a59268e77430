#pragma once
// Whether a nest's gradient is the transpose of its tangent: <J v, w> == <v, J^T w>, in f64 by the interpreter.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

#include "gradloom/differentiate.h"
#include "tests/support/schedule_support.h"
#include "tests/support/tangent.h"

namespace gradloom::ir::testing {

// Named arrays, in words of 8 bytes, each of its buffer's elements.
class Arrays {
 public:
  explicit Arrays(uint32_t seed) : engine_(seed) {}

  // Runs a kernel on the arrays of its buffers' names; those that are not there yet are drawn. False: a check failed.
  bool run(const Kernel& kernel, const ScalarValues& scalars) { return run_checked(kernel, scalars).ok(); }
  Outcome run_checked(const Kernel& kernel, const ScalarValues& scalars) {
    std::vector<void*> pointers;
    for (const Buffer& b : kernel.buffers) pointers.push_back(array(b, scalars).data());
    std::vector<int64_t> slots;
    for (const Scalar& s : kernel.scalars) slots.push_back(scalars.at(s.var.name));
    return interpret(kernel, pointers, slots);
  }
  // The buffers of a kernel, as bytes.
  std::vector<std::vector<uint8_t>> memory(const Kernel& kernel, const ScalarValues& scalars) {
    std::vector<std::vector<uint8_t>> buffers;
    for (const Buffer& b : kernel.buffers) {
      const std::vector<uint64_t>& words = array(b, scalars);
      const auto* bytes = reinterpret_cast<const uint8_t*>(words.data());
      buffers.emplace_back(bytes, bytes + words.size() * sizeof(uint64_t));
    }
    return buffers;
  }
  bool operator==(const Arrays& other) const { return arrays_ == other.arrays_; }
  // Of arrays of f64.
  double dot(const std::string& a, const std::string& b) {
    double sum = 0;
    for (size_t i = 0; i < arrays_.at(a).size(); ++i) sum += value(a, i) * value(b, i);
    return sum;
  }
  double size(const std::string& a, const std::string& b) {
    double sum = 0;
    for (size_t i = 0; i < arrays_.at(a).size(); ++i) sum += std::abs(value(a, i) * value(b, i));
    return sum;
  }
  int64_t whole(const std::string& name, size_t i) const { return static_cast<int64_t>(arrays_.at(name)[i]); }
  // y += factor * x, of arrays of f64.
  void add(const std::string& y, double factor, const std::string& x) {
    for (size_t i = 0; i < arrays_.at(y).size(); ++i)
      arrays_.at(y)[i] = std::bit_cast<uint64_t>(value(y, i) + factor * value(x, i));
  }

 private:
  double value(const std::string& name, size_t i) const { return std::bit_cast<double>(arrays_.at(name)[i]); }

  std::vector<uint64_t>& array(const Buffer& b, const ScalarValues& scalars) {
    const auto [slot, fresh] = arrays_.try_emplace(b->name);
    if (!fresh) return slot->second;
    int64_t count = 1;
    for (const Expr& d : b->dims) count *= value_of(d, scalars);
    const size_t size = static_cast<size_t>(size_of(b->dtype));
    slot->second.resize((static_cast<size_t>(count) * size + 7) / 8);
    std::uniform_real_distribution<double> real(0.25, 2);
    const int64_t low = b->facts.min ? value_of(b->facts.min, scalars) : 0,
                  high = b->facts.max ? value_of(b->facts.max, scalars) : 2;
    std::vector<int64_t> order;  // of injective values
    for (int64_t v = low; v <= high && b->facts.injective; ++v) order.push_back(v);
    std::shuffle(order.begin(), order.end(), engine_);
    std::vector<int64_t> sorted;
    for (int64_t i = 0; b->facts.nondecreasing && i < count; ++i)
      sorted.push_back(low + static_cast<int64_t>(engine_() % static_cast<uint64_t>(high - low + 1)));
    std::sort(sorted.begin(), sorted.end());
    for (int64_t i = 0; b->role != Role::out && i < count; ++i) {
      const bool negative = engine_() % 3 == 0;
      const double number = negative ? -real(engine_) : real(engine_);
      const int64_t whole = !sorted.empty() ? sorted[static_cast<size_t>(i)]
                            : !order.empty()
                                ? order[static_cast<size_t>(i) % order.size()]
                                : low + static_cast<int64_t>(engine_() % static_cast<uint64_t>(high - low + 1));
      const uint64_t bits = is_float(b->dtype) ? bits_from_double(b->dtype, number) : bits_from_int(b->dtype, whole);
      std::memcpy(reinterpret_cast<char*>(slot->second.data()) + static_cast<size_t>(i) * size, &bits, size);
    }
    return slot->second;
  }

  std::mt19937 engine_;
  std::map<std::string, std::vector<uint64_t>> arrays_;
};

// Whether two kernels of the same parameters give the same bits.
inline bool same_bits(const Kernel& a, const Kernel& b, const ScalarValues& scalars, uint32_t seed) {
  Arrays first(seed), second(seed);
  return first.run(a, scalars) == second.run(b, scalars) && first == second;
}

// Empty when they agree (values are moderate: what is below 1e-12 is the rounding of saturated functions), or a check
// of the nest fails; else what differs.
inline std::string gradient_difference(const Kernel& forward, const Derivation& how, const ScalarValues& scalars,
                                       uint32_t seed) {
  const Kernel wide = widened(forward), gradient = differentiate(wide, how),
               tangent = Tangent({how.wanted.begin(), how.wanted.end()})(wide);
  Arrays arrays(seed);
  const Outcome forwards = arrays.run_checked(tangent, scalars), backwards = arrays.run_checked(gradient, scalars);
  if (forwards.bad_position != backwards.bad_position)
    return "bad position " + std::to_string(forwards.bad_position) + ", the gradient's is " +
           std::to_string(backwards.bad_position) + "\n" + print(gradient);
  if (!forwards.ok()) return "";
  double left = 0, right = 0, size = 0;
  const auto seeded = [&](const Buffer& b) {
    return !how.seeded || std::find(how.seeded->begin(), how.seeded->end(), b->name) != how.seeded->end();
  };
  for (const Buffer& b : wide.buffers)
    if (b->role == Role::out && is_float(b->dtype) && seeded(b))
      left += arrays.dot("t_" + b->name, "d_" + b->name), size += arrays.size("t_" + b->name, "d_" + b->name);
  for (const std::string& x : how.wanted)
    right += arrays.dot("t_" + x, "d_" + x), size += arrays.size("t_" + x, "d_" + x);
  if (std::abs(left - right) <= 1e-9 * size + 1e-12 || (std::isnan(left) && std::isnan(right))) return "";
  char numbers[160];
  std::snprintf(numbers, sizeof numbers, "<J v, w> is %.17g, <v, J^T w> %.17g, of parts of %.17g\n", left, right, size);
  return numbers + print(gradient) + print(tangent);
}

// The same by a third opinion, which has no rules at all: the central difference of the outputs along t_x, at points
// away from kinks. Says nothing where the outputs are not finite.
inline std::string quotient_difference(const Kernel& forward, const Derivation& how, const ScalarValues& scalars,
                                       uint32_t seed) {
  constexpr double step = 1e-6;
  const Kernel wide = widened(forward), gradient = differentiate(wide, how),
               tangent = Tangent({how.wanted.begin(), how.wanted.end()})(wide);
  Arrays arrays(seed);
  if (!arrays.run(tangent, scalars)) return "";  // draws t_x
  arrays.run(gradient, scalars);
  double right = 0, size = 0, outputs[2] = {};
  for (const std::string& x : how.wanted)
    right += arrays.dot("t_" + x, "d_" + x), size += arrays.size("t_" + x, "d_" + x);
  for (const bool up : {false, true}) {
    Arrays moved = arrays;
    for (const std::string& x : how.wanted) moved.add(x, up ? step : -step, "t_" + x);
    moved.run(wide, scalars);
    for (const Buffer& b : wide.buffers)
      if (b->role == Role::out && is_float(b->dtype) &&
          (!how.seeded || std::find(how.seeded->begin(), how.seeded->end(), b->name) != how.seeded->end()))
        outputs[up] += moved.dot(b->name, "d_" + b->name), size += 1e-4 * moved.size(b->name, "d_" + b->name);
  }
  const double left = (outputs[1] - outputs[0]) / (2 * step);
  if (std::abs(left - right) <= 1e-5 * size + 1e-9 || !std::isfinite(left)) return "";
  char numbers[160];
  std::snprintf(numbers, sizeof numbers, "the central difference is %.17g, the gradient's %.17g, of parts of %.17g\n",
                left, right, size);
  return numbers + print(gradient);
}

}  // namespace gradloom::ir::testing
