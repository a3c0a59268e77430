#pragma once
// One run of a kernel by an executor, and the difference of two runs.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "ir/interpret/interpret.h"
#include "ir/scalar_math.h"
#if GRADLOOM_WITH_LLVM
#include "codegen/llvm/compiler.h"
#endif

namespace gradloom::ir::testing {

using Memory = std::vector<std::vector<uint8_t>>;  // a kernel's buffers

struct Result {
  Memory memory;
  int64_t bad_position = Outcome{}.bad_position;
};

// `origins`: the byte offset of a buffer's element [0, ..., 0]; 0 where there is none.
inline std::vector<void*> pointers(Memory& memory, std::span<const size_t> origins = {}) {
  std::vector<void*> list;
  for (size_t k = 0; k < memory.size(); ++k) list.push_back(memory[k].data() + (k < origins.size() ? origins[k] : 0));
  return list;
}

// The first difference of two results, or an empty string. All NaNs are equal; after a failed check contents are
// unspecified.
inline std::string difference(const Kernel& kernel, const Result& a, const Result& b) {
  if (a.bad_position != b.bad_position)
    return "bad positions " + std::to_string(a.bad_position) + " and " + std::to_string(b.bad_position);
  if (a.bad_position != Outcome{}.bad_position) return {};
  for (size_t k = 0; k < a.memory.size(); ++k) {
    const DType t = kernel.buffers[k]->dtype;
    const size_t size = static_cast<size_t>(size_of(t));
    for (size_t i = 0; i < a.memory[k].size(); i += size) {
      uint64_t x = 0, y = 0;
      std::memcpy(&x, &a.memory[k][i], size);
      std::memcpy(&y, &b.memory[k][i], size);
      if (x == y || (is_float(t) && std::isnan(double_from_bits(t, x)) && std::isnan(double_from_bits(t, y)))) continue;
      return kernel.buffers[k]->name + ", element " + std::to_string(i / size) + ": bits " + std::to_string(x) + " (" +
             std::to_string(double_from_bits(t, x)) + ") and " + std::to_string(y) + " (" +
             std::to_string(double_from_bits(t, y)) + ")";
    }
  }
  return {};
}

#if GRADLOOM_WITH_LLVM
// Machine code; returns the smallest bad position.
inline int64_t run_compiled(const Kernel& lowered, const codegen::Isa& isa, const std::vector<void*>& buffers,
                            std::span<const int64_t> scalars) {
  const codegen::CompiledKernel code = codegen::compile(lowered, isa);
  LaunchContext context{};
  context.parallel_for = [](LaunchContext*, int64_t n, void (*fn)(void*, int64_t, int64_t), void* env) {
    fn(env, n / 2, n);  // out of order, and in parts of more than one iteration
    fn(env, 0, n / 2);
  };
  context.acquire_scratch = [](LaunchContext*, int64_t bytes) {
    return std::aligned_alloc(64, (static_cast<size_t>(bytes) + 63) / 64 * 64);
  };
  context.release_scratch = [](LaunchContext*, void* data, int64_t) { std::free(data); };
  code.function(&context, buffers.data(), scalars.data());
  return context.bad_position;
}

// This machine's instruction set, and one of the levels that it supports, cycled by the seed.
inline std::vector<codegen::Isa> instruction_sets(uint64_t seed) {
  static const std::vector<codegen::Isa> levels = [] {
    std::vector<codegen::Isa> list;
    for (const char* name : {"x86-64-v4", "x86-64-v3", "x86-64-v2"})
      if (codegen::runs_here(codegen::isa_named(name))) list.push_back(codegen::isa_named(name));
    return list;
  }();
  static const codegen::Isa host = codegen::host_isa();
  if (levels.empty()) return {host};
  return {host, levels[seed % levels.size()]};
}
#endif

}  // namespace gradloom::ir::testing
