#pragma once
// Inside of schedules: where a loop stands in its kernel, what is known there, and how a statement is put in another's
// place.
#include <string>
#include <vector>

#include "gradloom/refusal.h"
#include "gradloom/stmt.h"
#include "ir/analysis/buffer_access.h"
#include "ir/analysis/loop_bounds.h"
#include "ir/analysis/ranges.h"

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

// Parameters, then allocated buffers in order of appearance.
std::vector<Buffer> buffers_of(const Kernel& kernel);
// The name, with "#k" when several share it.
std::string handle_name(const Kernel& kernel, int64_t loop);
std::string handle_name(const Kernel& kernel, const Buffer& buffer);
Buffer find_buffer(const Kernel& kernel, const std::string& name);

// The variables that an expression in the body of the site's loop may use, outermost first.
std::vector<Var> visible(const Kernel& kernel, const Site& site, bool loop_itself);
// An expression of constants, variables and arithmetic in prefix form, "add(n,mul(i,4))", as a trace writes it, and
// back.
std::string write_expr(const Expr& e, const std::vector<Var>& vars);
Expr read_expr(const std::string& text, const std::vector<Var>& vars);

}  // namespace gradloom::ir
