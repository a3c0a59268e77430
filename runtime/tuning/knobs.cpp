#include "runtime/tuning/knobs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>

namespace gradloom {
namespace {

// A number of a step: its position among the words, its range, its rank.
struct Number {
  size_t word;
  int64_t least, most;
  int rank;
};
struct Step {
  std::string_view name;
  std::array<Number, 7> numbers;  // those after the last have word 0
  int omitted_rank;               // of leaving it out; -1: later steps may need it
};

constexpr int64_t most_factor = int64_t{1} << 20;
constexpr size_t copies_word = 3;  // of "vectorize", where 1 is not written

constexpr Step steps[] = {
    {"split", {{{2, 1, most_factor, 0}}}, -1},
    {"split_guarded", {{{2, 1, most_factor, 0}}}, -1},
    {"tile_product",
     {{{2, 1, 32, 1},
       {3, 1, 16, 1},
       {5, 1, 16, 5},
       {6, 1, most_factor, 1},
       {7, 1, most_factor, 1},
       {8, 1, most_factor, 1},
       {9, 1, most_factor, 5}}},
     -1},
    {"streaming", {}, 2},
    {"vectorize", {{{2, 2, 64, 2}, {copies_word, 1, 8, 4}}}, -1},
    {"prefetch", {{{3, 1, 4096, 3}}}, 3},
    {"unroll", {}, 5},
    {"parallel", {}, 6},
};

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  while (!line.empty()) {
    const size_t end = std::min(line.find(' '), line.size());
    if (end > 0) words.emplace_back(line.substr(0, end));
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return words;
}

// In full: copies that are not written are 1.
std::vector<std::string> full_words_of(std::string_view line) {
  std::vector<std::string> words = words_of(line);
  if (words.size() == copies_word && words[0] == "vectorize") words.emplace_back("1");
  return words;
}

std::string line_of(std::vector<std::string> words) {
  if (words.size() > copies_word && words[0] == "vectorize" && words[copies_word] == "1") words.pop_back();
  return fmt::format("{}", fmt::join(words, " "));
}

std::optional<int64_t> number(const std::string& word) {
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && stop == word.data() + word.size() ? std::optional(value) : std::nullopt;
}

}  // namespace

std::vector<Knob> knobs_of(const std::vector<std::string>& trace) {
  std::vector<Knob> knobs;
  for (size_t line = 0; line < trace.size(); ++line) {
    const std::vector<std::string> words = full_words_of(trace[line]);
    const auto* const step = std::find_if(std::begin(steps), std::end(steps),
                                          [&](const Step& s) { return !words.empty() && words[0] == s.name; });
    if (step == std::end(steps)) continue;
    for (const Number& n : step->numbers) {
      if (n.word == 0) break;
      const std::optional<int64_t> value = n.word < words.size() ? number(words[n.word]) : std::nullopt;
      // A number below its range, as a block of 0, is the step's word for "none".
      if (value && *value >= n.least)
        knobs.push_back({line, n.word, *value, n.least, std::max(n.most, *value), n.rank});
    }
    if (step->omitted_rank >= 0) knobs.push_back({.line = line, .rank = step->omitted_rank});
  }
  std::stable_sort(knobs.begin(), knobs.end(), [](const Knob& a, const Knob& b) { return a.rank < b.rank; });
  return knobs;
}

Settings settings_of(const std::vector<Knob>& knobs) {
  Settings settings;
  for (const Knob& knob : knobs) settings.push_back(knob.value);
  return settings;
}

std::vector<std::string> varied(const std::vector<std::string>& trace, const std::vector<Knob>& knobs,
                                const Settings& settings) {
  std::vector<std::vector<std::string>> lines;
  for (const std::string& line : trace) lines.push_back(full_words_of(line));
  std::vector<bool> omitted(trace.size());
  for (size_t k = 0; k < knobs.size(); ++k) {
    const Knob& knob = knobs[k];
    if (knob.whole_step())
      omitted[knob.line] = settings[k] == 0;
    else
      lines[knob.line][knob.word] = std::to_string(settings[k]);
  }
  std::vector<std::string> result;
  for (size_t line = 0; line < trace.size(); ++line)
    if (!omitted[line]) result.push_back(line_of(lines[line]));
  return result;
}

std::vector<std::string> variations(const std::vector<std::string>& trace, const std::vector<Knob>& knobs,
                                    const Settings& settings) {
  std::vector<std::string> result;
  for (size_t line = 0; line < trace.size(); ++line) {
    std::vector<std::string> before = full_words_of(trace[line]), after = before;
    bool omitted = false;
    for (size_t k = 0; k < knobs.size(); ++k) {
      if (knobs[k].line != line) continue;
      if (knobs[k].whole_step())
        omitted = settings[k] == 0;
      else
        after[knobs[k].word] = std::to_string(settings[k]);
    }
    if (omitted) result.push_back("without " + trace[line]);
    if (omitted || after == before) continue;
    // Of the new line, the words from the first new one on.
    const auto first = std::mismatch(before.begin(), before.end(), after.begin()).second;
    result.push_back(fmt::format("{} -> {}", fmt::join(before, " "), fmt::join(first, after.end(), " ")));
  }
  return result;
}

}  // namespace gradloom
