#include "cli/demo/peers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "cli/demo/peers_script.h"

namespace gradloom::cli {
namespace {

constexpr timeval patience{60, 0};
constexpr int64_t most_indices_sent = 100000;

std::vector<int64_t> integers(const Tensor& t) {
  const auto* data = static_cast<const int64_t*>(t.data());
  return {data, data + t.elements()};
}

std::vector<int64_t> sizes(const Dims& dims) { return {dims.begin(), dims.end()}; }

}  // namespace

Peers::Peers(int threads, double seconds) : seconds_(seconds) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return;
  socket_ = ends[0];
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::string python = "python3", option = "-c", script = peers_script, count = std::to_string(threads);
  char* const arguments[] = {python.data(), option.data(), script.data(), count.data(), nullptr};
  if (posix_spawnp(&process_, python.c_str(), &actions, nullptr, arguments, environ) != 0) process_ = -1;
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  const auto there = nlohmann::json::parse(line(), nullptr, false);
  if (!there.is_object()) {
    versions_ = "numpy and PyTorch: no python3 that answers, so nothing of theirs is timed";
    stop();
    return;
  }
  const auto version = [&](const char* shown, const char* name) {
    const auto found = there.find(name);
    return found != there.end() && found->is_string() ? fmt::format("{} {}", shown, found->get<std::string>())
                                                      : fmt::format("{} is not installed for python3", shown);
  };
  versions_ = fmt::format("{}, {}", version("numpy", "numpy"), version("PyTorch", "torch"));
}

Peers::~Peers() { stop(); }

void Peers::stop() {
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
  if (process_ < 0) return;
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
  process_ = -1;
}

std::string Peers::line() {
  if (process_ < 0) return {};
  while (true) {
    if (const size_t end = received_.find('\n'); end != std::string::npos) {
      const std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return line;
    }
    char part[4096];
    const ssize_t count = recv(socket_, part, sizeof part, 0);
    if (count <= 0) return {};
    received_.append(part, static_cast<size_t>(count));
  }
}

PeerTimes Peers::ask(nlohmann::ordered_json call) {
  if (process_ < 0) return {};
  call["seconds"] = seconds_;
  const std::string text = call.dump() + "\n";
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t count = send(socket_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) break;  // end of stream: no further line arrives
    sent += static_cast<size_t>(count);
  }
  const auto times = nlohmann::json::parse(line(), nullptr, false);
  if (!times.is_object()) {
    versions_ += ", but python3 stopped answering";
    return stop(), PeerTimes{};
  }
  const auto time = [&](const char* name) {
    const auto found = times.find(name);
    return found != times.end() && found->is_number() ? found->get<double>() : 0.0;
  };
  return {time("numpy"), time("torch")};
}

PeerTimes Peers::time(const BenchCase& c, const std::vector<Tensor>& inputs) {
  nlohmann::ordered_json call{{"op", c.op}, {"output", sizes(c.output)}};
  if (c.group == "sl") {
    const char* names[] = {"starts", "ends", "axes", "steps"};
    for (int i = 0; i < 4; ++i) call[names[i]] = integers(inputs[2 + i]);
  }
  call["values"] = sizes(inputs[c.group == "gg" ? 2 : 0].dims());
  if (c.group == "ge" || c.group == "gg") {
    const int which = c.group == "ge" ? 2 : 1;
    call["axis"] = c.axis;
    call["indices_shape"] = sizes(inputs[which].dims());
    if (inputs[which].elements() <= most_indices_sent)
      call["indices"] = integers(inputs[which]);
    else
      call["indices"] = c.inputs[which].bound;  // generated there: uniform below this bound
  }
  return ask(std::move(call));
}

PeerTimes Peers::time(const std::string& op, const GruCase& c) {
  return ask({{"op", op}, {"sizes", {c.steps, c.batch, c.inputs, c.hidden}}});
}

PeerTimes Peers::time_silu_grad(int64_t n) { return ask({{"op", "silu_grad"}, {"values", {n}}}); }

}  // namespace gradloom::cli
