// Instruction sets: the levels by name, and host detection.
#include <fmt/format.h>
#include <llvm/ADT/StringMap.h>
#include <llvm/TargetParser/Host.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <thread>

#include "codegen/llvm/emitter.h"
#include "codegen/llvm/llvm_handlers.h"
#include "support/lasting.h"

namespace gradloom::codegen {
namespace {

// What each level adds to the previous one. A level's feature list is complete, so that a lower level on a better
// machine masks the remaining features.
struct Level {
  const char* name;
  const char* adds;
};
constexpr std::array<Level, 3> levels{{{"x86-64-v2", "+cx16,+sahf,+popcnt,+sse3,+ssse3,+sse4.1,+sse4.2"},
                                       {"x86-64-v3", "+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+xsave"},
                                       {"x86-64-v4", "+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"}}};

std::string level_features(size_t level) {
  std::string features = levels[0].adds;
  for (size_t i = 1; i <= level; ++i) features += std::string(",") + levels[i].adds;
  return features;
}

int64_t cache_bytes(int name, int64_t fallback) {
  constexpr int64_t most = int64_t{1} << 40;  // schedules multiply it
  const int64_t bytes = sysconf(name);
  return bytes > 0 ? std::min(bytes, most) : fallback;
}

// What cores share before memory: of one such cache, where the system lists them (sysconf may give the sum of several).
int64_t last_level_bytes(const ir::Target& target) {
  int64_t bytes = 0;
  for (int i = 0; i < 8; ++i) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", i);
    int level = 0;
    int64_t kib = 0;
    if (!(std::ifstream(folder + "level") >> level) || !(std::ifstream(folder + "size") >> kib)) break;
    if (level >= 3) bytes = kib << 10;
  }
  if (bytes <= 0) bytes = cache_bytes(_SC_LEVEL3_CACHE_SIZE, target.last_level_bytes);
  return std::clamp(bytes, target.l2_bytes, std::max(target.l2_bytes, int64_t{1} << 40));
}

ir::Target target_of(const Isa& isa) {
  ir::Target target;
  target.name = "generic";
  for (size_t i = 0; i < levels.size(); ++i) {
    bool all = true;
    for (llvm::StringRef rest = levels[i].adds; !rest.empty();) {
      const auto [feature, tail] = rest.split(',');
      all &= has_feature(isa, feature.drop_front().str());
      rest = tail;
    }
    if (!all) break;
    target.name = levels[i].name;
  }
  const bool avx512 = target.name == "x86-64-v4";
  target.vector_bytes = avx512 ? 64 : has_feature(isa, "avx2") ? 32 : 16;
  target.vector_registers = avx512 ? 32 : 16;
  target.hardware_scatter = avx512;
  target.fast_scatter = avx512 && !isa.cpu.starts_with("znver");  // microcoded on Zen
  target.l1_bytes = cache_bytes(_SC_LEVEL1_DCACHE_SIZE, target.l1_bytes);
  target.l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE, target.l2_bytes);
  target.last_level_bytes = last_level_bytes(target);
  target.threads = std::max(1u, std::thread::hardware_concurrency());
  return target;
}

}  // namespace

bool has_feature(const Isa& isa, std::string_view feature) {
  const std::string& all = isa.features;
  for (size_t at = all.find(feature); at != std::string::npos; at = all.find(feature, at + 1)) {
    const size_t end = at + feature.size();
    if (at > 0 && all[at - 1] == '+' && (end == all.size() || all[end] == ',')) return true;
  }
  return false;
}

Machine::Machine(const Isa& isa)
    : vector_bytes(isa.target.vector_bytes),
      x86(has_feature(isa, "sse4.1")),
      fma(has_feature(isa, "fma")),
      f16c(has_feature(isa, "f16c")),
      masks(has_feature(isa, "avx2")),
      small_masks(isa.target.hardware_scatter),
      scatter(isa.target.hardware_scatter) {}

Isa host_isa() {
  static constinit Lasting<const Isa> host;
  return host.get([] {
    const LlvmHandlers handlers;
    Isa isa;
    isa.name = "host";
    isa.cpu = llvm::sys::getHostCPUName().str();
    std::vector<std::string> features;  // sorted: the text is part of cache keys
    for (const auto& feature : llvm::sys::getHostCPUFeatures())
      features.push_back((feature.second ? "+" : "-") + feature.first().str());
    std::sort(features.begin(), features.end());
    for (const std::string& feature : features) isa.features += (isa.features.empty() ? "" : ",") + feature;
    isa.target = target_of(isa);
    return isa;
  });
}

Isa isa_named(const std::string& name) {
  if (name == "host") return host_isa();
  for (size_t i = 0; i < levels.size(); ++i) {
    if (name != levels[i].name) continue;
    Isa isa{name, name, level_features(i), {}};
    isa.target = target_of(isa);
    return isa;
  }
  throw Error(ErrorCode::invalid_argument,
              "isa: got '" + name + "', allowed are host, x86-64-v2, x86-64-v3 and x86-64-v4");
}

Isa isa_of(const std::string& cpu, const std::string& features) {
  Isa isa{"features", cpu, features, {}};
  isa.target = target_of(isa);
  return isa;
}

bool runs_here(const Isa& isa) {
  const Isa here = host_isa();
  for (llvm::StringRef rest = isa.features; !rest.empty();) {
    const auto [feature, tail] = rest.split(',');
    if (feature.starts_with("+") && !has_feature(here, feature.drop_front().str())) return false;
    rest = tail;
  }
  return true;
}

}  // namespace gradloom::codegen
