#pragma once
// A node's children, in order, absent ones included, and the resulting tree size.
#include <algorithm>
#include <type_traits>

#include "gradloom/stmt.h"

namespace gradloom::ir {

// Calls visit(const Expr&) or visit(const Stmt&) for each part.
template <class Visit>
struct Children {
  Visit visit;

  void all(const std::vector<Expr>& parts) const {
    for (const Expr& e : parts) visit(e);
  }
  void operator()(const Const&) const {}
  void operator()(const Var&) const {}
  void operator()(const Load& n) const { all(n.index), visit(n.guard), visit(n.otherwise); }
  void operator()(const Unary& n) const { visit(n.a); }
  void operator()(const Binary& n) const { visit(n.a), visit(n.b); }
  void operator()(const Fma& n) const { visit(n.a), visit(n.b), visit(n.c); }
  void operator()(const Select& n) const { visit(n.condition), visit(n.a), visit(n.b); }
  void operator()(const Cast& n) const { visit(n.value); }
  void operator()(const Bitcast& n) const { visit(n.value); }
  void operator()(const Ramp& n) const { visit(n.base), visit(n.stride); }
  void operator()(const Broadcast& n) const { visit(n.value); }
  void operator()(const Shuffle& n) const { visit(n.a), visit(n.b); }
  void operator()(const Intrinsic& n) const { all(n.args); }
  void operator()(const Math& n) const { visit(n.a); }
  void operator()(const For& n) const { visit(n.begin), visit(n.extent), visit(n.body); }
  void operator()(const Block& n) const {
    for (const Stmt& s : n.stmts) visit(s);
  }
  void operator()(const Let& n) const { visit(n.value), visit(n.body); }
  void operator()(const Store& n) const { all(n.index), visit(n.value), visit(n.guard); }
  void operator()(const Accumulate& n) const { all(n.index), visit(n.value), visit(n.factor), visit(n.guard); }
  void operator()(const Reduce& n) const {
    for (const Reduce::Range& r : n.ranges) visit(r.begin), visit(r.extent);
    all(n.index), visit(n.guard);
    for (const Reduce::Definition& d : n.lets) visit(d.value);
    visit(n.value), visit(n.factor);
  }
  void operator()(const If& n) const { visit(n.condition), visit(n.then_case), visit(n.else_case); }
  void operator()(const Alloc& n) const {
    all(n.buffer->dims), all(n.buffer->strides), visit(n.buffer->facts.min), visit(n.buffer->facts.max), visit(n.body);
  }
  void operator()(const Check& n) const { visit(n.condition), visit(n.position), visit(n.body); }
  void operator()(const Evaluate& n) const { visit(n.value); }
  void operator()(const Barrier&) const {}
};
template <class Visit>
Children(Visit) -> Children<Visit>;

// The size of a node from its children of the same sort: Expr or Stmt. Stops counting beyond `most_nodes`.
template <class Sort, class Node>
TreeSize tree_size(const Node& node, int most_nodes) {
  TreeSize tree;
  Children{[&](const auto& part) {
    if constexpr (std::is_same_v<std::decay_t<decltype(part)>, Sort>) {
      if (!part) return;
      const TreeSize& size = part.node().tree;
      tree.depth = std::max(tree.depth, size.depth + 1);
      tree.nodes = std::min(tree.nodes + size.nodes, most_nodes + 1);
    }
  }}(node);
  return tree;
}

}  // namespace gradloom::ir
