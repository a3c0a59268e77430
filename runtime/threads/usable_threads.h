#pragma once
// How many threads this process may run at once.
#include <filesystem>

namespace gradloom {

// The CPUs in the calling thread's affinity mask or, if less, the CPU time granted by the process's control groups, in
// whole CPUs, rounded up: cpu.max of cgroup v2 and cpu.cfs_quota_us of v1, of its own group and its ancestors. At least
// 1. `root` is where proc/self/cgroup and sys/fs/cgroup are looked for; missing or invalid files impose no limit.
// no sense limit nothing.
int usable_threads(const std::filesystem::path& root = "/");

}  // namespace gradloom
