#pragma once
// The search for the fastest of a call's kernels: every strategy with its own schedule first, then variations of the
// best one's schedule, one knob at a time. It decides; building and timing are the caller's.
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/tuning/knobs.h"

namespace gradloom {

inline constexpr double adopted_from = 1.05;  // times as fast as the rules' choice
inline constexpr double better_from = 1.03;   // than the best so far, to search on from there

struct Scheduled {
  std::string strategy;
  std::vector<std::string> trace;
  bool operator==(const Scheduled&) const = default;
};

// The kernels under trial, by numbers that are given in order: 0 is the rules' choice, which is there from the start.
class Trials {
 public:
  enum class Made : uint8_t {
    ready,
    refused,   // no such kernel: it cannot be scheduled so
    repeated,  // the same code as an earlier one
    wrong,     // its outputs have other bits than the rules'
  };
  virtual Made make(const Scheduled& kernel) = 0;  // the next number's, where ready
  struct Times {
    double a_ms, b_ms;  // the least of each
  };
  // Calls both in turns; `thorough`: more of them.
  virtual Times race(int a, int b, bool thorough) = 0;
  virtual bool time_left() = 0;

 protected:
  ~Trials() = default;
};

struct SearchResult {
  Scheduled best;
  double rules_ms = 0, ms = 0;
  bool adopted = false;
  std::vector<std::string> changes;  // from the rules' choice
  int measured = 0, dropped = 0;
};

// `starts`: each strategy's own schedule, the rules' choice first. `told`: after every candidate, if given.
SearchResult search(const std::vector<Scheduled>& starts, Trials& trials, int candidates,
                    const std::function<void(int candidate, std::string_view what)>& told = {});

}  // namespace gradloom
