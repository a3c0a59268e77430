#pragma once
// Internal to schedules: a loop's position in its kernel, the facts known there, and the replacement of statements.
#include <string>
#include <vector>

#include "gradloom/refusal.h"
#include "gradloom/stmt.h"
#include "gradloom/target.h"
#include "ir/analysis/buffer_access.h"
#include "ir/analysis/loop_bounds.h"
#include "ir/analysis/ranges.h"

namespace gradloom::ir {

struct Site {
  std::vector<Stmt> path;             // from the kernel's body down to the loop itself
  const For* loop = nullptr;          // absent: a reduction's site
  const Reduce* reduction = nullptr;  // absent: a loop's
  Ranges scope;                       // facts known at the loop
  const Stmt& stmt() const { return path.back(); }
  Ranges inside() const;  // the scope of the loop's body
  const std::string& name() const { return loop ? loop->var.name : reduction->ranges[0].var.name; }
};

// Throws when the kernel has no such loop.
Site find_loop(const Kernel& kernel, int64_t loop);
Site find_reduction(const Kernel& kernel, int64_t reduction);  // likewise
const For& get_loop(const Kernel& kernel, int64_t loop);
// The kernel with `from`, the very node on the site's path, replaced by `to`.
Kernel replace(const Kernel& kernel, const Site& site, const Stmt& to);

// Throws a refusal of the step when a parallel or vector loop around or in `to`, or a divisor, is not proved in the
// changed kernel; the verifier's own error when the kernel was already illegal before the step.
void require_proved(const std::string& step, const Site& site, const Kernel& before, const Kernel& changed,
                    const Stmt& to);

// Refuses an illegal step: "split of loop i: why".
[[noreturn]] void refuse(const std::string& step, const std::string& loop, const std::string& why);
// A misuse by the step's caller rather than a refusal: it is illegal for any nest.
[[noreturn]] void wrong_argument(const std::string& step, const std::string& loop, const std::string& why);
std::string with_article(ForKind kind);  // "a parallel"
void require_serial(const std::string& step, const For& loop);
void require_expanded(const std::string& step, const For& loop);  // no reduction is left in it
// ... when the loop's body allocates the buffer.
void require_outside(const std::string& step, const For& loop, const Buffer& buffer);

const char* level_name(Determinism level);  // as in messages

// Parameters, then allocated buffers in order of appearance.
std::vector<Buffer> buffers_of(const Kernel& kernel);
// The name, with "#k" when several share it.
std::string handle_name(const Kernel& kernel, int64_t loop);
std::string handle_name(const Kernel& kernel, const Buffer& buffer);
std::string reduction_name(const Kernel& kernel, int64_t reduction);
std::vector<const Reduce*> reductions_below(const Stmt& root);
Buffer find_buffer(const Kernel& kernel, const std::string& name);

// The variables in scope for an expression in the body of the site's loop, outermost first.
std::vector<Var> visible(const Kernel& kernel, const Site& site, bool loop_itself);
// Writes and parses an expression of constants, variables and arithmetic in a trace's prefix form, "add(n,mul(i,4))".
std::string write_expr(const Expr& e, const std::vector<Var>& vars);
Expr read_expr(const std::string& text, const std::vector<Var>& vars);

}  // namespace gradloom::ir
