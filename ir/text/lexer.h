#pragma once
// Tokens of the text form. Whitespace separates; `//` starts a comment. Shared by the parser (which reads them) and the
// printer (which must know what needs quoting).
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gradloom::ir {

struct Position {
  int line = 1, column = 1;  // columns count bytes
};

enum class TokenKind : uint8_t { end, name, keyword, number, string, symbol };

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;    // name and string: unescaped; number: without its dtype
  std::string suffix;  // name: the digits after '#', which disambiguate equal names; number: its dtype
  Position at;
  bool is(TokenKind k, std::string_view t) const { return kind == k && text == t; }
};

// Throws Error(invalid_argument) with the position of an invalid token. The last token is `end`.
std::vector<Token> lex(std::string_view text);

std::string describe(const Token& token);  // for "got ...", on one line
[[noreturn]] void fail_at(Position at, const std::string& message);

std::string quoted_name(std::string_view name);    // as it is, or in backquotes where it would not lex as this name
std::string quoted_string(std::string_view text);  // in double quotes, escaped

}  // namespace gradloom::ir
