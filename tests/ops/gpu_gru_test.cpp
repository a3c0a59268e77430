// The GRU's recurrent kernels on a GPU: all steps are one launch, with one grid-wide barrier per step (two where the
// reset precedes the candidate's product), and every bit equals the definition's for any number of multiprocessors,
// with R resident or reloaded.
#include <gtest/gtest.h>

#include "gradloom/text.h"
#include "ir/analysis/verify.h"
#include "ir/analysis/verify_gpu.h"
#include "ir/passes/passes.h"
#include "tests/ops/gru_harness.h"
#include "tests/support/named_strategy.h"
#include "tests/support/op_calls.h"
#include "tests/support/sampled.h"
#ifdef GRADLOOM_WITH_CUDA
#include "tests/support/host_batch.h"
#endif

namespace gradloom {
namespace {

using namespace testing_ops;

const ir::Target gpu{.name = "gpu", .vector_bytes = 16, .gpu = true, .multiprocessors = 132, .shared_bytes = 227 << 10};

Attributes linear_before_reset(bool linear) { return {{"linear_before_reset", int64_t{linear}}}; }

#ifdef GRADLOOM_WITH_CUDA
struct Sizes {
  int64_t steps, batch, inputs, hidden;
};

// Unallocated tensors.
codegen::CudaModule module_of(const char* name, const Sizes& z, const Attributes& attributes, const ir::Target& target,
                              bool any_shape = false) {
  static const double nothing = 0;
  const auto of = [&](const Dims& dims) {
    return Tensor::borrow(static_cast<const void*>(&nothing), DType::f32, dims);
  };
  const int64_t d = attributes.contains("direction") ? 2 : 1, s = z.steps, n = z.batch, h = z.hidden;
  std::vector<Tensor> inputs{of({s, n, z.inputs}), of({d, 3 * h, z.inputs}), of({d, 3 * h, h}), of({d, 6 * h}), {},
                             of({d, n, h})};
  const Op& op = *find_op(name);
  if (name == std::string("GRUGrad"))
    for (const int64_t gates : {1, 3, 1}) inputs.push_back(of({s, d, n, gates * h}));
  const Operands operands(op.schema(), inputs);
  const Plan plan = op.check(operands.request(attributes));
  return codegen::emit_cuda(build_kernel(op, plan, "blocks", target, any_shape, any_shape ? 1 : 64, false).lowered);
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
  for (const auto& [op, most] : {std::pair{"GRUTraining", 5}, std::pair{"GRUGrad", 17}})
    for (const bool linear : {true, false}) {
      const auto launches = [&](int64_t steps) {
        return launches_of(module_of(op, {steps, 32, 128, 256}, linear_before_reset(linear), gpu));
      };
      const Launches few = launches(3), many = launches(50);
      EXPECT_EQ(few.all, many.all);
      EXPECT_EQ(many.cooperative, 1);
      EXPECT_LE(many.all, most) << op;
      EXPECT_LE(many.most_shared, gpu.shared_bytes);
    }
}

TEST(GruLaunches, AnotherDeviceHasOneAMeeting) {
  ir::Target old = gpu;
  old.cooperative = false;
  for (const char* op : {"GRUTraining", "GRUGrad"})
    for (const bool linear : {true, false}) {
      const auto launches = [&](int64_t steps) {
        return launches_of(module_of(op, {steps, 8, 16, 32}, linear_before_reset(linear), old));
      };
      const Launches few = launches(3), many = launches(13);
      EXPECT_EQ(many.all - few.all, linear ? 10 : 20) << op;
      EXPECT_EQ(many.cooperative, 0);
    }
}

// Positions of the grid-wide barriers in the text: only in the loops over steps, one loop per direction.
TEST(GruMeetings, OneAStepOrTwo) {
  const auto places = [](const std::string& text, const std::string& what) {
    std::vector<size_t> all;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) all.push_back(at);
    return all;
  };
  for (const char* op : {"GRUTraining", "GRUGrad"})
    for (const bool linear : {true, false})
      for (const bool any_shape : {false, true})
        for (const bool both : {false, true}) {
          Attributes attributes = linear_before_reset(linear);
          if (both) attributes["direction"] = std::string("bidirectional");
          const std::string text = module_of(op, {50, 32, 128, 256}, attributes, gpu, any_shape).text;
          const std::vector<size_t> meetings = places(text, "gl_sync_grid(gl_grid);"),
                                    functions = places(text, "unsigned* gl_grid");
          const std::vector<size_t> loops = places(text, " t = 0; t < ");
          EXPECT_EQ(functions.size(), both ? 2u : 1u) << text;
          ASSERT_EQ(loops.size(), functions.size());
          ASSERT_EQ(meetings.size(), functions.size() * (linear ? 1 : 2))
              << op << (linear ? ", linear" : "") << (any_shape ? ", any shape\n" : "\n") << text;
          for (size_t i = 0; i < meetings.size(); ++i) {
            const size_t loop = loops[i / (linear ? 1 : 2)], head = text.rfind('\n', loop);
            const size_t end = text.find(text.substr(head, text.find("for", head) - head) + "}", loop);
            EXPECT_GT(meetings[i], loop);
            EXPECT_LT(meetings[i], end);
          }
        }
}

TEST(GruSteps, NothingWaitsForMemoryAfterTheProduct) {
  for (const auto& [op, reads] :
       {std::pair{"GRUTraining", std::vector<const char*>{"= h[", "x_products[", "bias["}},
        std::pair{"GRUGrad", std::vector<const char*>{"= g[", "ZRH[", "before[", "dHAll[", "h_products[", "bias["}}}) {
    const std::string text = module_of(op, {50, 32, 128, 256}, linear_before_reset(true), gpu).text;
    const size_t product = text.find("step0_mt"), last = text.rfind("step0_st");
    ASSERT_LT(product, last);
    const std::string before = text.substr(0, product), after = text.substr(product, text.find("\n}", last) - product);
    for (const char* read : reads) {
      EXPECT_NE(before.find(read), std::string::npos) << read << "\n" << before;
      EXPECT_EQ(after.find(read), std::string::npos) << read << "\n" << after;
    }
  }
}
#endif

// R takes precedence in shared memory over the space that sums in parts need for their reduction.
TEST(GruSteps, KeepRInPartsWhereverTheyDoInOrder) {
  const auto kept = [](const Call& call, const char* strategy, const ir::Target& target) {
    const Op& op = *find_op(call.op);
    const Operands operands(op.schema(), call.inputs);
    const Plan plan = op.check(operands.request(call.attributes, ~0u, false, Determinism::run_to_run));
    const std::string text = ir::print(author_kernel(op, plan, strategy, target, false, 64, false).authored);
    int count = 0;
    for (size_t at = text.find("_kept:"); at != std::string::npos; at = text.find("_kept:", at + 1)) ++count;
    return count;
  };
  static const double nothing = 0;
  int some = 0;
  for (const auto& [multiprocessors, kib] :
       {std::pair{132, 227}, std::pair{108, 163}, std::pair{132, 99}, std::pair{40, 16}})
    for (const bool linear : {true, false})
      for (const DType dtype : {DType::f32, DType::f64})
        for (const int64_t n : {8, 32, 64})
          for (const int64_t h : {64, 100, 256, 384, 512, 768})
            for (const char* name : {"GRUTraining", "GRUGrad"}) {
              const auto of = [&](const Dims& dims) {
                return Tensor::borrow(static_cast<const void*>(&nothing), dtype, dims);
              };
              Call call{"",
                        name,
                        {of({3, n, 8}), of({1, 3 * h, 8}), of({1, 3 * h, h}), {}, {}, {}},
                        {{"linear_before_reset", int64_t{linear}}}};
              if (name == std::string("GRUGrad"))
                for (const int64_t gates : {1, 3, 1}) call.inputs.push_back(of({3, 1, n, gates * h}));
              ir::Target target = gpu;
              target.multiprocessors = multiprocessors, target.shared_bytes = int64_t{kib} << 10;
              const int in_order = kept(call, "blocks", target);
              EXPECT_EQ(kept(call, "split", target), in_order)
                  << name << ", " << to_string(dtype) << ", N " << n << ", H " << h << ", " << kib << " KiB";
              some += in_order;
            }
  EXPECT_GT(some, 100);
}

Call training(DType dtype, int64_t steps, int64_t batch, int64_t hidden, Attributes attributes, bool lens, bool bare) {
  Random random(static_cast<uint64_t>(17 * batch + hidden));
  const int64_t d =
      attributes.contains("direction") && std::get<std::string>(attributes["direction"]) == "bidirectional" ? 2 : 1;
  std::vector<Tensor> in{random.values(dtype, {steps, batch, 3}), random.values(dtype, {d, 3 * hidden, 3}),
                         random.values(dtype, {d, 3 * hidden, hidden})};
  in.resize(6);
  if (!bare) in[3] = random.values(dtype, {d, 6 * hidden}), in[5] = random.values(dtype, {d, batch, hidden});
  if (lens) {
    std::vector<int64_t> length(static_cast<size_t>(batch));
    for (int64_t k = 0; k < batch; ++k) length[static_cast<size_t>(k)] = (k * 3 + 1) % (steps + 1);
    in[4] = Tensor::of(DType::i32, {batch}, length);
  }
  return {std::string(to_string(dtype)) + (lens ? " lens" : "") + (bare ? " bare" : ""), "GRUTraining", in,
          std::move(attributes)};
}

// Forwards and backwards: race detection finds what neither order exposes.
void expect_definition(const Call& call, const ir::Target& target, bool any_shape,
                       const std::function<void(const BuiltKernel&, const Plan&, const Bits& want)>& also = {}) {
  const Op& op = *find_op(call.op);
  const Operands operands(op.schema(), call.inputs);
  const Plan plan = op.check(operands.request(call.attributes));
  const BuiltKernel built = build_kernel(op, plan, "blocks", target, any_shape, any_shape ? 1 : 64, false);
  ir::verify(built.lowered, ir::Stage::lowered);
  EXPECT_EQ(ir::gpu_structure_error(built.lowered), "");
  std::vector<int64_t> scalars(built.sources.size());
  fill_scalars(plan, built.sources, scalars.data());
  const Bits want = defined(op, call, plan);
  for (const bool reverse : {false, true})
    EXPECT_EQ(interpreted(built.lowered, call, plan, scalars, reverse), want) << ir::print(built.lowered);
  if (also) also(built, plan, want);
}

TEST(GruTraining, KeepsItsBitsHoweverColumnsAreSharedOut) {
  struct Machine {
    int multiprocessors;
    int64_t shared_bytes;
  };
#ifdef GRADLOOM_WITH_CUDA
  HostBatch batch;
#endif
  int count = 0;
  for (const Machine& machine :
       {Machine{1, 227 << 10}, Machine{3, 227 << 10}, Machine{40, 227 << 10}, Machine{40, 5 << 10}})
    for (const bool linear : {true, false})
      for (const char* direction : {"forward", "reverse", "bidirectional"})
        for (const bool lens : {false, true}) {
          if (!sampled(++count, 3)) continue;
          const uint64_t hash =
              static_cast<uint64_t>(count) * 0x9e3779b97f4a7c15u >> 32;  // equal strides would pair the choices
          const DType dtype = floats[hash % floats.size()];
          const Attributes attributes{{"linear_before_reset", int64_t{linear}}, {"direction", std::string(direction)}};
          const Call call = training(dtype, 3, hash >> 8 & 1 ? 20 : 7, hash >> 12 & 1 ? 24 : 21, attributes, lens,
                                     (hash >> 16) % 5 == 0);
          ir::Target target = gpu;
          target.multiprocessors = machine.multiprocessors, target.shared_bytes = machine.shared_bytes;
          SCOPED_TRACE(call.name + (linear ? " linear " : " ") + direction + " on " +
                       std::to_string(machine.multiprocessors) + ", " + std::to_string(machine.shared_bytes));
          expect_definition(call, target, false, [&](const BuiltKernel& built, const Plan& plan, const Bits& want) {
#ifdef GRADLOOM_WITH_CUDA
            if (count % 5 != 1) return;  // compilation dominates the run time
            batch.add(call.name, codegen::emit_cuda(built.lowered),
                      [=](const codegen::CudaModule& module, const codegen::HostModule& loaded) {
                        for (const codegen::HostOrder order :
                             {codegen::HostOrder::forward, codegen::HostOrder::reverse, codegen::HostOrder::shuffled}) {
                          const Buffers buffers(call, plan, false);
                          codegen::run_on_host(module, loaded, buffers.pointers(), {}, order, 11);
                          EXPECT_EQ(buffers.bits(), want) << call.name << "\n" << module.text;
                        }
                      });
#else
            (void)built, (void)plan, (void)want;
#endif
          });
          if (HasFailure()) return;
        }
#ifdef GRADLOOM_WITH_CUDA
  batch.flush();
#endif
}

TEST(GruTraining, EveryActivation) {
  const std::vector<std::string> names{"Sigmoid",   "Tanh", "Relu",       "HardSigmoid",     "Softsign", "Affine",
                                       "LeakyRelu", "Elu",  "ScaledTanh", "ThresholdedRelu", "Softplus"};
  for (size_t i = 0; i < names.size(); ++i)
    for (const bool linear : {true, false})
      for (const bool any_shape : {false, true}) {
        if (!sampled(4 * i + 2 * linear + any_shape)) continue;
        SCOPED_TRACE(names[i] + (linear ? ", linear" : "") + (any_shape ? ", any shape" : ""));
        const Attributes attributes =
            testing_gru::attributes_of({.hidden = 8,
                                        .linear = linear,
                                        .activations = {names[i], names[(i + 1) % names.size()]},
                                        .alpha = {0.7, 0.3},
                                        .beta = {0.4, 0.2}});
        expect_definition(training(DType::f32, 3, 3, 8, attributes, false, false), gpu, any_shape);
        if (HasFailure()) return;
      }
}

// Enough rows that the products over all steps, and dB, are summed in parts.
TEST(GruGrad, LongSumsInPartsAreComplete) {
  const Call forward = training(DType::f64, 20, 26, 5, linear_before_reset(true), true, false);
  Runtime reference({.target = TargetKind::interpreter});
  const std::vector<Tensor> out = reference.run(forward.op, forward.inputs, forward.attributes).value();
  Random random(3);
  Call call{"long", "GRUGrad", forward.inputs, forward.attributes};
  call.inputs.insert(call.inputs.end(), {out[0], out[2], random.values(DType::f64, {20, 1, 26, 5}),
                                         random.values(DType::f64, {1, 26, 5})});
  ir::Target target = gpu;
  target.multiprocessors = 2;
  const Op& op = *find_op(call.op);
  const Operands operands(op.schema(), call.inputs);
  const Plan plan = op.check(operands.request(call.attributes, ~0u, false, Determinism::run_to_run));
  ASSERT_EQ(chosen_strategy(op, plan, target), "split");
  const BuiltKernel built = build_kernel(op, plan, "split", target, false, 64, false);
  EXPECT_NE(ir::print(built.lowered).find("dw_partial"), std::string::npos);
  const Bits want = defined(op, call, plan), got = interpreted(built.lowered, call, plan, {}, false);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(ir::double_from_bits(DType::f64, got[i]), ir::double_from_bits(DType::f64, want[i]), 1e-11) << i;
}

}  // namespace
}  // namespace gradloom
