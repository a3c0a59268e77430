#pragma once
// Runs a lowered kernel in the interpreter and compiled for each ISA that this machine has, on the same inputs, and
// compares all buffers bit for bit (all NaNs are equal, but in copies the caller compares integers).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "codegen/llvm/compiler.h"
#include "gradloom/builder.h"
#include "ir/interpret/interpret.h"
#include "ir/scalar_math.h"

namespace gradloom::testing {

using Bytes = std::vector<uint8_t>;

struct Launcher {
  LaunchContext context;
  int64_t scratch_limit = int64_t{1} << 40, live = 0, forks = 0;

  Launcher() {
    context.owner = this;
    context.parallel_for = [](LaunchContext* c, int64_t n, void (*fn)(void*, int64_t, int64_t), void* env) {
      static_cast<Launcher*>(c->owner)->forks++;
      const int64_t parts = std::min<int64_t>(n, 3);
      for (int64_t p = parts; p-- > 0;) fn(env, n * p / parts, n * (p + 1) / parts);
    };
    context.acquire_scratch = [](LaunchContext* c, int64_t bytes) -> void* {
      auto* self = static_cast<Launcher*>(c->owner);
      if (bytes > self->scratch_limit) return nullptr;
      self->live++;
      return std::aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    };
    context.release_scratch = [](LaunchContext* c, void* data, int64_t) {
      static_cast<Launcher*>(c->owner)->live--;
      std::free(data);
    };
  }
};

struct Aligned {
  uint8_t* data;
  explicit Aligned(const Bytes& bytes)
      : data(static_cast<uint8_t*>(std::aligned_alloc(64, (bytes.size() + 127) / 64 * 64))) {
    if (!bytes.empty()) std::memcpy(data, bytes.data(), bytes.size());
  }
  Aligned(const Aligned&) = delete;
  ~Aligned() { std::free(data); }
};

struct Ran {
  std::vector<Bytes> buffers;
  int64_t bad_position;
};

// offsets: the byte offset of element [0, ..., 0] of each buffer.
template <class Run>
Ran run_on_copies(const std::vector<Bytes>& inputs, const std::vector<size_t>& offsets, Run&& run) {
  std::vector<std::unique_ptr<Aligned>> copies;
  std::vector<void*> pointers;
  for (size_t i = 0; i < inputs.size(); ++i) {
    copies.push_back(std::make_unique<Aligned>(inputs[i]));
    pointers.push_back(copies.back()->data + (i < offsets.size() ? offsets[i] : 0));
  }
  Ran ran{{}, run(pointers)};
  for (size_t i = 0; i < inputs.size(); ++i)
    ran.buffers.emplace_back(copies[i]->data, copies[i]->data + inputs[i].size());
  return ran;
}

inline bool same_element(DType t, const uint8_t* a, const uint8_t* b) {
  if (std::memcmp(a, b, size_of(t)) == 0) return true;
  if (!is_float(t)) return false;
  uint64_t x = 0, y = 0;
  std::memcpy(&x, a, size_of(t));
  std::memcpy(&y, b, size_of(t));
  return std::isnan(ir::double_from_bits(t, x)) && std::isnan(ir::double_from_bits(t, y));
}

inline std::vector<codegen::Isa> isas_here() {
  std::vector<codegen::Isa> isas;
  for (const char* name : {"host", "x86-64-v2", "x86-64-v3", "x86-64-v4"})
    if (codegen::runs_here(codegen::isa_named(name))) isas.push_back(codegen::isa_named(name));
  return isas;
}

inline void compare(const ir::Kernel& kernel, const Ran& expected, const Ran& got, const std::string& isa) {
  EXPECT_EQ(expected.bad_position, got.bad_position) << kernel.name << " on " << isa;
  for (size_t b = 0; b < kernel.buffers.size(); ++b) {
    const DType t = kernel.buffers[b]->dtype;
    for (size_t at = 0; at + size_of(t) <= expected.buffers[b].size(); at += size_of(t)) {
      if (same_element(t, &expected.buffers[b][at], &got.buffers[b][at])) continue;
      uint64_t want = 0, have = 0;
      std::memcpy(&want, &expected.buffers[b][at], size_of(t));
      std::memcpy(&have, &got.buffers[b][at], size_of(t));
      ADD_FAILURE() << kernel.name << " on " << isa << ": " << kernel.buffers[b]->name << "[" << at / size_of(t)
                    << "] is " << std::hex << have << ", want " << want;
      return;
    }
  }
}

inline Ran run_compiled(const codegen::CompiledKernel& compiled, const std::vector<Bytes>& inputs,
                        const std::vector<int64_t>& scalars, const std::vector<size_t>& offsets) {
  return run_on_copies(inputs, offsets, [&](std::vector<void*>& pointers) {
    Launcher launcher;
    compiled.function(&launcher.context, pointers.data(), scalars.data());
    EXPECT_EQ(launcher.live, 0);
    return launcher.context.bad_position;
  });
}

// All executors agree, for each list of scalars.
inline void agree_on(const ir::Kernel& kernel, const std::vector<Bytes>& inputs,
                     const std::vector<std::vector<int64_t>>& runs, const std::vector<size_t>& offsets = {}) {
  std::vector<Ran> expected;
  for (const std::vector<int64_t>& scalars : runs)
    expected.push_back(run_on_copies(inputs, offsets, [&](std::vector<void*>& pointers) {
      return ir::interpret(kernel, pointers, scalars).bad_position;
    }));
  for (const codegen::Isa& isa : isas_here()) {
    const codegen::CompiledKernel compiled = codegen::compile(kernel, isa);
    for (size_t i = 0; i < runs.size(); ++i)
      compare(kernel, expected[i], run_compiled(compiled, inputs, runs[i], offsets), isa.name);
  }
}

inline void agree(const ir::Kernel& kernel, const std::vector<Bytes>& inputs, const std::vector<int64_t>& scalars = {},
                  const std::vector<size_t>& offsets = {}) {
  agree_on(kernel, inputs, {scalars}, offsets);
}

// `count` elements: special values first, then random bits alternating with small numbers.
inline Bytes elements(DType t, int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint64_t> special{0,           1,      2,          0x7f,       0x80,       0xff,      0x7fff,
                                0x8000,      0xffff, 0x7fffffff, 0x80000000, 0xffffffff, INT64_MAX, uint64_t{1} << 63,
                                ~uint64_t{0}};
  if (is_float(t))
    for (const double v :
         {0.0,   -0.0, 1.0,   -1.0,   0.5,    1.5,          2.5,   -2.5,   65504.0, 65520.0,  1e-8,      6e-8,
          1e-40, 3e38, 1e300, 9.2e18, 1.8e19, 2147483648.0, 127.5, -128.9, 255.9,   HUGE_VAL, -HUGE_VAL, std::nan("")})
      special.push_back(ir::bits_from_double(t, v));
  Bytes bytes(count * size_of(t));
  for (int64_t i = 0; i < count; ++i) {
    uint64_t bits = i < static_cast<int64_t>(special.size()) ? special[i] : random();
    if (i >= static_cast<int64_t>(special.size()) && i % 2)
      bits = ir::bits_from_int(t, static_cast<int64_t>(random() % 201) - 100);
    if (t == DType::boolean) bits = random() % 2;
    std::memcpy(&bytes[i * size_of(t)], &bits, size_of(t));
  }
  return bytes;
}

inline Bytes indices(const std::vector<int64_t>& values) {
  Bytes bytes(values.size() * 8);
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

inline constexpr DType all_dtypes[] = {DType::boolean, DType::i8,  DType::u8,  DType::i16, DType::u16,
                                       DType::i32,     DType::u32, DType::i64, DType::u64, DType::f16,
                                       DType::bf16,    DType::f32, DType::f64};

}  // namespace gradloom::testing
