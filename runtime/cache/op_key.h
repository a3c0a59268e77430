#pragma once
// The op-level key of data that outlives a process: the contents of KernelKey as text in named parts, plus the machine,
// the library's build and the format. Two keys can be compared part by part, which explains a miss.
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/planned_call.h"
#include "support/hash.h"

namespace gradloom {

inline constexpr int key_parts = 10;
inline constexpr const char* own_strategy = "own";  // of a kernel of an embedder's own
const char* to_string(KeyPart part);

class OpKey {
 public:
  // `target`: the schedules' view of the machine and its instruction set; `toolchain`: the compiler.
  OpKey(const PlannedCall& call, std::string_view target, std::string_view toolchain);
  // Of a kernel of an embedder's own: its text, which is its identity, and its buffers' dims, as text too.
  OpKey(const ir::Kernel& kernel, std::string_view nest, std::string_view dims, const KernelOptions& options,
        std::string_view target, std::string_view toolchain);
  // Of a kernel that has this strategy and schedule instead of what is chosen for its call.
  void set_schedule(std::string_view strategy, const std::vector<std::string>& trace);
  // Parses the output of `text`; throws Error(invalid_argument).
  explicit OpKey(std::string_view text);

  const std::string& part(KeyPart part) const { return parts_[static_cast<int>(part)]; }
  std::string text() const;       // one line per part
  std::string file_name() const;  // "i-", four digits of each part's hash, "-", those of the whole

 private:
  struct Text;
  void add_machine(std::string_view target, std::string_view toolchain);
  std::array<std::string, key_parts> parts_;
};

// The file nearest to a wanted one, and the parts that differ: by the names alone. Nothing when no file is of the same
// op.
struct NearestKey {
  std::string file_name;
  std::vector<KeyPart> differing;
};
std::optional<NearestKey> nearest_key(const std::string& wanted_file_name, const std::vector<std::string>& file_names);

// The compiler as part of a key: the compiler itself, and the code here that drives it.
std::string toolchain_text(std::string_view compiler);
// The machine as part of a key.
std::string target_text(const ir::Target& target, std::string_view features);
// The same for readers, on one line: what it is called, and a hash of all of it.
std::string machine_text(const ir::Target& target, std::string_view features, std::string_view cpu);

}  // namespace gradloom
