#include "ir/analysis/verify_gpu.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ir/analysis/buffer_access.h"
#include "ir/analysis/fragment_product.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

enum class Part : uint8_t { host, cooperative, block, warp, rows, thread };

bool outside_grid(Part part) { return part == Part::host || part == Part::cooperative; }

// The part that the body of such a loop is; nullopt: the loop is not allowed there.
std::optional<Part> enter(Part part, ForKind kind) {
  switch (kind) {
    case ForKind::serial:
    case ForKind::ordered:
    case ForKind::unroll:
      return part;
    case ForKind::parallel:
      return std::nullopt;
    case ForKind::vector:
      return outside_grid(part) ? std::nullopt : std::optional(part);
    case ForKind::grid:
      return outside_grid(part) ? std::optional(Part::block) : std::nullopt;
    case ForKind::thread:
      return part == Part::block ? std::optional(Part::thread) : std::nullopt;
    case ForKind::warp:
      return part == Part::block ? std::optional(Part::warp) : std::nullopt;
    case ForKind::lane:
      return part == Part::warp ? std::optional(Part::thread) : std::nullopt;
    case ForKind::cooperative:
      return part == Part::host ? std::optional(Part::cooperative) : std::nullopt;
    case ForKind::fragment:
      return part == Part::warp   ? std::optional(Part::rows)
             : part == Part::rows ? std::optional(Part::thread)
                                  : std::nullopt;
    case ForKind::matrix_unit:
      return part == Part::thread ? std::optional(Part::thread) : std::nullopt;
  }
  return std::nullopt;
}

const char* where(Part part) {
  switch (part) {
    case Part::host:
      return "outside every grid loop";
    case Part::cooperative:
      return "in a cooperative loop, outside grid loops";
    case Part::block:
      return "in a grid loop, outside thread and warp loops";
    case Part::warp:
      return "in a warp loop, outside lane loops";
    case Part::rows:
      return "in a fragment loop over rows, outside the one over columns";
    case Part::thread:
      return "in a thread, lane or fragment loop";
  }
  return "?";
}

// The first violation is stored in `mismatch`.
class Form {
 public:
  std::string mismatch;

  void stmt(const Stmt& s, Part part) {
    if (part == Part::rows && s && mismatch.empty() && (!s.as<For>() || s.as<For>()->kind != ForKind::fragment))
      return fail("something besides a fragment loop stands " + std::string(where(part)));
    if (s && mismatch.empty()) std::visit([&](const auto& n) { node(n, part); }, s.node().value);
  }

 private:
  void fail(const std::string& what) {
    if (mismatch.empty()) mismatch = what;
  }
  void host_value(const Expr& e, const std::string& what, Part part) {
    if (!outside_grid(part)) return;
    walk(e, [&](const Expr& x) {
      if (x.as<Load>()) fail(what + " " + where(part) + " reads the buffer " + x.as<Load>()->buffer->name);
    });
  }
  void node(const For& n, Part part) {
    const std::optional<Part> inside = enter(part, n.kind);
    if (!inside)
      return fail(std::string("the ") + to_string(n.kind) + " loop " + n.var.name + " stands " + where(part));
    for (const Expr& e : {n.begin, n.extent}) host_value(e, "a bound of loop " + n.var.name, part);
    for (const Expr& e : {n.begin, n.extent}) reads(e);
    if (part == Part::cooperative && n.kind == ForKind::grid)
      walk(n.extent, [&](const Expr& x) {
        if (const Var* v = x.as<Var>(); v && turning_.contains(v->id))
          fail("the extent of the grid loop " + n.var.name + " depends on " + v->name +
               ", of the cooperative loop around it");
      });
    if (*inside == Part::cooperative) turning_.insert(n.var.id);
    if (n.kind == ForKind::matrix_unit && !product_)
      fail("the matrix_unit loop " + n.var.name + " does not stand directly in a pair of fragment loops");
    const Around around = around_;
    if (n.kind == ForKind::grid) around_.grid = &n;
    if (n.kind == ForKind::thread) around_.thread = &n;
    if (n.kind == ForKind::warp) around_.warp = &n;
    around_.lanes = n.kind == ForKind::lane ? &n : nullptr;
    if (n.kind == ForKind::fragment) fragment(n, part);
    stmt(n.body, *inside);
    around_ = around;
    if (n.kind == ForKind::fragment) product_ = false;
  }
  void fragment(const For& n, Part part) {
    bool pairs = false;
    walk(n.body, {}, [&](const Expr& e) { pairs |= e.lanes() == 2; });
    const int64_t unit = part == Part::warp ? unit_rows
                         : pairs            ? unit_columns / 2
                                            : unit_columns,
                  extent = as_int(n.extent).value_or(0);
    if (!is_const(n.begin, 0) || extent < unit || extent % unit != 0)
      fail("the fragment loop " + n.var.name + " does not run from 0 over a multiple of " + std::to_string(unit));
    (part == Part::warp ? around_.rows : around_.columns) = &n;
    if (part == Part::warp) {
      product_ = static_cast<bool>(match_fragment_product(n, mismatch).sums);
      single_ = any_of(n.body, [](const Stmt& s) { return s.as<For>() && s.as<For>()->kind == ForKind::matrix_unit; });
    }
    if (part != Part::rows) return;
    const auto single = [&](bool is, const std::string& what) {
      if (!is) fail(what + " stands in the fragment loop " + n.var.name + " over columns");
    };
    walk(
        n.body, [&](const Stmt& s) { single(!s.as<For>() || s.as<For>()->kind == ForKind::matrix_unit, "a loop"); },
        [&](const Expr& e) { single(e.lanes() <= 2, "a vector"); });
  }
  void node(const Block& n, Part part) {
    for (const Stmt& s : n.stmts) stmt(s, part);
  }
  void node(const Let& n, Part part) {
    host_value(n.value, "let " + n.var.name, part);
    if (part == Part::cooperative) turning_.insert(n.var.id);
    reads(n.value);
    stmt(n.body, part);
  }
  void node(const Store& n, Part part) {
    write(n.buffer, part);
    if (n.ordered) ordered(n.buffer, n.value, false);
    own_part(n.buffer, n.index);
    for (const Expr& e : {n.value, n.guard}) reads(e);
    for (const Expr& e : n.index) reads(e);
  }
  void node(const Accumulate& n, Part part) {
    write(n.buffer, part);
    if (n.ordered) ordered(n.buffer, n.value, n.atomic);
    own_part(n.buffer, n.index);
    for (const Expr& e : {n.value, n.factor, n.guard}) reads(e);
    for (const Expr& e : n.index) reads(e);
  }
  void ordered(const Buffer& b, const Expr& value, bool atomic) {
    if (!around_.lanes || value.lanes() != 1 || atomic)
      return fail("an ordered write to " + b->name +
                  " does not stand in a lane loop outside the loops in it, or is of a vector, or atomic");
    if (accesses(around_.lanes->body, b).size() != 1)
      fail("the lane loop " + around_.lanes->var.name + " touches " + b->name + ", which it writes ordered, once more");
  }
  void reads(const Expr& e) {
    if (e)
      walk(e, [&](const Expr& x) {
        if (const Load* n = x.as<Load>()) own_part(n->buffer, n->index);
      });
  }
  void own_part(const Buffer& b, const std::vector<Expr>& index) {
    if (b->space == Space::per_warp) return own_tile(b, index);
    if (b->space != Space::per_thread && b->space != Space::per_block) return;
    const bool thread = b->space == Space::per_thread;
    if (!index.empty() && own_by(thread ? around_.thread : around_.grid, b->dims[0], first_lane(index[0]))) return;
    const char* kind = thread ? "thread" : "grid";
    fail("the buffer " + b->name + ", a part a " + (thread ? "thread" : "block") +
         ", is used otherwise than by iterations of a " + kind + " loop over its first dim");
  }
  void own_tile(const Buffer& b, const std::vector<Expr>& index) {
    if (index.size() != 3 || !own_by(around_.warp, b->dims[0], index[0]) ||
        !own_by(around_.rows, b->dims[1], index[1]) || !own_columns(b->dims[2], index[2]))
      fail("the buffer " + b->name +
           ", a tile a warp, is used otherwise than by iterations of a warp loop and two fragment loops over its dims");
  }
  // In a product, one element; else a pair of adjacent elements.
  bool own_columns(const Expr& dim, const Expr& at) const {
    const For* loop = around_.columns;
    const Ramp* pair = at.as<Ramp>();
    if (single_ || !loop) return own_by(loop, dim, at);
    return pair && pair->lanes == 2 && is_const(pair->stride, 1) && equal(pair->base, index_mul(var(loop->var), 2)) &&
           is_const(loop->begin, 0) && as_int(loop->extent) && as_int(dim) == 2 * *as_int(loop->extent);
  }
  // Whether the loop covers the whole dim, and `at` is its iteration.
  static bool own_by(const For* loop, const Expr& dim, const Expr& at) {
    if (!loop || !is_const(loop->begin, 0) || !as_int(loop->extent) || as_int(loop->extent) != as_int(dim))
      return false;
    return at.as<Var>() ? at.as<Var>()->id == loop->var.id : is_const(at, 0) && is_const(loop->extent, 1);
  }
  void write(const Buffer& b, Part part) {
    if (outside_grid(part)) return fail("a store to " + b->name + " stands " + where(part));
    const auto alike = alike_.find(b->id);
    if (alike != alike_.end() && part != alike->second)
      fail("the buffer " + b->name + ", of which all threads have a copy that is the same, is written " + where(part));
  }
  void node(const If& n, Part part) {
    host_value(n.condition, "a condition", part);
    reads(n.condition);
    stmt(n.then_case, part);
    stmt(n.else_case, part);
  }
  void node(const Alloc& n, Part part) {
    const bool constant =
        std::all_of(n.buffer->dims.begin(), n.buffer->dims.end(), [](const Expr& d) { return as_int(d).has_value(); });
    const bool of_block =
        n.buffer->space == Space::shared || n.buffer->space == Space::per_thread || n.buffer->space == Space::per_warp;
    if (n.buffer->space == Space::per_block || part == Part::cooperative) {
      if (n.buffer->space != Space::per_block || part != Part::cooperative)
        return fail(std::string("the ") + to_string(n.buffer->space) + " buffer " + n.buffer->name + " is allocated " +
                    where(part));
      if (!constant)
        return fail("the buffer " + n.buffer->name + " of dims that are no constants is allocated " + where(part));
      return stmt(n.body, part);
    }
    if (of_block && part != Part::block)
      return fail(std::string("the ") + to_string(n.buffer->space) + " buffer " + n.buffer->name + " is allocated " +
                  where(part));
    if (part != Part::host && !constant)
      return fail("the buffer " + n.buffer->name + " of dims that are no constants is allocated " + where(part));
    if (part == Part::host && n.buffer->space != Space::global)
      return fail("the buffer " + n.buffer->name + " is allocated in registers " + where(part));
    if (n.buffer->space == Space::per_thread && !n.buffer->dims.empty() &&
        as_int(n.buffer->dims[0]).value_or(0) > most_block_threads)
      return fail("the buffer " + n.buffer->name + ", a part a thread, has more parts than a block has threads, " +
                  std::to_string(most_block_threads));
    if (n.buffer->space == Space::per_warp &&
        (n.buffer->dims.size() != 3 || as_int(n.buffer->dims[0]).value_or(0) * warp_lanes > most_block_threads))
      return fail("the buffer " + n.buffer->name +
                  ", a tile a warp, is not [warps, rows, columns] of at most 32 warps");
    if ((part == Part::block || part == Part::warp) && !of_block) alike_.emplace(n.buffer->id, part);
    stmt(n.body, part);
  }
  void node(const Check& n, Part part) {
    if (outside_grid(part)) return fail("a check stands " + std::string(where(part)));
    for (const Expr& e : {n.condition, n.position}) reads(e);
    stmt(n.body, part);
  }
  void node(const Reduce& n, Part) { fail("the reduction into " + n.buffer->name + " is not expanded"); }
  void node(const Evaluate&, Part) {}
  void node(const Barrier& n, Part part) {
    const bool fits = n.scope == BarrierScope::warp    ? part == Part::warp
                      : n.scope == BarrierScope::block ? part == Part::block || part == Part::cooperative
                                                       : part == Part::cooperative;
    if (!fits) fail(std::string("a barrier of the ") + to_string(n.scope) + " stands " + where(part));
  }

  struct Around {
    const For *grid = nullptr, *thread = nullptr, *warp = nullptr, *rows = nullptr,
              *columns = nullptr;  // rows, columns: fragment loops
    const For* lanes = nullptr;    // the lane loop that is the innermost loop
  };
  Around around_;                        // the enclosing GPU loops
  bool product_ = false;                 // the fragment loops contain a product, and nothing else
  bool single_ = false;                  // they contain a matrix_unit loop: columns one by one
  std::unordered_set<int64_t> turning_;  // variables of cooperative loops and of bindings in them, outside grid loops
  // Buffers that the block part or a warp part allocates replicated per thread.
  std::unordered_map<int64_t, Part> alike_;
};

}  // namespace

bool is_gpu(const Kernel& kernel) {
  return any_of(kernel.body,
                [](const Stmt& s) { return s.as<Barrier>() || (s.as<For>() && on_gpu(s.as<For>()->kind)); });
}

std::string gpu_structure_error(const Kernel& kernel) {
  Form form;
  form.stmt(kernel.body, Part::host);
  return form.mismatch;
}

int64_t least_blocks(const For& cooperative) {
  int64_t blocks = 1;
  walk(cooperative.body, [&](const Stmt& s) {
    const Alloc* n = s.as<Alloc>();
    if (n && n->buffer->space == Space::per_block) blocks = std::max(blocks, as_int(n->buffer->dims[0]).value_or(1));
  });
  return blocks;
}

bool each_block_once(const For& grid, int64_t blocks) {
  const std::optional<int64_t> extent = as_int(grid.extent);
  return extent && *extent <= blocks;
}

std::string gpu_binding_error(const std::vector<Stmt>& path, const For& loop, ForKind kind) {
  Part part = Part::host;
  for (const Stmt& s : path) {
    const For* around = s.as<For>();
    if (!around || around->var.id == loop.var.id) continue;
    const std::optional<Part> inside = enter(part, around->kind);
    if (!inside) return std::string("it is inside the ") + to_string(around->kind) + " loop " + around->var.name;
    part = *inside;
  }
  const std::optional<Part> inside = enter(part, kind);
  if (!inside) return std::string("a ") + to_string(kind) + " loop may not stand " + where(part);
  std::string mismatch;
  walk(loop.body, [&](const Stmt& s) {
    const For* below = s.as<For>();
    if (below && kind == ForKind::cooperative && below->kind != ForKind::cooperative)
      return;  // loops bound below are inside grid loops
    if (below && on_gpu(below->kind) &&
        (below->kind == kind || !enter(below->kind == ForKind::lane ? Part::warp : *inside, below->kind)))
      mismatch = std::string("it holds the ") + to_string(below->kind) + " loop " + below->var.name;
  });
  return mismatch;
}

}  // namespace gradloom::ir
