#pragma once
// Pairwise coverage of a random test: each call has values of some factors; each feasible pair of values must occur.
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace gradloom {

struct FactorValue {
  int factor = 0, value = 0;
  auto operator<=>(const FactorValue&) const = default;
};
using FactorPair = std::pair<FactorValue, FactorValue>;  // the smaller first

class PairCoverage {
 public:
  // `names`: of each factor's values. Two different values of one factor are a pair where `several` declares that a
  // call may have both.
  PairCoverage(std::vector<std::vector<std::string>> names, const std::function<bool(int factor)>& several,
               const std::function<bool(FactorValue, FactorValue)>& possible)
      : names_(std::move(names)) {
    std::vector<FactorValue> all;
    for (int f = 0; f < static_cast<int>(names_.size()); ++f)
      for (int v = 0; v < static_cast<int>(names_[f].size()); ++v) all.push_back({f, v});
    for (size_t i = 0; i < all.size(); ++i)
      for (size_t j = i + 1; j < all.size(); ++j)
        if ((all[i].factor != all[j].factor || several(all[i].factor)) && possible(all[i], all[j]))
          counts_.emplace(FactorPair{all[i], all[j]}, 0), pairs_.push_back({all[i], all[j]});
  }

  const std::vector<FactorPair>& pairs() const { return pairs_; }
  // Sorted values, each once. False for a pair declared impossible, which is then in `unexpected`.
  void count(const std::vector<FactorValue>& values) {
    for (size_t i = 0; i < values.size(); ++i)
      for (size_t j = i + 1; j < values.size(); ++j) {
        const auto found = counts_.find({values[i], values[j]});
        if (found != counts_.end())
          ++found->second;
        else
          unexpected_.emplace(FactorPair{values[i], values[j]}, 1);
      }
  }
  void add(const PairCoverage& other) {
    for (const auto& [pair, n] : other.counts_) counts_[pair] += n;
    unexpected_.insert(other.unexpected_.begin(), other.unexpected_.end());
  }

  std::vector<std::string> missing() const {
    std::vector<std::string> lines;
    for (const auto& [pair, n] : counts_)
      if (n == 0) lines.push_back(name(pair));
    return lines;
  }
  std::vector<std::string> unexpected() const {
    std::vector<std::string> lines;
    for (const auto& [pair, n] : unexpected_) lines.push_back(name(pair));
    return lines;
  }

 private:
  std::string name(FactorValue v) const { return names_[v.factor][v.value]; }
  std::string name(const FactorPair& pair) const { return name(pair.first) + " with " + name(pair.second); }

  std::vector<std::vector<std::string>> names_;
  std::map<FactorPair, int64_t> counts_, unexpected_;
  std::vector<FactorPair> pairs_;
};

}  // namespace gradloom
