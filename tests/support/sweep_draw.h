#pragma once
// Calls drawn by seed, over every op, dtype, strategy, level, number of threads, target, shape and layout, with extents
// where loops degenerate. A call to be run is small and has data; any other has none, and may be arbitrarily large.
#include <optional>
#include <set>

#include "gradloom/schedule_common.h"
#include "runtime/backend/backend.h"
#include "tests/support/named_strategy.h"
#include "tests/support/op_calls.h"
#include "tests/support/sweep_pairs.h"
#include "tests/support/sweep_shapes.h"
#ifdef GRADLOOM_WITH_LLVM
#include "codegen/llvm/compiler.h"
#endif

namespace gradloom::sweep {

using testing_ops::Call;

struct Drawn {
  Call call;  // tensors are allocated only when it is to be run
  Plan plan;
  const Op* op = nullptr;
  std::string strategy;
  Executor executor = on_llvm;
  ir::Target target;
  Determinism level = Determinism::sequential;
  bool any_shape = false, run = false;
  uint64_t seed = 0;
  int64_t alignment = 64;
  std::vector<FactorValue> values;  // sorted, each once
  std::string describe() const;
};

inline std::string Drawn::describe() const {
  std::string text = call.op + " " + strategy + " on " + target.name + ", " + std::to_string(target.threads) +
                     " threads, level " + factor_names()[level_of][static_cast<int>(level)] +
                     (any_shape ? ", any shape" : "") + (call.accumulate ? ", accumulating" : "") +
                     ", outputs aligned to " + std::to_string(alignment);
  for (const auto& [name, value] : call.attributes)
    if (const int64_t* number = std::get_if<int64_t>(&value)) text += ", " + name + " " + std::to_string(*number);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Tensor& t = call.inputs[i];
    if (!t.present()) continue;
    text += ", " + op->schema().inputs[i].name + " " + to_string(t.dtype()) + to_string(t.dims());
    if (!t.dense()) text += " strides " + to_string(t.strides());
    if (!op->schema().inputs[i].shape_like || t.elements() == 0) continue;
    text += " =";
    for (int64_t k = 0; k < t.elements(); ++k) text += " " + std::to_string(integer_element(t, k));
  }
  return text;
}

// Streaming and cache thresholds are then small as well, so that the interpreter can run the call.
inline void small_caches(ir::Target& target) { target.l1_bytes = 4 << 10, target.l2_bytes = 16 << 10; }

class Draw {
 public:
  Draw(uint64_t seed, const std::vector<FactorValue>& forced, bool run) : random_(seed), forced_(forced), run_(run) {}

  // None where the draw is no valid call, or lacks the forced values.
  std::optional<Drawn> once() {
    Drawn d;
    d.run = run_;
    d.executor = static_cast<Executor>(value(target_of));
    d.level = static_cast<Determinism>(value(level_of));
    d.call.accumulate = value(accumulate_of) != 0;
    d.op = weighted_op();
    if (!d.op) return {};
    d.any_shape = value(kernel_of) != 0;
    const bool slow = d.any_shape && d.op->schema().name.starts_with("GRU") && !forced_value(kernel_of);
    if (slow && !random_.one_in(8)) return {};
    d.call.op = d.op->schema().name;
    d.target = target(d.executor, value(threads_of) + 1);
    const std::vector<DType>& dtypes = dtypes_of(*d.op);
    const DType dtype =
        forced_value(dtype_of) ? static_cast<DType>(*forced_value(dtype_of)) : dtypes[random_.below(dtypes.size())];
    if (std::find(dtypes.begin(), dtypes.end(), dtype) == dtypes.end()) return {};
    const auto strides = static_cast<Strides>(value(strides_of));

    Shapes shapes(random_, extents(), Limits{run_, traffic(), d.target, dtype, d.level}, strides);
    if (!shapes.make(d.call, dtype)) return {};
    const Operands operands(d.op->schema(), d.call.inputs);
    try {
      d.plan = d.op->check(operands.request(d.call.attributes, shapes.outputs_wanted, d.call.accumulate, d.level));
    } catch (const Error&) {
      return {};  // no valid call: accumulate where there is none, an index into nothing
    }
    if (d.op->schema().on_host && d.executor != on_llvm) d.target = {};  // Runtime interprets it
    const std::vector<std::string> offered = serving_names(*d.op, d.plan, d.target, d.any_shape);
    d.strategy = forced_value(strategy_of) ? strategy_names[static_cast<size_t>(*forced_value(strategy_of))]
                                           : offered[random_.below(offered.size())];
    if (std::find(offered.begin(), offered.end(), d.strategy) == offered.end()) return {};
    d.alignment = random_.below(3) == 0 || !aligned(d.call) ? 1 : 64;

    std::set<FactorValue> values;
    const auto note = [&](Factor f, int v) { values.insert({f, v}); };
    note(op_of, index_of_op(*d.op)), note(dtype_of, static_cast<int>(dtype)), note(level_of, static_cast<int>(d.level));
    note(strategy_of, static_cast<int>(std::find(strategy_names.begin(), strategy_names.end(), d.strategy) -
                                       strategy_names.begin()));
    note(threads_of, value(threads_of)), note(target_of, d.executor), note(kernel_of, d.any_shape),
        note(accumulate_of, d.call.accumulate);
    for (const Extent e : shapes.used()) note(extent_of, e);
    note(strides_of, shapes.made());
    const int64_t bytes = d.plan.bytes_read + d.plan.bytes_written;
    if (bytes >= parallel_bytes) note(traffic_of, parallel_traffic);
    if (bytes > 4 * d.target.l2_bytes) note(traffic_of, streamed);
    if (bytes < parallel_bytes && bytes <= 4 * d.target.l2_bytes) note(traffic_of, few_bytes);
    d.values.assign(values.begin(), values.end());
    for (const FactorValue& f : forced_)
      if (!values.contains(f)) return {};
    return d;
  }

 private:
  std::optional<int> forced_value(Factor f) const {
    for (const FactorValue& v : forced_)
      if (v.factor == f) return v.value;
    return {};
  }
  // Drawn once per call.
  int value(Factor f) {
    if (const std::optional<int> v = forced_value(f)) return *v;
    if (drawn_.size() <= static_cast<size_t>(f)) drawn_.resize(factors, -1);
    if (drawn_[f] < 0) drawn_[f] = static_cast<int>(random_.below(factor_names()[f].size()));
    return drawn_[f];
  }
  std::vector<Extent> extents() const {
    std::vector<Extent> wanted;
    for (const FactorValue& v : forced_)
      if (v.factor == extent_of) wanted.push_back(static_cast<Extent>(v.value));
    return wanted;
  }
  // Among those compatible with the forced values. The recurrent ops take most of the time, the one on shapes has the
  // fewest cases, and the declared ones, which have one strategy, are many.
  const Op* weighted_op() {
    std::vector<const Op*> all;
    for (const Op* op : all_ops()) {
      if (!std::all_of(forced_.begin(), forced_.end(), [&](FactorValue v) { return op_allows(*op, v); })) continue;
      const bool few = op->schema().name.starts_with("GRU") || op->schema().on_host || op->strategies().size() == 1;
      all.insert(all.end(), few ? 1 : 8, op);
    }
    return all.empty() ? nullptr : all[random_.below(all.size())];
  }
  static int index_of_op(const Op& op) {
    const std::vector<const Op*> ops = all_ops();
    return static_cast<int>(std::find(ops.begin(), ops.end(), &op) - ops.begin());
  }
  // The interpreter is slow: few of the calls to be run are large enough for threads.
  Traffic traffic() {
    if (forced_value(traffic_of) || !run_) return static_cast<Traffic>(value(traffic_of));
    return random_.below(48) == 0 ? parallel_traffic : random_.below(8) == 0 ? streamed : few_bytes;
  }
  static bool aligned(const Call& call) {
    return std::all_of(call.inputs.begin(), call.inputs.end(),
                       [](const Tensor& t) { return reinterpret_cast<uintptr_t>(t.data()) % 16 == 0; });
  }

  ir::Target target(Executor executor, int threads) {
    ir::Target t;
    if (executor == on_cuda_host) t = host_gpu_target();
    if (executor == on_cuda) {
      static const ir::Target devices[] = {
          {.name = "sm_70", .vector_bytes = 16, .gpu = true, .multiprocessors = 80, .shared_bytes = 96 << 10},
          {.name = "sm_61",
           .vector_bytes = 16,
           .gpu = true,
           .multiprocessors = 10,
           .cooperative = false,
           .shared_bytes = 48 << 10},
          {.name = "sm_80",
           .vector_bytes = 16,
           .gpu = true,
           .multiprocessors = 108,
           .shared_bytes = 163 << 10,
           .matrix_units = true}};
      t = devices[random_.below(std::size(devices))];
    }
    if (executor == on_llvm) {
#ifdef GRADLOOM_WITH_LLVM
      static const std::vector<ir::Target> isas = [] {
        std::vector<ir::Target> all{codegen::host_isa().target};
        for (const char* name : {"x86-64-v2", "x86-64-v3", "x86-64-v4"})
          if (codegen::runs_here(codegen::isa_named(name))) all.push_back(codegen::isa_named(name).target);
        return all;
      }();
      t = isas[random_.below(isas.size())];
#endif
    }
    if (run_ || (executor == on_llvm && random_.below(2) == 0)) small_caches(t);
    t.threads = threads;
    return t;
  }

  Numbers random_;
  const std::vector<FactorValue>& forced_;
  const bool run_;
  std::vector<int> drawn_;
};

// The call of this seed; `forced`: values that it must have; none where no call was found. `run`: it is given data.
inline std::optional<Drawn> draw(uint64_t seed, const std::vector<FactorValue>& forced, bool run) {
  constexpr uint64_t tries = 400;
  for (uint64_t t = 0; t < tries; ++t)
    if (std::optional<Drawn> d = Draw(seed * tries + t, forced, run).once()) {
      d->seed = seed;
      return d;
    }
  return {};
}

}  // namespace gradloom::sweep
