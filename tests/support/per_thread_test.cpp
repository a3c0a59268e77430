// Per-thread values: constructed once, destroyed with the thread, also when destructors access each other's values.
#include "support/per_thread.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

namespace gradloom {
namespace {

std::atomic<int> made{0}, gone{0};

struct Counted {
  Counted() { ++made; }
  ~Counted() { ++gone; }
  int value = 0;
};
struct Other : Counted {};

TEST(PerThread, IsOneAThreadAndGoesWithIt) {
  made = gone = 0;
  per_thread<Counted>().value = 7;
  const int mine = made;
  std::vector<std::thread> team;
  for (int t = 0; t < 8; ++t) {
    team.emplace_back([t] {
      EXPECT_EQ(per_thread<Counted>().value, 0);
      per_thread<Counted>().value = t;
      per_thread<Other>().value = -t;
      std::this_thread::yield();
      EXPECT_EQ(per_thread<Counted>().value, t);
      EXPECT_EQ(per_thread<Other>().value, -t);
    });
  }
  for (std::thread& t : team) t.join();
  EXPECT_EQ(made, mine + 16);
  EXPECT_EQ(gone, 16);
  EXPECT_EQ(per_thread<Counted>().value, 7);
}

// Its destructor accesses another value, which may already be destroyed.
struct Late {
  ~Late() { per_thread<Counted>().value = 1; }
};

TEST(PerThread, MayBeMadeAgainWhileItsThreadEnds) {
  made = gone = 0;
  std::thread([] {
    per_thread<Late>();
    per_thread<Counted>();
  }).join();
  EXPECT_EQ(made, 2);
  EXPECT_EQ(gone, 2);
}

// A thread_local of the program that is destroyed first, and one whose destructor accesses ours.
struct Local {
  ~Local() { per_thread<Counted>().value = 2; }
};
TEST(PerThread, ServesAThreadLocalsDestructor) {
  made = gone = 0;
  std::thread([] {
    thread_local Local local;
    (void)&local;
  }).join();
  EXPECT_EQ(made, 1);
  EXPECT_EQ(gone, 1);
}

TEST(PerThread, AChildOfForkHasItsThreadsOwn) {
  per_thread<Counted>().value = 5;
  const pid_t child = fork();
  if (child == 0) {
    bool right = per_thread<Counted>().value == 5;
    std::thread([&] { right &= per_thread<Counted>().value == 0; }).join();
    _exit(right ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace gradloom
