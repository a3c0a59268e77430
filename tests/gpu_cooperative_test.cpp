// Cooperative loops: what their form is, how a schedule makes them, that all of GRU's steps are one launch, and that their text keeps every bit however few
// blocks there are.
#include <gtest/gtest.h>

#include "ir/gpu_form.h"
#include "ir/passes/passes.h"
#include "ir/print.h"
#include "ir/rewrite.h"
#include "ir/schedule.h"
#include "ir/verify.h"
#include "ops/matmul_recurrent.h"
#include "runtime/build.h"
#include "schedule_support.h"
#include "support/op_calls.h"
#ifdef GRADLOOM_WITH_CUDA
#include "codegen/cuda/host_executor.h"
#endif

namespace gradloom::ir {
namespace {

// `inside`: the body of a cooperative loop over t.
std::string misfit(const std::string& inside, const std::string& around = "cooperative") {
  return gpu_misfit(parse("kernel k() {\n  in n: i64[4]\n  inout y: f32[8, 32]\n  for t in 0 .. 5 " + around + " {\n" + inside + "\n  }\n}\n"));
}
const std::string phase = "for b in 0 .. 8 grid { for i in 0 .. 32 thread { y[b, i] += 1.0f32 } }";

TEST(Cooperative, TheFormHasPhasesOnly) {
  EXPECT_EQ(misfit(phase), "");
  EXPECT_EQ(misfit("let s: i64 = t * 2\n if s < 7 { for u in 0 .. s { " + phase + " } }"), "");
  EXPECT_EQ(misfit("for u in 0 .. 2 cooperative { " + phase + " }"), "the cooperative loop u stands in a cooperative loop, outside grid loops");
  EXPECT_EQ(misfit("for b in 0 .. 2 grid { for u in 0 .. 2 cooperative { y[b, 0] = 1.0f32 } }"), "the cooperative loop u stands in a grid loop, outside thread and warp loops");
  EXPECT_EQ(misfit("for i in 0 .. 32 thread { y[0, i] = 1.0f32 }"), "the thread loop i stands in a cooperative loop, outside grid loops");
  EXPECT_EQ(misfit("y[0, 0] = 1.0f32"), "a store to y stands in a cooperative loop, outside grid loops");
  EXPECT_EQ(misfit("alloc s: f32[8]\n" + phase), "the global buffer s is allocated in a cooperative loop, outside grid loops");
  EXPECT_EQ(misfit("if n[0] > t { " + phase + " }"), "a condition in a cooperative loop, outside grid loops reads the buffer n");
  EXPECT_EQ(misfit("let s: i64 = t + 1\n for b in 0 .. min(s, 8) grid { y[b, 0] = 1.0f32 }"), "the extent of the grid loop b depends on s, of the cooperative loop around it");
}

TEST(Cooperative, ABlockUsesItsOwnPart) {
  const auto use = [](const std::string& extent, const std::string& index) {
    return misfit("alloc w: f32[8, 32] per_block\n for b in 0 .. " + extent + " grid { for i in 0 .. 32 thread { w[" + index + ", i] = 1.0f32 } }");
  };
  EXPECT_EQ(use("8", "b"), "");
  const std::string otherwise = "the buffer w, a part a block, is used otherwise than by iterations of a grid loop over its first dim";
  EXPECT_EQ(use("8", "7 - b"), otherwise);
  EXPECT_EQ(use("4", "b"), otherwise);
  EXPECT_EQ(use("4", "0"), otherwise);
  EXPECT_EQ(misfit("alloc w: f32[8, 32] per_block\n" + phase, ""), "the per_block buffer w is allocated outside every grid loop");
}

TEST(Cooperative, AScheduleBindsALoopInOrder) {
  const Kernel authored = parse(R"(kernel k() {
  inout y: f32[8, 32]
  for t in 0 .. 5 {
    for b in 0 .. 8 {
      for i in 0 .. 32 {
        y[b, i] = y[b, i] * 0.5f32 + f32(t)
      }
    }
  }
})");
  Schedule s(authored);
  s.bind(s.loop("b"), ForKind::grid);
  s.bind(s.loop("i"), ForKind::thread);
  EXPECT_THROW(s.bind(s.loop("b"), ForKind::cooperative), Error);
  s.bind(s.loop("t"), ForKind::cooperative);
  EXPECT_EQ(s.trace().back(), "bind t cooperative");
  expect_same(authored, s.kernel());
  const Kernel lowered = lower(s.kernel());
  verify(lowered, Stage::lowered);
  EXPECT_EQ(gpu_misfit(lowered), "");
  expect_same(authored, lowered);
  Schedule again(authored);
  again.replay(s.trace());
  EXPECT_EQ(print(again.kernel()), print(s.kernel()));
}

// Grid loops inside are parallel: what two of their iterations share is found, whatever the order.
TEST(Cooperative, TheInterpreterFindsRacesInAPhase) {
  const Kernel kernel = parse(R"(kernel k() {
  inout y: f32[8]
  for t in 0 .. 2 cooperative {
    for b in 0 .. 8 grid {
      y[0] += 1.0f32
    }
  }
})");
  EXPECT_THROW(run(kernel, {}, 1), Error);
}

}  // namespace
}  // namespace gradloom::ir

namespace gradloom {
namespace {

using namespace testing_ops;

const ir::Target gpu{.name = "gpu", .vector_bytes = 16, .gpu = true, .multiprocessors = 132, .shared_bytes = 227 << 10};

#ifdef GRADLOOM_WITH_CUDA
// GRUGrad of S steps, without memory.
codegen::CudaModule gru_module(int64_t s, int64_t n, int64_t i, int64_t h, bool linear, const ir::Target& target) {
  static const double nothing = 0;
  const auto of = [&](const Dims& dims) { return Tensor::borrow(static_cast<const void*>(&nothing), DType::f32, dims); };
  const std::vector<Tensor> inputs{of({s, n, i}),      of({1, 3 * h, i}),    of({1, 3 * h, h}), of({1, 6 * h}), {}, of({1, n, h}),
                                   of({s, 1, n, h}), of({s, 1, n, 3 * h}), of({s, 1, n, h})};
  const Op& op = *find_op("GRUGrad");
  const Operands operands(op.schema(), inputs);
  const Plan plan = op.check(operands.request({{"linear_before_reset", int64_t{linear}}}));
  return codegen::emit_cuda(build_kernel(op, plan, "blocks", target, false, 64, false).lowered);
}

struct Launches {
  int all = 0, cooperative = 0;
  int64_t most_shared = 0;
};
Launches launches_of(const codegen::CudaModule& module) {
  Launches count;
  char memory = 0;
  std::vector<void*> buffers(static_cast<size_t>(module.buffers), &memory);
  const codegen::LaunchSink sink{.acquire = [&](int64_t) { return static_cast<void*>(&memory); },
                                 .release = [](void*, int64_t) {},
                                 .zero = [](void*, int64_t) {},
                                 .launch =
                                     [&](const codegen::CudaFunction& f, int64_t, std::span<void*>) {
                                       ++count.all;
                                       count.cooperative += f.cooperative > 0;
                                       count.most_shared = std::max(count.most_shared, f.shared_bytes);
                                     }};
  codegen::launch_all(module, buffers, {}, &memory, sink);
  return count;
}

TEST(GruLaunches, DoNotGrowWithTheSteps) {
  for (const bool linear : {true, false}) {
    const Launches few = launches_of(gru_module(3, 32, 128, 256, linear, gpu)), many = launches_of(gru_module(50, 32, 128, 256, linear, gpu));
    EXPECT_EQ(few.all, many.all);
    EXPECT_EQ(many.cooperative, 1);
    EXPECT_LE(many.all, 17);
    EXPECT_LE(many.most_shared, gpu.shared_bytes);
  }
}

TEST(GruLaunches, AnotherDeviceHasOneAStep) {
  ir::Target old = gpu;
  old.cooperative = false;
  const Launches few = launches_of(gru_module(3, 8, 16, 32, true, old)), many = launches_of(gru_module(13, 8, 16, 32, true, old));
  EXPECT_EQ(many.all - few.all, 10);
  EXPECT_EQ(many.cooperative, 0);
}
#endif

// A product by a matrix that stays, over and over: x = first + x B. Edges, parts of k, several columns a thread.
struct Shape {
  int64_t m, n, k, multiprocessors, shared_bytes;
};
using Author = std::function<void(ir::KernelBuilder&, const ir::Buffer& x, const ir::Buffer& y, const ir::Buffer& out)>;

ir::Kernel over_time(const Shape& s, const Author& author) {
  ir::KernelBuilder b("over_time");
  const ir::Buffer x = b.input("x", DType::f32, {3, s.m, s.k}), y = b.input("y", DType::f32, {s.k, s.n}), out = b.output("out", DType::f32, {3, s.m, s.n}, 64);
  author(b, x, y, out);
  return b.build();
}

TEST(RecurrentMatmul, KeepsEverySum) {
  for (const Shape& s : {Shape{8, 16, 64, 132, 64 << 10}, Shape{5, 7, 9, 8, 64 << 10}, Shape{16, 64, 48, 4, 24 << 10}, Shape{32, 32, 36, 1, 16 << 10}, Shape{1, 3, 100, 132, 8 << 10}}) {
    const ir::Target target{.gpu = true, .multiprocessors = static_cast<int>(s.multiprocessors), .shared_bytes = s.shared_bytes};
    const auto product = [&](const ir::Buffer& y) {
      Matmul p{.prefix = "p", .m = s.m, .n = s.n, .k = s.k};
      p.b = [y](ir::Expr k, ir::Expr n) { return ir::load(y, {k, n}); };
      return p;
    };
    const ir::Kernel want = over_time(s, [&](ir::KernelBuilder& b, const ir::Buffer& x, const ir::Buffer& y, const ir::Buffer& out) {
      b.loop("t", 0, 3, [&](ir::Expr t) {
        Matmul p = product(y);
        p.a = [&](ir::Expr m, ir::Expr k) { return ir::load(x, {t, m, k}); };
        p.first = [&](ir::Expr m, ir::Expr n) { return ir::cast(DType::f32, m - n); };
        p.store = [&](ir::Expr m, ir::Expr n, ir::Expr sum) { b.store(out, {t, m, n}, sum); };
        author_matmul(b, p);
      });
    });
    const ir::Kernel authored = over_time(s, [&](ir::KernelBuilder& b, const ir::Buffer& x, const ir::Buffer& y, const ir::Buffer& out) {
      RecurrentMatmul p(b, product(y), target, s.shared_bytes);
      b.loop("launch", 0, 1, [&](ir::Expr) {
        p.bring();
        b.loop("t", 0, 3, [&](ir::Expr t) {
          p.multiply([&](ir::Expr m, ir::Expr k) { return ir::load(x, {t, m, k}); }, [&](ir::Expr m, ir::Expr n) { return ir::cast(DType::f32, m - n); },
                     [&](ir::Expr m, ir::Expr n, ir::Expr sum) { b.store(out, {t, m, n}, sum); });
        });
      });
    });
    ir::Schedule schedule(authored);
    schedule_matmul_recurrent(schedule, "p");
    ASSERT_FALSE(schedule.loops("p_rb").empty()) << s.m << " x " << s.n << " x " << s.k << " is not kept";
    schedule.bind(schedule.loop("launch"), ir::ForKind::cooperative);
    const ir::Kernel lowered = ir::lower(schedule.kernel(), {.gpu = true, .shared_bytes = s.shared_bytes});
    ir::verify(lowered, ir::Stage::lowered);
    EXPECT_EQ(ir::gpu_misfit(lowered), "") << ir::print(lowered);
    ir::expect_same(want, lowered);
  }
}

}  // namespace
}  // namespace gradloom
