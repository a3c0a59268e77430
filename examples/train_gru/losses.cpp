#include "losses.h"

#include <fmt/format.h>
#include <gradloom/error.h>

#include <algorithm>
#include <numeric>

namespace train_gru {

Losses::Losses(const std::string& path, std::span<const std::pair<std::string, std::string>> settings) : path_(path) {
  if (path.empty()) return;
  file_.open(path);
  for (const auto& [name, value] : settings) file_ << fmt::format("# {} {}\n", name, value);
  finish();
}

void Losses::add(double loss) {
  all_.push_back(loss);
  if (file_.is_open()) file_ << fmt::format("{:.9f}\n", loss);
}

double Losses::mean() const {
  const size_t count = std::min(averaged, all_.size());
  return std::accumulate(all_.end() - static_cast<std::ptrdiff_t>(count), all_.end(), 0.0) / static_cast<double>(count);
}

void Losses::finish() {
  if (!path_.empty() && !file_.flush())
    throw gradloom::Error(gradloom::ErrorCode::invalid_argument, fmt::format("cannot write \"{}\"", path_));
}

}  // namespace train_gru
