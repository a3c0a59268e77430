#pragma once
// Memory read and write bandwidth of this machine: the roof for kernels. Probes use the same buffer sizes, threads and
// cache residency as the kernel, and run between its samples.
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace gradloom::cli {

// Pins this process to the last `threads` CPUs available to it, so that threads started later inherit the mask. Throws
// UsageError when there are fewer.
void pin_process(int threads);
int available_threads();
int64_t last_level_cache_bytes();          // of one cache, as a core sees it
std::string cpu_and_threads(int threads);  // "NAME, 2 threads"

struct ReadLoop {
  std::string name;
  uint64_t (*read)(const void* data, int64_t bytes);  // the sum is returned so that the reads are not eliminated
};
struct WriteLoop {
  std::string name;
  void (*write)(void* data, int64_t bytes);  // 64-byte aligned data
};
// Independent multiply-adds in registers: the upper bound of a matrix product.
struct MultiplyAddLoop {
  int64_t flops;  // per round
  float (*run)(int64_t rounds);
};
MultiplyAddLoop multiply_add_loop();
// row[n] = sum over k of factors[k] * columns[k, n]: starts at +0.0, one fused multiply-add per step, in order.
void multiply_add_row(const float* factors, const float* columns, float* row, int64_t k, int64_t n);
// The variants that this CPU supports, with its widest vectors.
std::vector<ReadLoop> read_loops();
std::vector<WriteLoop> write_loops();

struct Span {
  void* data;
  int64_t bytes;
};

// Threads pinned to distinct CPUs of this process. They sleep between jobs, so that they do not disturb other
// measurements.
class ProbeTeam {
 public:
  explicit ProbeTeam(int threads);
  ~ProbeTeam();
  ProbeTeam(const ProbeTeam&) = delete;
  ProbeTeam& operator=(const ProbeTeam&) = delete;

  // Milliseconds from the first thread's start to the last one's end; each thread takes its share of every span.
  double read(const ReadLoop& loop, const std::vector<Span>& spans);
  double write(const WriteLoop& loop, const std::vector<Span>& spans);
  double multiply_add(const MultiplyAddLoop& loop, int64_t rounds);  // each thread runs all rounds
  int threads() const { return threads_; }

 private:
  double run(const std::function<void(int thread)>& job);
  void work(int thread, int cpu);

  int threads_;
  std::vector<std::thread> workers_;  // none when threads_ is 1: the caller is the thread
  const std::function<void(int)>* job_ = nullptr;
  std::atomic<int> generation_{0}, running_{0}, arrived_{0};
  std::vector<double> begin_, end_;
  bool quit_ = false;
};

}  // namespace gradloom::cli
