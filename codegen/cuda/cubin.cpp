// Parses the section .nv.info of a cubin, which is an ELF file. An attribute is a format byte, an attribute number and
// 16 bits: the value itself, or the size of the payload that follows.
#include <elf.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "codegen/cuda/nvrtc.h"

namespace gradloom::codegen {
namespace {

constexpr uint8_t sized = 4;  // the format of an attribute with a payload
constexpr uint8_t register_count = 0x2f, frame_bytes = 0x11;

class Cubin {
 public:
  explicit Cubin(const std::string& image) : image_(image) {}

  template <class T>
  std::optional<T> read(uint64_t at) const {
    T value;
    if (at > image_.size() || sizeof(T) > image_.size() - at) return std::nullopt;
    std::memcpy(&value, image_.data() + at, sizeof(T));
    return value;
  }
  std::string name(uint64_t table, uint64_t offset) const {
    const uint64_t at = table + offset;
    if (at < table || at >= image_.size()) return {};
    return image_.substr(at, std::min(image_.find('\0', at), image_.size()) - at);
  }
  std::vector<Elf64_Shdr> sections() const {
    std::vector<Elf64_Shdr> list;
    const auto header = read<Elf64_Ehdr>(0);
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64)
      return list;
    for (int i = 0; i < header->e_shnum; ++i) {
      const auto section = read<Elf64_Shdr>(header->e_shoff + static_cast<uint64_t>(i) * sizeof(Elf64_Shdr));
      if (!section) return {};
      list.push_back(*section);
    }
    names_ = header->e_shstrndx < list.size() ? list[header->e_shstrndx].sh_offset : image_.size();
    return list;
  }
  std::string name(const Elf64_Shdr& section) const { return name(names_, section.sh_name); }

 private:
  const std::string& image_;
  mutable uint64_t names_ = 0;
};

}  // namespace

std::vector<CudaResources> cubin_resources(const std::string& image) {
  const Cubin cubin(image);
  const std::vector<Elf64_Shdr> sections = cubin.sections();
  std::map<std::string, CudaResources> functions;
  std::map<uint32_t, std::string> symbols;
  for (const Elf64_Shdr& s : sections) {
    const std::string name = cubin.name(s);
    if (name.starts_with(".text.")) functions[name.substr(6)].code_bytes = static_cast<int64_t>(s.sh_size);
    if (s.sh_type != SHT_SYMTAB || s.sh_link >= sections.size()) continue;
    for (uint64_t i = 0; i < s.sh_size / sizeof(Elf64_Sym); ++i) {
      if (const auto symbol = cubin.read<Elf64_Sym>(s.sh_offset + i * sizeof(Elf64_Sym)))
        symbols[static_cast<uint32_t>(i)] = cubin.name(sections[s.sh_link].sh_offset, symbol->st_name);
    }
  }
  for (const Elf64_Shdr& s : sections) {
    if (cubin.name(s) != ".nv.info") continue;
    for (uint64_t at = s.sh_offset; at < s.sh_offset + s.sh_size;) {
      const auto format = cubin.read<uint8_t>(at), attribute = cubin.read<uint8_t>(at + 1);
      const auto size = cubin.read<uint16_t>(at + 2);
      if (!size) break;
      const auto symbol = cubin.read<uint32_t>(at + 4), value = cubin.read<uint32_t>(at + 8);
      if (*format == sized && *size >= 8 && value) {
        const auto function = functions.find(symbols[*symbol]);
        if (function != functions.end() && *attribute == register_count)
          function->second.registers = static_cast<int>(*value);
        if (function != functions.end() && *attribute == frame_bytes) function->second.local_bytes = *value;
      }
      at += 4u + (*format == sized ? *size : 0u);
    }
  }
  std::vector<CudaResources> list;
  for (auto& [name, resources] : functions) {
    resources.function = name;
    list.push_back(std::move(resources));
  }
  return list;
}

}  // namespace gradloom::codegen
