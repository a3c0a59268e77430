#include "cli/demo/demo_calls.h"

#include <fmt/format.h>

#include <cmath>

#include "cli/bench/bench_gru.h"
#include "cli/bench/bench_measure.h"
#include "cli/bench/bench_peak.h"
#include "cli/cases.h"
#include "cli/demo/plain_loops.h"
#include "gradloom/builder.h"
#include "gradloom/math.h"
#include "gradloom/schedule.h"
#include "gradloom/schedule_common.h"

namespace gradloom::cli {
namespace {

const float* floats(const Tensor& t) { return static_cast<const float*>(t.data()); }

// The computation, then its schedule: all that a user writes for a custom kernel.
ir::Kernel silu_grad(int64_t n, const ir::Target& target) {
  ir::KernelBuilder b("silu_grad");
  const ir::Buffer dy = b.input("dy", DType::f32, {n}), x = b.input("x", DType::f32, {n}),
                   dx = b.output("dx", DType::f32, {n});
  const ir::Expr one = ir::constant(DType::f32, 1);
  b.loop("i", 0, n, [&](ir::Expr i) {
    const ir::Expr v = b.let("v", ir::load(x, {i})), s = b.let("s", ir::logistic(b, v));
    b.store(dx, {i}, ir::load(dy, {i}) * (s * (one + v * (one - s))));
  });
  ir::Schedule schedule(b.build());
  schedule.parallel(vectorize_elements(schedule, schedule.loop("i"), size_of(DType::f32), 2, target));
  return schedule.kernel();
}

}  // namespace

void gru_rows(const GruCase& c, Runtime& runtime, ProbeTeam& team, Peers& peers, double seconds, DemoTable& table) {
  const auto row = [&](const std::string& op, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                       const Attributes& attributes) {
    runtime.clear_cache();
    const double begin = elapsed_ms();
    const Executable handle = runtime.compile(op, inputs, attributes).value();
    DemoRow made{op, fmt::format("{} steps, batch {}, {} wide", c.steps, c.batch, c.hidden)};
    made.cold_ms = elapsed_ms() - begin;
    const PeakTimes times = measure_beside_peak([&] { handle(inputs, outputs).value(); }, team, seconds);
    made.ms = times.median_ms;
    made.roof_ms = c.flops() / times.peak_gflops * 1e-6;
    made.peers = peers.time(op, c);
    return made;
  };
  table.working("GRUTraining");
  GruOperands operands(c, runtime);
  const std::vector<Tensor> forward(operands.inputs.begin(), operands.inputs.begin() + 6);
  const std::vector<Tensor> saved{Tensor::empty(DType::f32, operands.inputs[6].dims()),
                                  Tensor::empty(DType::f32, {1, c.batch, c.hidden}),
                                  Tensor::empty(DType::f32, operands.inputs[7].dims())};
  DemoRow made = row("GRUTraining", forward, saved, operands.attributes);
  made.roof_ms /= 2;  // two products of four
  const Tensor states = Tensor::empty(DType::f32, saved[0].dims());
  made.loop_ms = call_ms([&] { plain_gru(c, forward, states); }, seconds);
  made.error = cases::largest_error(saved[0], states);
  made.right = made.error < 1e-5;
  table.row(made);

  table.working("GRUGrad");
  made = row("GRUGrad", operands.inputs, operands.outputs, operands.attributes);
  std::string wrong;
  made.loop_ms = call_ms([&] { wrong = gru_difference(c, operands.inputs, operands.outputs); }, 0);
  made.right = wrong.empty();
  table.row(made);
}

void own_kernel_row(int64_t n, Runtime& runtime, Peers& peers, double seconds, DemoTable& table) {
  table.working("silu_grad");
  BenchCase values{"silu_grad"};
  values.inputs = {{BenchInput::values, {n}}, {BenchInput::values, {n}}};
  std::vector<Tensor> buffers = bench_inputs(values);
  buffers.push_back(Tensor::empty(DType::f32, {n}));
  DemoRow made{"a kernel of your own", fmt::format("SiLU's gradient, [{}]", n)};
  const double begin = elapsed_ms();
  const KernelExecutable kernel = runtime.compile(silu_grad(n, runtime.target())).value();
  made.cold_ms = elapsed_ms() - begin;
  made.ms = call_ms([&] { kernel(buffers).value(); }, seconds);
  const Tensor plain = Tensor::empty(DType::f32, {n});
  made.loop_ms = call_ms(
      [&] { plain_silu_grad(floats(buffers[0]), floats(buffers[1]), static_cast<float*>(plain.data()), n); }, seconds);
  made.error = cases::largest_error(buffers[2], plain);
  made.right = made.error < 1e-5;
  made.peers = peers.time_silu_grad(n);
  table.row(made);
}

}  // namespace gradloom::cli
