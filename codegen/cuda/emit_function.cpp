// Emits one grid loop (or cooperative loop: emit_cooperative.cpp) as one __global__ function: its parameters and simple
// statements. ir/analysis/verify_gpu.h defines the execution levels.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "codegen/cuda/emitter.h"
#include "gradloom/refusal.h"
#include "ir/analysis/verify_gpu.h"
#include "ir/rewrite.h"

namespace gradloom::codegen {
namespace {

constexpr int default_threads = 256;

// Reserved names: keywords of C++, names of CUDA, and macros that compilers predefine.
const char* const reserved[] = {
    "alignas",     "alignof",   "and",       "and_eq",    "asm",      "auto",         "bitand",
    "bitor",       "bool",      "break",     "case",      "catch",    "char",         "char16_t",
    "char32_t",    "char8_t",   "class",     "compl",     "concept",  "const",        "const_cast",
    "consteval",   "constexpr", "constinit", "continue",  "co_await", "co_return",    "co_yield",
    "decltype",    "default",   "delete",    "do",        "double",   "dynamic_cast", "else",
    "enum",        "explicit",  "export",    "extern",    "false",    "float",        "for",
    "friend",      "goto",      "if",        "inline",    "int",      "long",         "mutable",
    "namespace",   "new",       "noexcept",  "not",       "not_eq",   "nullptr",      "operator",
    "or",          "or_eq",     "private",   "protected", "public",   "register",     "reinterpret_cast",
    "requires",    "return",    "short",     "signed",    "sizeof",   "static",       "static_assert",
    "static_cast", "struct",    "switch",    "template",  "this",     "thread_local", "throw",
    "true",        "try",       "typedef",   "typeid",    "typename", "typeof",       "union",
    "unsigned",    "using",     "virtual",   "void",      "volatile", "wchar_t",      "while",
    "xor",         "xor_eq",    "blockDim",  "blockIdx",  "gridDim",  "threadIdx",    "warpSize",
    "abs",         "ceil",      "floor",     "half",      "linux",    "max",          "min",
    "sqrt",        "trunc",     "unix"};

}  // namespace

std::string FunctionEmitter::fresh(const std::string& name) {
  std::string plain;
  for (const char c : name) plain += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  if (plain.empty() || std::isdigit(static_cast<unsigned char>(plain[0])) || plain.starts_with("gl_") ||
      plain.starts_with("GL_") || plain.starts_with("__"))
    plain = "x" + plain;
  if (std::find(std::begin(reserved), std::end(reserved), plain) != std::end(reserved)) plain += "_";
  std::string text = plain;
  for (int i = 1; !names_.insert(text).second; ++i) text = plain + "_" + std::to_string(i);
  return text;
}

void FunctionEmitter::line(const std::string& text) {
  body_ += std::string(static_cast<size_t>(indent_) * 2, ' ') + text + "\n";
}
void FunctionEmitter::open(const std::string& head) { line(head + "{"), ++indent_; }
void FunctionEmitter::close() { --indent_, line("}"); }
void FunctionEmitter::otherwise() { --indent_, line("} else {"), ++indent_; }

std::string FunctionEmitter::slot(int64_t var_id, const std::string& name, Type type) {
  const auto found = host_.slots.find(var_id);
  if (found == host_.slots.end())
    throw Error(ErrorCode::internal, "emit_cuda: variable " + name + " is used outside its scope");
  function_.arguments.push_back({CudaArgument::slot, found->second});
  const std::string raw = fresh(name);
  parameters_.push_back("long long " + raw);
  if (type.dtype == DType::i64) return raw;
  const std::string typed = fresh(name);
  const std::string bits =
      type.dtype == DType::f32 ? fmt::format("gl_float((unsigned){})", raw)
      : type.dtype == DType::f64
          ? fmt::format("gl_double((unsigned long long){})", raw)
          : fmt::format("({}){}{}", c_type(type.dtype), type.dtype == DType::boolean ? "(unsigned char)" : "", raw);
  head_ += fmt::format("  const {} {} = {};\n", c_type(type.dtype), typed, bits);
  return typed;
}

int FunctionEmitter::threads_of(const ir::Stmt& body) const {
  int64_t threads = 1;
  ir::walk(body, [&](const ir::Stmt& s) {
    const ir::For* n = s.as<ir::For>();
    if (!n || (n->kind != ir::ForKind::thread && n->kind != ir::ForKind::warp)) return;
    const int64_t wanted = std::min<int64_t>(ir::as_int(n->extent).value_or(default_threads), ir::most_block_threads) *
                           (n->kind == ir::ForKind::warp ? ir::warp_lanes : 1);
    threads = std::max(threads, std::min(wanted, ir::most_block_threads));
  });
  return static_cast<int>((threads + ir::warp_lanes - 1) / ir::warp_lanes * ir::warp_lanes);
}

void FunctionEmitter::find_exchanged(const ir::For& loop) {
  if (!ir::any_of(loop.body, [](const ir::Stmt& s) { return s.as<ir::Barrier>() != nullptr; })) return;
  ir::walk(loop.body, [&](const ir::Stmt& s) {
    if (const auto* n = s.as<ir::Store>()) exchanged_.insert(n->buffer->id);
    if (const auto* n = s.as<ir::Accumulate>()) exchanged_.insert(n->buffer->id);
  });
}

CudaFunction FunctionEmitter::emit(const ir::For& loop, std::string& text) {
  function_.name = name_;
  function_.threads = threads_of(loop.body);
  parameters_.push_back("long long* gl_status");
  function_.arguments.push_back({CudaArgument::status, 0});
  find_exchanged(loop);
  loop.kind == ir::ForKind::grid ? grid_function(loop) : cooperative_function(loop);

  function_.shared_bytes = std::max(shared_, most_shared_);
  std::string list;
  for (const std::string& p : parameters_) list += (list.empty() ? "" : ", ") + p;
  // Without a minimum of one block per multiprocessor, ptxas saves registers for higher occupancy and serialises loads.
  const char* blocks = function_.cooperative ? ", 1" : "";
  text += fmt::format("{}{}{}) {}({}) {{\n", function_mark, function_.threads, blocks, name_, list);
  if (function_.shared_bytes) text += fmt::format("  GL_SHARED({});\n", function_.shared_bytes);
  text += head_ + body_ + "}\n";
  return function_;
}

void FunctionEmitter::grid_function(const ir::For& grid) {
  const ir::Range blocks = ranges_.of(grid.extent);
  grid_loop(grid, !blocks.max || *blocks.max > int_max);
}

void FunctionEmitter::grid_loop(const ir::For& grid, bool strides) {
  begin({grid.begin, grid.extent});
  const ir::Range at = [&] {
    ir::Ranges inside = ranges_;
    inside.enter(grid);
    return inside.of(ir::var(grid.var));
  }();
  const bool narrow = at.min && at.max && *at.min >= -int_max && *at.max <= int_max;
  const bool fits = narrow || counts_in_range(grid);
  const std::string block = strides ? "gl_at" : "gl_block()";
  const std::string number = ir::is_const(grid.begin, 0) ? block
                             : fits ? fmt::format("{} + {}", parenthesised(wide(grid.begin)), block)
                                    : fmt::format("gl_add<long long>({}, {})", wide(grid.begin), block);
  const std::string name = fresh(grid.var.name);
  if (strides) {
    open(fmt::format("for (long long gl_at = gl_block(); gl_at < {}; gl_at += gl_blocks()) ",
                     parenthesised(wide(grid.extent))));
    line("gl_sync_block();");
  }
  line(narrow ? fmt::format("const int {} = (int)({});", name, number)
              : fmt::format("const long long {} = {};", name, number));
  vars_[grid.var.id] = {{name}, narrow, true};
  const ir::Ranges::Mark mark = ranges_.mark();
  ranges_.enter(grid);
  name_divisions(grid);
  statement(grid.body);
  ranges_.restore(mark);
  if (strides) close();
}

void FunctionEmitter::begin(std::initializer_list<ir::Expr> used) {
  memo_.clear();
  uses_.clear();
  for (const ir::Expr& e : used) count_uses(e);
}

void FunctionEmitter::statement(const ir::Stmt& s) {
  if (s) std::visit([&](const auto& n) { emit(n, s.get()); }, s.node().value);
}

void FunctionEmitter::once(const ir::Buffer& b, const std::function<void()>& write) {
  if (part_ == Part::thread || place(b).own) return write();
  open(part_ == Part::block ? "if (gl_thread() == 0) " : "if (gl_thread() % 32 == 0) ");
  write();
  close();
}

void FunctionEmitter::emit(const ir::Block& n) {
  for (const ir::Stmt& s : n.stmts) statement(s);
}

void FunctionEmitter::emit(const ir::Let& n) {
  begin({n.value});
  Text text = value(n.value);
  const bool narrow = n.var.type.dtype == DType::i64 && (text.narrow || fits_int(n.value));
  Text named{.narrow = narrow, .atom = true};
  for (size_t i = 0; i < text.lanes.size(); ++i) {
    const std::string name = fresh(n.var.name);
    line(fmt::format("const {} {} = {}{};", narrow ? "int" : c_type(n.var.type.dtype), name,
                     narrow && !text.narrow ? "(int)" : "",
                     narrow && !text.narrow ? parenthesised(text.lanes[i]) : text.lanes[i]));
    named.lanes.push_back(name);
  }
  vars_[n.var.id] = named;
  const ir::Ranges::Mark mark = ranges_.mark();
  ranges_.enter(n);
  statement(n.body);
  ranges_.restore(mark);
}

void FunctionEmitter::emit(const ir::If& n) {
  begin({n.condition});
  open(fmt::format("if ({}) ", scalar(n.condition)));
  const ir::Ranges::Mark mark = ranges_.mark();
  ranges_.assume(n.condition);
  statement(n.then_case);
  ranges_.restore(mark);
  if (n.else_case) {
    otherwise();
    ranges_.assume(ir::unary(ir::UnaryOp::bit_not, n.condition));
    statement(n.else_case);
    ranges_.restore(mark);
  }
  close();
}

void FunctionEmitter::emit(const ir::Alloc& n) {
  const ir::Buffer& b = n.buffer;
  int64_t elements = 1;
  for (size_t d = holds_a_part(b) ? 1 : 0; d < b->dims.size(); ++d) {
    const int64_t n = std::max<int64_t>(*ir::as_int(b->dims[d]), 0);
    if (n > 0 && elements > int_max / size_of(b->dtype) / n)
      throw ir::LoweringRefusal(ErrorCode::unsupported,
                                "CUDA: the buffer " + b->name + " of a block or thread takes more than 2 GiB");
    elements *= n;
  }
  if (b->space == ir::Space::per_warp) elements /= ir::warp_lanes;  // distributed over the lanes
  elements = std::max<int64_t>(elements, 1);
  const std::string name = fresh(b->name);
  const char* type = memory_type(b->dtype);
  const bool of_block = b->space == ir::Space::shared || b->space == ir::Space::per_block;
  Place& place = places_[b->id] = {.name = name, .own = !of_block, .of_block = of_block};
  if (of_block) {
    line(fmt::format("{0}* const {1} = ({0}*)(gl_shared + {2});", type, name, shared_));
    shared_ += (elements * size_of(b->dtype) + 15) / 16 * 16;
  } else if (place.variables = variables_of(b, elements, name, n.body); place.variables.empty()) {
    line(fmt::format("{} {}[{}];", type, name, elements));
  }
  statement(n.body);
}

void FunctionEmitter::emit(const ir::Check& n) {
  begin({n.condition, n.position});
  const Text condition = bound(value(n.condition), DType::boolean, "ok");
  const Text position = bound(value(n.position), DType::i64, "position");
  // INT64_MAX encodes "no failure", so positions are clamped below it.
  const std::optional<int64_t> most = ranges_.of(n.position).max;
  const auto kept = [known = most && *most != std::numeric_limits<int64_t>::max()](const std::string& at) {
    return known ? at : fmt::format("{0} < 0x7fffffffffffffffLL ? {0} : 0x7ffffffffffffffeLL", parenthesised(at));
  };
  std::string all;
  for (const std::string& c : condition.lanes) all += (all.empty() ? "" : " && ") + c;
  open(fmt::format("if ({}) ", all));
  const ir::Ranges::Mark mark = ranges_.mark();
  ranges_.assume(n.condition);
  statement(n.body);
  ranges_.restore(mark);
  otherwise();
  for (size_t i = 0; i < condition.lanes.size(); ++i)
    line(fmt::format("{}gl_atomic_min(gl_status, {});",
                     condition.lanes.size() > 1 ? fmt::format("if (!{}) ", condition.lanes[i]) : "",
                     kept(position.lanes[position.lanes.size() == 1 ? 0 : i])));
  close();
}

void FunctionEmitter::emit(const ir::Evaluate&) {}  // a prefetch: a no-op here

void FunctionEmitter::emit(const ir::Reduce&) {
  throw Error(ErrorCode::internal, "emit: a reduction in a lowered kernel");
}

void FunctionEmitter::emit(const ir::Barrier& n) {
  switch (n.scope) {
    case ir::BarrierScope::warp:
      return line("gl_sync_warp();");
    case ir::BarrierScope::block:
      return line("gl_sync_block();");
    case ir::BarrierScope::grid:
      return line("gl_sync_grid(gl_grid);");
  }
}

}  // namespace gradloom::codegen
