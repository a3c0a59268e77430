#pragma once
// The losses of a training: the displayed average, and a file of all of them.
#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace train_gru {

class Losses {
 public:
  // Writes the settings to `path` (empty: no file), a line "# name value" each; then each loss. Throws Error.
  Losses(const std::string& path, std::span<const std::pair<std::string, std::string>> settings);
  void add(double loss);
  double mean() const;  // of the last `averaged`
  void finish();        // throws Error when the file could not be written

  static constexpr size_t averaged = 50;

 private:
  std::string path_;
  std::ofstream file_;
  std::vector<double> all_;
};

}  // namespace train_gru
