// The step read_ahead: several iterations' values are read before the first of them is accumulated.
#include "gradloom/builder.h"
#include "gradloom/schedule.h"
#include "ir/analysis/loop_bounds.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"
#include "ir/schedule/site.h"

namespace gradloom::ir {

// Legal because what is read early is not written by the accumulates that it passes.
Schedule::Loop Schedule::read_ahead(Loop id, int64_t count) {
  const char* step = "read_ahead";
  const Site site = find_loop(kernel_, id);
  const For& loop = *site.loop;
  const std::string& name = loop.var.name;
  require_serial(step, loop);
  if (count < 2 || count > 64)
    wrong_argument(step, name, "2 to 64 iterations are read ahead, got " + std::to_string(count));
  std::vector<const Let*> lets;
  Stmt body = loop.body;
  for (; body.as<Let>(); body = body.as<Let>()->body) lets.push_back(body.as<Let>());
  const Accumulate* update = body.as<Accumulate>();
  if (!update || update->guard) refuse(step, name, "its body is not lets around one accumulate without a guard");
  if (any_of(loop.body, [&](const Expr& e) { return e.as<Load>() && e.as<Load>()->buffer.same_as(update->buffer); }))
    refuse(step, name, "it reads buffer " + update->buffer->name);
  const std::string line = std::string(step) + " " + handle_name(kernel_, id) + " " + std::to_string(count);

  const Bounds bounds = read_once(loop, site.scope);
  KernelBuilder b("ahead");
  // Reads what iteration i accumulates.
  const auto read = [&](const Expr& i) {
    Substitution known{{id, i}};
    for (const Let* l : lets) known[l->var.id] = b.let(l->var.name, substitute(l->value, known));
    Accumulate one = *update;
    for (Expr& e : one.index) e = substitute(e, known);
    one.value = b.let("value", substitute(one.value, known));
    if (one.factor) one.factor = b.let("factor", substitute(one.factor, known));
    return accumulate(one.buffer, one.index, one.op, one.value, one.factor, {}, one.atomic, one.ordered);
  };
  const Expr groups = index_div(bounds.extent, count), whole = as_int(groups) ? groups : b.let("whole", groups);
  const Loop ahead = b.loop(name + "_a", 0, whole, [&](const Expr& group) {
    std::vector<Stmt> updates;
    for (int64_t k = 0; k < count; ++k) updates.push_back(read(index_add(index_add(bounds.begin, group * count), k)));
    for (const Stmt& s : updates) b.append(s);
  });
  const Expr done = index_mul(whole, count);
  b.loop(name + "_t", index_add(bounds.begin, done), index_sub(bounds.extent, done),
         [&](const Expr& i) { b.append(read(i)); });
  put(step, site, bounds.wrap(b.build().body), line);
  return ahead;
}

}  // namespace gradloom::ir
