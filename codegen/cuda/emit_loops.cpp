// Loops inside a grid loop: which threads run an iteration (ir/analysis/verify_gpu.h), and how the lanes of a warp
// jointly commit writes that may conflict.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/cuda/emitter.h"
#include "gradloom/refusal.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"

namespace gradloom::codegen {
namespace {

// The unroll factor; 0: left to the compiler, which unrolls every loop whose small trip count it sees. Around barriers
// and warp loops that costs time and registers for no gain, as it does where one iteration is much work already.
int unrolled(const ir::For& n, bool in_thread) {
  constexpr int enough = 8;  // updates per unrolled iteration
  if (!in_thread) return 1;
  int updates = 0;
  ir::walk(n.body, [&](const ir::Stmt& s) {
    const auto* accumulate = s.as<ir::Accumulate>();
    const auto* store = s.as<ir::Store>();
    if (store && store->buffer->space == ir::Space::registers) return;
    updates += accumulate ? accumulate->value.lanes() : store ? store->value.lanes() : 0;
  });
  return updates > 0 ? std::max(1, enough / updates) : 0;
}

}  // namespace

void FunctionEmitter::emit(const ir::For& n) {
  if (part_ == Part::cooperative && n.kind == ir::ForKind::grid) return phase(n);
  switch (n.kind) {
    case ir::ForKind::serial:
      return serial_loop(n);
    case ir::ForKind::thread:
      return thread_loop(n);
    case ir::ForKind::warp:
      return warp_loop(n);
    case ir::ForKind::lane:
      return lane_loop(n);
    case ir::ForKind::fragment:
      return fragment_loops(n);
    case ir::ForKind::parallel:
    case ir::ForKind::vector:
    case ir::ForKind::unroll:
    case ir::ForKind::ordered:
    case ir::ForKind::grid:
    case ir::ForKind::cooperative:
    case ir::ForKind::matrix_unit:
      throw Error(ErrorCode::internal, std::string("emit_cuda: a ") + to_string(n.kind) + " loop inside a grid loop");
  }
}

template <class Body>
void FunctionEmitter::with_variable(const ir::For& n, Body&& body) {
  const ir::Ranges::Mark mark = ranges_.mark();
  const size_t named = divisions_.size();
  ranges_.enter(n);
  name_divisions(n);
  body();
  divisions_.resize(named);
  ranges_.restore(mark);
}

void FunctionEmitter::name_divisions(const ir::For& n) {
  struct Found {
    ir::Expr division;
    int nodes = 0;
    int times = 1;
  };
  std::vector<Found> list;
  const auto look = [&](const ir::Expr& e) {
    const auto* b = e.as<ir::Binary>();
    if (!b || e.lanes() != 1 || (b->op != ir::BinaryOp::floor_div && b->op != ir::BinaryOp::floor_mod) ||
        !ir::as_int(b->b))
      return;
    bool ready = true, of_this = false;
    int nodes = 0;
    ir::walk(b->a, [&](const ir::Expr& x) {
      ++nodes;
      if (const auto* v = x.as<ir::Var>()) {
        of_this |= v->id == n.var.id;
        ready &= vars_.contains(v->id) || host_.slots.contains(v->id);
      }
      ready &= !x.as<ir::Load>() && !x.as<ir::Intrinsic>();
    });
    if (!ready || !of_this) return;
    const auto same = std::find_if(list.begin(), list.end(), [&](const Found& f) { return ir::equal(f.division, e); });
    same == list.end() ? list.push_back({e, nodes}) : void(++same->times);
  };
  ir::walk(
      n.body, [](const ir::Stmt&) {}, look);
  std::stable_sort(list.begin(), list.end(),
                   [](const Found& a, const Found& b) { return a.nodes < b.nodes; });  // each after its subexpressions
  for (const Found& f : list) {
    if (f.times < 2) continue;
    begin({f.division});
    divisions_.emplace_back(f.division,
                            bound(value(f.division), f.division.dtype(),
                                  f.division.as<ir::Binary>()->op == ir::BinaryOp::floor_div ? "div" : "mod"));
  }
}

// Chooses the variable's name without declaring it. `narrow`: int holds every value of the variable and of the loop's
// end, and up to `past` beyond the end.
std::string FunctionEmitter::loop_variable(const ir::For& n, bool& narrow, int past) {
  const ir::Range end = ranges_.of(n.begin + n.extent), begin = ranges_.of(n.begin);
  narrow = end.max && *end.max <= int_max - past && begin.min && begin.max && *begin.min >= -int_max &&
           *begin.max <= int_max && end.min && *end.min >= -int_max;
  const std::string name = fresh(n.var.name);
  vars_[n.var.id] = {{name}, narrow, true};
  return name;
}

// Whether neither begin + extent nor begin + k overflows i64, for k of every iteration and up to `past` more.
bool FunctionEmitter::counts_in_range(const ir::For& n, int64_t past) const {
  if (past == 0 && ir::is_const(n.begin, 0)) return true;
  return ranges_.sum_fits(n.begin, n.extent, past);
}

void FunctionEmitter::serial_loop(const ir::For& n) {
  begin({n.begin, n.extent});
  bool narrow = false;
  const std::string name = loop_variable(n, narrow);
  const auto body = [&] {
    const auto* all = n.body.as<ir::Block>();
    const size_t first = all && !all->stmts.empty() && all->stmts[0].as<ir::Barrier>() ? 1 : 0;
    if (first) statement(all->stmts[0]);  // ahead of hoisted divisions
    with_variable(n, [&] {
      if (!first) return statement(n.body);
      for (size_t i = first; i < all->stmts.size(); ++i) statement(all->stmts[i]);
    });
    close();
  };
  if (!counts_in_range(n)) {
    // The end may have wrapped, so the loop counts iterations.
    const Text count = bound(Text{{wide(n.extent)}}, DType::i64, "count"),
               from = bound(Text{{wide(n.begin)}}, DType::i64, "begin");
    const std::string k = fresh(n.var.name + "_k");
    if (const int copies = unrolled(n, part_ == Part::thread)) line(fmt::format("#pragma unroll {}", copies));
    open(fmt::format("for (long long {0} = 0; {0} < {1}; ++{0}) ", k, count.lanes[0]));
    line(fmt::format("const long long {} = gl_add<long long>({}, {});", name, from.lanes[0], k));
    return body();
  }
  const std::string from = narrow ? scalar(n.begin) : wide(n.begin);
  std::string end = ir::is_const(n.begin, 0) ? (narrow ? scalar(n.extent) : wide(n.extent))
                    : narrow ? fmt::format("{} + {}", parenthesised(scalar(n.begin)), parenthesised(scalar(n.extent)))
                             : fmt::format("gl_add<long long>({}, {})", wide(n.begin), wide(n.extent));
  if (narrow && !(value(n.begin).narrow && value(n.extent).narrow)) end = fmt::format("(int)({})", end);
  if (!simple_name(end) || ir::has_load(n.begin) || ir::has_load(n.extent)) {  // evaluated once, on entry
    const std::string held = fresh(n.var.name + "_end");
    line(fmt::format("const {} {} = {};", narrow ? "int" : "long long", held, end));
    end = held;
  }
  if (const int copies = unrolled(n, part_ == Part::thread)) line(fmt::format("#pragma unroll {}", copies));
  open(fmt::format("for ({0} {1} = {2}; {1} < {3}; ++{1}) ", narrow ? "int" : "long long", name,
                   narrow && !value(n.begin).narrow ? "(int)" + parenthesised(from) : from, end));
  body();
}

std::string FunctionEmitter::iteration(const ir::For& n, const std::string& k, bool narrow, int64_t past) {
  if (ir::is_const(n.begin, 0)) return k;
  if (narrow) return fmt::format("(int){} + {}", parenthesised(scalar(n.begin)), k);
  return counts_in_range(n, past) ? fmt::format("{} + {}", parenthesised(wide(n.begin)), k)
                                  : fmt::format("gl_add<long long>({}, {})", wide(n.begin), k);
}

void FunctionEmitter::thread_loop(const ir::For& n) {
  begin({n.begin, n.extent});
  value(n.begin);
  bool narrow = false;
  const std::string name = loop_variable(n, narrow);
  const char* type = narrow ? "int" : "long long";
  const std::optional<int64_t> extent = ir::as_int(n.extent);
  const std::string count = extent ? std::to_string(*extent) : parenthesised(wide(n.extent));
  const int64_t threads = function_.threads;
  if (extent && *extent <= threads) {
    open(*extent < threads ? fmt::format("if (gl_thread() < {}) ", count) : "");
    line(fmt::format("const {} {} = {};", type, name, iteration(n, "gl_thread()", narrow)));
  } else {
    // Unrolling by a small factor keeps that many loads in flight. Disabled where the body holds a loop, around which
    // the compiler would unroll, too.
    constexpr int64_t side_by_side = 4;
    const std::string k = fresh(n.var.name + "_k");
    if (ir::holds_loop(n.body)) line("#pragma unroll 1");
    if (extent && *extent % threads == 0) {
      if (!ir::holds_loop(n.body)) line(fmt::format("#pragma unroll {}", std::min(side_by_side, *extent / threads)));
      open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0}) ", k, *extent / threads));
      const bool in_int = narrow && *extent <= int_max;
      const std::string at = fmt::format("{} * {} + gl_thread()", in_int ? k : "(long long)" + k, threads);
      const std::string i = iteration(n, at, in_int);
      line(fmt::format("const {} {} = {};", type, name, narrow && !in_int ? fmt::format("(int)({})", i) : i));
    } else {
      const bool counts_in_int = extent && *extent <= int_max - threads;
      open(fmt::format("for ({1} {0} = gl_thread(); {0} < {2}; {0} += {3}) ", k, counts_in_int ? "int" : "long long",
                       count, threads));
      line(fmt::format("const {} {} = {};", type, name,
                       iteration(n, narrow && !counts_in_int ? "(int)" + k : k, narrow)));
    }
  }
  part_ = Part::thread;
  with_variable(n, [&] { statement(n.body); });
  part_ = Part::block;
  close();
}

void FunctionEmitter::warp_loop(const ir::For& n) {
  begin({n.begin, n.extent});
  value(n.begin);
  bool narrow = false;
  const std::string name = loop_variable(n, narrow);
  const int warps = function_.threads / ir::warp_lanes;
  const char* type = narrow ? "int" : "long long";
  if (const std::optional<int64_t> extent = ir::as_int(n.extent); extent && *extent <= warps) {
    open(*extent < warps ? fmt::format("if (gl_thread() / 32 < {}) ", *extent) : "");
    line(fmt::format("const {} {} = {};", type, name, iteration(n, "gl_thread() / 32", narrow)));
  } else {
    const std::string k = fresh(n.var.name + "_k");
    line("#pragma unroll 1");
    open(fmt::format("for (long long {0} = gl_thread() / 32; {0} < {1}; {0} += {2}) ", k, parenthesised(wide(n.extent)),
                     warps));
    line(fmt::format("const {0} {1} = ({0})({2});", type, name, iteration(n, k, narrow)));
  }
  part_ = Part::warp;
  with_variable(n, [&] { statement(n.body); });
  part_ = Part::block;
  close();
}

std::vector<FunctionEmitter::Deferred> FunctionEmitter::defer(const ir::For& lanes) {
  std::vector<Deferred> list;
  ir::walk(lanes.body, [&](const ir::Stmt& s) {
    const auto* store = s.as<ir::Store>();
    const auto* accumulate = s.as<ir::Accumulate>();
    if (!(store && store->ordered) && !(accumulate && accumulate->ordered)) return;
    const ir::Buffer& b = store ? store->buffer : accumulate->buffer;
    const std::string type = memory_type(b->dtype);
    Deferred d{type, fresh("on"), fresh("at"), fresh("what"), "", s.get(), place(b).of_block && size_of(b->dtype) >= 4};
    line(fmt::format("bool {} = false;", d.on));
    line(fmt::format("{}* {} = 0;", type, d.place));
    line(fmt::format("{} {} = 0;", type, d.value));
    if (accumulate && accumulate->factor) d.factor = fresh("factor"), line(fmt::format("{} {} = 0;", type, d.factor));
    list.push_back(std::move(d));
  });
  return list;
}

void FunctionEmitter::lane_loop(const ir::For& n) {
  const int64_t extent = *ir::as_int(n.extent);
  begin({n.begin});
  value(n.begin);
  bool narrow = false;
  constexpr int past = ir::warp_lanes - 1;  // inactive lanes compute an index, too
  const std::string name = loop_variable(n, narrow, past);
  line(fmt::format("const {} {} = {};", narrow ? "int" : "long long", name,
                   iteration(n, "gl_thread() % 32", narrow, past)));
  deferred_ = defer(n);
  if (extent < ir::warp_lanes) open(fmt::format("if (gl_thread() % 32 < {}) ", extent));
  part_ = Part::thread;
  with_variable(n, [&] { statement(n.body); });
  part_ = Part::warp;
  if (extent < ir::warp_lanes) close();
  for (const Deferred& d : deferred_) {
    const auto* accumulate = std::get_if<ir::Accumulate>(&d.node->value);
    const std::string update = accumulate ? updated(*accumulate, "element", "v", "factor") : "element = v;";
    const bool factor = !d.factor.empty();
    line(fmt::format("gl_ordered<{0}>({1}, {2}, []({3}& element, {3} v{4}) {{ {5} }}, {6}{7});", d.near, d.on, d.place,
                     d.type, factor ? ", " + d.type + " factor" : "", update, d.value, factor ? ", " + d.factor : ""));
  }
  deferred_.clear();
}

// Fully unrolls over a lane's elements of a fragment, so that each is a register. Steps by pairs of adjacent elements
// in a row, which one vector access may move.
void FunctionEmitter::fragment_loops(const ir::For& rows) {
  std::string mismatch;
  if (const ir::FragmentProduct p = ir::match_fragment_product(rows, mismatch); p.sums) return fragment_product(p);
  const ir::For& pairs = *rows.body.as<ir::For>();
  const int64_t across = *ir::as_int(pairs.extent) * 2;
  element_ = fresh("pair");
  line("#pragma unroll");
  open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0}) ", element_,
                   *ir::as_int(rows.extent) * across / ir::warp_lanes / 2));
  bool narrow = false;
  line(fmt::format("const int {} = gl_fragment_row<{}>({});", loop_variable(rows, narrow), across, element_));
  line(fmt::format("const int {} = gl_fragment_pair<{}>({});", loop_variable(pairs, narrow), across, element_));
  part_ = Part::thread;
  with_variable(rows, [&] { with_variable(pairs, [&] { statement(pairs.body); }); });
  part_ = Part::warp;
  close();
}

void FunctionEmitter::fragment_product(const ir::FragmentProduct& p) {
  constexpr int64_t of_element = 250;  // compile cost per element of a lane, see CudaFunction::unrolled
  function_.unrolled += p.rows * p.columns / ir::warp_lanes * of_element;
  begin({p.a.begin, p.b.begin});
  // Operands come from shared memory as rows of 8 elements (matrix loads), else as pairs along k; one access moves a
  // row or pair where layout and alignment allow it.
  const auto multiple = [&](const ir::FragmentProduct::Operand& o, int64_t of) {
    return ir::known_multiple(o.begin, ranges_) % of == 0;
  };
  const auto layout = [&](const ir::FragmentProduct::Operand& o, int64_t extent) {
    const int64_t apart = o.along_k == 1 ? o.along : o.along == 1 ? o.along_k : 0;  // distance between consecutive rows
    if (o.buffer->space == ir::Space::shared && apart > 0 && apart % 8 == 0 && multiple(o, 8) && extent % 16 == 0)
      return fmt::format("gl_matrices<{}, {}>", o.along, o.along_k);
    const bool together = o.along_k == 1 && o.along % 2 == 0 &&
                          (o.buffer->role == ir::Role::temp || o.buffer->alignment >= 4) && multiple(o, 2);
    return fmt::format("gl_pairs<{}, {}, {}>", o.along, o.along_k, together);
  };
  const auto first = [&](const ir::FragmentProduct::Operand& o) {
    const std::string at = scalar(o.begin);
    return at == "0" ? place(o.buffer).name : fmt::format("{} + {}", place(o.buffer).name, parenthesised(at));
  };
  const std::string a = first(p.a), b = first(p.b);
  line(fmt::format("gl_fragment_product<{}, {}, {}, {}, {}, {}>({}, {}, {});", p.a.buffer->dtype == DType::bf16, p.rows,
                   p.columns, p.depth, layout(p.a, p.rows), layout(p.b, p.columns), place(p.sums).name, a, b));
}

}  // namespace gradloom::codegen
