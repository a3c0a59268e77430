// Processes that end, fork, unload, cancel and starve while threads of theirs are in calls and kernels are compiled in
// the background: real ones, by life_host.c, linked to the shared library or to the archive, or loading the library.
// GRADLOOM_LIFE_RUNS=1000 GRADLOOM_LIFE_SEED=1 bin/process_life_test --gtest_filter=*RandomEnds for a run by hand.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <list>
#include <random>
#include <string>
#include <thread>
#include <vector>

extern char** environ;

namespace {

struct Host {
  const char* name;
  const char* program;
};
const std::vector<Host> hosts{
    {"archive", LIFE_ARCHIVE},
#ifdef LIFE_OPENED
    {"linked", LIFE_LINKED},
    {"opened", LIFE_OPENED},
#endif
};
#ifndef LIFE_LIBRARY
#define LIFE_LIBRARY ""
#endif

constexpr int well = 7;  // life_host's exit code

struct Process {
  Host host;
  std::string scenario;
  int milliseconds = 20;
  bool slow_end = false;  // another library whose destructor takes 300 ms
  std::string cache = "off";
  std::string text() const {
    return std::string(slow_end ? "LD_PRELOAD=" LIFE_SLOW_END " " : "") + "GRADLOOM_CACHE_DIR=" + cache + " " +
           host.program + " " + scenario + " " + std::to_string(milliseconds) + " " LIFE_LIBRARY;
  }
};

// How it must end: with an exit code, or by the signal that it sends itself.
struct End {
  int code = well, signal = 0;
};
End end_of(const std::string& scenario) {
  if (scenario == "abort") return {0, SIGABRT};
  if (scenario == "term") return {0, SIGTERM};
  return {scenario == "unload" ? 0 : well, 0};
}

std::string described(int status) {
  return WIFSIGNALED(status) ? "died by signal " + std::to_string(WTERMSIG(status))
                             : "ended with code " + std::to_string(WEXITSTATUS(status));
}

pid_t start(const Process& run) {
  std::vector<std::string> words{run.host.program, run.scenario, std::to_string(run.milliseconds), LIFE_LIBRARY};
  std::vector<std::string> variables{"GRADLOOM_CACHE_DIR=" + run.cache};
#ifndef GRADLOOM_SANITIZED  // whose runtime must be loaded first
  if (run.slow_end) variables.push_back("LD_PRELOAD=" LIFE_SLOW_END);
#endif
  for (char** variable = environ; *variable; ++variable)
    if (std::string_view(*variable).rfind("GRADLOOM_CACHE_DIR=", 0) != 0) variables.push_back(*variable);
  std::vector<char*> argv, env;
  for (std::string& word : words) argv.push_back(word.data());
  for (std::string& variable : variables) env.push_back(variable.data());
  argv.push_back(nullptr);
  env.push_back(nullptr);
  pid_t child = -1;
  EXPECT_EQ(posix_spawn(&child, run.host.program, nullptr, nullptr, argv.data(), env.data()), 0) << run.text();
  return child;
}

// Several at a time: most of them sleep.
void run_all(std::vector<Process> runs) {
  using Clock = std::chrono::steady_clock;
  struct Started {
    Process run;
    pid_t process;
    Clock::time_point at;
  };
  std::list<Started> running;
  while (!runs.empty() || !running.empty()) {
    while (!runs.empty() && running.size() < 8) {
      running.push_back({runs.back(), start(runs.back()), Clock::now()});
      runs.pop_back();
    }
    for (auto it = running.begin(); it != running.end();) {
      int status = 0;
      const bool hangs = Clock::now() - it->at > std::chrono::minutes(3);
      if (hangs) kill(it->process, SIGKILL);
      if (waitpid(it->process, &status, hangs ? 0 : WNOHANG) == 0) {
        ++it;
        continue;
      }
      const End end = end_of(it->run.scenario);
      if (hangs)
        ADD_FAILURE() << "hangs: " << it->run.text();
      else if (end.signal ? !WIFSIGNALED(status) || WTERMSIG(status) != end.signal
                          : !WIFEXITED(status) || WEXITSTATUS(status) != end.code)
        ADD_FAILURE() << described(status) << ": " << it->run.text();
      it = running.erase(it);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

int64_t number(const char* name, int64_t otherwise) {
  const char* const text = std::getenv(name);
  return text ? std::atoll(text) : otherwise;
}

void run_everywhere(const std::string& scenario, int milliseconds = 20, const std::string& cache = "off") {
  std::vector<Process> runs;
  for (const Host& host : hosts) runs.push_back({host, scenario, milliseconds, false, cache});
  run_all(runs);
}

TEST(ProcessLife, RandomEnds) {
  const std::vector<std::string> ends{"return", "idle", "exit-thread",  "exit",          "_exit",  "quick_exit",
                                      "abort",  "term", "term-handler", "abort-handler", "unload", "atexit-after"};
  const int64_t count = number("GRADLOOM_LIFE_RUNS", 24);
  const auto seed = static_cast<uint64_t>(number("GRADLOOM_LIFE_SEED", 1));
  std::vector<Process> runs;
  for (int64_t i = 0; i < count; ++i) {
    std::mt19937_64 random(seed + static_cast<uint64_t>(i));
    runs.push_back({hosts[random() % hosts.size()], ends[static_cast<size_t>(i) % ends.size()],
                    static_cast<int>(random() % 60), random() % 4 != 0});
  }
  run_all(runs);
}

// Nothing is running but what compiles in the background, or other threads, as the slow library is destroyed: after
// this one, or before it.
TEST(ProcessLife, AnotherLibraryEndsSlowly) {
  std::vector<Process> runs;
  for (const Host& host : hosts) {
    for (const char* end : {"return", "idle"}) runs.push_back({host, end, 30, true});
  }
  run_all(runs);
}

TEST(ProcessLife, CallsFromHandlersOfAtexit) {
  run_everywhere("atexit");
  run_everywhere("atexit-after");
}
TEST(ProcessLife, CallsFromDestructors) { run_everywhere("destructor"); }

TEST(ProcessLife, ChildrenOfForkCall) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer does not follow a fork of several threads";
#endif
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer's allocator may be locked by another thread as a process forks";
#endif
  run_everywhere("fork", 40);
}

TEST(ProcessLife, UnloadsWithTheThreadsThatCalledGone) {
#ifdef LIFE_OPENED
  run_all({6, Process{hosts.back(), "unload", 10}});
#else
  GTEST_SKIP() << "this build has no shared library";
#endif
}

TEST(ProcessLife, NoThreadCanBeMade) {
#ifdef GRADLOOM_SANITIZED
  GTEST_SKIP() << "a sanitizer needs threads of its own";
#endif
  run_everywhere("no-threads");
}

TEST(ProcessLife, LittleAddressSpaceIsLeft) {
#ifdef GRADLOOM_SANITIZED
  GTEST_SKIP() << "a sanitizer takes terabytes of address space";
#endif
  std::vector<Process> runs;
  for (const int mebibytes : {1, 2, 4, 6, 10}) runs.push_back({hosts.front(), "little-memory", mebibytes});
  run_all(runs);
}

TEST(ProcessLife, ThreadsAreCancelled) {
  std::string folder = testing::TempDir() + "gradloom_life_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  run_everywhere("cancel", 20, folder);
  std::filesystem::remove_all(folder);
}

TEST(ProcessLife, SmallStacks) {
#ifdef GRADLOOM_SANITIZED
  GTEST_SKIP() << "instrumented code takes more stack";
#endif
  run_everywhere("small-stack");
}

}  // namespace
