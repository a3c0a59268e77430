#include "runtime/cache/kernel_store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>

#include "runtime/diagnose/log.h"

namespace gradloom {
namespace {

constexpr size_t most_names = 20000, most_recent = 64;

std::string described(const std::vector<KeyPart>& parts) {
  std::vector<const char*> names;
  for (const KeyPart part : parts) names.push_back(to_string(part));
  return fmt::format("{}", fmt::join(names, ", "));
}

// Accumulates the time of a scope.
class Timed {
 public:
  explicit Timed(std::atomic<int64_t>& ns) : ns_(ns) {}
  ~Timed() {
    ns_.fetch_add(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin_).count(),
        std::memory_order_relaxed);
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  std::atomic<int64_t>& ns_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

KernelStore::KernelStore(DiskCacheOptions options, std::string toolchain, std::string target, std::string features)
    : files_(std::move(options)),
      toolchain_(std::move(toolchain)),
      target_(std::move(target)),
      features_(std::move(features)) {}

std::optional<KernelStore::Found> KernelStore::find(const OpKey& key) {
  const Timed timed(read_ns_);
  const std::string name = key.file_name();
  if (const std::optional<std::string> file = files_.read(CacheFile::index, name)) {
    try {
      Found found{decode_index(*file), {}};
      if (found.index.key != key.text())
        throw Error(ErrorCode::invalid_argument, "it is of another key with the same hash");
      const std::string kernel_name = kernel_file_name(found.index.content);
      if (const std::optional<std::string> kernel = files_.read(CacheFile::kernel, kernel_name)) {
        found.kernel = decode_kernel(*kernel);
        if (content_id(found.kernel.key) != found.index.content)
          throw Error(ErrorCode::invalid_argument, "its kernel is of another key with the same hash");
        if (features_of_content_key(found.kernel.key) != features_)
          throw Error(ErrorCode::invalid_argument, "its kernel is for another instruction set");
        return found;
      }
    } catch (const Error& error) {
      files_.reject(name, error.what());
    }
  }
  explain_miss(key);
  return std::nullopt;
}

std::optional<KernelRecord> KernelStore::find(const std::string& key) {
  const Timed timed(read_ns_);
  const std::string name = kernel_file_name(content_id(key));
  if (const std::optional<std::string> file = files_.read(CacheFile::kernel, name)) {
    try {
      KernelRecord record = decode_kernel(*file);
      if (record.key == key) {
        log(LogLevel::debug, "disk cache: {} has the content", name);
        return record;
      }
      throw Error(ErrorCode::invalid_argument, "it is of another key with the same hash");
    } catch (const Error& error) {
      files_.reject(name, error.what());
    }
  }
  ++misses_;
  log(LogLevel::debug, "disk cache: no file {} of the content", name);
  return std::nullopt;
}

void KernelStore::put(const KernelRecord& kernel) {
  files_.write(kernel_file_name(content_id(kernel.key)), encode(kernel));
}

void KernelStore::put(const IndexRecord& index) {
  const std::string name = OpKey(index.key).file_name();
  files_.write(name, encode(index));
  std::lock_guard lock(mutex_);
  if (listed_ && names_.size() < most_names) names_.push_back(name);
}

void KernelStore::reject(const KernelRecord& kernel, const std::string& why) {
  files_.reject(kernel_file_name(content_id(kernel.key)), why);
}

void KernelStore::explain_miss(const OpKey& key) {
  std::unique_lock lock(mutex_);
  if (!listed_) {
    listed_ = true;
    for (DiskFile& file : files_.list(true)) {
      if (file.name.starts_with("i-") && names_.size() < most_names) names_.push_back(std::move(file.name));
    }
  }
  const std::optional<NearestKey> nearest = nearest_key(key.file_name(), names_);
  std::string what = !nearest                     ? "the first of its op"
                     : nearest->differing.empty() ? "a file that is gone"
                                                  : described(nearest->differing);
  if (nearest) {
    for (const KeyPart part : nearest->differing) ++miss_parts_[to_string(part)];
  } else {
    ++miss_parts_["op"];
  }
  const std::string miss =
      fmt::format("{} {}{}: {}", key.part(KeyPart::op), key.part(KeyPart::strategy), key.part(KeyPart::dims), what);
  recent_misses_.push_back(miss);
  if (recent_misses_.size() > most_recent) recent_misses_.pop_front();
  lock.unlock();
  log(LogLevel::debug, "disk cache: miss, differing from the nearest entry in: {}", miss);
}

void KernelStore::add_to(Stats& stats) const {
  const DiskCacheStats disk = files_.stats();
  stats.read_ms = static_cast<double>(read_ns_) * 1e-6;
  stats.disk_hits = hits_;
  stats.disk_misses = misses_;
  stats.disk_rejected = disk.rejected;
  stats.disk_write_failures = disk.write_failures;
  stats.disk_evictions = disk.evictions;
  stats.disk_bytes_read = disk.bytes_read;
  stats.disk_bytes_written = disk.bytes_written;
  std::lock_guard lock(mutex_);
  stats.disk_miss_parts = miss_parts_;
  stats.disk_recent_misses.assign(recent_misses_.begin(), recent_misses_.end());
}

}  // namespace gradloom
