#pragma once
// What gpu-report shows: the cases of `bench`, lowered for a GPU, and what hand-written kernels reached on them.
#include <functional>
#include <string>
#include <vector>

#include "ops/op.h"

namespace gradloom::cli {

// What a report's row is of, besides its case.
struct Variant {
  Determinism level;
  DType dtype;
  Determinism weakest = level;  // the row's kernel is that of the levels up to this one
};

// What a hand-written kernel reached on an H200; NVRTC's time is that of its kind. `from`: the strongest level that
// such a kernel keeps.
struct Prototype {
  const char *name, *strategy;
  double us, nvrtc_ms;
  Determinism from = Determinism::sequential;
  DType dtype = DType::f32;
};
// Those to set beside a kernel that serves the levels from `level` to `weakest`: of the first level the weakest that it
// allows, then one a level.
std::vector<const Prototype*> prototypes_of(const std::string& name, DType dtype, Determinism level,
                                            Determinism weakest);

// A case's call as `emit_cuda` gets it.
struct Lowered {
  ir::Kernel kernel;
  std::string strategy;
  std::vector<int64_t> scalars;
  int64_t compulsory_bytes = 0;
};

struct ReportCase {
  std::string name;
  std::function<Lowered(const ir::Target&, Variant)> lower;
  bool f32_only = false;
};

// Names as bench_gpu_report's; throws UsageError for others.
std::vector<ReportCase> report_cases(const std::vector<std::string>& names);

}  // namespace gradloom::cli
