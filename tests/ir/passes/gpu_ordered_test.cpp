// Conflicting writes of a warp's lanes are in lane order, for any set of conflicting lanes, in shared memory and in
// global memory, on both executors.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "gradloom/text.h"
#include "ir/analysis/verify.h"
#include "ir/interpret/interpret.h"
#include "ir/passes/passes.h"
#include "ir/scalar_math.h"
#include "tests/support/sampled.h"
#ifdef GRADLOOM_WITH_CUDA
#include "tests/support/host_batch.h"
#endif

namespace gradloom {
namespace {

using namespace ir;

constexpr int64_t places = 40, lanes = warp_lanes;

// One warp, `count` iterations of 32 lanes; a lane whose index is the last one is inactive.
Kernel kernel_of(DType dtype, const std::string& write, bool shared, int64_t count) {
  const std::string type = to_string(dtype), sums = shared ? "acc" : "out_sums";
  const auto moved = [&](const char* to, const char* from) {
    return shared ? fmt::format("for i in 0 .. {} thread {{ {}[i] = {}[i] }}", places, to, from) : "";
  };
  return lower(parse(fmt::format(R"(kernel lanes() {{
  in index: i64[{0}] in [0, {1} - 1]
  in v: {2}[{0}]
  in f: {2}[{0}]
  inout out_sums: {2}[{1}]
  for b in 0 .. 1 grid {{
    {3}
    {4}
    for w in 0 .. 1 warp {{
      for turn in 0 .. {5} {{
        for l in 0 .. 32 lane {{
          let place: i64 = index[turn * 32 + l]
          if place < {1} - 1 {{
            {6}[place] {7} {9}
          }}
        }}
      }}
    }}
    {8}
  }}
}})",
                                 count * lanes, places, type,
                                 shared ? fmt::format("alloc acc: {}[{}] shared", type, places) : "",
                                 moved("acc", "out_sums"), count, sums, write, moved("out_sums", "acc"),
                                 write == "fma=" ? "(v[turn * 32 + l], f[turn * 32 + l])" : "v[turn * 32 + l]")));
}

// Iterations in which no lanes conflict, all do, all but some do, neighbours do, distant lanes do, and random ones.
std::vector<int64_t> indices() {
  std::vector<int64_t> at;
  const auto turn = [&](const std::function<int64_t(int64_t lane)>& place) {
    for (int64_t lane = 0; lane < lanes; ++lane) at.push_back(place(lane));
  };
  turn([](int64_t lane) { return lane; });
  turn([](int64_t) { return 5; });
  turn([](int64_t lane) { return lane == 7 || lane == 31 ? places - 1 : 38; });
  turn([](int64_t lane) { return lane / 2; });
  turn([](int64_t lane) { return lane % 16; });
  turn([](int64_t lane) { return lane == 31 ? 0 : lane; });
  turn([](int64_t) { return places - 1; });
  turn([](int64_t lane) { return lane < 20 ? 3 : lane; });
  uint32_t state = 1;
  for (int i = 0; i < 8; ++i)
    turn([&](int64_t) {
      return static_cast<int64_t>((state = state * 1664525 + 1013904223) >> 8) % (i % 2 ? 6 : places);
    });
  return at;
}

struct Memory {
  std::vector<int64_t> at = indices();
  std::vector<uint64_t> v, f, sums;  // large enough for every dtype
  explicit Memory(DType dtype) : v(at.size()), f(at.size()), sums(places) {
    uint32_t state = 9;
    for (auto* list : {&v, &f, &sums})
      for (size_t i = 0; i < list->size(); ++i) {
        const double number =
            static_cast<int32_t>(state = state * 1664525 + 1013904223) * (is_float(dtype) ? 0x1p-29 : 0x1p-16);
        const uint64_t bits =
            is_float(dtype) ? bits_from_double(dtype, number) : bits_from_int(dtype, static_cast<int64_t>(number));
        std::memcpy(reinterpret_cast<char*>(list->data()) + i * size_of(dtype), &bits, size_of(dtype));
      }
  }
  std::vector<void*> pointers() { return {at.data(), v.data(), f.data(), sums.data()}; }
};

// Lanes in order.
std::vector<uint64_t> in_order(DType dtype, const std::string& write) {
  Memory m(dtype);
  const auto element = [&](std::vector<uint64_t>& list, size_t i) {
    uint64_t bits = 0;
    std::memcpy(&bits, reinterpret_cast<char*>(list.data()) + i * size_of(dtype), size_of(dtype));
    return bits;
  };
  for (size_t i = 0; i < m.at.size(); ++i) {
    if (m.at[i] == places - 1) continue;
    const uint64_t old = element(m.sums, m.at[i]), v = element(m.v, i), f = element(m.f, i);
    const uint64_t now = write[0] == '='   ? v
                         : write[0] == '+' ? eval_binary(BinaryOp::add, dtype, old, v)
                         : write[1] == 'i' ? eval_binary(BinaryOp::min, dtype, old, v)
                         : write[1] == 'a' ? eval_binary(BinaryOp::max, dtype, old, v)
                                           : eval_fma(dtype, v, f, old);
    std::memcpy(reinterpret_cast<char*>(m.sums.data()) + m.at[i] * size_of(dtype), &now, size_of(dtype));
  }
  return m.sums;
}

TEST(GpuOrdered, LanesThatMeetGoInLaneOrder) {
#ifdef GRADLOOM_WITH_CUDA
  HostBatch batch;
#endif
  const auto count = static_cast<int64_t>(indices().size()) / lanes;
  for (const DType dtype : {DType::f32, DType::f64, DType::i64, DType::i32, DType::i16, DType::u8})
    for (const std::string write : {"=", "+=", "min=", "max=", "fma="})
      for (const bool shared : {true, false}) {
        if (write == "fma=" && !is_float(dtype)) continue;
        const std::string name = to_string(dtype) + (" " + write) + (shared ? " shared" : " global");
        SCOPED_TRACE(name);
        const Kernel kernel = kernel_of(dtype, write, shared, count);
        verify(kernel, Stage::lowered);
        const std::vector<uint64_t> want = in_order(dtype, write);
        Memory m(dtype);
        interpret(kernel, m.pointers(), {});
        EXPECT_EQ(m.sums, want);
#ifdef GRADLOOM_WITH_CUDA
        batch.add(name, codegen::emit_cuda(kernel),
                  [=](const codegen::CudaModule& module, const codegen::HostModule& loaded) {
                    for (const codegen::HostOrder order :
                         {codegen::HostOrder::forward, codegen::HostOrder::reverse, codegen::HostOrder::shuffled}) {
                      Memory o(dtype);
                      codegen::run_on_host(module, loaded, o.pointers(), {}, order, 3);
                      ASSERT_EQ(o.sums, want) << name << "\n" << module.text;
                    }
                  });
#endif
      }
#ifdef GRADLOOM_WITH_CUDA
  batch.flush();
#endif
}

// Loops of two warps with fewer lanes than a warp, each lane with an index into either buffer: one keeps the last
// lane's value, the other accumulates. Values have all bit patterns.
TEST(GpuOrdered, ShortLoopsThatWriteTwoBuffers) {
  constexpr int64_t turns = 6, short_lanes = 20, count = 2 * turns * short_lanes;
  std::vector<int64_t> at;
  std::vector<uint64_t> bits;
  uint32_t state = 5;
  const auto next = [&] { return (state = state * 1664525 + 1013904223) >> 8; };
  for (int64_t i = 0; i < count; ++i) {
    at.push_back(i / short_lanes % turns == 0   ? i % short_lanes
                 : i / short_lanes % turns == 1 ? 4
                                                : next() % (i % 2 ? 5 : places));
    bits.push_back(i % 7 == 0    ? uint64_t{0x8000000080008000}
                   : i % 11 == 0 ? ~uint64_t{0}
                                 : uint64_t{next()} << 40 ^ uint64_t{next()} << 20 ^ next());
  }
#ifdef GRADLOOM_WITH_CUDA
  HostBatch batch;
#endif
  for (int d = 0; d < dtype_count; ++d) {
    const auto dtype = static_cast<DType>(d);
    const bool adds = dtype != DType::boolean && !is_storage_float(dtype);
    const std::string type = to_string(dtype);
    SCOPED_TRACE(type);
    const Kernel kernel =
        lower(parse(fmt::format(R"(kernel two() {{
  in index: i64[{0}] in [0, {1} - 1]
  in v: {2}[{0}]
  in f: f32[{0}]
  inout last: {2}[2, {1}]
  inout out_sums: {3}[2, {1}]
  for b in 0 .. 1 grid {{
    alloc acc: {3}[2, {1}] shared
    for i in 0 .. 2 * {1} thread {{ acc[floor_div(i, {1}), floor_mod(i, {1})] = out_sums[floor_div(i, {1}), floor_mod(i, {1})] }}
    for w in 0 .. 2 warp {{
      for turn in 0 .. {4} {{
        for l in 0 .. {5} lane {{
          let e: i64 = (w * {4} + turn) * {5} + l
          let place: i64 = index[e]
          if place < {1} - 1 {{
            acc[w, {1} - 1 - place] += {6}[e]
            last[w, place] = v[e]
          }}
        }}
      }}
    }}
    for i in 0 .. 2 * {1} thread {{ out_sums[floor_div(i, {1}), floor_mod(i, {1})] = acc[floor_div(i, {1}), floor_mod(i, {1})] }}
  }}
}})",
                                count, places, type, adds ? type : "f32", turns, short_lanes, adds ? "v" : "f")));
    verify(kernel, Stage::lowered);
    const auto run = [=](const std::function<void(const std::vector<void*>&)>& execute) {
      std::vector<int64_t> where = at;
      std::vector<uint64_t> v = bits, f = bits, last(2 * places, 0x3c3c3c3c3c3c3c3c),
                            sums(2 * places, 0x3c003c003c003c00);
      if (dtype == DType::boolean)
        for (uint64_t& word : v) word &= 0x0101010101010101;
      execute({where.data(), v.data(), f.data(), last.data(), sums.data()});
      last.insert(last.end(), sums.begin(), sums.end());
      return last;
    };
    const std::vector<uint64_t> want = run([&](const std::vector<void*>& memory) { interpret(kernel, memory, {}); });
    EXPECT_EQ(run([&](const std::vector<void*>& memory) { interpret(kernel, memory, {}, {.reverse_parallel = true}); }),
              want);
#ifdef GRADLOOM_WITH_CUDA
    batch.add(type, codegen::emit_cuda(kernel),
              [=](const codegen::CudaModule& module, const codegen::HostModule& loaded) {
                for (const codegen::HostOrder order :
                     {codegen::HostOrder::forward, codegen::HostOrder::reverse, codegen::HostOrder::shuffled})
                  EXPECT_EQ(run([&](const std::vector<void*>& memory) {
                              codegen::run_on_host(module, loaded, memory, {}, order, 3);
                            }),
                            want)
                      << type << "\n"
                      << module.text;
              });
#endif
  }
#ifdef GRADLOOM_WITH_CUDA
  batch.flush();
#endif
}

}  // namespace
}  // namespace gradloom
