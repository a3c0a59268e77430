#include "ir/text/lexer.h"

#include <algorithm>
#include <array>

#include "gradloom/error.h"

namespace gradloom::ir {
namespace {

// Words that may follow an expression or start a statement; functions and dtypes are recognised by the parenthesis
// after them and can be used as names.
constexpr std::array<std::string_view, 41> keywords{
    "kernel",      "in",       "out",       "inout",       "temp",          "for",        "serial",
    "parallel",    "vector",   "unroll",    "let",         "alloc",         "check",      "at",
    "evaluate",    "if",       "else",      "where",       "align",         "true",       "streaming",
    "atomic",      "strides",  "registers", "false",       "nondecreasing", "injective",  "exclusive",
    "grid",        "thread",   "warp",      "lane",        "shared",        "per_thread", "per_block",
    "cooperative", "per_warp", "fragment",  "matrix_unit", "barrier",       "ordered"};
constexpr std::array<std::string_view, 28> symbols{"==", "!=", "<=", ">=", "<<", ">>", "+=", "*=", "..", "(",
                                                   ")",  "[",  "]",  "{",  "}",  ",",  ":",  "=",  "<",  ">",
                                                   "+",  "-",  "*",  "/",  "&",  "|",  "^",  "~"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alpha(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_word(char c) { return is_alpha(c) || is_digit(c); }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool is_keyword(std::string_view word) { return std::find(keywords.begin(), keywords.end(), word) != keywords.end(); }

// The length of the plain name at the start of text, 0 for none. A dot counts between word characters.
size_t plain_name_length(std::string_view text) {
  if (text.empty() || !is_alpha(text[0])) return 0;
  size_t n = 1;
  while (n < text.size() && (is_word(text[n]) || (text[n] == '.' && n + 1 < text.size() && is_word(text[n + 1])))) ++n;
  return n;
}

std::string escaped(std::string_view text, char quote) {
  static constexpr char hex[] = "0123456789abcdef";
  std::string result(1, quote);
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == quote || c == '\\' || byte < 32 || byte > 126)
      result += {'\\', 'x', hex[byte >> 4], hex[byte & 15]};
    else
      result += c;
  }
  return result + quote;
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  std::vector<Token> run() {
    for (;;) {
      skip_space();
      Token token{.at = at_};
      if (pos_ == text_.size()) {
        tokens_.push_back(std::move(token));
        return std::move(tokens_);
      }
      const char c = text_[pos_];
      if (is_digit(c))
        number(token);
      else if (is_alpha(c) || c == '`')
        name(token);
      else if (c == '"')
        token.kind = TokenKind::string, token.text = quoted('"');
      else
        symbol(token);
      tokens_.push_back(std::move(token));
    }
  }

 private:
  char peek(size_t ahead = 0) const { return pos_ + ahead < text_.size() ? text_[pos_ + ahead] : '\0'; }

  std::string take(size_t n) {
    std::string taken(text_.substr(pos_, n));
    pos_ += n;
    at_.column += static_cast<int>(n);
    return taken;
  }

  void skip_space() {
    while (pos_ < text_.size()) {
      const char c = text_[pos_];
      if (c == '\n') {
        ++pos_;
        ++at_.line;
        at_.column = 1;
      } else if (c == ' ' || c == '\t' || c == '\r') {
        take(1);
      } else if (c == '/' && peek(1) == '/') {
        take(std::min(text_.find('\n', pos_), text_.size()) - pos_);
      } else {
        return;
      }
    }
  }

  template <class Is>
  size_t run_length(size_t from, Is is) const {
    size_t n = 0;
    while (pos_ + from + n < text_.size() && is(text_[pos_ + from + n])) ++n;
    return n;
  }

  void number(Token& token) {
    token.kind = TokenKind::number;
    if (peek() == '0' && peek(1) == 'x') {
      token.text = take(2 + run_length(2, is_hex));
      if (token.text.size() == 2) fail_at(at_, "expected hexadecimal digits after 0x");
      return;
    }
    size_t n = run_length(0, is_digit);
    if (peek(n) == '.' && is_digit(peek(n + 1))) n += 1 + run_length(n + 1, is_digit);
    if (peek(n) == 'e') {
      const size_t sign = peek(n + 1) == '+' || peek(n + 1) == '-' ? 1 : 0;
      if (is_digit(peek(n + 1 + sign))) n += 1 + sign + run_length(n + 1 + sign, is_digit);
    }
    token.text = take(n);
    token.suffix = take(run_length(0, is_word));
  }

  void name(Token& token) {
    token.kind = TokenKind::name;
    if (peek() == '`') {
      token.text = quoted('`');
    } else {
      token.text = take(plain_name_length(text_.substr(pos_)));
      if (is_keyword(token.text)) token.kind = TokenKind::keyword;
    }
    if (token.kind == TokenKind::name && peek() == '#' && is_digit(peek(1))) {
      take(1);
      token.suffix = take(run_length(0, is_digit));
    }
  }

  std::string quoted(char quote) {
    const Position start = at_;
    std::string result;
    take(1);
    while (peek() != quote) {
      if (pos_ == text_.size() || peek() == '\n')
        fail_at(start, std::string("expected a closing ") + quote + " on the same line");
      if (peek() != '\\') {
        result += take(1);
        continue;
      }
      if (peek(1) != 'x' || !is_hex(peek(2)) || !is_hex(peek(3)))
        fail_at(at_, "expected an escape \\x and two hexadecimal digits");
      result += static_cast<char>(std::stoi(take(4).substr(2), nullptr, 16));
    }
    take(1);
    return result;
  }

  void symbol(Token& token) {
    token.kind = TokenKind::symbol;
    for (std::string_view s : symbols)
      if (text_.substr(pos_, s.size()) == s) {
        token.text = take(s.size());
        return;
      }
    fail_at(at_, "expected a token, got the character " + escaped(text_.substr(pos_, 1), '\''));
  }

  std::string_view text_;
  size_t pos_ = 0;
  Position at_;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> lex(std::string_view text) {
  if (text.size() > (size_t{1} << 30)) fail_at({}, "expected at most 1 GiB of text");
  return Lexer(text).run();
}

void fail_at(Position at, const std::string& message) {
  throw Error(ErrorCode::invalid_argument, std::to_string(at.line) + ":" + std::to_string(at.column) + ": " + message);
}

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::end:
      return "the end of the text";
    case TokenKind::name:
      return quoted_name(token.text) + (token.suffix.empty() ? "" : "#" + token.suffix);
    case TokenKind::number:
      return token.text + token.suffix;
    case TokenKind::string:
      return quoted_string(token.text);
    case TokenKind::keyword:
    case TokenKind::symbol:
      return token.text;
  }
  return "?";
}

std::string quoted_name(std::string_view name) {
  const bool plain = !name.empty() && plain_name_length(name) == name.size() && !is_keyword(name);
  return plain ? std::string(name) : escaped(name, '`');
}

std::string quoted_string(std::string_view text) { return escaped(text, '"'); }

}  // namespace gradloom::ir
