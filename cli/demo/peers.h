#pragma once
// numpy and PyTorch, where this machine's python3 has them: what the same calls take there (peers.py).
#include <sys/types.h>

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/bench/bench_cases.h"

namespace gradloom::cli {

struct PeerTimes {
  double numpy_ms = 0, torch_ms = 0;  // 0: not there
};

// One python3 that waits for the next call, so that it takes nothing from what else is timed. One that cannot be
// started, stops or says nothing for a minute is none.
class Peers {
 public:
  Peers(int threads, double seconds);  // for each call of each
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  std::string versions() const { return versions_; }  // a line: what is there and what is not
  PeerTimes time(const BenchCase& c, const std::vector<Tensor>& inputs);
  PeerTimes time(const std::string& op, const GruCase& c);
  PeerTimes time_silu_grad(int64_t n);

 private:
  PeerTimes ask(nlohmann::ordered_json call);
  std::string line();  // empty: there is none
  void stop();

  pid_t process_ = -1;
  int socket_ = -1;
  double seconds_;
  std::string versions_, received_;
};

}  // namespace gradloom::cli
