#pragma once
// Kernels stored in a disk cache: calls numbered by shape, and so by kernel; a folder for the cache; its files.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "gradloom/runtime.h"
#include "runtime/diagnose/log.h"
#include "tests/support/cache_folder.h"

namespace gradloom::testing {

// Calls kernel `k`, distinguished by its shape. True when the result is right.
inline std::vector<Tensor> inputs_of(int k) {
  const int64_t rows = 2 + k, count = 5;
  std::vector<int64_t> indices;
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    indices.push_back((i * 3 + k) % rows);
    for (int64_t c = 0; c < 3; ++c) values.push_back(static_cast<float>(i * 7 + c + k));
  }
  return {Tensor::of(DType::i64, {2}, std::vector<int64_t>{rows, 3}), Tensor::of(DType::i64, {count}, indices),
          Tensor::of(DType::f32, {count, 3}, values)};
}

inline bool right(Runtime& runtime, int k, const RunOptions& options = {}) {
  const std::vector<Tensor> inputs = inputs_of(k);
  const auto outputs = runtime.run("GatherGrad", inputs, {{"axis", int64_t{0}}}, options);
  if (!outputs) return false;
  std::vector<float> expected(static_cast<size_t>((2 + k) * 3));
  const auto* indices = static_cast<const int64_t*>(inputs[1].data());
  const auto* values = static_cast<const float*>(inputs[2].data());
  for (int i = 0; i < 5; ++i) {
    for (int c = 0; c < 3; ++c) expected[static_cast<size_t>(indices[i] * 3 + c)] += values[i * 3 + c];
  }
  return std::memcmp(outputs.value()[0].data(), expected.data(), expected.size() * sizeof(float)) == 0;
}

class WarmCacheTest : public ::testing::Test {
 protected:
  WarmCacheTest() {
    char name[] = "/tmp/gradloom_warm_XXXXXX";
    folder_ = mkdtemp(name);
    cache_ = folder_ + "/cache";
    set_log_sink([this](LogLevel level, std::string_view message) {
      if (level <= LogLevel::warn) log_ += std::string(message) + "\n";
    });
  }
  ~WarmCacheTest() override {
    set_log_sink({});
    fs::remove_all(folder_);
  }
  RuntimeOptions options() const { return {.threads = 1, .disk_cache = cache_}; }

  std::vector<std::string> files(const std::string& prefix) const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(cache_)) {
      if (entry.path().filename().string().starts_with(prefix)) found.push_back(entry.path());
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  std::string folder_, cache_, log_;
};

}  // namespace gradloom::testing
