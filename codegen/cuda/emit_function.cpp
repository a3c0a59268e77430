// One grid loop as one function: statements, the threads that run them, and the barriers between (ir/gpu_form.h says what each part means).
#include <fmt/format.h>

#include <algorithm>

#include "codegen/cuda/emitter.h"
#include "ir/races.h"
#include "ir/rewrite.h"

namespace gradloom::codegen {
namespace {

constexpr int most_threads = 1024, default_threads = 256;
constexpr int64_t int_max = 2147483647;

const char* const reserved[] = {"int", "long", "short", "char", "float", "double", "bool", "unsigned", "signed", "const", "for", "if", "else", "while", "do", "return",
                                "switch", "case", "default", "break", "continue", "void", "true", "false", "new", "delete", "this", "class", "struct", "union", "enum",
                                "auto", "static", "extern", "inline", "template", "typename", "namespace", "using", "operator", "private", "public", "protected",
                                "register", "volatile", "asm", "and", "or", "not", "xor", "sizeof", "alignas", "threadIdx", "blockIdx", "gridDim", "blockDim", "min",
                                "max", "floor", "ceil", "trunc", "sqrt", "abs", "half", "warpSize", "goto", "try", "catch", "throw", "friend", "virtual", "mutable"};

}  // namespace

void Touched::add(const Touched& other) {
  reads.insert(other.reads.begin(), other.reads.end());
  writes.insert(other.writes.begin(), other.writes.end());
}

bool Touched::clashes(const Touched& earlier) const {
  const auto meet = [](const auto& a, const auto& b) { return std::any_of(a.begin(), a.end(), [&](int64_t id) { return b.contains(id); }); };
  return meet(writes, earlier.writes) || meet(writes, earlier.reads) || meet(reads, earlier.writes);
}

std::string FunctionEmitter::fresh(const std::string& name) {
  std::string plain;
  for (const char c : name) plain += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  if (plain.empty() || std::isdigit(static_cast<unsigned char>(plain[0])) || plain.starts_with("gl_") || plain.starts_with("GL_") || plain.starts_with("__")) plain = "x" + plain;
  if (std::find(std::begin(reserved), std::end(reserved), plain) != std::end(reserved)) plain += "_";
  std::string text = plain;
  for (int i = 1; !names_.insert(text).second; ++i) text = plain + "_" + std::to_string(i);
  return text;
}

void FunctionEmitter::line(const std::string& text) { body_ += std::string(static_cast<size_t>(indent_) * 2, ' ') + text + "\n"; }
void FunctionEmitter::open(const std::string& head) { line(head + "{"), ++indent_; }
void FunctionEmitter::close() { --indent_, line("}"); }
void FunctionEmitter::otherwise() { --indent_, line("} else {"), ++indent_; }

std::string FunctionEmitter::slot(int64_t var_id, const std::string& name, Type type) {
  const auto found = host_.slots.find(var_id);
  if (found == host_.slots.end()) throw Error(ErrorCode::internal, "emit_cuda: variable " + name + " is used outside its scope");
  function_.arguments.push_back({CudaArgument::slot, found->second});
  const std::string raw = fresh(name);
  parameters_.push_back("long long " + raw);
  if (type.dtype == DType::i64) return raw;
  const std::string typed = fresh(name);
  const std::string bits = type.dtype == DType::f32 ? fmt::format("gl_float((unsigned){})", raw) : type.dtype == DType::f64 ? fmt::format("gl_double((unsigned long long){})", raw)
                                                                                                  : fmt::format("({}){}", c_type(type.dtype), raw);
  head_ += fmt::format("  const {} {} = {};\n", c_type(type.dtype), typed, bits);
  return typed;
}

int FunctionEmitter::threads_of(const ir::Stmt& body) const {
  int64_t threads = 1;
  ir::walk(body, [&](const ir::Stmt& s) {
    const ir::For* n = s.as<ir::For>();
    if (!n || (n->kind != ir::ForKind::thread && n->kind != ir::ForKind::warp)) return;
    const int64_t wanted = ir::as_int(n->extent).value_or(default_threads) * (n->kind == ir::ForKind::warp ? ir::warp_lanes : 1);
    threads = std::max(threads, std::min<int64_t>(wanted, most_threads));
  });
  return static_cast<int>((threads + ir::warp_lanes - 1) / ir::warp_lanes * ir::warp_lanes);
}

CudaFunction FunctionEmitter::emit(const ir::For& grid, std::string& text) {
  function_.name = name_;
  function_.threads = threads_of(grid.body);
  parameters_.push_back("long long* gl_status");
  function_.arguments.push_back({CudaArgument::status, 0});

  begin({grid.begin, grid.extent});
  const ir::Range blocks = ranges_.of(grid.extent);
  const bool strides = !blocks.max || *blocks.max > int_max;
  const ir::Range at = [&] {
    ir::Ranges inside = ranges_;
    inside.enter(grid);
    return inside.of(ir::var(grid.var));
  }();
  const bool narrow = at.min && at.max && *at.min >= -int_max && *at.max <= int_max;
  const std::string begin_text = ir::is_const(grid.begin, 0) ? "" : wide(grid.begin) + " + ";
  const std::string name = fresh(grid.var.name);
  if (strides) {
    open(fmt::format("for (long long gl_at = gl_block(); gl_at < {}; gl_at += gl_blocks()) ", wide(grid.extent)));
    line("gl_sync_block();");
  }
  line(fmt::format("const {0} {1} = {4}{2}{3}{5};", narrow ? "int" : "long long", name, begin_text, strides ? "gl_at" : "gl_block()", narrow ? "(int)(" : "",
                   narrow ? ")" : ""));
  vars_[grid.var.id] = {{name}, narrow, true};
  ranges_.enter(grid);
  statement(grid.body);
  if (strides) close();

  function_.shared_bytes = shared_;
  std::string list;
  for (const std::string& p : parameters_) list += (list.empty() ? "" : ", ") + p;
  text += fmt::format("\nGL_KERNEL({}) {}({}) {{\n", function_.threads, name_, list);
  if (shared_) text += fmt::format("  GL_SHARED({});\n", shared_);
  text += head_ + body_ + "}\n";
  return function_;
}

void FunctionEmitter::begin(std::initializer_list<ir::Expr> used) {
  memo_.clear();
  uses_.clear();
  for (const ir::Expr& e : used) count_uses(e);
}

void FunctionEmitter::statement(const ir::Stmt& s) {
  if (s) std::visit([&](const auto& n) { emit(n, s.get()); }, s.node().value);
}

Touched FunctionEmitter::touched(const ir::Expr& e) const {
  Touched t;
  if (!e) return t;
  ir::walk(e, [&](const ir::Expr& x) {
    const ir::Load* load = x.as<ir::Load>();
    if (!load || load->buffer->role == ir::Role::in) return;
    const auto found = places_.find(load->buffer->id);
    if (found == places_.end() || !found->second.own) t.reads.insert(load->buffer->id);
  });
  return t;
}

Touched FunctionEmitter::touched(const ir::Stmt& s) const {
  Touched t;
  std::unordered_set<int64_t> own;
  for (const auto& [id, place] : places_)
    if (place.own) own.insert(id);
  ir::walk(
      s,
      [&](const ir::Stmt& x) {
        if (const auto* n = x.as<ir::Alloc>(); n && n->buffer->space != ir::Space::shared) own.insert(n->buffer->id);
        if (const auto* n = x.as<ir::Store>(); n && !own.contains(n->buffer->id)) t.writes.insert(n->buffer->id);
        if (const auto* n = x.as<ir::Accumulate>(); n && !own.contains(n->buffer->id)) t.writes.insert(n->buffer->id);
      },
      [&](const ir::Expr& x) {
        if (const auto* n = x.as<ir::Load>(); n && n->buffer->role != ir::Role::in && !own.contains(n->buffer->id)) t.reads.insert(n->buffer->id);
      });
  return t;
}

void FunctionEmitter::before(const Touched& next) {
  if (part_ != Part::block) return;
  if (next.clashes(since_barrier_)) {
    line("gl_sync_block();");
    since_barrier_ = {};
  }
  since_barrier_.add(next);
}

void FunctionEmitter::before_write(const ir::Buffer& b, const std::vector<ir::Expr>& index, std::initializer_list<ir::Expr> values) {
  if (part_ != Part::block) return;
  Touched all;
  for (const ir::Expr& e : index) all.add(touched(e));
  for (const ir::Expr& e : values) all.add(touched(e));
  if (!place(b).own) all.writes.insert(b->id);
  before(all);
}

void FunctionEmitter::once(const ir::Buffer& b, const std::function<void()>& write) {
  if (part_ == Part::thread || place(b).own) return write();
  if (part_ == Part::warp) line("gl_sync_warp();");
  open(part_ == Part::block ? "if (gl_thread() == 0) " : "if (gl_thread() % 32 == 0) ");
  write();
  close();
  if (part_ == Part::warp) line("gl_sync_warp();");
}

void FunctionEmitter::emit(const ir::For& n) {
  if (part_ == Part::block && (n.kind == ir::ForKind::thread || n.kind == ir::ForKind::warp)) {
    Touched all = touched(n.body);
    all.add(touched(n.begin)), all.add(touched(n.extent));
    before(all);
  }
  switch (n.kind) {
    case ir::ForKind::serial: return serial_loop(n);
    case ir::ForKind::thread: return thread_loop(n);
    case ir::ForKind::warp: return warp_loop(n);
    case ir::ForKind::lane: return lane_loop(n);
    case ir::ForKind::parallel:
    case ir::ForKind::vector:
    case ir::ForKind::unroll:
    case ir::ForKind::grid: throw Error(ErrorCode::internal, std::string("emit_cuda: a ") + to_string(n.kind) + " loop inside a grid loop");
  }
}

template <class Body>
void FunctionEmitter::with_variable(const ir::For& n, Body&& body) {
  const ir::Ranges::Mark mark = ranges_.mark();
  ranges_.enter(n);
  body();
  ranges_.restore(mark);
}

// Declares nothing: the name, and whether int holds all that the loop's variable and end can be.
std::string FunctionEmitter::loop_variable(const ir::For& n, bool& narrow) {
  const ir::Range end = ranges_.of(n.begin + n.extent), begin = ranges_.of(n.begin);
  narrow = end.max && *end.max <= int_max && begin.min && begin.max && *begin.min >= -int_max && *begin.max <= int_max && end.min && *end.min >= -int_max;
  const std::string name = fresh(n.var.name);
  vars_[n.var.id] = {{name}, narrow, true};
  return name;
}

void FunctionEmitter::serial_loop(const ir::For& n) {
  const Touched entry = since_barrier_;
  Touched all = touched(n.body);
  Touched bounds = touched(n.begin);
  bounds.add(touched(n.extent));
  before(bounds);
  begin({n.begin, n.extent});
  bool narrow = false;
  const std::string name = loop_variable(n, narrow);
  const std::string from = narrow ? scalar(n.begin) : wide(n.begin);
  std::string end = ir::is_const(n.begin, 0) ? (narrow ? scalar(n.extent) : wide(n.extent))
                    : narrow                 ? fmt::format("{} + {}", parenthesised(scalar(n.begin)), parenthesised(scalar(n.extent)))
                                             : fmt::format("gl_add<long long>({}, {})", wide(n.begin), wide(n.extent));
  if (narrow && !(value(n.begin).narrow && value(n.extent).narrow)) end = fmt::format("(int)({})", end);
  if (!simple_name(end)) {
    const std::string held = fresh(n.var.name + "_end");
    line(fmt::format("const {} {} = {};", narrow ? "int" : "long long", held, end));
    end = held;
  }
  open(fmt::format("for ({0} {1} = {2}; {1} < {3}; ++{1}) ", narrow ? "int" : "long long", name, narrow && !value(n.begin).narrow ? "(int)" + parenthesised(from) : from, end));
  if (part_ == Part::block && (all.clashes(all) || all.clashes(since_barrier_))) {
    line("gl_sync_block();");
    since_barrier_ = {};
  }
  with_variable(n, [&] { statement(n.body); });
  close();
  since_barrier_.add(entry);  // the body may not have run
  since_barrier_.add(bounds);
}

void FunctionEmitter::thread_loop(const ir::For& n) {
  begin({n.begin, n.extent});
  bool narrow = false;
  const std::string name = loop_variable(n, narrow);
  const char* type = narrow ? "int" : "long long";
  const std::optional<int64_t> extent = ir::as_int(n.extent);
  const std::string offset = ir::is_const(n.begin, 0) ? "" : fmt::format("{} + ", parenthesised(wide(n.begin)));
  const std::string count = extent ? std::to_string(*extent) : wide(n.extent);
  if (extent && *extent <= function_.threads) {
    open(*extent < function_.threads ? fmt::format("if (gl_thread() < {}) ", count) : "");
    line(fmt::format("const {0} {1} = {3}{2}gl_thread();", type, name, offset, narrow && !offset.empty() ? "(int)" : ""));
  } else {
    const std::string k = fresh(n.var.name + "_k");
    open(fmt::format("for (long long {0} = gl_thread(); {0} < {1}; {0} += {2}) ", k, count, function_.threads));
    line(fmt::format("const {0} {1} = ({0})({2}{3});", type, name, offset, k));
  }
  part_ = Part::thread;
  with_variable(n, [&] { statement(n.body); });
  part_ = Part::block;
  close();
}

void FunctionEmitter::warp_loop(const ir::For& n) {
  begin({n.begin, n.extent});
  bool narrow = false;
  const std::string name = loop_variable(n, narrow);
  const int warps = function_.threads / ir::warp_lanes;
  const std::string offset = ir::is_const(n.begin, 0) ? "" : fmt::format("{} + ", parenthesised(wide(n.begin)));
  const std::string k = fresh(n.var.name + "_k");
  open(fmt::format("for (long long {0} = gl_thread() / 32; {0} < {1}; {0} += {2}) ", k, wide(n.extent), warps));
  line(fmt::format("const {0} {1} = ({0})({2}{3});", narrow ? "int" : "long long", name, offset, k));
  part_ = Part::warp;
  with_variable(n, [&] { statement(n.body); });
  part_ = Part::block;
  close();
}

// The writes that lanes may do to one place. What stands in an inner loop is proved to be apart (vector_clash).
std::vector<FunctionEmitter::Deferred> FunctionEmitter::defer(const ir::For& lanes) {
  if (ir::parallel_clash(lanes, ranges_).empty()) return {};
  std::vector<Deferred> list;
  std::unordered_set<int64_t> own;
  std::unordered_set<const ir::StmtNode*> inner;
  std::unordered_map<int64_t, int> written;
  ir::walk(lanes.body, [&](const ir::Stmt& s) {
    if (const auto* n = s.as<ir::Alloc>()) own.insert(n->buffer->id);
    if (const auto* n = s.as<ir::For>())
      ir::walk(n->body, [&](const ir::Stmt& below) { inner.insert(below.get()); });
    const auto* store = s.as<ir::Store>();
    const auto* accumulate = s.as<ir::Accumulate>();
    if ((!store && !accumulate) || inner.contains(s.get()) || (accumulate && accumulate->atomic)) return;
    const ir::Buffer& b = store ? store->buffer : accumulate->buffer;
    const ir::Expr& v = store ? store->value : accumulate->value;
    if (own.contains(b->id) || place(b).own) return;
    if (v.lanes() != 1) throw Error(ErrorCode::unsupported, "CUDA: a vector is written to " + b->name + " where the lanes of a warp may meet");
    if (++written[b->id] > 1) throw Error(ErrorCode::unsupported, "CUDA: " + b->name + " is written twice in a lane loop where lanes may meet");
    const std::string type = memory_type(b->dtype);
    Deferred d{fresh("on"), fresh("at"), fresh("what"), "", s.get()};
    line(fmt::format("bool {} = false;", d.on));
    line(fmt::format("{}* {} = 0;", type, d.place));
    line(fmt::format("{} {} = 0;", type, d.value));
    if (accumulate && accumulate->factor) d.factor = fresh("factor"), line(fmt::format("{} {} = 0;", type, d.factor));
    list.push_back(std::move(d));
  });
  ir::walk(
      lanes.body, [](const ir::Stmt&) {},
      [&](const ir::Expr& e) {
        if (const auto* n = e.as<ir::Load>(); n && written.contains(n->buffer->id))
          throw Error(ErrorCode::unsupported, "CUDA: " + n->buffer->name + " is read in a lane loop whose lanes may meet in writing it");
      });
  return list;
}

void FunctionEmitter::lane_loop(const ir::For& n) {
  begin({n.begin, n.extent});
  const int64_t extent = *ir::as_int(n.extent);
  open("");
  bool narrow = false;
  const std::string name = loop_variable(n, narrow);
  const std::string offset = ir::is_const(n.begin, 0) ? "" : fmt::format("{} + ", parenthesised(narrow ? scalar(n.begin) : wide(n.begin)));
  line(fmt::format("const {} {} = {}gl_thread() % 32;", narrow ? "int" : "long long", name, offset));
  deferred_ = defer(n);
  if (extent < ir::warp_lanes) open(fmt::format("if (gl_thread() % 32 < {}) ", extent));
  part_ = Part::thread;
  with_variable(n, [&] { statement(n.body); });
  part_ = Part::warp;
  if (extent < ir::warp_lanes) close();
  for (const Deferred& d : deferred_) {
    const std::string element = "*" + d.place;
    const auto* accumulate = std::get_if<ir::Accumulate>(&d.node->value);
    line(fmt::format("gl_ordered({}, {}, [&] {{ {} }});", d.on, d.place,
                     accumulate ? updated(*accumulate, element, d.value, d.factor) : fmt::format("{} = {};", element, d.value)));
  }
  deferred_.clear();
  line("gl_sync_warp();");
  close();
}

void FunctionEmitter::emit(const ir::Block& n) {
  for (const ir::Stmt& s : n.stmts) statement(s);
}

void FunctionEmitter::emit(const ir::Let& n) {
  before(touched(n.value));
  begin({n.value});
  Text text = value(n.value);
  const bool narrow = n.var.type.dtype == DType::i64 && (text.narrow || fits_int(n.value));
  Text named{.narrow = narrow, .atom = true};
  for (size_t i = 0; i < text.lanes.size(); ++i) {
    const std::string name = fresh(n.var.name);
    line(fmt::format("const {} {} = {}{};", narrow ? "int" : c_type(n.var.type.dtype), name, narrow && !text.narrow ? "(int)" : "",
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
  before(touched(n.condition));
  begin({n.condition});
  open(fmt::format("if ({}) ", scalar(n.condition)));
  const Touched entry = since_barrier_;
  const ir::Ranges::Mark mark = ranges_.mark();
  ranges_.assume(n.condition);
  statement(n.then_case);
  ranges_.restore(mark);
  const Touched after = since_barrier_;
  since_barrier_ = entry;
  if (n.else_case) {
    otherwise();
    ranges_.assume(ir::unary(ir::UnaryOp::bit_not, n.condition));
    statement(n.else_case);
    ranges_.restore(mark);
  }
  close();
  since_barrier_.add(after);
}

void FunctionEmitter::emit(const ir::Alloc& n) {
  const ir::Buffer& b = n.buffer;
  int64_t elements = 1;
  for (const ir::Expr& dim : b->dims) elements *= std::max<int64_t>(*ir::as_int(dim), 0);
  elements = std::max<int64_t>(elements, 1);
  const std::string name = fresh(b->name);
  const char* type = memory_type(b->dtype);
  if (b->space == ir::Space::shared) {
    line(fmt::format("{0}* const {1} = ({0}*)(gl_shared + {2});", type, name, shared_));
    shared_ += (elements * size_of(b->dtype) + 15) / 16 * 16;
  } else {
    line(fmt::format("{} {}[{}];", type, name, elements));
  }
  places_[b->id] = {name, b->space != ir::Space::shared};
  statement(n.body);
}

void FunctionEmitter::emit(const ir::Check& n) {
  Touched read = touched(n.condition);
  read.add(touched(n.position));
  before(read);
  begin({n.condition, n.position});
  const Text condition = bound(value(n.condition), DType::boolean, "ok");
  const Text position = bound(value(n.position), DType::i64, "position");
  std::string all;
  for (const std::string& c : condition.lanes) all += (all.empty() ? "" : " && ") + c;
  open(fmt::format("if ({}) ", all));
  const Touched entry = since_barrier_;
  const ir::Ranges::Mark mark = ranges_.mark();
  ranges_.assume(n.condition);
  statement(n.body);
  ranges_.restore(mark);
  since_barrier_.add(entry);
  otherwise();
  for (size_t i = 0; i < condition.lanes.size(); ++i)
    line(fmt::format("{}gl_atomic_min(gl_status, {});", condition.lanes.size() > 1 ? fmt::format("if (!{}) ", condition.lanes[i]) : "",
                     position.lanes[position.lanes.size() == 1 ? 0 : i]));
  close();
}

void FunctionEmitter::emit(const ir::Evaluate&) {}  // a prefetch: nothing to do here

}  // namespace gradloom::codegen
