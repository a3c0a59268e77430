#include "ir/reduction.h"

#include <charconv>
#include <limits>

#include "gradloom/error.h"
#include "ir/rewrite.h"
#include "ir/scalar_math.h"

namespace gradloom::ir {

Expr identity(AccumulateOp op, DType dtype) {
  if (op == AccumulateOp::add || op == AccumulateOp::fma) return zero({dtype, 1});
  if (op == AccumulateOp::mul) return is_float(dtype) ? constant(dtype, 1) : constant_int(dtype, 1);
  const bool least = op == AccumulateOp::max;
  if (is_float(dtype)) {
    const double far = std::numeric_limits<double>::infinity();
    return constant(dtype, least ? -far : far);
  }
  const int bits = 8 * size_of(dtype);
  const uint64_t all = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1, sign = uint64_t{1} << (bits - 1);
  if (is_signed_int(dtype)) return constant_bits(dtype, least ? sign : all ^ sign);
  return constant_bits(dtype, least ? 0 : all);
}

Reduce with_outer_lets(Reduce n, const std::vector<Reduce::Definition>& lets) {
  for (size_t i = lets.size(); i-- > 0;) {
    const Substitution known{{lets[i].var.id, lets[i].value}};
    if (n.guard) n.guard = substitute(n.guard, known);
    for (Expr& e : n.index) e = substitute(e, known);
  }
  n.lets.insert(n.lets.begin(), lets.begin(), lets.end());
  return n;
}

std::optional<Reduce> with_lets_of(Reduce n, Stmt terms) {
  std::vector<Reduce::Definition> lets;
  for (const Let* l = terms.as<Let>(); l; l = terms.as<Let>()) {
    lets.push_back({l->var, l->value});
    terms = Stmt(l->body);
  }
  const Block* rest = terms.as<Block>();
  if (!rest || !rest->stmts.empty()) return std::nullopt;
  return with_outer_lets(std::move(n), lets);
}

SumOrder sum_order(std::string_view text) {
  if (text == "loop") return SumOrder::in_loops();
  if (text == "any") return SumOrder::in_any();
  const size_t space = text.find(' ');
  const std::string_view word = text.substr(0, space),
                         digits = space == std::string_view::npos ? "" : text.substr(space + 1);
  int64_t size = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
  if (error == std::errc() && end == digits.data() + digits.size() && size >= 0) {
    if (word == "tree") return SumOrder::in_tree(size);
    if (word == "chunks") return SumOrder::in_chunks(size);
  }
  throw Error(ErrorCode::invalid_argument, "no order of a reduction: " + std::string(text) +
                                               "; it is loop, any, tree and its block (tree 256), or chunks and " +
                                               "their length (chunks 4096)");
}

Stmt with_lets(const Reduce& n, Stmt body) {
  for (size_t i = n.lets.size(); i-- > 0;) body = let(n.lets[i].var, n.lets[i].value, std::move(body));
  return body;
}

Stmt in_loops(const Reduce& n) {
  Stmt body = with_lets(n, accumulate(n.buffer, n.index, n.op, n.value, n.factor));
  if (n.guard) body = if_then(n.guard, std::move(body));
  for (size_t i = n.ranges.size(); i-- > 0;)
    body = for_loop(n.ranges[i].var, n.ranges[i].begin, n.ranges[i].extent, ForKind::serial, std::move(body));
  return block({store(n.buffer, n.index, identity(n.op, n.buffer->dtype)), std::move(body)});
}

}  // namespace gradloom::ir
