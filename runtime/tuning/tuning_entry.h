#pragma once
// The text of the tuning log: entries of a few lines, which can be read, concatenated, cut out and edited by hand.
//
//   gradloom tuning 1
//   op: GatherElementsGrad
//   call: <all that its kernel depends on, but the strategy>
//   machine: <the schedules' view of it, and its features>
//   rules: pipelined, 7.91 ms
//   best: strip, 5.43 ms
//   nest: <a hash of the strategy's authored nest>
//     split q0 32
//     ...
//   end
//
// Where nothing better was found than what the rules choose, "best" is "rules" and there are neither nest nor steps.
// Between entries there may be blank lines and comments, which begin with '#'.
#include <string>
#include <string_view>
#include <vector>

namespace gradloom {

inline constexpr int tuning_format = 1;

struct TuningEntry {
  std::string op, call, machine;  // the key
  std::string rules, best;        // strategies; `best` empty: the rules' choice
  double rules_ms = 0, best_ms = 0;
  std::string nest;  // 32 hexadecimal digits
  std::vector<std::string> trace;

  bool adopted() const { return !best.empty(); }
  bool same_key(const TuningEntry& other) const {
    return op == other.op && call == other.call && machine == other.machine;
  }
};

std::string print(const TuningEntry& entry);

// A part of a log, in the order of its text: an entry, or, where `fault` says what is wrong, an entry that is none.
struct TuningPart {
  TuningEntry entry;
  std::string fault;          // empty: it is an entry
  int line = 1;               // its first, counted from 1
  size_t begin = 0, end = 0;  // of its text
};
// Everything but blank lines and comments. What is damaged ends where the next entry begins.
std::vector<TuningPart> parse_tuning_log(std::string_view text);

}  // namespace gradloom
