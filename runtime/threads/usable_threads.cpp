#include "runtime/threads/usable_threads.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <vector>

namespace gradloom {
namespace {

constexpr int64_t unlimited = std::numeric_limits<int64_t>::max();

int64_t affinity() {
  // The kernel's mask may be larger than cpu_set_t.
  for (int cpus = CPU_SETSIZE; cpus <= (1 << 16); cpus *= 2) {
    std::vector<cpu_set_t> mask(cpus / CPU_SETSIZE);
    const size_t bytes = mask.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, mask.data()) == 0) return CPU_COUNT_S(bytes, mask.data());
  }
  return std::max(1u, std::thread::hardware_concurrency());
}

int64_t cpus(int64_t quota, int64_t period) { return quota <= 0 || period <= 0 ? unlimited : (quota - 1) / period + 1; }

int64_t granted_v2(const std::filesystem::path& group) {
  int64_t quota = 0, period = 0;  // "max 100000" leaves both 0
  std::ifstream(group / "cpu.max") >> quota >> period;
  return cpus(quota, period);
}

int64_t granted_v1(const std::filesystem::path& group) {
  int64_t quota = 0, period = 0;  // -1: no limit
  std::ifstream(group / "cpu.cfs_quota_us") >> quota;
  std::ifstream(group / "cpu.cfs_period_us") >> period;
  return cpus(quota, period);
}

// The minimum over a group and its ancestors. Inside a container the path may be the host's, of which only the root is
// mounted: that root is then the group itself.
int64_t least(const std::filesystem::path& mount, std::filesystem::path group,
              int64_t (*granted)(const std::filesystem::path&)) {
  int64_t limit = granted(mount);
  for (; !group.empty(); group = group.parent_path()) limit = std::min(limit, granted(mount / group));
  return limit;
}

// Lines of proc/self/cgroup: "0::/path" for v2, "4:cpu,cpuacct:/path" for a v1 hierarchy.
int64_t cgroup_quota(const std::filesystem::path& root) {
  const std::filesystem::path mounts = root / "sys/fs/cgroup";
  int64_t limit = unlimited;
  std::ifstream lines(root / "proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::filesystem::path group = std::filesystem::path(line.substr(second + 1)).relative_path();
    if (controllers == ",,") limit = std::min(limit, least(mounts, group, granted_v2));
    if (controllers.find(",cpu,") != std::string::npos)
      limit = std::min(limit, least(mounts / "cpu", group, granted_v1));
  }
  return limit;
}

}  // namespace

int usable_threads(const std::filesystem::path& root) {
  return static_cast<int>(std::max<int64_t>(1, std::min(affinity(), cgroup_quota(root))));
}

}  // namespace gradloom
