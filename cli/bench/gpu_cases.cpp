#include "cli/bench/gpu_cases.h"

#ifdef GRADLOOM_WITH_CUDA
#include "cli/bench/bench_cases.h"
#include "cli/bench/bench_gemm.h"
#include "cli/bench/bench_gru.h"
#include "ops/gru/gru.h"
#include "runtime/build.h"

namespace gradloom::cli {
namespace {

constexpr Determinism fixed = Determinism::run_to_run, any = Determinism::relaxed;
const Prototype prototypes[] = {
    {"ge_ax0", "8-column strip, ordered warps", 134, 178},
    {"ge_ax0", "4-column strip, fixed point", 200, 0, fixed},
    {"ge_ax0", "8-column strip, f32 atomics", 106, 83, any},
    {"ge_ax1", "row, ordered warps", 77, 178},
    {"ge_ax1", "row, fixed point", 70, 0, fixed},
    {"ge_ax1", "row, f32 atomics", 75, 83, any},
    {"ge_ax0_one", "ordered, all-equal path", 188, 0},
    {"ge_ax0_one", "4-column strip, fixed point", 248, 0, fixed},
    {"ge_ax0_one", "8-column strip, f32 atomics", 478, 0, any},
    {"ge_ax1_one", "ordered, all-equal path", 121, 0},
    {"ge_ax1_one", "row, fixed point", 164, 0, fixed},
    {"ge_ax1_one", "row, f32 atomics", 1227, 0, any},
    {"ge_3d", "16-column strip, ordered warps", 34, 178},
    {"ge_3d", "16-column strip, fixed point", 37, 0, fixed},
    {"ge_3d", "16-column strip, f32 atomics", 29, 0, any},
    {"ge_1d", "partition to bins, fixed point", 102, 0},
    {"ge_1d", "partition to bins, f32 atomics", 92, 0, any},
    {"gg_uni", "grouped, 3 launches", 51, 395},
    {"gg_uni", "memset, red.v4", 49, 0, any},
    {"gg_zipf", "grouped, 3 launches", 58, 395},
    {"gg_zipf", "memset, red.v4", 52, 0, any},
    {"gg_one", "grouped, 3 launches", 67, 395},
    {"gg_one", "memset, red.v4", 80, 0, any},
    {"gg_1m", "grouped, 3 launches", 92, 395},
    {"gg_1m", "memset, red.v4", 76, 0, any},
    {"gg_1m_zipf", "grouped, 3 launches", 122, 395},
    {"gg_1m_zipf", "memset, red.v4", 138, 0, any},
    {"gg_32k", "grouped, 3 launches", 233, 395},
    {"sl_mid", "one 16-byte store a thread", 50, 36},
    {"sl_inner", "one 16-byte store a thread", 31, 36},
    {"sl_step2", "8-byte loads, 16-byte stores", 100, 36},
    {"bg_768", "split sums, ticket", 28, 125},
    {"bg_row", "one launch", 25, 125},
    {"bg_col", "one launch", 25, 125},
    {"bg_mid", "one launch", 25, 125},
    {"gru_a", "8-block cluster", 153, 410},
    {"gru_b", "cluster; cuBLAS products", 1617, 410},
    {"gg_uni", "grouped, f32 sums", 35, 395, fixed, DType::bf16},
    {"gg_uni", "red (bf16 sums)", 27, 0, any, DType::bf16},
    {"gg_zipf", "grouped, f32 sums", 42, 395, fixed, DType::bf16},
    {"gg_zipf", "red (bf16 sums)", 32, 0, any, DType::bf16},
    {"gg_one", "grouped, f32 sums", 51, 395, fixed, DType::bf16},
    {"gg_one", "red (bf16 sums)", 62, 0, any, DType::bf16},
    {"gg_1m", "grouped, f32 sums", 59, 395, fixed, DType::bf16},
    {"gg_1m_zipf", "grouped, f32 sums", 108, 395, fixed, DType::bf16},
    {"gg_32k", "grouped, f32 sums", 124, 395, fixed, DType::bf16},
    {"sl_mid", "one 16-byte store a thread", 27, 36, Determinism::sequential, DType::bf16},
    {"sl_inner", "one 16-byte store a thread", 17, 36, Determinism::sequential, DType::bf16},
    {"sl_step2", "8-byte loads, 16-byte stores", 53, 36, Determinism::sequential, DType::bf16},
    {"bg_768", "split sums, ticket", 17.5, 125, Determinism::sequential, DType::bf16},
    {"bg_row", "one launch", 15, 125, Determinism::sequential, DType::bf16},
    {"bg_col", "one launch", 15, 125, Determinism::sequential, DType::bf16},
    {"bg_mid", "one launch", 15, 125, Determinism::sequential, DType::bf16},
    {"gru_a", "16-block cluster", 113, 410, fixed, DType::bf16},
    {"gru_b", "cluster; cuBLAS products", 487, 410, fixed, DType::bf16},
};

Lowered lowered_call(const std::string& name, const std::vector<Operand>& operands, const Attributes& attributes,
                     const ir::Target& target, Determinism level) {
  constexpr int64_t output_alignment = 64;  // of every output that the runtime makes
  const Op& op = *find_op(name);
  const Plan plan = op.check({.inputs = operands, .attributes = attributes, .determinism = level});
  Lowered l;
  const Strategy& strategy = choose_strategy(op, plan, "", target);
  l.strategy = strategy.name;
  BuiltKernel built = build_kernel({op, plan, strategy, {}, ~0u, output_alignment}, target);
  l.kernel = std::move(built.lowered);
  l.scalars.resize(built.sources.size());
  fill_scalars(plan, built.sources, l.scalars.data());
  l.compulsory_bytes = plan.bytes_read + plan.bytes_written;
  return l;
}

Lowered lowered_case(const BenchCase& c, const ir::Target& target, Variant v) {
  std::vector<std::vector<int64_t>> storage;
  std::vector<Operand> operands = bench_operands(c, storage);
  for (size_t i = 0; i < operands.size(); ++i)
    if (c.inputs[i].kind == BenchInput::values) operands[i].dtype = v.dtype;
  return lowered_call(c.op, operands, c.attributes, target, v.level);
}

// Forward in time; without sequence_lens.
Lowered lowered_gru(const char* op, const std::vector<Dims>& inputs, bool linear, const ir::Target& target, Variant v) {
  std::vector<Operand> operands;
  for (size_t k = 0; k < inputs.size(); ++k)
    operands.push_back(
        {.present = k != gru_lens, .dtype = v.dtype, .dims = inputs[k], .strides = dense_strides(inputs[k])});
  return lowered_call(op, operands, {{"linear_before_reset", int64_t{linear}}}, target, v.level);
}

// Inputs X, W, R, B, initial_h; for GRUGrad HAll, ZRH, dHAll too. All outputs.
std::vector<Dims> forward_inputs(const GruCase& c) {
  return {{c.steps, c.batch, c.inputs}, {1, 3 * c.hidden, c.inputs}, {1, 3 * c.hidden, c.hidden}, {1, 6 * c.hidden}, {},
          {1, c.batch, c.hidden}};
}
std::vector<Dims> grad_inputs(const GruCase& c) {
  std::vector<Dims> inputs = forward_inputs(c);
  for (const int64_t gates : {1, 3, 1}) inputs.push_back({c.steps, 1, c.batch, gates * c.hidden});
  return inputs;
}

Lowered lowered_gemm(const GemmCase& c, const ir::Target& target) {
  return {.kernel = gpu_gemm_kernel(c, target),
          .strategy = "blocks",
          .compulsory_bytes = (c.steps * (c.m * c.k + c.m * c.n) + c.k * c.n) * 4};
}

// GRUTraining in gru_grad's shapes: gru_a_forward, with linear_before_reset = 0 gru_a_forward_lbr0, ...; all for
// "gru_forward".
std::vector<ReportCase> forward_cases(const std::string& name) {
  std::vector<ReportCase> list;
  for (const GruCase& c : gru_cases())
    for (const bool linear : {true, false}) {
      const std::string own = c.name + (linear ? "_forward" : "_forward_lbr0");
      if (name != own && name != "gru_forward") continue;
      list.push_back({own, [&c, linear](const ir::Target& t, Variant v) {
                        return lowered_gru("GRUTraining", forward_inputs(c), linear, t, v);
                      }});
    }
  return list;
}

}  // namespace

std::vector<const Prototype*> prototypes_of(const std::string& name, DType dtype, Determinism level,
                                            Determinism weakest) {
  std::vector<const Prototype*> list;
  for (const Prototype& p : prototypes) {
    if (p.name != name || p.dtype != dtype || p.from > weakest) continue;
    if (p.from <= level) list.clear();
    list.push_back(&p);
  }
  return list;
}

std::vector<ReportCase> report_cases(const std::vector<std::string>& names) {
  std::vector<ReportCase> list;
  for (const std::string& name : names.empty() ? std::vector<std::string>{"all"} : names) {
    const bool all = name == "all";
    const auto gemm = chosen_gemm_cases({all ? "gemm" : name});
    const auto gru = chosen_gru_cases({all || name == "gru" ? "gru_grad" : name});
    const auto forward = forward_cases(all || name == "gru" ? "gru_forward" : name);
    if (all || (gemm.empty() && gru.empty() && forward.empty()))
      for (const BenchCase* c : chosen_cases({name}, true))
        list.push_back({c->name, [c](const ir::Target& t, Variant v) { return lowered_case(*c, t, v); }});
    list.insert(list.end(), forward.begin(), forward.end());
    for (const GruCase* c : gru)
      list.push_back({c->name, [c](const ir::Target& t, Variant v) {
                        return lowered_gru("GRUGrad", grad_inputs(*c), true, t, v);
                      }});
    for (const GemmCase* c : gemm)
      if (!all || !c->name.starts_with("gemm_c"))
        list.push_back({c->name, [c](const ir::Target& t, Variant) { return lowered_gemm(*c, t); }, true});
  }
  return list;
}

}  // namespace gradloom::cli
#endif
