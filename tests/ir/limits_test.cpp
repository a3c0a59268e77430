// Requests beyond any machine or range are rejected by name: sizes that wrap, options, a builder used twice, names with
// line breaks.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cases.h"
#include "gradloom/builder.h"
#include "gradloom/runtime.h"
#include "gradloom/schedule.h"
#include "gradloom/text.h"
#include "tests/support/error_of.h"

namespace gradloom {
namespace {

using ir::Expr;

struct Refused {
  std::optional<ErrorCode> code;
  std::string message;
};
template <class Value>
Refused refused(const Result<Value>& result) {
  return result ? Refused{} : Refused{result.error().code(), result.error().what()};
}

// y[0] = t[0] with a scratch buffer of n x n.
ir::Kernel square_scratch() {
  ir::KernelBuilder b("square_scratch");
  const Expr n = b.scalar("n", 1);
  const ir::Buffer y = b.output("y", DType::f32, {1}), t = b.alloc("t", DType::f32, {n, n});
  b.store(t, {0, 0}, ir::constant(DType::f32, 1));
  b.store(y, {0}, ir::load(t, {0, 0}));
  return b.build();
}

TEST(Limits, ScratchWhoseSizeWrapsIsNotThere) {
  Runtime runtime({.threads = 1});
  const KernelExecutable kernel = runtime.compile(square_scratch()).value();
  std::vector<Tensor> y{Tensor::empty(DType::f32, {1})};
  for (const int shift : {31, 32, 62}) {
    const Refused r = refused(kernel(y, std::vector<int64_t>{int64_t{1} << shift}));
    EXPECT_EQ(r.code, ErrorCode::resource_exhausted) << shift << " " << r.message;
  }
  EXPECT_TRUE(kernel(y, std::vector<int64_t>{100}));
  EXPECT_EQ(*static_cast<float*>(y[0].data()), 1);
}

TEST(Limits, DimsThatWrapAreRefused) {
  ir::KernelBuilder b("wrap");
  const Expr n = b.scalar("n", 0);
  const ir::Buffer x = b.input("x", DType::f32, {n * n}), y = b.output("y", DType::f32, {1});
  b.store(y, {0}, ir::constant(DType::f32, 1));
  Runtime runtime({.threads = 1});
  const KernelExecutable kernel = runtime.compile(b.build()).value();
  const Refused r = refused(kernel(std::vector<Tensor>{Tensor::empty(DType::f32, {0}), Tensor::empty(DType::f32, {1})},
                                   std::vector<int64_t>{int64_t{1} << 32}));
  EXPECT_EQ(r.code, ErrorCode::invalid_argument) << r.message;
  EXPECT_NE(r.message.find("n * n"), std::string::npos) << r.message;
}

// Each buffer alone would fit on the stack.
TEST(Limits, ManySmallBuffersFitASmallStack) {
  ir::KernelBuilder b("many");
  const ir::Buffer y = b.output("y", DType::f32, {1});
  constexpr int count = 600, elements = 4096;
  std::vector<ir::Buffer> buffers;
  for (int i = 0; i < count; ++i) buffers.push_back(b.alloc("t" + std::to_string(i), DType::f32, {elements}));
  b.loop("i", 0, elements, [&](Expr i) {
    for (const ir::Buffer& t : buffers) b.store(t, {i}, ir::constant(DType::f32, 1));
  });
  Expr sum = ir::constant(DType::f32, 0);
  for (const ir::Buffer& t : buffers) sum = b.let("sum", sum + ir::load(t, {elements - 1}));
  b.store(y, {0}, sum);
  struct Call {
    Runtime runtime{{.threads = 1}};
    KernelExecutable kernel;
    std::vector<Tensor> y{Tensor::empty(DType::f32, {1})};
    bool done = false;
  } call;
  call.kernel = call.runtime.compile(b.build()).value();
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 1 << 20);
  pthread_t thread;
  ASSERT_EQ(pthread_create(
                &thread, &attributes,
                [](void* given) -> void* {
                  auto* c = static_cast<Call*>(given);
                  c->done = c->kernel(c->y).ok();
                  return nullptr;
                },
                &call),
            0);
  pthread_join(thread, nullptr);
  EXPECT_TRUE(call.done);
  EXPECT_EQ(*static_cast<float*>(call.y[0].data()), count);
}

TEST(Limits, OptionsOutOfRangeAreRefused) {
  const auto message = [](const RuntimeOptions& options) { return error_of([&] { Runtime runtime(options); }); };
  EXPECT_EQ(message({.threads = -1}), "RuntimeOptions: threads is -1, expected 0 to 65536");
  EXPECT_EQ(message({.cache_bytes = -5}), "RuntimeOptions: cache_bytes is -5, expected at least 0");
  EXPECT_EQ(message({.target = static_cast<TargetKind>(9)}), "RuntimeOptions: target is 9, expected 0 to 4");
  EXPECT_EQ(message({.policy = static_cast<Policy>(7)}), "RuntimeOptions: policy is 7, expected 0 to 1");
  EXPECT_EQ(message({.specialise_after = 0}), "RuntimeOptions: specialise_after is 0, expected at least 1");
}

TEST(Limits, ABuilderBuildsOnce) {
  ir::KernelBuilder b("once");
  const ir::Buffer y = b.output("y", DType::f32, {1});
  b.store(y, {0}, ir::constant(DType::f32, 1));
  b.build();
  EXPECT_THROW(b.build(), Error);
  EXPECT_THROW(b.store(y, {0}, ir::constant(DType::f32, 1)), Error);
}

// Visitors of an expression or a nest recurse, and visit a shared subexpression once per use.
TEST(Limits, ExpressionsAndNestsHaveADepthAndASize) {
  const ir::Var v = ir::make_var("v");
  EXPECT_EQ(error_of([&] {
              Expr e = ir::var(v);
              for (int i = 0; i < 40000; ++i) e = ir::min(e, 1);
            }),
            "ir: an expression nests 1001 levels deep, at most 1000 are allowed");
  EXPECT_EQ(error_of([&] {
              Expr e = ir::var(v);
              for (int i = 0; i < 60; ++i) e = e + e;
            }),
            "ir: an expression has more than 65536 nodes, parts used twice counted twice: name such parts with a let");
  const ir::Buffer y = ir::make_buffer({.name = "y", .dtype = DType::i64, .dims = {1}, .role = ir::Role::out});
  const ir::Stmt put = ir::store(y, {0}, 1);
  EXPECT_EQ(error_of([&] {
              ir::Stmt s = put;
              for (int i = 0; i < 40000; ++i) s = ir::for_loop(ir::make_var("i"), 0, 1, ir::ForKind::serial, s);
            }),
            "ir: statements nest 5001 levels deep, at most 5000 are allowed");
  EXPECT_EQ(error_of([&] {
              ir::Stmt s = put;
              for (int i = 0; i < 60; ++i) s = ir::if_then(Expr(0) < 1, s, s);
            }),
            "ir: a nest has more than 4194304 statements");
}

// The largest accepted input passes every stage.
TEST(Limits, ADeepNestOfDeepExpressionsRuns) {
  ir::KernelBuilder b("deep");
  const ir::Buffer x = b.input("x", DType::i64, {8}), y = b.output("y", DType::i64, {8});
  b.loop("i", 0, 8, [&](Expr i) {
    Expr sum = ir::load(x, {i});
    for (int k = 0; k < 1500; ++k) sum = b.let("s", sum + 1);
    for (int k = 0; k < 800; ++k) sum = ir::binary(ir::BinaryOp::bit_xor, sum, 1 + k);
    b.store(y, {i}, sum);
  });
  const ir::Kernel kernel = b.build();
  EXPECT_GT(ir::print(kernel).size(), 10000u);
  int64_t mask = 0;
  for (int k = 0; k < 800; ++k) mask ^= 1 + k;
  for (const TargetKind target : {TargetKind::automatic, TargetKind::interpreter}) {
    Runtime runtime({.target = target, .threads = 1});
    std::vector<int64_t> in{0, 1, 2, 3, 4, 5, 6, 7}, out(8);
    const auto done = runtime.compile(kernel).value()(
        std::vector<Tensor>{Tensor::borrow(in.data(), DType::i64, {8}), Tensor::borrow(out.data(), DType::i64, {8})});
    ASSERT_TRUE(done) << done.error().what();
    for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(out[i], (i + 1500) ^ mask);
  }
}

// Each let uses the previous one at least twice: inlined, they would be 2^60 nodes or more.
TEST(Limits, ChainsOfLetsAreProvedWithoutPuttingAllIn) {
  const std::function<Expr(Expr)> links[] = {
      [](Expr a) { return a + a; },
      [](Expr a) { return a * a + a; },
      [](Expr a) { return ir::min(a, a + 1); },
      [](Expr a) { return ir::binary(ir::BinaryOp::bit_xor, a, ir::binary(ir::BinaryOp::shl, a, 13)); },
      [](Expr a) { return ir::select(a < 3, a, a + 1); },
      [](Expr a) { return ir::min(ir::floor_mod(a * Expr(3) + 5, 7919), a); },
  };
  const std::function<int64_t(uint64_t)> expected[] = {
      [](uint64_t a) { return static_cast<int64_t>(a + a); },
      [](uint64_t a) { return static_cast<int64_t>(a * a + a); },
      [](uint64_t a) { return static_cast<int64_t>(std::min(static_cast<int64_t>(a), static_cast<int64_t>(a + 1))); },
      [](uint64_t a) { return static_cast<int64_t>(a ^ a << 13); },
      [](uint64_t a) { return static_cast<int64_t>(a) < 3 ? static_cast<int64_t>(a) : static_cast<int64_t>(a + 1); },
      [](uint64_t a) { return std::min(static_cast<int64_t>((a * 3 + 5) % 7919), static_cast<int64_t>(a)); },
  };
  for (const bool loaded : {false, true}) {
    for (size_t link = 0; link < std::size(links); ++link) {
      ir::KernelBuilder b("chain");
      const ir::Buffer x = b.input("x", DType::i64, {8}), y = b.output("y", DType::i64, {8});
      b.loop("i", 0, 8, [&](Expr i) {
        Expr a = b.let("a", loaded ? ir::load(x, {i}) : i + 1);
        for (int k = 0; k < 60; ++k) a = b.let("a", links[link](a));
        b.if_then(
            a > 5, [&] { b.store(y, {i}, a); }, [&] { b.store(y, {i}, a + 1); });
      });
      const ir::Kernel kernel = b.build();
      Runtime runtime({.threads = 1});
      std::vector<int64_t> in{1, 2, 3, 4, 5, 6, 7, 8}, out(8);
      const auto done = runtime.compile(kernel).value()(
          std::vector<Tensor>{Tensor::borrow(in.data(), DType::i64, {8}), Tensor::borrow(out.data(), DType::i64, {8})});
      ASSERT_TRUE(done) << done.error().what();
      for (int64_t i = 0; i < 8; ++i) {
        int64_t a = in[i];
        for (int k = 0; k < 60; ++k) a = expected[link](static_cast<uint64_t>(a));
        EXPECT_EQ(out[i], a > 5 ? a : a + 1) << link;
      }
    }
  }
}

TEST(Limits, AbsentPartsOfANestAreRefused) {
  ir::KernelBuilder b("k");
  const ir::Buffer y = b.inout("y", DType::i64, {8});
  EXPECT_EQ(error_of([&] { (void)b.parameter({}); }), "KernelBuilder: a parameter is an absent buffer");
  EXPECT_EQ(error_of([&] { (void)b.let("a", {}); }), "KernelBuilder: the value of let a is absent");
  b.loop("i", 0, 8, [&](Expr i) { b.accumulate(y, {i}, 1); });
  ir::Schedule schedule(b.build());
  const ir::Schedule::Loop i = schedule.loop("i");
  EXPECT_EQ(error_of([&] { schedule.stage(i, {}, {0}, {8}); }), "schedule: the buffer is absent");
  EXPECT_EQ(error_of([&] { schedule.privatise(i, {}); }), "schedule: the buffer is absent");
  EXPECT_EQ(error_of([&] { schedule.hoist_zeroed_buffer(i, {}); }), "schedule: the buffer is absent");
  EXPECT_EQ(error_of([&] { schedule.streaming({}); }), "schedule: the buffer is absent");
  EXPECT_EQ(error_of([&] { schedule.prefetch(i, {}, 1, 1); }), "schedule: the buffer is absent");
}

// What the interpreter detects in a nest from outside is an invalid nest, not an internal error of gradloom.
TEST(Limits, AFaultOfAnOwnNestIsItsAuthors) {
  ir::KernelBuilder b("past");
  const ir::Buffer y = b.output("y", DType::i64, {8});
  b.loop("i", 0, 9, [&](Expr i) { b.store(y, {i}, i); });
  Runtime runtime({.target = TargetKind::interpreter});
  const KernelExecutable kernel = runtime.compile(b.build()).value();
  const Refused r = refused(kernel(std::vector<Tensor>{Tensor::empty(DType::i64, {8})}));
  EXPECT_EQ(r.code, ErrorCode::invalid_argument);
  EXPECT_EQ(r.message, "kernel past: buffer y[8]: a store out of bounds, dims are [8]");
}

TEST(Limits, ANestForAGpuIsRefusedByACpu) {
  ir::KernelBuilder b("blocks");
  const ir::Buffer y = b.output("y", DType::i64, {8});
  b.loop(
      "i", 0, 8, [&](Expr i) { b.store(y, {i}, i); }, ir::ForKind::grid);
  const ir::Kernel kernel = b.build();
  Runtime runtime({.threads = 1});
  if (runtime.target_name() == "interpreter") GTEST_SKIP() << "it runs every nest";
  const Refused r = refused(runtime.compile(kernel));
  EXPECT_EQ(r.code, ErrorCode::unsupported);
  EXPECT_TRUE(r.message.starts_with("kernel blocks: it has loops of a GPU")) << r.message;
}

TEST(Limits, AMessageIsOneLineWhateverNamesHold) {
  Runtime runtime({.threads = 1});
  const Refused r = refused(runtime.run("Gather\n\x1b[31mGrad", std::vector<Tensor>{}));
  EXPECT_EQ(r.message.find_first_of("\n\x1b"), std::string::npos) << r.message;
  EXPECT_NE(r.message.find("Gather\\n\\x1b[31mGrad"), std::string::npos) << r.message;
}

TEST(Limits, APipeIsNoCase) {
  char folder[] = "/tmp/gradloom_pipe_XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string pipe = std::string(folder) + "/case.json";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW(cases::read_case(pipe), Error);  // opening it would block until a writer appears
  unlink(pipe.c_str());
  rmdir(folder);
}

}  // namespace
}  // namespace gradloom
