#pragma once
// The file formats of the cache. Every file is one frame: magic, format version, kind, length, a checksum over all of
// it, and the body.
//
// A kernel file stores compiled code under its content key: the text of the lowered IR and all that determines the code
// generated from it. An index file maps an op-level key to a kernel file, with what a launch needs in addition to the
// code, so that a warm start builds no IR.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gradloom/op.h"
#include "support/hash.h"

namespace gradloom {

// Raise it with any change below; it is part of every key.
inline constexpr uint32_t cache_format_version = 3;

enum class CacheFile : uint32_t { kernel = 1, index = 2, calls = 3 };

std::string cache_frame(CacheFile kind, std::string_view body);
// The body of a valid frame of this kind; else throws Error(invalid_argument) that describes the defect.
std::string_view cache_body(CacheFile kind, std::string_view file);

// Identifies a content: two hashes of its key, so that a collision of one of them never yields another kernel's code.
struct ContentId {
  Hash128 name, check;
  bool operator==(const ContentId&) const = default;
};
ContentId content_id(std::string_view key);

struct KernelRecord {
  std::string key;          // content_key
  std::string kernel_name;  // the code's symbol is derived from it
  std::string tuned_for;    // a CPU's name, which is not part of the key
  std::string code;         // a relocatable object, or a cubin
  double compile_ms = 0;
};

struct IndexRecord {
  std::string key;    // op_key_text
  ContentId content;  // of the kernel
  std::vector<ScalarSource> sources;
  std::string op, strategy;
  double build_ms = 0;
  std::vector<std::string> schedule_trace;
};

// The content key: `toolchain` identifies the compiler, its target and the code that drives it, `features` the
// instruction set, `ir` is the lowered kernel's text.
std::string content_key(std::string_view toolchain, std::string_view features, std::string_view ir);
std::string_view ir_of_content_key(std::string_view key);
std::string_view features_of_content_key(std::string_view key);

// Whole files. Decoding throws Error(invalid_argument).
std::string encode(const KernelRecord& record);
std::string encode(const IndexRecord& record);
KernelRecord decode_kernel(std::string_view file);
IndexRecord decode_index(std::string_view file);

std::string kernel_file_name(const ContentId& content);

}  // namespace gradloom
