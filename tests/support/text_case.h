#pragma once
// The kernels of tests/text with data for them: nests of the forms that steps are about, as random ones seldom are.
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "gradloom/text.h"
#include "ir/analysis/verify.h"
#include "ir/rewrite.h"
#include "tests/support/kernel_run.h"
#include "tests/support/loop_file.h"
#include "tests/support/random_ir.h"
#include "tests/support/schedule_support.h"

namespace gradloom::ir::testing {

// A bound of the work that the interpreter has: the elements of all buffers, and the constant extents of loops.
inline bool is_small(const Kernel& kernel, const ScalarValues& scalars) {
  constexpr double most = 20'000;
  double elements = 0, iterations = 0;
  for (const Buffer& b : kernel.buffers) {
    double count = 1;
    for (const Expr& d : b->dims) count *= static_cast<double>(value_of(d, scalars));
    elements += count;
  }
  walk(kernel.body, [&](const Stmt& s) {
    if (const For* loop = s.as<For>()) iterations += static_cast<double>(as_int(loop->extent).value_or(8));
    if (const Reduce* sum = s.as<Reduce>())
      for (const Reduce::Range& range : sum->ranges)
        iterations += static_cast<double>(as_int(range.extent).value_or(8));
  });
  return elements <= most && iterations <= most / 20;
}

// Facts that no random data keep, and ordered writes outside lanes, which a GPU has no form for.
inline bool is_special(const Kernel& kernel) {
  const auto is_ordered = [](const Stmt& s) {
    return (s.as<Store>() && s.as<Store>()->ordered) || (s.as<Accumulate>() && s.as<Accumulate>()->ordered);
  };
  return any_of(kernel.body, is_ordered) ||
         std::any_of(kernel.buffers.begin(), kernel.buffers.end(),
                     [](const Buffer& b) { return b->facts.injective || b->facts.exclusive; });
}

// The kernel with a digit in each name, as those of random kernels have; itself where a name is also a word of the
// language.
inline Kernel with_numbered_names(const Kernel& kernel) {
  std::set<std::string> names;
  for (const Buffer& b : buffers_of(kernel)) names.insert(b->name);
  for (const Scalar& s : kernel.scalars) names.insert(s.var.name);
  walk(kernel.body, [&](const Stmt& s) {
    if (const For* loop = s.as<For>()) names.insert(loop->var.name);
    if (const Let* let = s.as<Let>()) names.insert(let->var.name);
    if (const Reduce* sum = s.as<Reduce>()) {
      for (const Reduce::Range& range : sum->ranges) names.insert(range.var.name);
      for (const Reduce::Definition& let : sum->lets) names.insert(let.var.name);
    }
  });
  const std::string text = print(kernel);
  static const std::regex word("\"[^\"]*\"|[A-Za-z_0-9.#]+");
  std::string numbered;
  size_t end = 0;
  for (std::sregex_iterator m(text.begin(), text.end(), word), none; m != none; ++m) {
    numbered += text.substr(end, static_cast<size_t>(m->position()) - end) + m->str();
    if (names.contains(m->str())) numbered += "0";
    end = static_cast<size_t>(m->position() + m->length());
  }
  try {
    Kernel result = parse(numbered + text.substr(end));
    verify(result, Stage::authored);
    return result;
  } catch (const Error&) {
    return kernel;
  }
}

inline RandomCase with_data(const Kernel& kernel, const ScalarValues& scalars, uint32_t seed) {
  RandomCase result{.kernel = kernel};
  for (const std::vector<std::byte>& bytes : filled(kernel, scalars, seed).buffers) {
    const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
    result.buffers.emplace_back(data, data + bytes.size());
  }
  for (const Scalar& s : kernel.scalars) result.scalars.push_back(scalars.at(s.var.name));
  return result;
}
inline bool runs(RandomCase c) {
  try {
    return interpret(c.kernel, pointers(c.buffers), c.scalars), true;
  } catch (const Error&) {  // of a case about accesses out of bounds
    return false;
  }
}

inline const std::vector<Kernel>& text_kernels() {
  static const std::vector<Kernel> kernels = [] {
    std::vector<Kernel> all;
    std::set<std::string> seen;
    for (const LoopCase& c : loop_cases()) {
      if (!seen.insert(c.kernel).second) continue;
      try {
        Kernel kernel = parse(c.kernel);
        verify(kernel, Stage::authored);
        if (!is_special(kernel) && is_small(kernel, scalars_near(kernel, 12)))
          all.push_back(with_numbered_names(kernel));
      } catch (const Error&) {  // of a case about what is refused
      }
    }
    return all;
  }();
  return kernels;
}

inline RandomCase text_case(uint64_t seed) {
  const std::vector<Kernel>& kernels = text_kernels();
  for (;; ++seed) {
    const Kernel& kernel = kernels[seed % kernels.size()];
    RandomCase c = with_data(kernel, scalars_near(kernel, static_cast<int64_t>(seed / kernels.size() % 13)),
                             static_cast<uint32_t>(seed));
    if (runs(c)) return c;
  }
}

}  // namespace gradloom::ir::testing
