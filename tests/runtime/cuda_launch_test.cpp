// The host part of a GPU kernel: the launches that a module makes, walked without a GPU and without IR.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>

#include "codegen/cuda/module.h"
#include "gradloom/error.h"

#ifdef GRADLOOM_WITH_CUDA

namespace gradloom::codegen {
namespace {

HostValue constant(int64_t v) { return {{HostCode::constant, v}}; }
HostValue slot(int64_t number) { return {{HostCode::slot, number}}; }
HostValue apply(HostCode code, HostValue a, const HostValue& b) {
  a.insert(a.end(), b.begin(), b.end());
  a.push_back(code);
  return a;
}
HostValue apply(ir::BinaryOp op, HostValue a, const HostValue& b) {
  return apply({.op = HostCode::binary, .what = static_cast<uint8_t>(op)}, std::move(a), b);
}
HostStep launch(HostValue blocks, int function = 0) {
  return {.kind = HostStep::launch, .index = function, .value = std::move(blocks)};
}

// A recorded walk: "f 3 x y" is a launch of f with 3 blocks and slot arguments x and y; "+ 8" and "- 8" are scratch.
struct Recorder {
  std::string text;
  std::vector<std::vector<void*>> pointers;
  int64_t available = 1 << 20;
  int live = 0;
  char memory[16] = {};

  void walk(const CudaModule& module, std::span<void* const> buffers = {}, std::span<const int64_t> scalars = {},
            void* status = nullptr) {
    const LaunchSink sink{.acquire = [&](int64_t bytes) -> void* {
                            if (bytes > available) return nullptr;
                            text += fmt::format("+ {}\n", bytes);
                            return memory + live++;
                          },
                          .release =
                              [&](void* data, int64_t bytes) {
                                text += fmt::format("- {}\n", bytes);
                                EXPECT_EQ(data, memory + --live);
                              },
                          .zero = [&](void*, int64_t bytes) { text += fmt::format("0 {}\n", bytes); },
                          .launch =
                              [&](const CudaFunction& f, int64_t blocks, std::span<void*> arguments) {
                                text += fmt::format("{} {}", f.name, blocks);
                                pointers.emplace_back();
                                for (size_t i = 0; i < arguments.size(); ++i) {
                                  if (f.arguments[i].kind == CudaArgument::slot) {
                                    text += fmt::format(" {}", *static_cast<int64_t*>(arguments[i]));
                                  } else {
                                    pointers.back().push_back(*static_cast<void**>(arguments[i]));
                                  }
                                }
                                text += "\n";
                              }};
    launch_all(module, buffers, scalars, status, sink);
  }
};

CudaModule module_of(std::vector<HostStep> steps, std::vector<CudaArgument> arguments = {}, int slots = 0,
                     int scratch = 0) {
  CudaModule module;
  module.functions.push_back({.name = "f", .threads = 32, .arguments = std::move(arguments)});
  module.steps = std::move(steps);
  module.slots = slots;
  module.scratch_blocks = scratch;
  return module;
}

TEST(CudaLaunch, SkipsEmptyGridsAndClampsHugeOnes) {
  Recorder r;
  r.walk(module_of({launch(constant(0)), launch(constant(-5)), launch(constant(1)), launch(constant(2147483647)),
                    launch(constant(2147483648)), launch(constant(std::numeric_limits<int64_t>::max()))}));
  EXPECT_EQ(r.text, "f 1\nf 2147483647\nf 2147483647\nf 2147483647\n");
}

TEST(CudaLaunch, GivesArgumentsInTheOrderOfParameters) {
  int a = 0, b = 0;
  int64_t status = 0;
  void* const buffers[] = {&a, &b};
  const int64_t scalars[] = {7, -3};
  Recorder r;
  CudaModule m = module_of({launch(constant(2))},
                           {{CudaArgument::slot, 1},
                            {CudaArgument::buffer, 1},
                            {CudaArgument::status, 0},
                            {CudaArgument::slot, 0},
                            {CudaArgument::buffer, 0}},
                           2);
  r.walk(m, buffers, scalars, &status);
  EXPECT_EQ(r.text, "f 2 -3 7\n");
  EXPECT_EQ(r.pointers, (std::vector<std::vector<void*>>{{&b, &status, &a}}));
}

TEST(CudaLaunch, LoopsCountFromTheirBegin) {
  HostStep inner{
      .kind = HostStep::loop, .index = 1, .value = slot(0), .begin = constant(0), .body = {launch(constant(1))}};
  HostStep outer{.kind = HostStep::loop, .index = 0, .value = constant(3), .begin = constant(-1), .body = {inner}};
  Recorder r;
  r.walk(module_of({outer}, {{CudaArgument::slot, 0}, {CudaArgument::slot, 1}}, 2));
  EXPECT_EQ(r.text, "f 1 1 0\n");  // slot 0 is -1, 0, 1: the inner loop runs an iteration only for the last
}

TEST(CudaLaunch, BranchesAndLets) {
  const HostValue even = apply(ir::BinaryOp::eq, apply(ir::BinaryOp::floor_mod, slot(0), constant(2)), constant(0));
  HostStep let{.kind = HostStep::let,
               .index = 1,
               .value = apply(ir::BinaryOp::mul, slot(0), constant(10)),
               .body = {launch(slot(1))}};
  HostStep branch{.kind = HostStep::branch, .value = even, .body = {let}, .otherwise = {launch(constant(1))}};
  HostStep loop{.kind = HostStep::loop, .index = 0, .value = constant(4), .begin = constant(-1), .body = {branch}};
  Recorder r;
  r.walk(module_of({loop}, {{CudaArgument::slot, 0}}, 2));
  EXPECT_EQ(r.text, "f 1 -1\nf 1 1\nf 20 2\n");  // 0 * 10 blocks: none
}

TEST(CudaLaunch, ScratchLivesThroughItsBody) {
  HostStep inner{.kind = HostStep::scratch, .index = 1, .value = constant(0), .body = {launch(constant(2))}};
  HostStep outer{.kind = HostStep::scratch,
                 .index = 0,
                 .value = apply(ir::BinaryOp::mul, slot(0), constant(4)),
                 .body = {inner, launch(constant(3))}};
  const int64_t scalars[] = {6};
  Recorder r;
  r.walk(module_of({outer, launch(constant(4))}, {{CudaArgument::scratch, 0}}, 1, 2), {}, scalars);
  EXPECT_EQ(r.text, "+ 24\n+ 1\nf 2\n- 1\nf 3\n- 24\nf 4\n");  // an empty alloc has a byte: its pointer is not null
}

TEST(CudaLaunch, ACooperativeFunctionGetsABarrierOfItsOwn) {
  CudaModule m = module_of({launch(constant(9))}, {{CudaArgument::barrier, 0}});
  m.functions[0].cooperative = 4;
  Recorder r;
  r.walk(m);
  EXPECT_EQ(r.text, "+ 4\n0 4\nf 9\n- 4\n");
  EXPECT_EQ(r.pointers, (std::vector<std::vector<void*>>{{r.memory}}));
}

TEST(CudaLaunch, NoMemoryForScratchIsAnErrorThatReleasesWhatItHad) {
  HostStep inner{.kind = HostStep::scratch, .index = 1, .value = constant(1 << 21), .body = {launch(constant(2))}};
  HostStep outer{.kind = HostStep::scratch, .index = 0, .value = constant(8), .body = {inner}};
  Recorder r;
  try {
    r.walk(module_of({outer}, {}, 0, 2));
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::resource_exhausted);
    EXPECT_NE(std::string(e.what()).find("2097152 bytes"), std::string::npos) << e.what();
  }
  EXPECT_EQ(r.text, "+ 8\n- 8\n");
}

TEST(CudaLaunch, ArithmeticWrapsAndDividesDown) {
  constexpr int64_t least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max();
  const struct {
    ir::BinaryOp op;
    int64_t a, b, want;
  } cases[] = {
      {ir::BinaryOp::add, most, 1, least},
      {ir::BinaryOp::sub, least, 1, most},
      {ir::BinaryOp::mul, most, 2, -2},
      {ir::BinaryOp::floor_div, -7, 2, -4},
      {ir::BinaryOp::floor_div, 7, -2, -4},
      {ir::BinaryOp::floor_div, least, -1, least},
      {ir::BinaryOp::floor_mod, -7, 2, 1},
      {ir::BinaryOp::floor_mod, 7, -2, -1},
      {ir::BinaryOp::floor_mod, least, -1, 0},
      {ir::BinaryOp::min, -1, 1, -1},
      {ir::BinaryOp::max, -1, 1, 1},
      {ir::BinaryOp::lt, -1, 1, 1},
      {ir::BinaryOp::le, 1, 1, 1},
      {ir::BinaryOp::gt, -1, 1, 0},
      {ir::BinaryOp::ge, 1, 1, 1},
      {ir::BinaryOp::ne, 1, 1, 0},
      {ir::BinaryOp::bit_and, 12, 10, 8},
      {ir::BinaryOp::bit_or, 12, 10, 14},
      {ir::BinaryOp::bit_xor, 12, 10, 6},
  };
  for (const auto& c : cases) {
    HostStep let{.kind = HostStep::let,
                 .index = 0,
                 .value = apply(c.op, constant(c.a), constant(c.b)),
                 .body = {launch(constant(1))}};
    Recorder r;
    r.walk(module_of({let}, {{CudaArgument::slot, 0}}, 1));
    EXPECT_EQ(r.text, fmt::format("f 1 {}\n", c.want)) << "operator " << int(c.op) << " of " << c.a << ", " << c.b;
  }
}

TEST(CudaLaunch, SizesThatDoNotFitAreNoMemory) {
  constexpr int64_t most = std::numeric_limits<int64_t>::max(), half = int64_t{1} << 61;
  const struct {
    int64_t a, b, want;
  } cases[] = {{3, 4, 12},         {0, most, 0},        {-1, most, 0},  {half, 8, most},
               {half, half, most}, {half, 3, 3 * half}, {most, 1, most}};
  for (const auto& c : cases) {
    HostStep let{.kind = HostStep::let,
                 .index = 0,
                 .value = apply({.op = HostCode::size}, constant(c.a), constant(c.b)),
                 .body = {launch(constant(1))}};
    Recorder r;
    r.walk(module_of({let}, {{CudaArgument::slot, 0}}, 1));
    EXPECT_EQ(r.text, fmt::format("f 1 {}\n", c.want)) << c.a << " times " << c.b;
  }
}

TEST(CudaLaunch, ADivisionByZeroIsAnError) {
  Recorder r;
  EXPECT_THROW(r.walk(module_of({launch(apply(ir::BinaryOp::floor_div, constant(4), constant(0)))})), Error);
  EXPECT_THROW(r.walk(module_of({launch(apply(ir::BinaryOp::floor_mod, constant(4), constant(0)))})), Error);
}

TEST(CudaLaunch, Selects) {
  for (int64_t condition : {0, 1}) {
    const HostValue chosen = {
        {HostCode::constant, condition, DType::boolean},
        {.op = HostCode::unary, .dtype = DType::boolean, .what = static_cast<uint8_t>(ir::UnaryOp::bit_not)},
        {HostCode::constant, 5},
        {HostCode::constant, 9},
        {HostCode::select, 0}};
    Recorder r;
    r.walk(module_of({launch(chosen)}));
    EXPECT_EQ(r.text, condition ? "f 9\n" : "f 5\n");
  }
}

}  // namespace
}  // namespace gradloom::codegen

#endif
