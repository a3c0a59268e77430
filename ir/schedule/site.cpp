#include "ir/schedule/site.h"

#include <algorithm>

#include "ir/children.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

// The path to the loop, or the reduction, innermost first; empty when there is none.
struct Finder {
  int64_t id;
  const For* loop = nullptr;
  const Reduce* reduction = nullptr;
  std::vector<Stmt> path;

  bool found() const { return loop || reduction; }
  void visit(const Stmt& s) {
    const For* f = s.as<For>();
    const Reduce* r = s.as<Reduce>();
    if (f && f->var.id == id)
      loop = f;
    else if (r && r->ranges[0].var.id == id)
      reduction = r;
    else if (s)
      std::visit(Children{[&](const auto& part) {
                   if constexpr (std::is_same_v<std::decay_t<decltype(part)>, Stmt>)
                     if (!found()) visit(part);
                 }},
                 s.node().value);
    if (found()) path.push_back(s);
  }
};

Finder found(const Kernel& kernel, int64_t loop) {
  Finder finder{loop};
  finder.visit(kernel.body);
  if (!finder.loop)  // none, or a reduction
    throw Error(ErrorCode::invalid_argument,
                "schedule: kernel " + kernel.name + " has no loop with this handle (a step has consumed it)");
  return finder;
}

// Adds the facts known in `part` of the statement.
void enter(Ranges& scope, const Stmt& s, const Stmt& part) {
  if (const For* n = s.as<For>()) scope.enter(*n);
  if (const Let* n = s.as<Let>()) scope.enter(*n);
  if (const Check* n = s.as<Check>()) scope.assume(n->condition);
  if (const If* n = s.as<If>())
    scope.assume(part.same_as(n->then_case) ? n->condition : unary(UnaryOp::bit_not, n->condition));
}

// `parent` with its child `from` replaced.
struct ReplaceChild {
  const Stmt& from;
  const Stmt& to;
  const Stmt& self;

  Stmt swap(const Stmt& s) const { return s.same_as(from) ? to : s; }
  Stmt operator()(const For& n) const { return for_loop(n.var, n.begin, n.extent, n.kind, to); }
  Stmt operator()(const Block& n) const {
    std::vector<Stmt> stmts;
    bool done = false;  // one handle may occur twice; the first is the one on the path
    for (const Stmt& s : n.stmts) {
      const bool here = !done && s.same_as(from);
      stmts.push_back(here ? to : s);
      done |= here;
    }
    return block(std::move(stmts));
  }
  Stmt operator()(const Let& n) const { return let(n.var, n.value, to); }
  Stmt operator()(const If& n) const { return if_then(n.condition, swap(n.then_case), swap(n.else_case)); }
  Stmt operator()(const Alloc& n) const { return alloc(n.buffer, to); }
  Stmt operator()(const Check& n) const { return check(n.condition, n.position, n.argument, to); }
  Stmt operator()(const Store&) const { return self; }
  Stmt operator()(const Accumulate&) const { return self; }
  Stmt operator()(const Evaluate&) const { return self; }
  Stmt operator()(const Reduce&) const { return self; }
  Stmt operator()(const Barrier&) const { return self; }
};

}  // namespace

Ranges Site::inside() const {
  Ranges r = scope;
  r.enter(*loop);
  return r;
}

static Site site_of(const Finder& finder, const Kernel& kernel) {
  Site site{{finder.path.rbegin(), finder.path.rend()}, finder.loop, finder.reduction, Ranges(kernel)};
  for (size_t i = 0; i + 1 < site.path.size(); ++i) enter(site.scope, site.path[i], site.path[i + 1]);
  return site;
}

Site find_loop(const Kernel& kernel, int64_t loop) { return site_of(found(kernel, loop), kernel); }

Site find_reduction(const Kernel& kernel, int64_t reduction) {
  Finder finder{reduction};
  finder.visit(kernel.body);
  if (!finder.reduction)
    throw Error(ErrorCode::invalid_argument,
                "schedule: kernel " + kernel.name + " has no reduction with this handle (a step has consumed it)");
  return site_of(finder, kernel);
}

const For& get_loop(const Kernel& kernel, int64_t loop) { return *found(kernel, loop).loop; }

Kernel replace(const Kernel& kernel, const Site& site, const Stmt& to) {
  Stmt now = to;
  for (size_t i = site.path.size() - 1; i-- > 0;)
    now = std::visit(ReplaceChild{site.path[i + 1], now, site.path[i]}, site.path[i].node().value);
  Kernel result = kernel;
  result.body = now;
  return result;
}

void refuse(const std::string& step, const std::string& loop, const std::string& why) {
  throw ScheduleRefusal(step + " of loop " + loop + ": " + why);
}

void wrong_argument(const std::string& step, const std::string& loop, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, step + " of loop " + loop + ": " + why);
}

std::string with_article(ForKind kind) {
  return std::string(kind == ForKind::ordered || kind == ForKind::unroll ? "an " : "a ") + to_string(kind);
}

void require_serial(const std::string& step, const For& loop) {
  if (loop.kind != ForKind::serial)
    refuse(step, loop.var.name, "it is " + with_article(loop.kind) + " loop, not a serial one");
}

void require_expanded(const std::string& step, const For& loop) {
  if (holds_reduction(loop.body)) refuse(step, loop.var.name, "it holds a reduction: expand that first");
}

void require_outside(const std::string& step, const For& loop, const Buffer& buffer) {
  walk(loop.body, [&](const Stmt& s) {
    if (const Alloc* own = s.as<Alloc>(); own && own->buffer.same_as(buffer))
      refuse(step, loop.var.name, "buffer " + buffer->name + " exists only inside it");
  });
}

const char* level_name(Determinism level) {
  return level == Determinism::sequential ? "sequential" : level == Determinism::run_to_run ? "run_to_run" : "relaxed";
}

std::vector<Buffer> buffers_of(const Kernel& kernel) {
  std::vector<Buffer> result = kernel.buffers;
  walk(kernel.body, [&](const Stmt& s) {
    if (const Alloc* n = s.as<Alloc>()) result.push_back(n->buffer);
  });
  return result;
}

namespace {
std::string numbered(const std::string& name, size_t count, size_t position) {
  return count > 1 ? name + "#" + std::to_string(position) : name;
}
}  // namespace

std::string handle_name(const Kernel& kernel, int64_t loop) {
  const std::vector<const For*> all = loops_below(kernel.body);
  const auto self = std::find_if(all.begin(), all.end(), [&](const For* f) { return f->var.id == loop; });
  if (self == all.end()) return get_loop(kernel, loop).var.name;  // throws
  const auto same = [&](const For* f) { return f->var.name == (*self)->var.name; };
  return numbered((*self)->var.name, static_cast<size_t>(std::count_if(all.begin(), all.end(), same)),
                  static_cast<size_t>(std::count_if(all.begin(), self, same)));
}

std::vector<const Reduce*> reductions_below(const Stmt& root) {
  std::vector<const Reduce*> result;
  walk(root, [&](const Stmt& s) {
    if (const Reduce* n = s.as<Reduce>()) result.push_back(n);
  });
  return result;
}

std::string reduction_name(const Kernel& kernel, int64_t reduction) {
  const std::vector<const Reduce*> all = reductions_below(kernel.body);
  const auto name = [](const Reduce* r) -> const std::string& { return r->ranges[0].var.name; };
  const auto self =
      std::find_if(all.begin(), all.end(), [&](const Reduce* r) { return r->ranges[0].var.id == reduction; });
  if (self == all.end()) return find_reduction(kernel, reduction).name();  // throws
  const auto same = [&](const Reduce* r) { return name(r) == name(*self); };
  return numbered(name(*self), static_cast<size_t>(std::count_if(all.begin(), all.end(), same)),
                  static_cast<size_t>(std::count_if(all.begin(), self, same)));
}

std::string handle_name(const Kernel& kernel, const Buffer& buffer) {
  if (!buffer) throw Error(ErrorCode::invalid_argument, "schedule: the buffer is absent");
  const std::vector<Buffer> all = buffers_of(kernel);
  const auto self = std::find_if(all.begin(), all.end(), [&](const Buffer& b) { return b.same_as(buffer); });
  if (self == all.end())
    throw Error(ErrorCode::invalid_argument, "schedule: kernel " + kernel.name + " has no buffer " + buffer->name);
  const auto same = [&](const Buffer& b) { return b->name == buffer->name; };
  return numbered(buffer->name, static_cast<size_t>(std::count_if(all.begin(), all.end(), same)),
                  static_cast<size_t>(std::count_if(all.begin(), self, same)));
}

Buffer find_buffer(const Kernel& kernel, const std::string& name) {
  for (const Buffer& b : buffers_of(kernel))
    if (handle_name(kernel, b) == name) return b;
  throw Error(ErrorCode::invalid_argument, "schedule: kernel " + kernel.name + " has no buffer " + name);
}

std::vector<Var> visible(const Kernel& kernel, const Site& site, bool loop_itself) {
  std::vector<Var> result;
  for (const Scalar& s : kernel.scalars) result.push_back(s.var);
  for (const Stmt& s : site.path) {
    const For* f = s.as<For>();
    if (f && (f != site.loop || loop_itself)) result.push_back(f->var);
    if (const Let* l = s.as<Let>()) result.push_back(l->var);
  }
  return result;
}

}  // namespace gradloom::ir
