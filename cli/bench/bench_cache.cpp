#include "cli/bench/bench_cache.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "cli/bench/bench_goal.h"
#include "cli/bench/bench_measure.h"
#include "cli/bench/live_heap.h"
#include "cli/command.h"
#include "cli/text.h"

namespace gradloom::cli {
namespace {

std::vector<Tensor> rows_of(int64_t rows, int64_t count, int64_t width) {
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < count; ++i) indices.push_back(i * 7 % rows);
  return {Tensor::of(DType::i64, {2}, std::vector<int64_t>{rows, width}), Tensor::of(DType::i64, {count}, indices),
          Tensor::of(DType::f32, {count, width}, std::vector<float>(static_cast<size_t>(count * width), 0.5f))};
}

void call(Runtime& runtime, const std::vector<Tensor>& inputs) { runtime.run("GatherGrad", inputs).value(); }

double resident_mib() {
  int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return static_cast<double>(resident * sysconf(_SC_PAGESIZE)) / (1 << 20);
}

// A call whose kernel none of the last 100,000 calls compiled. Most need the smallest kernels there are, so that many
// cycles take minutes; every tenth needs a larger one. Sizes are mixed from the start, so that the output memory that
// the recycler retains reaches a steady state early.
void call_number(Runtime& runtime, int64_t number) {
  const int64_t n = number / 10;
  if (number % 10 == 0) return call(runtime, rows_of(1 + n % 31, 1 + n % 29, 1 + n % 23));
  const std::vector<int64_t> dims{1 + number % 331, 1 + number % 313}, axes{0, 1}, starts{0, 0}, ends{1, 1};
  const auto list = [](const std::vector<int64_t>& values) { return Tensor::of(DType::i64, {2}, values); };
  runtime
      .run("SliceGrad", std::vector<Tensor>{Tensor::of(DType::f32, {1, 1}, std::vector<float>{0.5f}), list(dims),
                                            list(starts), list(ends), list(axes)})
      .value();
}

struct Churn {
  double resident_mib = 0, heap_kib = 0;
};

void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

// Calls one cached kernel until `stop`, on per-thread inputs.
int64_t calls_until(Runtime& runtime, const std::atomic<bool>& stop) {
  const std::vector<Tensor> inputs = rows_of(4, 4, 1);
  int64_t calls = 0;
  for (; !stop.load(std::memory_order_relaxed); ++calls) call(runtime, inputs);
  return calls;
}

double thread_rate(int threads, double seconds) {
  Runtime runtime({.threads = 1, .disk_cache = "off"});
  call(runtime, rows_of(4, 4, 1));
  std::atomic<bool> stop{false};
  std::atomic<int64_t> total{0};
  std::vector<std::thread> team;
  const double begin = elapsed_ms();
  for (int t = 0; t < threads; ++t) {
    team.emplace_back([&, t] {
      pin(t);
      total += calls_until(runtime, stop);
    });
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  stop = true;
  for (std::thread& t : team) t.join();
  return static_cast<double>(total) / (elapsed_ms() - begin) * 1e3;
}

double process_rate(int processes, double seconds) {
  std::vector<std::pair<pid_t, int>> children;
  for (int p = 0; p < processes; ++p) {
    int ends[2];
    if (pipe(ends) != 0) throw Error(ErrorCode::resource_exhausted, "bench: no pipe");
    const pid_t child = fork();
    if (child == 0) {
      pin(p);
      const double rate = thread_rate(1, seconds);
      if (write(ends[1], &rate, sizeof rate) != sizeof rate) _exit(1);
      _exit(0);
    }
    close(ends[1]);
    children.emplace_back(child, ends[0]);
  }
  double total = 0;
  for (const auto& [child, end] : children) {
    double rate = 0;
    if (read(end, &rate, sizeof rate) == sizeof rate) total += rate;
    close(end);
    waitpid(child, nullptr, 0);
  }
  return total;
}

}  // namespace

int bench_churn(int64_t cycles, bool json) {
  constexpr int rows = 20;
  constexpr int64_t settling = 10000;                 // compiles; a runtime notes so many calls for prewarm
  constexpr double flat_heap_kib = 64, flat_mib = 4;  // resident memory includes the allocator's fragmentation
  Runtime runtime({.threads = 1, .cache_bytes = 64 << 10, .disk_cache = "off"});
  const double begin = elapsed_ms();
  const bool progress = isatty(STDERR_FILENO) != 0;
  if (!json)
    fmt::print("{:>9} {:>9} {:>13} {:>14} {:>15} {:>8}\n", "compiles", "evicted", "resident MiB", "live heap KiB",
               "cached kernels", "s");
  std::optional<Churn> settled;
  Churn last;
  int64_t done = 0;
  for (int row = 1; row <= rows; ++row) {
    for (; done < cycles * row / rows; ++done) {
      if (progress && done % 100 == 0) to_stderr("\r\x1b[K{} of {} ...", done, cycles);
      call_number(runtime, done);
    }
    const Stats stats = runtime.stats();
    last = {resident_mib(), static_cast<double>(live_heap_bytes()) / 1024};
    if (!settled && done >= settling) settled = last;
    if (progress) to_stderr("\r\x1b[K");
    if (json) {
      fmt::print("{}\n", nlohmann::ordered_json{{"compiles", stats.compiles},
                                                {"evictions", stats.evictions},
                                                {"resident_mib", last.resident_mib},
                                                {"live_heap_kib", last.heap_kib},
                                                {"entries", stats.entries}}
                             .dump());
    } else {
      fmt::print("{:>9} {:>9} {:>13.2f} {:>14.1f} {:>15} {:>8.1f}\n", stats.compiles, stats.evictions,
                 last.resident_mib, last.heap_kib, stats.entries, (elapsed_ms() - begin) / 1000);
    }
    std::fflush(stdout);
  }
  if (!settled || done < 2 * settling) {
    if (!json)
      fmt::print("\nno verdict: memory settles over {} compiles, so at least {} tell\n", settling, 2 * settling);
    return 0;
  }
  const double grown_mib = last.resident_mib - settled->resident_mib, grown_kib = last.heap_kib - settled->heap_kib;
  if (json) return grown_mib <= flat_mib && grown_kib <= flat_heap_kib ? 0 : exit_failure;
  return verdict({{"growth of the live heap since the first 10,000", grown_kib, flat_heap_kib, true, " KiB"},
                  {"growth of resident memory since then", grown_mib, flat_mib, true, " MiB"}});
}

int bench_stall(bool json) {
  constexpr int shapes = 500, rounds = 6, often = 8, hottest = 250;
  constexpr double most_ms = 5;
  Runtime runtime({.threads = 1, .disk_cache = "off", .policy = Policy::generic_first});
  std::vector<std::vector<Tensor>> inputs;
  for (int s = 0; s < shapes; ++s) inputs.push_back(rows_of(10 + s * 3, 20 + s * 2, 16));
  std::vector<std::vector<double>> ms(shapes);
  const auto timed = [&](int s) {
    const double begin = elapsed_ms();
    call(runtime, inputs[s]);
    ms[s].push_back(elapsed_ms() - begin);
  };
  const double first_begin = elapsed_ms();
  call(runtime, inputs[0]);
  const double first = elapsed_ms() - first_begin;
  // Round-robin over the shapes, interleaved with a few hot ones: those trigger specialised kernels while the calls
  // continue.
  for (int round = 0; round < rounds; ++round) {
    for (int s = 0; s < shapes; ++s) {
      timed(s);
      timed(s % often * (shapes / often));
    }
  }
  for (int i = 0; i < 1000; ++i) timed(hottest);
  runtime.wait_for_background();
  call(runtime, inputs[hottest]);
  const bool hot = !runtime.last_report().any_shape;
  std::vector<double> waits;
  for (const std::vector<double>& one : ms) {
    const double warm = *std::min_element(one.begin(), one.end());
    for (const double each : one) waits.push_back(each - warm);
  }
  std::sort(waits.begin(), waits.end());
  const Stats stats = runtime.stats();
  const nlohmann::ordered_json line{{"shapes", shapes},
                                    {"calls", waits.size()},
                                    {"first_call_ms", first},
                                    {"wait_median_ms", waits[waits.size() / 2]},
                                    {"wait_99_ms", waits[waits.size() * 99 / 100]},
                                    {"wait_999_ms", waits[waits.size() * 999 / 1000]},
                                    {"wait_max_ms", waits.back()},
                                    {"compiles", stats.compiles},
                                    {"specialised", stats.specialised},
                                    {"live_specialisations", stats.live_specialisations},
                                    {"hot_is_specialised", hot}};
  const bool met = waits.back() <= most_ms && stats.live_specialisations <= 4 && hot;
  if (json) {
    fmt::print("{}\n", line.dump());
    return met ? 0 : exit_failure;
  }
  Table table({"what", ">value"});
  for (const auto& [name, value] : line.items())
    table.row({name, value.is_number_float() ? fmt::format("{:.4f}", value.get<double>()) : value.dump()});
  fmt::print("{}", table.text());
  return verdict({{"longest wait above a shape's own warm time", waits.back(), most_ms, true, " ms"},
                  {"live specialisations", static_cast<double>(stats.live_specialisations), 4, true, ""},
                  {"specialised kernels of a shape called 1000 times", static_cast<double>(hot), 1, false, ""}});
}

int bench_throughput(double seconds, bool json) {
  const double processes = process_rate(2, seconds),
               process = process_rate(1, seconds);  // before this process has threads
  const double one = thread_rate(1, seconds), two = thread_rate(2, seconds);
  constexpr double wanted = 1.8;
  if (json) {
    fmt::print("{}\n",
               nlohmann::ordered_json{
                   {"one_thread", one}, {"two_threads", two}, {"one_process", process}, {"two_processes", processes}}
                   .dump());
    return two / one >= wanted ? 0 : exit_failure;
  }
  Table table({"callers", ">calls/s", ">of one"});
  table.row({"1 thread", fmt::format("{:.0f}", one), "1"});
  table.row({"2 threads", fmt::format("{:.0f}", two), fmt::format("{:.2f}", two / one)});
  table.row({"1 process", fmt::format("{:.0f}", process), "1"});
  table.row({"2 processes", fmt::format("{:.0f}", processes), fmt::format("{:.2f}", processes / process)});
  fmt::print("{}\nTwo processes share nothing: what they reach is what the machine has to give.\n", table.text());
  return verdict({{"calls of two threads beside one's", two / one, wanted, false, "x"}});
}

}  // namespace gradloom::cli
