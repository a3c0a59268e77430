#include <charconv>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "gradloom/text.h"
#include "ir/operators.h"
#include "ir/scalar_math.h"
#include "ir/text/lexer.h"
#include "support/float_mode.h"

namespace gradloom::ir {
namespace {

// The shortest decimal that reads back as the same value, always with a point or an exponent.
template <class T>
std::string shortest(T value) {
  char buffer[64];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string text(buffer, end);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

std::string constant_text(DType dtype, uint64_t bits) {
  const std::string type = to_string(dtype);
  if (dtype == DType::boolean && bits <= 1) return bits ? "true" : "false";
  if (is_int(dtype)) {
    const int64_t value = int_from_bits(dtype, bits);
    if (dtype == DType::i64) return std::to_string(value);
    return (dtype == DType::u64 ? std::to_string(bits) : std::to_string(value)) + type;
  }
  const double value = is_float(dtype) ? double_from_bits(dtype, bits) : NAN;
  if (std::isnan(value)) {
    char hex[20];
    const auto [end, error] = std::to_chars(hex, hex + sizeof hex, bits, 16);
    return "bits(" + type + ", 0x" + std::string(hex, end) + ")";
  }
  if (std::isinf(value)) return std::string(value < 0 ? "-" : "") + "inf(" + type + ")";
  return (dtype == DType::f64 ? shortest(value) : shortest(static_cast<float>(value))) + type;
}

// Joins left to right: the operands of + have unspecified evaluation order, and names are numbered as they appear.
// Braces fix the order.
std::string join(std::initializer_list<std::string> parts) {
  std::string text;
  for (const std::string& part : parts) text += part;
  return text;
}

class Printer {
 public:
  std::string kernel(const Kernel& kernel) {
    out_ += "kernel " + quoted_name(kernel.name) + "(";
    for (size_t i = 0; i < kernel.scalars.size(); ++i) {
      const Scalar& scalar = kernel.scalars[i];
      if (i) out_ += ", ";
      std::string type = ": " + to_string(scalar.var.type) + range(scalar.min, scalar.max);
      out_ += bind(vars_, scalar.var.id, scalar.var.name) + type;
    }
    out_ += ") {\n";
    ++indent_;
    for (const Buffer& buffer : kernel.buffers) {
      std::string type = buffer_type(*buffer);
      line(std::string(to_string(buffer->role)) + " " + bind(buffers_, buffer->id, buffer->name) + type);
    }
    stmts(kernel.body);
    out_ += "}\n";
    return std::move(out_);
  }

  std::string fragment(const Stmt& s) {
    stmts(s);
    return std::move(out_);
  }

  std::string operator()(const Expr& e, int least = precedence::lowest) {
    if (!e) return "<none>";
    return std::visit([&](const auto& n) { return expr(n, e, least); }, e.node().value);
  }

 private:
  using Names = std::unordered_map<int64_t, std::string>;

  // A binding gets its own name, with #1, #2, ... while another live binding has the same text.
  std::string bind(Names& names, int64_t id, const std::string& name) {
    const std::string plain = quoted_name(name);
    std::string text = plain;
    for (int i = 1; !live_.insert(text).second; ++i) text = plain + "#" + std::to_string(i);
    return names[id] = text;
  }
  void unbind(Names& names, int64_t id) {
    const auto found = names.find(id);
    if (found == names.end()) return;
    live_.erase(found->second);
    names.erase(found);
  }
  // A free name, in a fragment, is bound from its first use on.
  std::string use(Names& names, int64_t id, const std::string& name) {
    const auto found = names.find(id);
    return found != names.end() ? found->second : bind(names, id, name);
  }

  std::string list(const std::vector<Expr>& exprs) {
    std::string text;
    for (const Expr& e : exprs) text += (text.empty() ? "" : ", ") + (*this)(e);
    return text;
  }
  std::string call(const std::string& function, const std::vector<Expr>& args) {
    return function + "(" + list(args) + ")";
  }
  std::string access(const Buffer& buffer, const std::vector<Expr>& index) {
    return join({use(buffers_, buffer->id, buffer->name), "[", list(index), "]"});
  }
  std::string range(const Expr& min, const Expr& max) {
    if (!min && !max) return "";
    return join({" in [", min ? (*this)(min) : "", ", ", max ? (*this)(max) : "", "]"});
  }
  std::string buffer_type(const BufferNode& buffer) {
    std::string text = std::string(": ") + to_string(buffer.dtype) + "[" + list(buffer.dims) + "]";
    if (!buffer.strides.empty()) text += " strides [" + list(buffer.strides) + "]";
    if (buffer.space != Space::global) text += std::string(" ") + to_string(buffer.space);
    if (buffer.alignment != 1) text += " align " + std::to_string(buffer.alignment);
    text += range(buffer.facts.min, buffer.facts.max);
    if (buffer.facts.nondecreasing) text += " nondecreasing";
    if (buffer.facts.injective) text += " injective";
    if (buffer.facts.exclusive) text += " exclusive";
    return text;
  }

  std::string expr(const Const& n, const Expr& self, int) { return constant_text(self.dtype(), n.bits); }
  std::string expr(const Var& n, const Expr&, int) { return use(vars_, n.id, n.name); }
  std::string expr(const Load& n, const Expr&, int) {
    std::string text = access(n.buffer, n.index);
    if (!n.guard) return text;
    text.pop_back();
    return join({text, n.index.empty() ? "" : " ", "where ", (*this)(n.guard), " else ", (*this)(n.otherwise), "]"});
  }
  std::string expr(const Unary& n, const Expr&, int) {
    if (n.op != UnaryOp::neg && n.op != UnaryOp::bit_not) return call(to_string(n.op), {n.a});
    // A minus before a number is part of the number.
    const std::string operand = n.a.as<Const>() ? "(" + (*this)(n.a) + ")" : (*this)(n.a, precedence::prefix);
    return (n.op == UnaryOp::neg ? "-" : "~") + operand;
  }
  std::string expr(const Binary& n, const Expr&, int least) {
    const BinaryInfo& op = info_of(n.op);
    if (!op.symbol) return call(op.name, {n.a, n.b});
    const int above = op.precedence + 1, left = is_comparison(n.op) ? above : op.precedence;
    const std::string text = join({(*this)(n.a, left), " ", op.symbol, " ", (*this)(n.b, above)});
    return op.precedence < least ? "(" + text + ")" : text;
  }
  std::string expr(const Fma& n, const Expr&, int) { return call("fma", {n.a, n.b, n.c}); }
  std::string expr(const Select& n, const Expr&, int) { return call("select", {n.condition, n.a, n.b}); }
  std::string expr(const Cast& n, const Expr& self, int) { return call(to_string(self.dtype()), {n.value}); }
  std::string expr(const Bitcast& n, const Expr& self, int) {
    return std::string("bitcast(") + to_string(self.dtype()) + ", " + (*this)(n.value) + ")";
  }
  std::string expr(const Ramp& n, const Expr&, int) {
    return join({"ramp(", (*this)(n.base), ", ", (*this)(n.stride), ", ", std::to_string(n.lanes), ")"});
  }
  std::string expr(const Broadcast& n, const Expr&, int) {
    return "broadcast(" + (*this)(n.value) + ", " + std::to_string(n.lanes) + ")";
  }
  std::string expr(const Shuffle& n, const Expr&, int) {
    std::string lanes;
    for (int lane : n.lanes) lanes += (lanes.empty() ? "" : ", ") + std::to_string(lane);
    return join({"shuffle(", (*this)(n.a), n.b ? ", " + (*this)(n.b) : "", ", [", lanes, "])"});
  }
  std::string expr(const Intrinsic& n, const Expr&, int) {
    switch (n.op) {
      case IntrinsicOp::prefetch:
        return "prefetch(" + access(n.buffer, n.args) + ", " + std::to_string(n.level) + ")";
      case IntrinsicOp::all:
      case IntrinsicOp::any:
        return call(to_string(n.op), n.args);
    }
    return "?";
  }

  std::string expr(const Math& n, const Expr&, int) {
    if (n.op != MathOp::pow) return call(to_string(n.op), {n.a});
    return call(to_string(n.op), {n.a, constant(n.a.dtype(), n.exponent)});
  }

  void line(const std::string& text) { out_ += std::string(2 * indent_, ' ') + text + "\n"; }

  // The statements of one scope. A let or an alloc is live to the scope's end, so one that ends earlier gets a nested
  // scope.
  void stmts(const Stmt& s) {
    if (!s) return;
    const Block* block = s.as<Block>();
    if (!block) return stmt(s);
    for (size_t i = 0; i < block->stmts.size(); ++i) {
      const Stmt& inner = block->stmts[i];
      const bool scoped = i + 1 < block->stmts.size() && (inner.as<Let>() || inner.as<Alloc>());
      scoped ? braces("", inner) : stmt(inner);
    }
  }
  void braces(const std::string& head, const Stmt& body) {
    line(head + (head.empty() ? "{" : " {"));
    inside(body);
    line("}");
  }
  void inside(const Stmt& body) {
    ++indent_;
    stmts(body);
    --indent_;
  }
  void stmt(const Stmt& s) {
    std::visit([&](const auto& n) { put(n, s); }, s.node().value);
  }
  std::string bounds(const Expr& begin, const Expr& extent) {
    return join({" in ", (*this)(begin), is_const(begin, 0) ? " .. " : " .. +", (*this)(extent)});
  }
  void put(const For& n, const Stmt&) {
    std::string bounds = this->bounds(n.begin, n.extent);
    if (n.kind != ForKind::serial) bounds += std::string(" ") + to_string(n.kind);
    braces("for " + bind(vars_, n.var.id, n.var.name) + bounds, n.body);
    unbind(vars_, n.var.id);
  }
  void put(const Block&, const Stmt& self) { braces("", self); }
  void put(const Let& n, const Stmt&) {
    std::string value = ": " + to_string(n.var.type) + " = " + (*this)(n.value);
    line("let " + bind(vars_, n.var.id, n.var.name) + value);
    stmts(n.body);
    unbind(vars_, n.var.id);
  }
  void put(const Store& n, const Stmt&) {
    line(join({access(n.buffer, n.index), " = ", (*this)(n.value), guard(n.guard), n.streaming ? " streaming" : "",
               n.ordered ? " ordered" : ""}));
  }
  void put(const Accumulate& n, const Stmt&) {
    std::string text = access(n.buffer, n.index);
    switch (n.op) {
      case AccumulateOp::add:
        text += " += " + (*this)(n.value);
        break;
      case AccumulateOp::min:
        text += " min= " + (*this)(n.value);
        break;
      case AccumulateOp::max:
        text += " max= " + (*this)(n.value);
        break;
      case AccumulateOp::mul:
        text += " *= " + (*this)(n.value);
        break;
      case AccumulateOp::fma:
        text += join({" fma= (", (*this)(n.value), ", ", (*this)(n.factor), ")"});
        break;
    }
    line(text + guard(n.guard) + (n.atomic ? " atomic" : "") + (n.ordered ? " ordered" : ""));
  }
  void put(const Reduce& n, const Stmt&) {
    const char* word = n.op == AccumulateOp::add ? "sum" : n.op == AccumulateOp::mul ? "product" : to_string(n.op);
    std::string text = access(n.buffer, n.index) + " = " + word;
    for (const Reduce::Range& r : n.ranges) {
      const std::string bounds = this->bounds(r.begin, r.extent);
      text += (&r == &n.ranges[0] ? " " : ", ") + bind(vars_, r.var.id, r.var.name) + bounds;
    }
    text += std::string(" ") + to_string(n.order);
    text += guard(n.guard) + " of";
    if (!n.lets.empty()) {
      line(text);
      text = "  in";
    }
    for (const Reduce::Definition& d : n.lets) {
      const std::string value = ": " + to_string(d.var.type) + " = " + (*this)(d.value);
      line("  let " + bind(vars_, d.var.id, d.var.name) + value + (&d == &n.lets.back() ? "" : ","));
    }
    line(text + (n.factor ? join({" (", (*this)(n.value), ", ", (*this)(n.factor), ")"}) : " " + (*this)(n.value)));
    for (size_t i = n.lets.size(); i-- > 0;) unbind(vars_, n.lets[i].var.id);
    for (size_t i = n.ranges.size(); i-- > 0;) unbind(vars_, n.ranges[i].var.id);
  }
  void put(const If& n, const Stmt&) {
    std::string head = "if " + (*this)(n.condition) + " {";
    const If* branch = &n;
    for (;;) {
      line(head);
      inside(branch->then_case);
      const If* next = branch->else_case.as<If>();
      if (!next) break;
      head = "} else if " + (*this)(next->condition) + " {";
      branch = next;
    }
    if (branch->else_case) {
      line("} else {");
      inside(branch->else_case);
    }
    line("}");
  }
  void put(const Alloc& n, const Stmt&) {
    std::string type = buffer_type(*n.buffer);
    line("alloc " + bind(buffers_, n.buffer->id, n.buffer->name) + type);
    stmts(n.body);
    unbind(buffers_, n.buffer->id);
  }
  void put(const Check& n, const Stmt&) {
    braces(join({"check ", (*this)(n.condition), " at ", (*this)(n.position), " ", quoted_string(n.argument)}), n.body);
  }
  void put(const Evaluate& n, const Stmt&) { line("evaluate " + (*this)(n.value)); }
  void put(const Barrier& n, const Stmt&) { line(std::string("barrier ") + to_string(n.scope)); }

  std::string guard(const Expr& e) { return e ? " where " + (*this)(e) : ""; }

  std::string out_;
  int indent_ = 0;
  Names vars_, buffers_;
  std::unordered_set<std::string> live_;
};

}  // namespace

std::string print(const Kernel& kernel) {
  const FloatMode mode;
  return Printer().kernel(kernel);
}
std::string print(const Stmt& stmt) {
  const FloatMode mode;
  return Printer().fragment(stmt);
}
std::string print(const Expr& expr) {
  const FloatMode mode;
  return Printer()(expr);
}

}  // namespace gradloom::ir
