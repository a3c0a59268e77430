// The meaning of `threads = 0`: the affinity mask and the control groups' CPU quotas, read from substitutes for the
// machine's files.
#include "runtime/threads/usable_threads.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <fstream>
#include <thread>

#include "gradloom/runtime.h"

namespace gradloom {
namespace {

class UsableThreads : public testing::Test {
 protected:
  UsableThreads()
      : root_(std::filesystem::path(testing::TempDir()) /
              ("threads_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()))) {
    std::filesystem::remove_all(root_);
    unlimited_ = usable_threads(root_);
  }
  ~UsableThreads() override { std::filesystem::remove_all(root_); }
  void write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = root_ / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  // Only quotas below this machine's CPU count have an effect: 1 works everywhere.
  int at_most(int quota) const { return std::min(quota, unlimited_); }

  std::filesystem::path root_;
  int unlimited_;
};

TEST_F(UsableThreads, NoFilesLimitNothing) {
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  EXPECT_EQ(unlimited_, CPU_COUNT(&mask));
}

TEST_F(UsableThreads, VersionTwo) {
  write("proc/self/cgroup", "0::/\n");
  for (const auto& [text, wanted] : std::vector<std::pair<std::string, int>>{{"50000 100000\n", 1},
                                                                             {"100000 100000\n", 1},
                                                                             {"100001 100000\n", 2},
                                                                             {"300000 200000\n", 2},
                                                                             {"max 100000\n", 1 << 20},
                                                                             {"", 1 << 20},
                                                                             {"50000 0\n", 1 << 20}}) {
    write("sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(usable_threads(root_), at_most(wanted)) << text;
  }
}

TEST_F(UsableThreads, VersionOne) {
  write("proc/self/cgroup", "5:memory:/\n4:cpuacct,cpu:/jobs/one\n3:cpuset:/\n");
  write("sys/fs/cgroup/cpu/jobs/one/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/jobs/one/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(usable_threads(root_), unlimited_);
  write("sys/fs/cgroup/cpu/jobs/one/cpu.cfs_quota_us", "20000\n");
  EXPECT_EQ(usable_threads(root_), 1);
}

TEST_F(UsableThreads, AGroupAboveLimitsToo) {
  write("proc/self/cgroup", "0::/above/own\n");
  write("sys/fs/cgroup/above/own/cpu.max", "max 100000\n");
  EXPECT_EQ(usable_threads(root_), unlimited_);
  write("sys/fs/cgroup/above/cpu.max", "1000 100000\n");
  EXPECT_EQ(usable_threads(root_), 1);
}

TEST_F(UsableThreads, InAContainerTheMountIsTheGroup) {
  write("proc/self/cgroup", "4:cpu:/host/path\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "90000\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(usable_threads(root_), 1);
}

TEST_F(UsableThreads, TheAffinityMaskLimitsARuntime) {
  std::thread([&] {  // affinity masks are per-thread
    cpu_set_t mask;
    ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
    int first = 0;
    while (!CPU_ISSET(first, &mask)) ++first;
    CPU_ZERO(&mask);
    CPU_SET(first, &mask);
    ASSERT_EQ(sched_setaffinity(0, sizeof mask, &mask), 0);
    EXPECT_EQ(usable_threads(root_), 1);
    EXPECT_EQ(Runtime().threads(), 1);
  })
      .join();
}

}  // namespace
}  // namespace gradloom
