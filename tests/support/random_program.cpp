#include "tests/support/random_program.h"

#include <optional>
#include <random>
#include <string>

#include "ir/analysis/verify.h"
#include "ir/rewrite.h"
#include "tests/support/random_program_stmt.h"

namespace gradloom::ir::testing {
namespace {

bool verifies(const Kernel& kernel, const ProgramShape& shape) {
  if (shape.before_verify) shape.before_verify(kernel);
  try {
    verify(kernel, Stage::scheduled);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Changes the kind of the loop with this number (in traversal order).
class SetKind : public Rewriter {
 public:
  SetKind(int number, ForKind kind) : left_(number), kind_(kind) {}

 private:
  Stmt rewrite(const For& n, const Stmt& self) override {
    if (left_-- != 0) return Rewriter::rewrite(n, self);
    return for_loop(n.var, n.begin, n.extent, kind_, n.body);
  }
  int left_;
  ForKind kind_;
};

// Random loop kinds, where they are proved.
Kernel with_kinds(Kernel kernel, std::mt19937_64& random, const ProgramShape& shape) {
  std::vector<std::optional<int64_t>> extents;
  walk(kernel.body, [&](const Stmt& s) {
    if (const For* loop = s.as<For>()) extents.push_back(as_int(loop->extent));
  });
  for (size_t k = 0; k < extents.size(); ++k) {
    const uint64_t what = random() % 8;
    const std::optional<int64_t> extent = extents[k];
    ForKind kind = ForKind::parallel;
    if (what < 3 && extent && *extent >= 2 && *extent <= 64)
      kind = ForKind::vector;
    else if (what == 3 && extent && *extent <= 64)
      kind = ForKind::unroll;
    else if (what > 5)
      continue;
    const Kernel trial = SetKind(static_cast<int>(k), kind)(kernel);
    if (verifies(trial, shape)) kernel = trial;
  }
  return kernel;
}

class ChecksToIfs : public Rewriter {
  Stmt rewrite(const Check& n, const Stmt&) override { return if_then(all_lanes(n.condition), (*this)(n.body)); }
};

}  // namespace

RandomProgram random_program(uint64_t seed, const ProgramShape& shape) {
  std::mt19937_64 random(seed);
  for (int tries = 0;; ++tries) {
    std::mt19937_64 own(random());
    ProgramScope scope{shape};
    RandomProgram program = ProgramStmt(own, scope).build();
    if (tries < 60 && !verifies(program.kernel, shape)) continue;
    if (tries == 60) verify(program.kernel, Stage::scheduled);  // throws the reason
    // After a failed check only its position is compared: most programs have none.
    if (seed % 4 != 0) program.kernel = ChecksToIfs()(program.kernel);
    if (shape.vectors) program.kernel = with_kinds(program.kernel, random, shape);
    program.kernel.name = "program" + std::to_string(seed);
    return program;
  }
}

}  // namespace gradloom::ir::testing
