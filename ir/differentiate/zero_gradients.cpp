#include "ir/differentiate/zero_gradients.h"

#include <unordered_set>

#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

// What is zero by its form; a temporary that is not in `not_zero` is.
bool is_zero(const Expr& e, const std::unordered_set<int64_t>& not_zero) {
  if (!e) return true;
  if (e.as<Const>()) return equal(e, zero(e.type()));
  if (const Cast* n = e.as<Cast>()) return is_zero(n->value, not_zero);
  if (const Select* n = e.as<Select>()) return is_zero(n->a, not_zero) && is_zero(n->b, not_zero);
  const Load* n = e.as<Load>();
  return n && n->buffer->role == Role::temp && !not_zero.contains(n->buffer->id) && is_zero(n->otherwise, not_zero);
}

}  // namespace

std::vector<std::string> zero_gradients(const Kernel& gradient) {
  std::unordered_set<int64_t> not_zero;
  for (bool changed = true; changed;) {
    changed = false;
    walk(gradient.body, [&](const Stmt& s) {
      const auto written = [&](const Buffer& b, const Expr& value) {
        if (!is_zero(value, not_zero)) changed |= not_zero.insert(b->id).second;
      };
      if (const Store* n = s.as<Store>()) written(n->buffer, n->value);
      if (const Accumulate* n = s.as<Accumulate>()) written(n->buffer, n->value);
      if (const Reduce* n = s.as<Reduce>()) written(n->buffer, n->value);
    });
  }
  std::vector<std::string> names;
  for (const Buffer& b : gradient.buffers)
    if (b->role == Role::out && !not_zero.contains(b->id)) names.push_back(b->name);
  return names;
}

std::vector<std::string> zero_gradient_warnings(const Kernel& forward, const Kernel& gradient) {
  std::vector<std::string> lines = zero_gradients(gradient);
  for (std::string& name : lines)
    name = "differentiate: kernel " + forward.name + ": " + name +
           " is zero: no value of that input reaches an output through what has a derivative";
  return lines;
}

}  // namespace gradloom::ir
