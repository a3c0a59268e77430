#pragma once
// Measuring which of a call's kernels is the fastest. All of them give the same bits, so that a result may be adopted
// without tolerance (docs/tuning.md).
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace gradloom {

// A kernel of a call: a strategy of its op, and the steps of a schedule, as Schedule::replay reads them.
struct TunedKernel {
  std::string strategy = {};
  std::vector<std::string> trace = {};
  double ms = 0;  // a call's least time
};

struct TuneOptions {
  int candidates = 24;  // measured at most, in addition to the rules' choice
  double seconds = 60;  // no candidate is begun later
  // Called after every candidate with its number, from 1, and a line about it.
  std::function<void(int candidate, std::string_view what)> progress = {};
};

struct TuneReport {
  std::string op = {};
  TunedKernel rules = {};                 // what the op's rules choose
  TunedKernel best = {};                  // the fastest, where it is over 5 % faster; else `rules` again
  bool adopted = false;                   // the best is another kernel than the rules'
  std::vector<std::string> changes = {};  // from the rules' kernel to the best: "split q0 64 -> 32"
  int measured = 0;                       // candidates
  int dropped = 0;  // candidates that cannot be scheduled so, or are the same code as an earlier one
  // Candidates whose outputs had other bits than those of the rules' kernel: defects of gradloom's, never adopted.
  std::vector<std::string> wrong = {};
  std::string log = {};  // the file that has the result; empty: there is none
};

}  // namespace gradloom
