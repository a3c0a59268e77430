#pragma once
// Emitted text with its names renumbered in order of appearance, function by function: texts that differ in names only
// become equal.
#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

namespace gradloom {

class Renumbered {
 public:
  std::string operator()(std::string_view name) {
    return "n" + std::to_string(numbers_.try_emplace(std::string(name), numbers_.size()).first->second);
  }
  void clear() { numbers_.clear(); }

 private:
  std::unordered_map<std::string, size_t> numbers_;
};

inline bool word_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// LLVM IR: renames %values, labels, @functions of the module, and metadata strings. Removes comments and the module's
// own names.
inline std::string canonical_llvm(std::string_view text) {
  std::string result;
  Renumbered locals, globals, strings;
  const auto name_end = [&](size_t at) {
    if (text[at] == '"') return text.find('"', at + 1) + 1;
    while (at < text.size() && (word_character(text[at]) || text[at] == '.' || text[at] == '-' || text[at] == '$'))
      ++at;
    return at;
  };
  for (size_t at = 0; at < text.size();) {
    const bool line_begins = at == 0 || text[at - 1] == '\n';
    if (line_begins) {
      if (text.substr(at).starts_with("source_filename")) at = text.find('\n', at) + 1;
      if (text.substr(at).starts_with("define")) locals.clear();
      if (const size_t end = name_end(at); end > at && end < text.size() && text[end] == ':') {  // a label
        result += "%" + locals(text.substr(at, end - at));
        at = end;
        continue;
      }
    }
    const char c = text[at];
    if (c == ';') {  // of a label, aligned to a column
      at = std::min(text.find('\n', at), text.size());
      result.erase(result.find_last_not_of(' ') + 1);
    } else if (c == '%' || c == '@' || (c == '!' && at + 1 < text.size() && text[at + 1] == '"')) {
      const size_t end = name_end(at + 1);
      const std::string_view name = text.substr(at + 1, end - at - 1);
      const bool intrinsic = c == '@' && name.starts_with("llvm.");
      result += c + (intrinsic ? std::string(name) : (c == '%' ? locals : c == '@' ? globals : strings)(name));
      at = end;
    } else {
      result += c;
      ++at;
    }
  }
  return result;
}

// CUDA C++ without comments: renames every word that is no keyword, no helper of the prelude (gl_, GL_) and no member
// of a struct.
inline std::string canonical_cuda(std::string_view text) {
  static const std::set<std::string_view> kept{
      "auto",   "bool",   "break",  "char",   "const",  "constexpr", "continue", "do",     "double",   "else",
      "false",  "float",  "for",    "if",     "inline", "int",       "long",     "pragma", "return",   "short",
      "signed", "sizeof", "static", "struct", "true",   "unroll",    "unsigned", "void",   "volatile", "while"};
  std::string result;
  Renumbered names;
  for (size_t at = 0; at < text.size();) {
    if (text.substr(at).starts_with("//")) {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    if (!word_character(text[at])) {
      result += text[at++];
      continue;
    }
    size_t end = at;
    while (end < text.size() && word_character(text[end])) ++end;
    const std::string_view word = text.substr(at, end - at);
    if (word == "GL_KERNEL") names.clear();
    const bool member = at > 0 && text[at - 1] == '.', number = std::isdigit(static_cast<unsigned char>(word[0])) != 0;
    const bool own = word.starts_with("gl_") || word.starts_with("GL_") || word.starts_with("__");
    result += member || number || own || kept.contains(word) ? std::string(word) : names(word);
    at = end;
  }
  return result;
}

}  // namespace gradloom
