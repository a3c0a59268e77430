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

bool is_index(std::string_view name) { return name.size() == name_length && name.starts_with("i-"); }

template <class T, int N>
std::string list(const InlineVector<T, N>& values) {
  return fmt::format("[{}]", fmt::join(values.begin(), values.end(), ","));
}

}  // namespace

const char* to_string(KeyPart part) {
  static constexpr std::array<const char*, key_parts> names{"op",         "strategy", "options", "dtypes",    "strides",
                                                            "attributes", "dims",     "target",  "toolchain", "build"};
  return names[static_cast<int>(part)];
}

OpKey::OpKey(const Op& op, const Plan& plan, std::string_view strategy, const RunOptions& options,
             uint32_t outputs_wanted, int64_t output_alignment, std::string_view target, std::string_view toolchain) {
  const auto set = [&](KeyPart part, std::string text) { parts_[static_cast<int>(part)] = std::move(text); };
  const bool any_shape = options.any_shape && serves_any_shape(plan);
  std::string dtypes, dims, strides;
  for (const View& view : plan.views) {
    const bool dense = is_dense(view.dims, view.strides);
    dtypes += fmt::format(" {}{}:{}", view.output ? "out" : "in", view.index, to_string(view.dtype));
    dims += any_shape ? fmt::format(" rank {}", view.dims.size()) : " " + list(view.dims);
    strides += dense ? " dense" : any_shape ? fmt::format(" class {}", stride_class(view)) : " " + list(view.strides);
  }
  set(KeyPart::op, op.schema().name);
  set(KeyPart::strategy, std::string(strategy));
  set(KeyPart::options,
      fmt::format("any_shape {} accumulate {} determinism {} output_alignment {} outputs_wanted {:x}", any_shape,
                  options.accumulate, static_cast<int>(plan.determinism), output_alignment, outputs_wanted));
  set(KeyPart::dtypes, std::move(dtypes));
  set(KeyPart::strides, std::move(strides));
  set(KeyPart::attributes, list(plan.key));
  set(KeyPart::dims, std::move(dims));
  set(KeyPart::target, std::string(target));
  set(KeyPart::toolchain, std::string(toolchain));
  set(KeyPart::build, fmt::format("{} format {}", build_id(), cache_format_version));
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
  // All of its fields: one more does not compile until it is told apart here.
  const auto& [name, vector_bytes, vector_registers, hardware_scatter, fast_scatter, streaming_stores, l1, l2, threads,
               gpu, multiprocessors, cooperative, block_threads, shared_bytes, matrix_units] = target;
  return fmt::format(
      "{} vector_bytes {} vector_registers {} hardware_scatter {} fast_scatter {} streaming_stores {} l1 {} l2 {} "
      "threads {} gpu {} multiprocessors {} "
      "cooperative {} block_threads {} shared_bytes {} matrix_units {} features {}",
      name, vector_bytes, vector_registers, hardware_scatter, fast_scatter, streaming_stores, l1, l2, threads, gpu,
      multiprocessors, cooperative, block_threads, shared_bytes, matrix_units, features);
}

}  // namespace gradloom
