#include "ir/gpu_form.h"

#include <algorithm>
#include <unordered_set>

#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

enum class Part : uint8_t { host, block, warp, thread };

// The part that the body of such a loop is; nullopt: the loop may not stand there.
std::optional<Part> enter(Part part, ForKind kind) {
  switch (kind) {
    case ForKind::serial:
    case ForKind::unroll: return part;
    case ForKind::parallel: return std::nullopt;
    case ForKind::vector: return part == Part::host ? std::nullopt : std::optional(part);
    case ForKind::grid: return part == Part::host ? std::optional(Part::block) : std::nullopt;
    case ForKind::thread: return part == Part::block ? std::optional(Part::thread) : std::nullopt;
    case ForKind::warp: return part == Part::block ? std::optional(Part::warp) : std::nullopt;
    case ForKind::lane: return part == Part::warp ? std::optional(Part::thread) : std::nullopt;
  }
  return std::nullopt;
}

const char* where(Part part) {
  switch (part) {
    case Part::host: return "outside every grid loop";
    case Part::block: return "in a grid loop, outside thread and warp loops";
    case Part::warp: return "in a warp loop, outside lane loops";
    case Part::thread: return "in a thread or lane loop";
  }
  return "?";
}

// The first thing that does not fit is kept in `misfit`.
class Form {
 public:
  std::string misfit;

  void stmt(const Stmt& s, Part part) {
    if (s && misfit.empty()) std::visit([&](const auto& n) { node(n, part); }, s.node().value);
  }

 private:
  void fail(const std::string& what) {
    if (misfit.empty()) misfit = what;
  }
  void host_value(const Expr& e, const std::string& what) {
    walk(e, [&](const Expr& part) {
      if (part.as<Load>()) fail(what + " " + where(Part::host) + " reads the buffer " + part.as<Load>()->buffer->name);
    });
  }
  void node(const For& n, Part part) {
    const std::optional<Part> inside = enter(part, n.kind);
    if (!inside) return fail(std::string("the ") + to_string(n.kind) + " loop " + n.var.name + " stands " + where(part));
    if (part == Part::host)
      for (const Expr& e : {n.begin, n.extent}) host_value(e, "a bound of loop " + n.var.name);
    stmt(n.body, *inside);
  }
  void node(const Block& n, Part part) {
    for (const Stmt& s : n.stmts) stmt(s, part);
  }
  void node(const Let& n, Part part) {
    if (part == Part::host) host_value(n.value, "let " + n.var.name);
    stmt(n.body, part);
  }
  void node(const Store& n, Part part) { write(n.buffer, part); }
  void node(const Accumulate& n, Part part) { write(n.buffer, part); }
  void write(const Buffer& b, Part part) {
    if (part == Part::host) return fail("a store to " + b->name + " stands " + where(part));
    if (part != Part::block && uniform_.contains(b->id)) fail("the buffer " + b->name + ", allocated for the whole block in registers, is written " + where(part));
  }
  void node(const If& n, Part part) {
    if (part == Part::host) host_value(n.condition, "a condition");
    stmt(n.then_case, part);
    stmt(n.else_case, part);
  }
  void node(const Alloc& n, Part part) {
    const bool constant = std::all_of(n.buffer->dims.begin(), n.buffer->dims.end(), [](const Expr& d) { return as_int(d).has_value(); });
    if (n.buffer->space == Space::shared && part != Part::block) return fail("the shared buffer " + n.buffer->name + " is allocated " + where(part));
    if (part != Part::host && !constant) return fail("the buffer " + n.buffer->name + " of dims that are no constants is allocated " + where(part));
    if (part == Part::host && n.buffer->space != Space::global) return fail("the buffer " + n.buffer->name + " is allocated in registers " + where(part));
    if (part == Part::block && n.buffer->space != Space::shared) uniform_.insert(n.buffer->id);
    stmt(n.body, part);
  }
  void node(const Check& n, Part part) {
    if (part == Part::host) return fail("a check stands " + std::string(where(part)));
    stmt(n.body, part);
  }
  void node(const Evaluate&, Part) {}

  std::unordered_set<int64_t> uniform_;  // allocated in the block part, not shared
};

}  // namespace

bool is_gpu(const Kernel& kernel) {
  bool found = false;
  walk(kernel.body, [&](const Stmt& s) {
    if (const For* n = s.as<For>()) found |= on_gpu(n->kind);
  });
  return found;
}

std::string gpu_misfit(const Kernel& kernel) {
  Form form;
  form.stmt(kernel.body, Part::host);
  return form.misfit;
}

std::string gpu_nesting_misfit(const std::vector<Stmt>& path, const For& loop, ForKind kind) {
  Part part = Part::host;
  for (const Stmt& s : path) {
    const For* around = s.as<For>();
    if (!around || around->var.id == loop.var.id) continue;
    const std::optional<Part> inside = enter(part, around->kind);
    if (!inside) return std::string("it is inside the ") + to_string(around->kind) + " loop " + around->var.name;
    part = *inside;
  }
  if (!enter(part, kind)) return std::string("a ") + to_string(kind) + " loop may not stand " + where(part);
  return {};
}

}  // namespace gradloom::ir
