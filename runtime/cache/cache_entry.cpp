#include "runtime/cache/cache_entry.h"

#include <fmt/format.h>

#include "support/bytes.h"

namespace gradloom {
namespace {

struct Header {
  char magic[8];
  uint32_t version;
  CacheFile kind;
  uint64_t body_bytes;
  Hash128 checksum;  // of the header with this field zero, and the body
};
static_assert(sizeof(Header) == 40);
constexpr char magic[8] = {'g', 'r', 'a', 'd', 'l', 'o', 'o', 'm'};

Hash128 checksum(Header header, std::string_view body) {
  header.checksum = {};
  const Hash128 head = hash128({reinterpret_cast<const char*>(&header), sizeof header});
  const Hash128 rest = hash128(body, 1);
  return {head.low ^ rest.low, head.high ^ rest.high};
}

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorCode::invalid_argument, what); }

constexpr std::string_view features_line = "\nfeatures ", ir_line = "\nir\n";

}  // namespace

std::string cache_frame(CacheFile kind, std::string_view body) {
  Header header{{}, cache_format_version, kind, body.size(), {}};
  std::memcpy(header.magic, magic, sizeof magic);
  header.checksum = checksum(header, body);
  std::string file(reinterpret_cast<const char*>(&header), sizeof header);
  file.append(body);
  return file;
}

std::string_view cache_body(CacheFile kind, std::string_view file) {
  Header header;
  if (file.size() < sizeof header)
    refuse(fmt::format("it has {} bytes, a header alone has {}", file.size(), sizeof header));
  std::memcpy(&header, file.data(), sizeof header);
  if (std::memcmp(header.magic, magic, sizeof magic) != 0) refuse("it is no file of a gradloom cache");
  if (header.version != cache_format_version)
    refuse(fmt::format("its format is {}, this library's is {}", header.version, cache_format_version));
  if (header.kind != kind) refuse("it is of another kind");
  const std::string_view body = file.substr(sizeof header);
  if (header.body_bytes != body.size())
    refuse(fmt::format("it should hold {} bytes and holds {}", header.body_bytes, body.size()));
  if (header.checksum != checksum(header, body)) refuse("its checksum is wrong");
  return body;
}

ContentId content_id(std::string_view key) { return {hash128(key), hash128(key, 2)}; }

std::string content_key(std::string_view toolchain, std::string_view features, std::string_view ir) {
  return fmt::format("format {}\ntoolchain {}{}{}{}{}", cache_format_version, toolchain, features_line, features,
                     ir_line, ir);
}

std::string_view ir_of_content_key(std::string_view key) {
  const size_t at = key.find(ir_line);
  return at == key.npos ? std::string_view() : key.substr(at + ir_line.size());
}

std::string_view features_of_content_key(std::string_view key) {
  const size_t begin = key.find(features_line), end = key.find(ir_line);
  if (begin == key.npos || end == key.npos || begin > end) return {};
  return key.substr(begin + features_line.size(), end - begin - features_line.size());
}

std::string encode(const KernelRecord& record) {
  ByteWriter out;
  for (const std::string* text : {&record.key, &record.kernel_name, &record.tuned_for, &record.code}) out.text(*text);
  out.value(record.compile_ms);
  return cache_frame(CacheFile::kernel, out.take());
}

KernelRecord decode_kernel(std::string_view file) {
  ByteReader in(cache_body(CacheFile::kernel, file));
  KernelRecord record;
  for (std::string* text : {&record.key, &record.kernel_name, &record.tuned_for, &record.code}) *text = in.text();
  record.compile_ms = in.value<double>();
  in.end();
  return record;
}

std::string encode(const IndexRecord& record) {
  ByteWriter out;
  out.text(record.key);
  out.value(record.content);
  out.value(static_cast<uint64_t>(record.sources.size()));
  for (const ScalarSource& source : record.sources) {
    out.value(static_cast<int32_t>(source.kind));
    out.value(static_cast<int32_t>(source.view));
    out.value(static_cast<int32_t>(source.index));
  }
  out.text(record.op);
  out.text(record.strategy);
  out.value(record.build_ms);
  out.value(static_cast<uint64_t>(record.schedule_trace.size()));
  for (const std::string& step : record.schedule_trace) out.text(step);
  return cache_frame(CacheFile::index, out.take());
}

IndexRecord decode_index(std::string_view file) {
  ByteReader in(cache_body(CacheFile::index, file));
  IndexRecord record;
  record.key = in.text();
  record.content = in.value<ContentId>();
  for (size_t n = in.count(12); n > 0; --n) {
    const auto kind = in.value<int32_t>(), view = in.value<int32_t>(), index = in.value<int32_t>();
    if (kind < ScalarSource::param || kind > ScalarSource::stride) refuse("a scalar comes from nowhere");
    record.sources.push_back({static_cast<ScalarSource::Kind>(kind), view, index});
  }
  record.op = in.text();
  record.strategy = in.text();
  record.build_ms = in.value<double>();
  for (size_t n = in.count(8); n > 0; --n) record.schedule_trace.emplace_back(in.text());
  in.end();
  return record;
}

std::string kernel_file_name(const ContentId& content) { return "k-" + to_hex(content.name); }

}  // namespace gradloom
