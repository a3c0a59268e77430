#pragma once
// The parser's state, shared by its two halves: parse_expr.cpp (expressions) and parse.cpp (statements and kernels).
// Recursive descent, with one token of lookahead and a second one to distinguish a function from a name.
#include <functional>

#include "gradloom/text.h"
#include "ir/text/lexer.h"

namespace gradloom::ir {

class Parser {
 public:
  static constexpr int max_depth = 200;      // of nested scopes and of an expression's tree, together
  static constexpr int max_bindings = 2000;  // names alive at once: each one nests the rest of its scope

  explicit Parser(std::string_view text) : tokens_(lex(text)) {}
  Kernel kernel();
  ElementValue element_value(const Kernel& kernel);

 private:
  struct Symbol {
    std::string name, suffix;
    Var var;
    Buffer buffer;  // present: the symbol is a buffer
  };
  struct Term {
    Expr e;
    int depth = 1;  // of the tree, which a chain of operators deepens without recursion
  };
  struct Access {
    Buffer buffer;
    std::vector<Expr> index;
    Expr guard, otherwise;
    int depth = 1;
  };
  // Counts one nesting level for its lifetime.
  class Level {
   public:
    explicit Level(Parser& parser);
    ~Level() { --parser_.depth_; }
    Level(const Level&) = delete;

   private:
    Parser& parser_;
  };

  // Tokens.
  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(pos_ + ahead, tokens_.size() - 1)]; }
  const Token& next() { return pos_ + 1 < tokens_.size() ? tokens_[pos_++] : tokens_.back(); }
  bool at_symbol(std::string_view text, size_t ahead = 0) const { return peek(ahead).is(TokenKind::symbol, text); }
  bool at_keyword(std::string_view text) const { return peek().is(TokenKind::keyword, text); }
  bool take_symbol(std::string_view text);
  bool take_keyword(std::string_view text);
  void expect_symbol(std::string_view text);
  void expect_keyword(std::string_view text);
  [[noreturn]] void expected(const std::string& what) const;
  int64_t integer(const std::string& what, int64_t min, int64_t max);
  // Calls a node's constructor; prefixes its Error with the position.
  template <class Make>
  auto built(Position at, Make&& make) -> decltype(make()) {
    try {
      return make();
    } catch (const Error& error) {
      fail_at(at, error.what());
    }
  }

  // Names.
  Token name(const std::string& what);
  void bind(const Token& name, Var var, Buffer buffer);
  void unbind(size_t count) { symbols_.resize(count); }
  const Symbol& find(const Token& name) const;
  Buffer buffer_name();
  DType dtype(const std::string& what);
  Type type();

  // Expressions.
  Expr expr() { return term().e; }
  Term term(int least = 0);
  Term prefix();
  Term primary();
  Term call();
  Term grow(Position at, Expr e, std::initializer_list<int> depths) const;
  Access access(bool guard_allowed);
  std::vector<Expr> list(std::string_view close);
  Expr number(bool negative);
  Expr infinity(bool negative);

  // Statements.
  Stmt scope();  // { ... }
  Stmt stmts();  // up to the closing brace
  Stmt stmt();
  Stmt loop();
  Stmt branch();
  Stmt checked();
  Stmt write();
  Stmt reduction(Position at, Access target);
  struct Bounds {
    Expr begin, extent;
  };
  Bounds bounds(Position at);
  Expr guard() { return take_keyword("where") ? expr() : Expr(); }
  void scalar(Kernel& kernel);
  bool parameter(Kernel& kernel);
  BufferNode buffer_type(const Token& name, Role role);
  void range(Expr& min, Expr& max);

  std::vector<Token> tokens_;
  size_t pos_ = 0;
  std::vector<Symbol> symbols_;
  int depth_ = 0;
};

}  // namespace gradloom::ir
