#include "runtime/diagnose/dump.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "runtime/diagnose/log.h"
#include "support/hash.h"

namespace gradloom {
namespace {

std::string plain(std::string_view name) {
  constexpr size_t longest = 64;
  std::string out;
  for (const char c : name.substr(0, longest)) out += std::isalnum(static_cast<unsigned char>(c)) || c == '-' ? c : '_';
  return out;
}

// The error; 0 for none.
int write_file(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (!file) return errno;
  errno = 0;
  bool good = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  good &= std::fclose(file) == 0;
  return good ? 0 : errno ? errno : EIO;
}

}  // namespace

std::string dump_folder(const std::string& chosen) {
  if (!chosen.empty()) return chosen;
  const char* folder = std::getenv("GRADLOOM_DUMP");
  return folder ? folder : "";
}

std::string dump_stem(std::string_view op, std::string_view strategy, const ir::Kernel& kernel,
                      const std::vector<DumpFile>& files) {
  std::string stem = plain(op) + "_" + plain(strategy);
  uint32_t seen = 0;
  for (const ir::Buffer& buffer : kernel.buffers) {
    const uint32_t bit = 1u << static_cast<int>(buffer->dtype);
    if (!(seen & bit)) stem += fmt::format("_{}", to_string(buffer->dtype));
    seen |= bit;
  }
  std::string texts;
  for (const DumpFile& file : files) texts += file.text;
  return stem + "_" + to_hex(hash128(texts)).substr(0, 16);
}

void write_dump(const std::string& folder, const std::string& stem, const std::vector<DumpFile>& files) noexcept {
  try {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) return log(LogLevel::warn, "dump: cannot make the folder {}: {}", folder, error.message());
    for (const DumpFile& file : files) {
      const std::string path = (std::filesystem::path(folder) / fmt::format("{}.{}", stem, file.extension)).string();
      if (const int failure = write_file(path, file.text))
        return log(LogLevel::warn, "dump: cannot write {}: {}", path, std::strerror(failure));
    }
    log(LogLevel::debug, "dump: wrote {}/{}", folder, stem);
  } catch (const std::exception& failure) {
    log(LogLevel::warn, "dump: {} is not written: {}", stem, failure.what());
  }
}

}  // namespace gradloom
