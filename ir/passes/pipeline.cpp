// The pass pipeline. A vector loop is widened before its surroundings are unrolled, so that each body is rewritten
// once.
#include <chrono>
#include <map>

#include "gradloom/text.h"
#include "ir/analysis/verify.h"
#include "ir/analysis/verify_gpu.h"
#include "ir/expand_math.h"
#include "ir/passes/passes.h"
#include "ir/rewrite.h"
#include "support/float_mode.h"

namespace gradloom::ir {
namespace {

enum class Where { any, cpu, gpu };  // the kernels that a pass is for

struct Pass {
  const char* name;
  Kernel (*run)(const Kernel&, const LowerOptions&);
  Where where = Where::any;
};

template <Kernel (*pass)(const Kernel&)>
Kernel plain(const Kernel& kernel, const LowerOptions&) {
  return pass(kernel);
}

// Scheduling is over: what no step may change is a serial loop.
class SerialLoops : public Rewriter {
  using Rewriter::rewrite;
  Stmt rewrite(const For& n, const Stmt& self) override {
    const Stmt same = Rewriter::rewrite(n, self);
    if (n.kind != ForKind::ordered) return same;
    const For& loop = *same.as<For>();
    return for_loop(loop.var, loop.begin, loop.extent, ForKind::serial, loop.body);
  }
};

constexpr Pass passes[] = {
    {"expand_reductions", plain<expand_reductions>},  // those that the schedule left
    {"expand_math", plain<expand_math>},
    {"drop_prefetches", plain<drop_prefetches>, Where::gpu},
    {"simplify", plain<simplify>},    // remove dead tails and constant conditions before anything is widened or copied
    {"vectorize", plain<vectorize>},  //
    {"unroll", plain<unroll>},        //
    {"simplify", plain<simplify>},    // constant indices, ramps in normal form
    {"transpose_loads", plain<transpose_loads>, Where::cpu},
    {"scalarize_scatters",
     [](const Kernel& kernel, const LowerOptions& options) { return scalarize_scatters(kernel, options.fast_scatter); },
     Where::cpu},
    {"interleave_stores", plain<interleave_stores>},
    {"demote_registers", plain<demote_registers>},
    {"outline_kernels", plain<outline_kernels>, Where::gpu},
    {"place_buffers",
     [](const Kernel& kernel, const LowerOptions& options) { return place_buffers(kernel, options.shared_bytes); },
     Where::gpu},
    {"pair_fragments", plain<pair_fragments>, Where::gpu},
    {"order_lanes", plain<order_lanes>, Where::gpu},
    {"insert_barriers", plain<insert_barriers>, Where::gpu},
};

}  // namespace

Kernel run_pass(std::string_view name, const Kernel& kernel, const LowerOptions& options) {
  for (const Pass& pass : passes)
    if (name == pass.name) return pass.run(kernel, options);
  throw Error(ErrorCode::invalid_argument, "got pass " + std::string(name) + ", which lower() does not run");
}

Kernel lower(const Kernel& scheduled, const LowerOptions& options) {
  using Clock = std::chrono::steady_clock;
  const FloatMode mode;  // constant folding uses the kernels' floating-point mode
  Kernel kernel = SerialLoops()(scheduled);
  const bool gpu = options.gpu || is_gpu(scheduled);
  for (const Pass& pass : passes) {
    if (pass.where == (gpu ? Where::cpu : Where::gpu)) continue;
    const Clock::time_point start = Clock::now();
    kernel = pass.run(kernel, options);
    if (options.times)
      options.times->push_back({pass.name, std::chrono::duration<double, std::milli>(Clock::now() - start).count()});
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

PassText text_after(const Kernel& scheduled, LowerOptions options, std::string_view pass) {
  PassText result;
  std::map<std::string, int> runs;
  options.dump = [&](const std::string& ran, const Kernel& after) {
    const int run = ++runs[ran];
    result.names.push_back(run == 1 ? ran : ran + ":" + std::to_string(run));
    if (result.names.back() == pass) result.text = print(after);
  };
  try {
    lower(scheduled, options);
  } catch (const Error&) {
    if (!result.text) throw;
  }
  return result;
}

}  // namespace gradloom::ir
