#include "runtime/tuning/search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

namespace gradloom {
namespace {

// Two of a start's settings are two schedules of one strategy.
struct Point {
  size_t start = 0;
  Settings settings;
  int number = 0;  // of the trials
};

class Search {
 public:
  Search(const std::vector<Scheduled>& starts, Trials& trials, int candidates,
         const std::function<void(int, std::string_view)>& told)
      : starts_(starts), trials_(trials), left_(candidates), told_(told) {}

  SearchResult run() {
    for (const Scheduled& start : starts_) knobs_.push_back(knobs_of(start.trace));
    best_ = {0, settings_of(knobs_[0])};
    seen_.push_back(scheduled(best_));
    for (size_t start = 1; start < starts_.size(); ++start) try_point({start, settings_of(knobs_[start])});
    while (goes_on() && around_best()) {
    }
    return result();
  }

 private:
  Scheduled scheduled(const Point& p) const {
    return {starts_[p.start].strategy, varied(starts_[p.start].trace, knobs_[p.start], p.settings)};
  }
  bool goes_on() { return left_ > 0 && trials_.time_left(); }

  // Whether it is the best so far, by more than noise.
  bool try_point(Point point) {
    const Scheduled kernel = scheduled(point);
    if (!goes_on() || std::find(seen_.begin(), seen_.end(), kernel) != seen_.end()) return false;
    seen_.push_back(kernel);
    const Trials::Made made = trials_.make(kernel);
    if (made != Trials::Made::ready) {
      ++dropped_;
      return false;
    }
    point.number = ++measured_;
    --left_;
    const Trials::Times times = trials_.race(best_.number, point.number, false);
    const bool better = times.b_ms * better_from < times.a_ms;
    if (told_)
      told_(measured_, fmt::format("{:.4g} ms, the best so far {:.4g} ms: {}", times.b_ms, times.a_ms,
                                   fmt::join(changes(point), "; ")));
    if (better) best_ = point;
    return better;
  }

  // One pass over the knobs of the best's strategy; whether it found a better one.
  bool around_best() {
    const size_t knobs = knobs_[best_.start].size();
    bool better = false;
    for (size_t k = 0; k < knobs && goes_on(); ++k) better |= turn(k);
    return better;
  }

  bool turn(size_t k) {
    const Knob& knob = knobs_[best_.start][k];
    if (knob.whole_step()) {
      Point next = best_;
      next.settings[k] = 1 - next.settings[k];
      return try_point(next);
    }
    for (const bool up : {false, true}) {
      bool better = false;
      while (const std::optional<Point> next = step(k, up)) {
        if (!try_point(*next)) break;
        better = true;
      }
      if (better) return true;
    }
    return false;
  }

  std::optional<Point> step(size_t k, bool up) const {
    const Knob& knob = knobs_[best_.start][k];
    Point next = best_;
    int64_t& value = next.settings[k];
    if (up ? value > knob.most / 2 : value / 2 < knob.least) return std::nullopt;
    value = up ? value * 2 : value / 2;
    return next;
  }

  std::vector<std::string> changes(const Point& p) const {
    std::vector<std::string> all = variations(starts_[p.start].trace, knobs_[p.start], p.settings);
    if (p.start != 0)
      all.insert(all.begin(), fmt::format("strategy {} -> {}", starts_[0].strategy, starts_[p.start].strategy));
    if (all.empty()) all.emplace_back("the rules' choice");
    return all;
  }

  SearchResult result() {
    SearchResult found{.best = starts_[0], .measured = measured_, .dropped = dropped_};
    const Trials::Times times = trials_.race(0, best_.number, true);
    found.rules_ms = found.ms = times.a_ms;
    if (best_.number == 0 || times.b_ms * adopted_from >= times.a_ms) return found;
    found.best = scheduled(best_);
    found.ms = times.b_ms;
    found.adopted = true;
    found.changes = changes(best_);
    return found;
  }

  const std::vector<Scheduled>& starts_;
  Trials& trials_;
  int left_, measured_ = 0, dropped_ = 0;
  const std::function<void(int, std::string_view)>& told_;
  std::vector<std::vector<Knob>> knobs_;  // of each start
  std::vector<Scheduled> seen_;
  Point best_;
};

}  // namespace

SearchResult search(const std::vector<Scheduled>& starts, Trials& trials, int candidates,
                    const std::function<void(int candidate, std::string_view what)>& told) {
  return Search(starts, trials, candidates, told).run();
}

}  // namespace gradloom
