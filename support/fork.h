#pragma once
// What makes the library usable in a child of fork, at any moment of the parent's other threads. `fork` waits until no
// other thread is in a NoFork scope, and every lock of the library is taken within one: so the child, which has the
// forking thread alone, finds no lock taken and no object half changed. No code of the host's runs within such a
// scope, so that it always ends. What belongs to threads that the child lacks is known by `fork_generation`.
#include <cstdint>
#include <mutex>

namespace gradloom {

// How many forks this process is away from the first one that loaded the library.
uint32_t fork_generation() noexcept;

class NoFork {
 public:
  NoFork() noexcept;
  ~NoFork();
  NoFork(const NoFork&) = delete;
  NoFork& operator=(const NoFork&) = delete;
};

// A mutex that nobody else holds in a child of fork.
class Mutex {
 public:
  constexpr Mutex() = default;
  void lock();
  void unlock();

 private:
  std::mutex mutex_;
};

}  // namespace gradloom
