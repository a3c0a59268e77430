#include "gradloom/strategy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradloom/op.h"

namespace gradloom {
namespace {

Fit fit_of(const Strategy& s, const Plan& plan, const ir::Target& target, bool any_shape) {
  if (s.level > plan.determinism) return Fit::none;
  return s.fit ? s.fit(plan, target, any_shape) : Fit::preferred;
}

}  // namespace

const Strategy* find_serving(const Op& op, const Plan& plan, std::string_view wanted, const ir::Target& target,
                             bool any_shape) {
  const Strategy* possible = nullptr;
  for (const Strategy& s : op.strategies()) {
    if (!wanted.empty() && s.name != wanted) continue;
    const Fit fit = fit_of(s, plan, target, any_shape);
    if (fit == Fit::preferred) return &s;
    if (fit == Fit::possible && !possible) possible = &s;
  }
  return possible;
}

const Strategy& choose_strategy(const Op& op, const Plan& plan, std::string_view wanted, const ir::Target& target,
                                bool any_shape) {
  if (const Strategy* serving = find_serving(op, plan, wanted, target, any_shape)) return *serving;
  if (wanted.empty())
    throw Error(ErrorCode::internal, fmt::format("{}: no strategy serves this call", op.schema().name));
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: strategy \"{}\" does not serve this call; these do: {}", op.schema().name, wanted,
                          fmt::join(serving_names(op, plan, target, any_shape), ", ")));
}

std::vector<const Strategy*> serving_strategies(const Op& op, const Plan& plan, const ir::Target& target,
                                                bool any_shape) {
  std::vector<const Strategy*> serving, possible;
  for (const Strategy& s : op.strategies()) {
    const Fit fit = fit_of(s, plan, target, any_shape);
    if (fit != Fit::none) (fit == Fit::preferred ? serving : possible).push_back(&s);
  }
  serving.insert(serving.end(), possible.begin(), possible.end());
  return serving;
}

std::vector<std::string> serving_names(const Op& op, const Plan& plan, const ir::Target& target, bool any_shape) {
  std::vector<std::string> names;
  for (const Strategy* s : serving_strategies(op, plan, target, any_shape)) names.push_back(s->name);
  return names;
}

const Strategy& find_strategy(const Op& op, std::string_view name) {
  for (const Strategy& s : op.strategies())
    if (s.name == name) return s;
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: there is no strategy \"{}\"", op.schema().name, name));
}

}  // namespace gradloom
