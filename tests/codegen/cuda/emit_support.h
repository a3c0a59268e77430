#pragma once
// The CUDA text of a lowered kernel in text form, and occurrence counts in it.
#include <string>

#include "codegen/cuda/module.h"
#include "gradloom/text.h"
#include "ir/analysis/verify.h"
#include "ir/passes/passes.h"

namespace gradloom::codegen {

inline CudaModule emit(const std::string& text) {
  const ir::Kernel kernel = ir::insert_barriers(ir::order_lanes(ir::pair_fragments(ir::parse(text))));
  ir::verify(kernel, ir::Stage::lowered);
  return emit_cuda(kernel);
}

inline int count(const std::string& text, const std::string& what) {
  int n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

}  // namespace gradloom::codegen
