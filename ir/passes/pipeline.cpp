// The passes in order. A vector loop is widened before its surroundings are copied, so that each body is rewritten once.
#include <chrono>

#include "ir/passes/passes.h"
#include "ir/verify.h"

namespace gradloom::ir {
namespace {

struct Pass {
  const char* name;
  Kernel (*run)(const Kernel&);
};

constexpr Pass passes[] = {
    {"simplify", simplify},                // dead tails and constant conditions go before anything is widened or copied
    {"vectorize", vectorize},              //
    {"unroll", unroll},                    //
    {"simplify", simplify},                // constant indices, ramps in normal form
    {"coalesce_stores", coalesce_stores},
    {"demote_registers", demote_registers},
};

}  // namespace

Kernel lower(const Kernel& scheduled, const LowerOptions& options) {
  using Clock = std::chrono::steady_clock;
  Kernel kernel = scheduled;
  for (const Pass& pass : passes) {
    const Clock::time_point start = Clock::now();
    kernel = pass.run(kernel);
    if (options.times) options.times->push_back({pass.name, std::chrono::duration<double, std::milli>(Clock::now() - start).count()});
    if (options.dump) options.dump(pass.name, kernel);
#ifndef NDEBUG
    verify(kernel, Stage::scheduled);
#endif
  }
#ifndef NDEBUG
  verify(kernel, Stage::lowered);
#endif
  return kernel;
}

}  // namespace gradloom::ir
