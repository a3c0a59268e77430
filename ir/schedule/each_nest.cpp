#include "ir/schedule/each_nest.h"

#include <algorithm>
#include <deque>
#include <unordered_map>

#include "ir/rewrite.h"
#include "ir/wrappers.h"

namespace gradloom::ir {
namespace {

// A loop's or a buffer's; traces distinguish equal ones by their order.
struct Name {
  std::string text;
  bool of_buffer;
};

std::vector<Name> names_in(const Stmt& s) {
  std::vector<Name> names;
  walk(s, [&](const Stmt& x) {
    if (const For* f = x.as<For>()) names.push_back({f->var.name, false});
    if (const Alloc* a = x.as<Alloc>()) names.push_back({a->buffer->name, true});
  });
  return names;
}

// Names of other nests, by what they begin with: steps name what they make after what they change (i_o, x_s), so that
// only names that begin alike can become equal.
class Others {
 public:
  void add(const Name& n) {
    names_[stem(n)].push_back(n.of_buffer ? alloc(make_buffer({.name = n.text, .role = Role::temp}), block({}))
                                          : for_loop(make_var(n.text), 0, 0, ForKind::serial, block({})));
  }
  void drop_first(const Name& n) { names_[stem(n)].pop_front(); }
  // For what begins as these names do: loops without iterations, and buffers that nothing uses.
  void stand_in(const std::vector<Name>& names, std::vector<Stmt>& stmts) const {
    std::vector<std::string> stems;
    for (const Name& n : names) stems.push_back(stem(n));
    std::sort(stems.begin(), stems.end());
    stems.erase(std::unique(stems.begin(), stems.end()), stems.end());
    for (const std::string& s : stems) {
      const auto found = names_.find(s);
      if (found == names_.end()) continue;
      stmts.insert(stmts.end(), found->second.begin(), found->second.end());
    }
  }

 private:
  static std::string stem(const Name& n) { return n.text.substr(0, n.text.find('_', 1)); }
  std::unordered_map<std::string, std::deque<Stmt>> names_;  // what stands in for them, in order of appearance
};

// A statement around nests, with another body; of an if, the branch that holds them.
Stmt around(const Stmt& s, bool other_branch, const Stmt& body) {
  return other_branch ? if_then(unary(UnaryOp::bit_not, s.as<If>()->condition), body) : with_body(s, body);
}

// The kernel's nests in order; `each` schedules one in a kernel of its own and returns that kernel's new body.
class Nests {
 public:
  using Each = std::function<Stmt(const Stmt& body, Loop loop)>;
  Nests(const Stmt& body, const Each& each) : each_(each) {
    for (const Name& n : names_in(body)) after_.add(n);
  }

  Stmt visit(const Stmt& s) {
    if (!s) return s;
    if (s.as<For>()) return nest(s);
    if (const Block* n = s.as<Block>()) {
      std::vector<Stmt> stmts;
      for (const Stmt& part : n->stmts) stmts.push_back(visit(part));
      return block(std::move(stmts));
    }
    if (const If* n = s.as<If>()) {
      const Stmt then_case = inside(s, false, n->then_case), else_case = inside(s, true, n->else_case);
      return if_then(n->condition, then_case, else_case);
    }
    if (const Alloc* n = s.as<Alloc>()) {
      const Name own{n->buffer->name, true};
      after_.drop_first(own);
      const Stmt body = inside(s, false, n->body);
      before_.add(own);
      return alloc(n->buffer, body);
    }
    if (s.as<Let>() || s.as<Check>()) return around(s, false, inside(s, false, body_of(s)));
    return s;
  }

 private:
  Stmt inside(const Stmt& s, bool other_branch, const Stmt& body) {
    path_.emplace_back(s, other_branch);
    const Stmt changed = visit(body);
    path_.pop_back();
    return changed;
  }
  Stmt nest(const Stmt& s) {
    const std::vector<Name> names = names_in(s);
    for (const Name& n : names) after_.drop_first(n);
    std::vector<Stmt> stmts;
    before_.stand_in(names, stmts);
    const size_t first = stmts.size();
    stmts.push_back(s);
    after_.stand_in(names, stmts);
    const size_t last = stmts.size() - first - 1;
    Stmt body = block(std::move(stmts));
    for (size_t i = path_.size(); i-- > 0;) body = around(path_[i].first, path_[i].second, body);
    body = each_(body, s.as<For>()->var.id);
    for (size_t i = 0; i < path_.size(); ++i) body = body_of(body);
    if (const Block* all = body.as<Block>(); all && first + last > 0)
      body = block({all->stmts.begin() + static_cast<std::ptrdiff_t>(first),
                    all->stmts.end() - static_cast<std::ptrdiff_t>(last)});
    for (const Name& n : names_in(body)) before_.add(n);
    return body;
  }

  const Each& each_;
  Others before_, after_;
  std::vector<std::pair<Stmt, bool>> path_;
};

}  // namespace

Scheduled each_nest(const Kernel& kernel, const std::function<void(Schedule& nest, Loop outermost)>& steps) {
  Scheduled result{kernel, {}};
  const Nests::Each each = [&](const Stmt& body, Loop loop) {
    Kernel alone = kernel;
    alone.body = body;
    Schedule nest(std::move(alone));
    steps(nest, loop);
    result.trace.insert(result.trace.end(), nest.trace().begin(), nest.trace().end());
    return nest.kernel().body;
  };
  result.kernel.body = Nests(kernel.body, each).visit(kernel.body);
  return result;
}

}  // namespace gradloom::ir
