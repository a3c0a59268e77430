#pragma once
// File descriptors, and whole reads and writes through them.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

namespace gradloom {

// A descriptor that closes. Never one of the standard streams': where a process has closed those, what it prints must
// not land in a file of the cache.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {
    if (fd < 0 || fd > STDERR_FILENO) return;
    fd_ = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int error = errno;
    close(fd);
    errno = error;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  int close_now() { return close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

inline bool read_all(int fd, std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t got = ::read(fd, bytes.data() + at, bytes.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return false;
    if (got == 0) bytes.resize(at);  // the file shrank meanwhile: the frame check rejects it
    at += static_cast<size_t>(got);
  }
  return true;
}

inline bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(put));
  }
  return true;
}

}  // namespace gradloom
