#pragma once
// Inside of schedules: where a loop stands in its kernel, what is known there, and how a statement is put in another's
// place.
#include <string>
#include <vector>

#include "ir/analysis/ranges.h"
#include "ir/refusal.h"
#include "ir/stmt.h"

namespace gradloom::ir {

struct Site {
  std::vector<Stmt> path;  // from the kernel's body down to the loop itself
  const For* loop = nullptr;
  Ranges scope;  // what is known where the loop stands
  const Stmt& stmt() const { return path.back(); }
  Ranges inside() const;  // the scope of the loop's body
};

// Throws when the kernel has no such loop.
Site find_loop(const Kernel& kernel, int64_t loop);
const For& get_loop(const Kernel& kernel, int64_t loop);
// The kernel with `to` where `from`, the very node, stood on the site's path.
Kernel replace(const Kernel& kernel, const Site& site, const Stmt& to);

// Throws a refusal of the step when a parallel or vector loop around or in `to`, or a divisor, is not proved in the
// changed kernel; the verifier's own error when the kernel before the step was not legal.
void require_proved(const std::string& step, const Site& site, const Kernel& before, const Kernel& changed,
                    const Stmt& to);

// Refuses a step that the nest does not allow: "split of loop i: why".
[[noreturn]] void refuse(const std::string& step, const std::string& loop, const std::string& why);
// An error of the step's caller, no refusal: no nest would allow it.
[[noreturn]] void wrong_argument(const std::string& step, const std::string& loop, const std::string& why);
void require_serial(const std::string& step, const For& loop);
// ... when the loop's body allocates the buffer.
void require_outside(const std::string& step, const For& loop, const Buffer& buffer);

// All loops below, in order of appearance, outer before inner.
std::vector<const For*> loops_below(const Stmt& root);
// Parameters, then allocated buffers in order of appearance.
std::vector<Buffer> buffers_of(const Kernel& kernel);
// The name, with "#k" when several share it.
std::string handle_name(const Kernel& kernel, int64_t loop);
std::string handle_name(const Kernel& kernel, const Buffer& buffer);
Buffer find_buffer(const Kernel& kernel, const std::string& name);

// The variables that an expression in the body of the site's loop may use, outermost first.
std::vector<Var> visible(const Kernel& kernel, const Site& site, bool loop_itself);
// Whether all variables of e are among these.
bool closed(const Expr& e, const std::vector<Var>& vars);
// An expression of constants, variables and arithmetic in prefix form, "add(n,mul(i,4))", as a trace writes it, and
// back.
std::string write_expr(const Expr& e, const std::vector<Var>& vars);
Expr read_expr(const std::string& text, const std::vector<Var>& vars);

struct BufferAccess {
  Stmt stmt;
  std::vector<Expr> index;
  bool reads = false, writes = false;
};
// Every load, store and accumulate of the buffer in this statement and below.
std::vector<BufferAccess> accesses(const Stmt& s, const Buffer& buffer);
// Whether an index inside of these loops takes every place of the window once: each dim walked by a loop of its own,
// all others running at least once.
bool walks_window(const std::vector<const For*>& loops, const std::vector<Expr>& index, const std::vector<Expr>& begin,
                  const std::vector<Expr>& extent);
// Whether a statement writes a buffer that this expression loads.
bool writes_what_is_read(const Stmt& s, const Expr& e);

// ceil(extent / factor), for an extent that is not negative: whatever its size, no step of it wraps.
Expr ceil_div(const Expr& extent, int64_t factor, const Ranges& scope);

// The extent as a value that is never negative.
Expr nonnegative(const Expr& extent, const Ranges& scope);
// Runs `body` with bounds that are read once: those that load from memory become lets around it.
struct Bounds {
  Expr begin, extent;
  std::vector<std::pair<Var, Expr>> lets;
  Stmt wrap(Stmt body) const;
};
Bounds read_once(const For& loop, const Ranges& scope);

}  // namespace gradloom::ir
