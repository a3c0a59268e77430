#include "cli/bench/bench_probe.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>

#include "cli/command.h"

namespace gradloom::cli {
namespace {

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

void pin_to(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A thread's part of a span: whole pages, the last thread takes the remainder.
Span share(const Span& span, int thread, int threads) {
  const int64_t each = span.bytes / threads / 4096 * 4096;
  return {static_cast<char*>(span.data) + thread * each, thread == threads - 1 ? span.bytes - thread * each : each};
}

std::atomic<uint64_t> sink;
std::atomic<float> float_sink;

}  // namespace

int available_threads() { return std::max<int>(1, static_cast<int>(allowed_cpus().size())); }

void pin_process(int threads) {
  std::vector<int> cpus = allowed_cpus();
  if (static_cast<int>(cpus.size()) < threads)
    throw UsageError(
        fmt::format("--threads is {}, expected at most {}: the CPUs of this process", threads, cpus.size()));
  cpus.erase(cpus.begin(), cpus.end() - threads);  // the first ones serve interrupts
  pin_to(cpus);
}

int64_t last_level_cache_bytes() {
  // sysconf may include caches of CPUs that do not share with this one.
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
  int64_t size = 0;
  char unit = ' ';
  if (file >> size >> unit && size > 0) return unit == 'K' ? size << 10 : unit == 'M' ? size << 20 : size;
#ifdef _SC_LEVEL3_CACHE_SIZE
  size = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
  return size > 0 ? size : int64_t{64} << 20;
}

std::string cpu_and_threads(int threads) {
  const std::string count = std::to_string(threads) + (threads == 1 ? " thread" : " threads");
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2) + ", " + count;
  return "unknown CPU, " + count;
}

ProbeTeam::ProbeTeam(int threads) : threads_(threads), begin_(threads), end_(threads) {
  if (threads == 1) return;
  const std::vector<int> cpus = allowed_cpus();
  for (int t = 0; t < threads; ++t) workers_.emplace_back([this, t, cpu = cpus[t % cpus.size()]] { work(t, cpu); });
}

ProbeTeam::~ProbeTeam() {
  quit_ = true;
  ++generation_;
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ProbeTeam::work(int thread, int cpu) {
  pin_to({cpu});
  for (int seen = 0;;) {
    generation_.wait(seen);
    ++seen;
    if (quit_) return;
    ++arrived_;
    while (arrived_ < threads_) {
    }  // all start at once
    begin_[thread] = now_ms();
    (*job_)(thread);
    end_[thread] = now_ms();
    if (--running_ == 0) running_.notify_all();
  }
}

double ProbeTeam::run(const std::function<void(int)>& job) {
  if (threads_ == 1) {
    const double begin = now_ms();
    job(0);
    return now_ms() - begin;
  }
  job_ = &job;
  arrived_ = 0;
  running_ = threads_;
  ++generation_;
  generation_.notify_all();
  for (int left = running_; left != 0; left = running_) running_.wait(left);
  return *std::max_element(end_.begin(), end_.end()) - *std::min_element(begin_.begin(), begin_.end());
}

double ProbeTeam::read(const ReadLoop& loop, const std::vector<Span>& spans) {
  return run([&](int thread) {
    for (const Span& span : spans) {
      const Span part = share(span, thread, threads_);
      sink += loop.read(part.data, part.bytes);
    }
  });
}

double ProbeTeam::write(const WriteLoop& loop, const std::vector<Span>& spans) {
  return run([&](int thread) {
    for (const Span& span : spans) {
      const Span part = share(span, thread, threads_);
      loop.write(part.data, part.bytes);
    }
  });
}

double ProbeTeam::multiply_add(const MultiplyAddLoop& loop, int64_t rounds) {
  return run([&](int) { float_sink = loop.run(rounds); });
}

}  // namespace gradloom::cli
