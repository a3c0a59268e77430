// The step specialise: a copy of a loop for each remainder of a variable that it does not change.
#include "gradloom/schedule.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/schedule/decide.h"
#include "ir/schedule/site.h"

namespace gradloom::ir {

std::vector<Schedule::Loop> Schedule::specialise(Loop id, const Expr& variable, int64_t modulus) {
  const Site site = find_loop(kernel_, id);
  const For& loop = *site.loop;
  require_serial("specialise", loop);
  if (modulus < 2 || modulus > most_copies)
    wrong_argument("specialise", loop.var.name,
                   "the modulus must be 2 to " + std::to_string(most_copies) + ", got " + std::to_string(modulus));
  const Var* v = variable ? variable.as<Var>() : nullptr;
  const std::vector<Var> vars = visible(kernel_, site, false);
  if (!v || variable.type() != Type{} || !uses_only(variable, vars))
    wrong_argument("specialise", loop.var.name, "it takes an i64 variable that is known outside the loop");
  for (const Stmt& s : site.path)
    if (const For* outer = s.as<For>(); outer && in_lanes(outer->kind))
      refuse("specialise", loop.var.name,
             "it is inside the " + std::string(to_string(outer->kind)) + " loop " + outer->var.name);
  for (const For* inner : loops_below(loop.body))
    if (on_gpu(inner->kind))
      refuse("specialise", loop.var.name,
             "it holds the " + std::string(to_string(inner->kind)) + " loop " + inner->var.name);
  const std::string line =
      "specialise " + handle_name(kernel_, id) + " " + write_expr(variable, vars) + " " + std::to_string(modulus);

  const Var whole = make_var(v->name + "_m");
  const Stmt quotient = let(whole, index_div(variable, modulus), block({}));
  Ranges scope = site.scope;
  scope.enter(*quotient.as<Let>());
  std::vector<Loop> handles;
  const auto copy = [&](int64_t remainder) {
    const Expr value = index_add(index_mul(var(whole), modulus), remainder);
    const Stmt raw = substitute(handles.empty() ? site.stmt() : refresh(site.stmt()), {{v->id, value}});
    const For& own = *raw.as<For>();
    handles.push_back(own.var.id);
    Ranges known = scope;
    known.enter(own);
    return for_loop(own.var, own.begin, own.extent, own.kind, fold_decided(own.body, known));
  };
  std::vector<Stmt> copies;
  for (int64_t r = 0; r < modulus; ++r) copies.push_back(copy(r));
  Stmt rest = copies.back();
  for (int64_t r = modulus - 1; r-- > 0;)
    rest = if_then(index_mod(variable, modulus) == Expr(r), copies[static_cast<size_t>(r)], rest);
  put("specialise", site, let(whole, index_div(variable, modulus), rest), line);
  return handles;
}

}  // namespace gradloom::ir
