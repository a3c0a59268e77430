#pragma once
// What of a schedule's trace may be varied: the numbers of its steps, by powers of two around what the rules say, and
// steps that are only for speed, which may be left out. By the trace's text alone: whether a variation is legal is
// found by replaying it.
#include <cstdint>
#include <string>
#include <vector>

namespace gradloom {

struct Knob {
  size_t line = 0, word = 0;  // of the trace, and of the line; word 0: the step, 1 as it stands, 0 left out
  int64_t value = 1, least = 0, most = 1;
  int rank = 0;  // lower ones are tried first

  bool whole_step() const { return word == 0; }
};
std::vector<Knob> knobs_of(const std::vector<std::string>& trace);  // by rank, then in the trace's order

using Settings = std::vector<int64_t>;  // a value a knob
Settings settings_of(const std::vector<Knob>& knobs);

std::vector<std::string> varied(const std::vector<std::string>& trace, const std::vector<Knob>& knobs,
                                const Settings& settings);
// What a variation changes, for a reader: "split q0 64 -> 32", "without streaming dX".
std::vector<std::string> variations(const std::vector<std::string>& trace, const std::vector<Knob>& knobs,
                                    const Settings& settings);

}  // namespace gradloom
