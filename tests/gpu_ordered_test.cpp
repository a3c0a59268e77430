// Lanes of a warp that write to one place: in lane order, whoever meets whom, in shared memory and in global memory, on both executors.
#include <gtest/gtest.h>
#include <fmt/format.h>

#include <cstring>
#include <functional>

#include "ir/interpret.h"
#include "ir/print.h"
#include "ir/scalar_math.h"
#include "ir/verify.h"
#include "support/sampled.h"
#ifdef GRADLOOM_WITH_CUDA
#include "support/host_batch.h"
#endif

namespace gradloom {
namespace {

using namespace ir;

constexpr int64_t places = 40, lanes = warp_lanes;

// One warp's lanes, `count` turns of 32; a lane whose index is the last place is off.
Kernel kernel_of(DType dtype, const std::string& write, bool shared, int64_t count) {
  const std::string type = to_string(dtype), sums = shared ? "acc" : "out_sums";
  const auto moved = [&](const char* to, const char* from) { return shared ? fmt::format("for i in 0 .. {} thread {{ {}[i] = {}[i] }}", places, to, from) : ""; };
  return parse(fmt::format(R"(kernel ordered() {{
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
                                  count * lanes, places, type, shared ? fmt::format("alloc acc: {}[{}] shared", type, places) : "",
                                  moved("acc", "out_sums"), count, sums, write, moved("out_sums", "acc"),
                                  write == "fma=" ? "(v[turn * 32 + l], f[turn * 32 + l])" : "v[turn * 32 + l]"));
}

// Turns in which nobody meets, all meet, all but some meet, neighbours do, lanes far apart do, and by chance.
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
  for (int i = 0; i < 8; ++i) turn([&](int64_t) { return static_cast<int64_t>((state = state * 1664525 + 1013904223) >> 8) % (i % 2 ? 6 : places); });
  return at;
}

struct Memory {
  std::vector<int64_t> at = indices();
  std::vector<uint64_t> v, f, sums;  // room for every dtype
  explicit Memory(DType dtype) : v(at.size()), f(at.size()), sums(places) {
    uint32_t state = 9;
    for (auto* list : {&v, &f, &sums})
      for (size_t i = 0; i < list->size(); ++i) {
        const double number = static_cast<int32_t>(state = state * 1664525 + 1013904223) * (is_float(dtype) ? 0x1p-29 : 0x1p-16);
        const uint64_t bits = is_float(dtype) ? bits_from_double(dtype, number) : bits_from_int(dtype, static_cast<int64_t>(number));
        std::memcpy(reinterpret_cast<char*>(list->data()) + i * size_of(dtype), &bits, size_of(dtype));
      }
  }
  std::vector<void*> pointers() { return {at.data(), v.data(), f.data(), sums.data()}; }
};

// One lane after the other.
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
        batch.add(name, codegen::emit_cuda(kernel), [=](const codegen::CudaModule& module, const codegen::HostModule& loaded) {
          for (const codegen::HostOrder order : {codegen::HostOrder::forward, codegen::HostOrder::reverse, codegen::HostOrder::shuffled}) {
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

}  // namespace
}  // namespace gradloom
