#pragma once
// How many threads this process may run at once.
#include <filesystem>

namespace gradloom {

// The CPUs in the calling thread's affinity mask or, where that is less, the CPU time that the process's control groups
// grant, in whole CPUs, rounded up: cpu.max of cgroup v2 and cpu.cfs_quota_us of v1, of its own group and of those
// above. At least 1. `root` is where proc/self/cgroup and sys/fs/cgroup are looked for; files that are missing or make
// no sense limit nothing.
int usable_threads(const std::filesystem::path& root = "/");

}  // namespace gradloom
