// The passes in order. A vector loop is widened before its surroundings are copied, so that each body is rewritten once.
#include <chrono>

#include "ir/gpu_form.h"
#include "ir/passes/passes.h"
#include "ir/verify.h"

namespace gradloom::ir {
namespace {

struct Pass {
  const char* name;
  Kernel (*run)(const Kernel&, const LowerOptions&);
  bool gpu = false;  // for kernels of a GPU only
};

template <Kernel (*pass)(const Kernel&)>
Kernel plain(const Kernel& kernel, const LowerOptions&) {
  return pass(kernel);
}

constexpr Pass passes[] = {
    {"drop_prefetches", plain<drop_prefetches>, true},
    {"simplify", plain<simplify>},    // dead tails and constant conditions go before anything is widened or copied
    {"vectorize", plain<vectorize>},  //
    {"unroll", plain<unroll>},        //
    {"simplify", plain<simplify>},    // constant indices, ramps in normal form
    {"coalesce_stores", plain<coalesce_stores>},
    {"demote_registers", plain<demote_registers>},
    {"form_launches", plain<form_launches>, true},
    {"place_buffers", [](const Kernel& kernel, const LowerOptions& options) { return place_buffers(kernel, options.shared_bytes); }, true},
};

}  // namespace

Kernel lower(const Kernel& scheduled, const LowerOptions& options) {
  using Clock = std::chrono::steady_clock;
  Kernel kernel = scheduled;
  const bool gpu = options.gpu || is_gpu(scheduled);
  for (const Pass& pass : passes) {
    if (pass.gpu && !gpu) continue;
    const Clock::time_point start = Clock::now();
    kernel = pass.run(kernel, options);
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
