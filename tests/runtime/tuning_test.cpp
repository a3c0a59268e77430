// Tuning without kernels: what of a trace is varied, which candidate is chosen for given times, and the log's text and
// file. llvm_tuning_test has the kernels.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <thread>

#include "runtime/tuning/search.h"
#include "runtime/tuning/tuning_log.h"
#include "tests/support/log_lines.h"

namespace gradloom {
namespace {

using Trace = std::vector<std::string>;

std::string text(const Trace& trace) { return fmt::format("{}", fmt::join(trace, "; ")); }

TEST(Knobs, AreTheNumbersOfStepsThatAreForSpeed) {
  const Trace trace{
      "split q 64",      "reorder q_i z",  "parallel q_o",      "vectorize q_i#0 16 4",
      "vectorize q_i 8", "vectorize lane", "prefetch k dY 8 1", "unroll w",
      "streaming dX",    "fuse a b",       "split n x",         "tile_product m 6 2 16 4 0 64 128 0 1 1 0 2"};
  std::vector<std::string> found;
  for (const Knob& k : knobs_of(trace)) found.push_back(fmt::format("{}.{}={}", k.line, k.word, k.value));
  // Splits, tiles, streaming and lanes, prefetches, copies, unrolling and minor numbers, threads.
  EXPECT_EQ(text(found),
            "0.2=64; 11.2=6; 11.3=2; 11.7=64; 11.8=128; 3.2=16; 4.2=8; 8.0=1; 6.3=8; 6.0=1; 3.3=4; 4.3=1; 7.0=1; "
            "11.5=4; 2.0=1");
}

TEST(Knobs, VaryTheTextAndSayWhat) {
  const Trace trace{"split q 64", "vectorize q_i 8", "vectorize z 16 2", "streaming dX"};
  const std::vector<Knob> knobs = knobs_of(trace);
  const auto with = [&](std::map<std::string, int64_t> values) {
    Settings settings = settings_of(knobs);
    for (size_t k = 0; k < knobs.size(); ++k)
      if (const auto to = values.find(fmt::format("{}.{}", knobs[k].line, knobs[k].word)); to != values.end())
        settings[k] = to->second;
    return settings;
  };
  EXPECT_EQ(varied(trace, knobs, settings_of(knobs)), trace);
  EXPECT_TRUE(variations(trace, knobs, settings_of(knobs)).empty());
  const Settings several = with({{"0.2", 32}, {"1.3", 4}, {"2.2", 8}, {"2.3", 1}, {"3.0", 0}});
  EXPECT_EQ(text(varied(trace, knobs, several)), "split q 32; vectorize q_i 8 4; vectorize z 8");
  EXPECT_EQ(text(variations(trace, knobs, several)),
            "split q 64 -> 32; vectorize q_i 8 1 -> 4; vectorize z 16 2 -> 8 1; without streaming dX");
}

// Kernels whose times are given by a function of their schedule.
class FakeTrials final : public Trials {
 public:
  using Time = std::function<double(const Scheduled&)>;
  FakeTrials(Scheduled rules, Time time) : time_(std::move(time)) { kernels_.push_back(std::move(rules)); }
  std::map<std::string, Made> outcomes;  // by step: of kernels that have it
  int64_t calls = 1 << 20;               // that are left
  std::vector<std::string> tried;

  Made make(const Scheduled& kernel) override {
    tried.push_back(kernel.strategy + ": " + text(kernel.trace));
    for (const std::string& step : kernel.trace)
      if (const auto found = outcomes.find(step); found != outcomes.end()) return found->second;
    kernels_.push_back(kernel);
    return Made::ready;
  }
  Times race(int a, int b, bool) override {
    return {time_(kernels_.at(static_cast<size_t>(a))), time_(kernels_.at(static_cast<size_t>(b)))};
  }
  bool time_left() override { return calls-- > 0; }

 private:
  std::vector<Scheduled> kernels_;
  Time time_;
};

int64_t width_of(const Scheduled& kernel) {
  int64_t width = 0;
  for (const std::string& step : kernel.trace)
    if (step.starts_with("split q ")) width = std::stoll(step.substr(8));
  return width;
}

const std::vector<Scheduled> starts{{"row", {"split q 64", "streaming y"}}, {"strip", {"split q 128"}}, {"slow", {}}};

TEST(Search, FollowsANumberDownhillFromTheBestStrategy) {
  FakeTrials trials(starts[0], [](const Scheduled& k) {
    if (k.strategy == "slow") return 100.0;
    const double distance = std::abs(std::log2(static_cast<double>(width_of(k))) - 4);  // best at 16
    return (k.strategy == "strip" ? 5.0 : 10.0) + distance;
  });
  const SearchResult found = search(starts, trials, 24);
  EXPECT_TRUE(found.adopted);
  EXPECT_EQ(found.best, (Scheduled{"strip", {"split q 16"}}));
  EXPECT_EQ(text(found.changes), "strategy row -> strip; split q 128 -> 16");
  EXPECT_DOUBLE_EQ(found.rules_ms, 12);
  EXPECT_DOUBLE_EQ(found.ms, 5);
  EXPECT_EQ(text(trials.tried),
            "strip: split q 128; slow: ; strip: split q 64; strip: split q 32; strip: split q 16; strip: split q 8");
}

TEST(Search, LeavesOutAStepThatDoesNotPay) {
  FakeTrials trials(starts[0],
                    [](const Scheduled& k) { return k.strategy == "row" && k.trace.size() == 1 ? 1.0 : 2.0; });
  const SearchResult found = search(starts, trials, 24);
  EXPECT_EQ(found.best, (Scheduled{"row", {"split q 64"}}));
  EXPECT_EQ(text(found.changes), "without streaming y");
}

TEST(Search, KeepsTheRulesUnlessMoreThanFivePercentAreGained) {
  for (const auto& [ms, adopted] : {std::pair(0.96, false), std::pair(0.95, true)}) {
    FakeTrials trials(starts[0], [ms = ms](const Scheduled& k) { return width_of(k) == 32 ? ms : 1.0; });
    const SearchResult found = search({starts[0]}, trials, 24);
    EXPECT_EQ(found.adopted, adopted) << ms;
    EXPECT_EQ(found.best == starts[0], !adopted);
    EXPECT_EQ(found.changes.empty(), !adopted);
  }
}

TEST(Search, AdoptsNoKernelOfOtherBitsAndDropsWhatIsRefused) {
  using Made = Trials::Made;
  for (const Made outcome : {Made::wrong, Made::refused, Made::repeated}) {
    FakeTrials trials(starts[0], [](const Scheduled& k) { return static_cast<double>(width_of(k)); });
    trials.outcomes["split q 16"] = outcome;
    const SearchResult found = search({starts[0]}, trials, 24);
    EXPECT_EQ(width_of(found.best), 32) << "not past what cannot be";
    EXPECT_GE(found.dropped, 1);
  }
}

TEST(Search, StopsAtItsBudgetAndAtItsTime) {
  const auto downhill = [](const Scheduled& k) { return static_cast<double>(width_of(k)); };
  FakeTrials few(starts[0], downhill), late(starts[0], downhill), all(starts[0], downhill);
  EXPECT_EQ(search({starts[0]}, few, 2).measured, 2);
  late.calls = 4;
  EXPECT_LE(search({starts[0]}, late, 24).measured, 4);
  std::vector<int> told;
  EXPECT_EQ(width_of(search({starts[0]}, all, 24, [&](int n, std::string_view) { told.push_back(n); }).best), 1);
  for (size_t n = 0; n < told.size(); ++n) EXPECT_EQ(told[n], static_cast<int>(n) + 1);
}

TuningEntry entry(const std::string& call, const std::string& machine, int width = 32) {
  return {.op = "GatherGrad",
          .call = call,
          .machine = machine,
          .rules = "row",
          .best = "strip",
          .rules_ms = 7.905,
          .best_ms = 5.25,
          .nest = std::string(32, 'a'),
          .trace = {fmt::format("split q {}", width), "streaming dX"}};
}
TuningEntry rules_entry(const std::string& call, const std::string& machine) {
  TuningEntry e = entry(call, machine);
  e.best.clear(), e.nest.clear(), e.trace.clear();
  e.best_ms = e.rules_ms;
  return e;
}

TEST(TuningEntry, IsTextThatReadsBack) {
  EXPECT_EQ(print(entry("dims 2 [4,5]", "here")), R"(gradloom tuning 1
op: GatherGrad
call: dims 2 [4,5]
machine: here
rules: row, 7.905 ms
best: strip, 5.25 ms
nest: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
  split q 32
  streaming dX
end
)");
  const std::string two = "# a comment\n" + print(entry("a", "here")) + "\n\n" + print(rules_entry("b", "here"));
  const std::vector<TuningPart> parts = parse_tuning_log(two);
  ASSERT_EQ(parts.size(), 2u);
  for (const TuningPart& part : parts) {
    EXPECT_EQ(part.fault, "");
    EXPECT_EQ(print(part.entry), two.substr(part.begin, part.end - part.begin));
  }
  EXPECT_EQ(parts[0].line, 2);
  EXPECT_FALSE(parts[1].entry.adopted());
}

TEST(TuningEntry, DamageEndsWhereTheNextEntryBegins) {
  const std::string good = print(entry("a", "here"));
  const std::vector<std::string> lines = [&] {
    std::vector<std::string> all;
    std::istringstream in(good);
    for (std::string line; std::getline(in, line);) all.push_back(line + "\n");
    return all;
  }();
  for (size_t lost = 0; lost < lines.size(); ++lost) {
    if (lines[lost].starts_with("  ")) continue;  // a step less is another schedule
    std::string torn;
    for (size_t i = 0; i < lines.size(); ++i)
      if (i != lost) torn += lines[i];
    const std::vector<TuningPart> parts = parse_tuning_log(torn + good);
    ASSERT_EQ(parts.size(), 2u) << torn;
    EXPECT_NE(parts[0].fault, "") << torn;
    EXPECT_EQ(parts[1].fault, "") << torn;
  }
  // Cut anywhere: a fault or nothing, and the next entry is read.
  for (size_t length = 0; length + 2 < good.size(); ++length) {
    const std::vector<TuningPart> parts = parse_tuning_log(good.substr(0, length) + "\n" + good);
    ASSERT_FALSE(parts.empty());
    EXPECT_EQ(parts.back().fault, "") << length;
    for (size_t i = 0; i + 1 < parts.size(); ++i) EXPECT_NE(parts[i].fault, "") << length;
  }
  const auto fault = [](std::string text, const std::string& from, const std::string& to) {
    text.replace(text.find(from), from.size(), to);
    return parse_tuning_log(text)[0].fault;
  };
  EXPECT_EQ(fault(good, "tuning 1", "tuning 2"), "it is of format 2, expected 1");
  EXPECT_EQ(fault(good, "strip, 5.25 ms", "strip"),
            "its \"best\" is \"strip\", expected a strategy and a time, as \"strip, 5.43 ms\"");
  EXPECT_EQ(fault(good, "machine", "mashine"), "it lacks its \"machine\"");
  EXPECT_EQ(fault(good, "gradloom", "gradlum"), "it does not begin with \"gradloom tuning\"");
}

class TuningFile : public ::testing::Test {
 protected:
  TuningFile() : folder_(std::filesystem::path(::testing::TempDir()) / fmt::format("tuning-{}", getpid())) {
    std::filesystem::remove_all(folder_);
  }
  ~TuningFile() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ / "deep" / "tuning.log"; }
  std::string read() const {
    std::ostringstream all;
    all << std::ifstream(path()).rdbuf();
    return all.str();
  }
  void write(const std::string& text) const {
    std::filesystem::create_directories(folder_ / "deep");
    std::ofstream(path()) << text;
  }
  const std::filesystem::path folder_;
};

TEST_F(TuningFile, ALaterEntryOfTheSameKeyWins) {
  write(print(entry("a", "here", 16)) + print(entry("a", "there", 8)) + print(entry("a", "here", 32)));
  TuningLog log(path(), "here");
  EXPECT_EQ(log.find("GatherGrad", "a")->trace[0], "split q 32");
  EXPECT_FALSE(log.find("GatherGrad", "b"));
  EXPECT_FALSE(log.find("SliceGrad", "a"));
  EXPECT_EQ(TuningLog(path(), "there").find("GatherGrad", "a")->trace[0], "split q 8");
}

TEST_F(TuningFile, IsAddedToAndKeepsAllElse) {
  const std::string damaged = "gradloom tuning 1\nop: x\n";
  TuningLog log(path(), "here");
  EXPECT_EQ(log.add(entry("a", "here", 16)), "");  // makes its folder
  EXPECT_EQ(read(), print(entry("a", "here", 16)));
  write("# mine\n" + print(entry("a", "here", 16)) + damaged + print(entry("a", "there")));
  EXPECT_EQ(log.add(entry("a", "here", 64)), "");
  EXPECT_EQ(log.add(rules_entry("b", "here")), "");
  EXPECT_EQ(read(), "# mine\n" + damaged + print(entry("a", "there")) + print(entry("a", "here", 64)) +
                        print(rules_entry("b", "here")));
  EXPECT_EQ(log.find("GatherGrad", "a")->trace[0], "split q 64");
  for (const auto& file : std::filesystem::directory_iterator(folder_ / "deep"))
    EXPECT_TRUE(file.path().filename() == "tuning.log" || file.path().filename() == "tuning.log.lock") << file.path();
}

TEST_F(TuningFile, ManyWritersLoseNothing) {
  std::vector<std::thread> writers;
  for (int w = 0; w < 4; ++w)
    writers.emplace_back([&, w] {
      TuningLog log(path(), "here");
      for (int i = 0; i < 8; ++i) EXPECT_EQ(log.add(entry(fmt::format("{} {}", w, i), "here")), "");
    });
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(parse_tuning_log(read()).size(), 32u);
}

TEST_F(TuningFile, WhatIsForeignOrDamagedIsOneLine) {
  write(print(entry("a", "there")) + "gradloom tuning 1\nop: x\n" + "gradloom tuning 7\n" + "what\n" +
        print(entry("a", "here")));
  testing::LogLines lines(LogLevel::info);
  TuningLog log(path(), "here");
  EXPECT_TRUE(log.find("GatherGrad", "a"));
  EXPECT_TRUE(log.find("GatherGrad", "a"));
  EXPECT_EQ(log.ignored(), 2);  // "what" is part of the one before it
  EXPECT_EQ(
      text(lines.take()),
      fmt::format("tuning log {0}: 2 entries are ignored; line 11: it lacks its \"call\"; tuning log {0}: 1 entry is "
                  "of other machines; tuning log {0}: 1 calls of this machine",
                  path()));
}

TEST_F(TuningFile, WhatIsNoFileIsOneLine) {
  std::filesystem::create_directories(path());
  testing::LogLines lines(LogLevel::warn);
  TuningLog log(path(), "here");
  EXPECT_FALSE(log.find("GatherGrad", "a"));
  EXPECT_EQ(text(lines.take()), fmt::format("tuning log {} is not read: it is no file", path()));
  EXPECT_NE(log.add(entry("a", "here")), "");
  EXPECT_TRUE(log.find("GatherGrad", "a")) << "in this process it holds all the same";
}

TEST_F(TuningFile, WithoutAPlaceItHoldsInThisProcess) {
  TuningLog log("", "here");
  EXPECT_EQ(log.add(entry("a", "here")), "");
  EXPECT_TRUE(log.find("GatherGrad", "a"));
}

}  // namespace
}  // namespace gradloom
