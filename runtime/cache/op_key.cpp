#include "runtime/cache/op_key.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runtime/cache/build_id.h"
#include "runtime/cache/cache_entry.h"

namespace gradloom {
namespace {

constexpr size_t digits = 4, first_digit = 2;
constexpr size_t name_length = first_digit + key_parts * digits + 1 + 32;

std::string_view part_digits(std::string_view name, int part) {
  return name.substr(first_digit + part * digits, digits);
}

// Injective.
std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    if (c == '\\' || c == '\n') line += '\\';
    line += c == '\n' ? 'n' : c;
  }
  return line;
}

bool is_index(std::string_view name) { return name.size() == name_length && name.starts_with("i-"); }

}  // namespace

const char* to_string(KeyPart part) {
  static constexpr std::array<const char*, key_parts> names{"op",         "strategy", "options", "dtypes",    "strides",
                                                            "attributes", "dims",     "target",  "toolchain", "build"};
  return names[static_cast<int>(part)];
}

struct OpKey::Text {
  std::array<std::string, key_parts>& parts;

  void add(KeyPart part, const std::string& text) {
    std::string& all = parts[static_cast<int>(part)];
    all += (all.empty() ? "" : " ") + text;
  }
  void text(KeyPart part, std::string_view value) { add(part, std::string(value)); }
  void number(KeyPart part, const char* name, uint64_t value, int) { add(part, fmt::format("{} {}", name, value)); }
  template <int N>
  void list(KeyPart part, const InlineVector<int64_t, N>& values) {
    add(part, fmt::format("[{}]", fmt::join(values.begin(), values.end(), ",")));
  }
  void operand(const View& view) {
    add(KeyPart::dtypes, fmt::format("{}{}:{}", view.output ? "out" : "in", view.index, to_string(view.dtype)));
  }
};

OpKey::OpKey(const PlannedCall& call, std::string_view target, std::string_view toolchain) {
  visit_key(call, Text{parts_});
  add_machine(target, toolchain);
}

OpKey::OpKey(const ir::Kernel& kernel, std::string_view nest, std::string_view dims, const KernelOptions& options,
             std::string_view target, std::string_view toolchain) {
  Text text{parts_};
  text.text(KeyPart::op, "kernel " + one_line(kernel.name));
  text.text(KeyPart::strategy, own_strategy);
  text.number(KeyPart::options, "default_schedule", options.default_schedule, 1);
  for (const ir::Buffer& buffer : kernel.buffers)
    text.text(KeyPart::dtypes, fmt::format("{}:{}", to_string(buffer->role), to_string(buffer->dtype)));
  text.text(KeyPart::dims, one_line(dims));
  text.text(KeyPart::attributes, one_line(nest));
  add_machine(target, toolchain);
}

void OpKey::add_machine(std::string_view target, std::string_view toolchain) {
  parts_[static_cast<int>(KeyPart::target)] = target;
  parts_[static_cast<int>(KeyPart::toolchain)] = toolchain;
  parts_[static_cast<int>(KeyPart::build)] = fmt::format("{} format {}", build_id(), cache_format_version);
}

void OpKey::set_schedule(std::string_view strategy, const std::vector<std::string>& trace) {
  parts_[static_cast<int>(KeyPart::strategy)] += one_line(fmt::format(" by {}: {}", strategy, fmt::join(trace, "; ")));
}

OpKey::OpKey(std::string_view text) {
  for (int part = 0; part < key_parts; ++part) {
    const std::string name = std::string(to_string(static_cast<KeyPart>(part))) + ": ";
    const size_t end = text.find('\n');
    if (end == text.npos || !text.starts_with(name))
      throw Error(ErrorCode::invalid_argument, fmt::format("an op's key lacks its {}", name));
    parts_[part] = text.substr(name.size(), end - name.size());
    text.remove_prefix(end + 1);
  }
}

std::string OpKey::text() const {
  std::string text;
  for (int part = 0; part < key_parts; ++part)
    text += fmt::format("{}: {}\n", to_string(static_cast<KeyPart>(part)), parts_[part]);
  return text;
}

std::string OpKey::file_name() const {
  std::string name = "i-";
  for (const std::string& part : parts_) name += fmt::format("{:04x}", hash128(part).low & 0xffff);
  return name + "-" + to_hex(hash128(text()));
}

std::optional<NearestKey> nearest_key(const std::string& wanted, const std::vector<std::string>& names) {
  std::optional<NearestKey> nearest;
  for (const std::string& name : names) {
    if (!is_index(name) || name == wanted || part_digits(name, 0) != part_digits(wanted, 0)) continue;
    std::vector<KeyPart> differing;
    for (int part = 1; part < key_parts; ++part) {
      if (part_digits(name, part) != part_digits(wanted, part)) differing.push_back(static_cast<KeyPart>(part));
    }
    if (nearest && nearest->differing.size() <= differing.size()) continue;
    nearest = NearestKey{name, std::move(differing)};
    if (nearest->differing.size() <= 1) break;
  }
  return nearest;
}

std::string toolchain_text(std::string_view compiler) { return fmt::format("{} emitter {}", compiler, emitter_id()); }

std::string target_text(const ir::Target& target, std::string_view features) {
  // Destructures all fields: a new one does not compile until it is encoded here.
  const auto& [name, vector_bytes, vector_registers, hardware_scatter, fast_scatter, streaming_stores, l1, l2,
               last_level, threads, gpu, multiprocessors, cooperative, block_threads, shared_bytes, matrix_units] =
      target;
  return fmt::format(
      "{} vector_bytes {} vector_registers {} hardware_scatter {} fast_scatter {} streaming_stores {} l1 {} l2 {} {}"
      "threads {} gpu {} multiprocessors {} "
      "cooperative {} block_threads {} shared_bytes {} matrix_units {} features {}",
      name, vector_bytes, vector_registers, hardware_scatter, fast_scatter, streaming_stores, l1, l2,
      gpu ? "" : fmt::format("last_level {} ", last_level), threads, gpu, multiprocessors, cooperative, block_threads,
      shared_bytes, matrix_units, features);
}

std::string machine_text(const ir::Target& target, std::string_view features, std::string_view cpu) {
  return fmt::format("{} {}, L1 {} KiB, L2 {} KiB, last level {} KiB, {} {}, {}", target.name, cpu,
                     target.l1_bytes >> 10, target.l2_bytes >> 10, target.last_level_bytes >> 10, target.threads,
                     target.threads == 1 ? "thread" : "threads",
                     to_hex(hash128(target_text(target, features))).substr(0, 16));
}

}  // namespace gradloom
