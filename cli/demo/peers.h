#pragma once
// numpy and PyTorch, where this machine's python3 has them: times of the same calls (peers.py).
#include <sys/types.h>

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/bench/bench_cases.h"

namespace gradloom::cli {

struct PeerTimes {
  double numpy_ms = 0, torch_ms = 0;  // 0: unavailable
};

// One python3 that blocks until the next call, so that it does not disturb other measurements. One that cannot be
// started, exits or is silent for a minute counts as missing.
class Peers {
 public:
  Peers(int threads, double seconds);  // per call and library
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  std::string versions() const { return versions_; }  // one line: the libraries that are available or missing
  PeerTimes time(const BenchCase& c, const std::vector<Tensor>& inputs);
  PeerTimes time(const std::string& op, const GruCase& c);
  PeerTimes time_silu_grad(int64_t n);

 private:
  PeerTimes ask(nlohmann::ordered_json call);
  std::string line();  // empty: end of stream
  void stop();

  pid_t process_ = -1;
  int socket_ = -1;
  double seconds_;
  std::string versions_, received_;
};

}  // namespace gradloom::cli
