// A sweep over calls that degenerate: for every op, strategy, level, target and extents of a valid call, its schedule
// and its lowering succeed. A sample of the calls also runs on every executor, compared bit for bit.
// GRADLOOM_SWEEP_RUNS: the number of seeds; GRADLOOM_SWEEP_SEED: the first one; GRADLOOM_SWEEP_RUN_ONE_IN: one in how
// many runs, 0: none; GRADLOOM_SWEEP_HOST_ONE_IN: one in how many of those is compiled for cuda-host, which takes a
// quarter of the time.
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <thread>

#include "gradloom/text.h"
#include "ir/analysis/verify.h"
#include "ir/passes/passes.h"
#include "tests/support/environment.h"
#include "tests/support/sampled.h"
#include "tests/support/sweep_draw.h"
#include "tests/support/sweep_pairs.h"
#ifdef GRADLOOM_WITH_CUDA
#include "tests/support/host_batch.h"
#endif

namespace gradloom::sweep {
namespace {

using testing_ops::Bits;
using testing_ops::Buffers;

struct Counts {
  int64_t calls = 0, no_call = 0, refused = 0, gave_way = 0, run = 0, on_interpreter = 0, on_llvm = 0, on_cuda_host = 0,
          cuda_texts = 0;
  void add(const Counts& o) {
    calls += o.calls, no_call += o.no_call, refused += o.refused, gave_way += o.gave_way, run += o.run,
        on_interpreter += o.on_interpreter;
    on_llvm += o.on_llvm, on_cuda_host += o.on_cuda_host, cuda_texts += o.cuda_texts;
  }
};

#ifdef GRADLOOM_WITH_LLVM
int64_t run_code(const codegen::CompiledKernel& code, const Buffers& buffers, const std::vector<int64_t>& scalars) {
  LaunchContext context{};
  context.parallel_for = [](LaunchContext*, int64_t n, void (*fn)(void*, int64_t, int64_t), void* env) {
    fn(env, n / 2, n);  // out of order, and in parts of more than one iteration
    fn(env, 0, n / 2);
  };
  context.acquire_scratch = [](LaunchContext*, int64_t bytes) {
    return std::aligned_alloc(64, (static_cast<size_t>(bytes) + 64) / 64 * 64);
  };
  context.release_scratch = [](LaunchContext*, void* data, int64_t) { std::free(data); };
  code.function(&context, buffers.pointers().data(), scalars.data());
  return context.bad_position;
}
#endif

// One thread's seeds.
class Worker {
 public:
  Worker(const PairCoverage& pairs, int64_t run_one_in) : pairs(pairs), run_one_in_(run_one_in) {}

  void sweep(uint64_t seed) {
    const bool run = run_one_in_ > 0 && (seed * 0x9e3779b97f4a7c15u >> 33) % static_cast<uint64_t>(run_one_in_) == 0;
    std::optional<Drawn> drawn;
    // One in three is drawn for a pair of values, cycling through all pairs, so that the rarest occur.
    if (seed % 3 == 0) {
      const FactorPair& pair = pairs.pairs()[seed / 3 % pairs.pairs().size()];
      const bool slow = pair.first.factor == traffic_of || pair.second.factor == traffic_of;  // for the interpreter
      if (!run || !slow) drawn = draw(seed, {pair.first, pair.second}, run);
    }
    if (!drawn) drawn = draw(seed, {}, run);
    if (!drawn) return void(++counts.no_call);
    ++counts.calls;
    pairs.count(drawn->values);
    const std::string name = "seed " + std::to_string(seed) + ": " + drawn->describe();
    try {
      const BuiltKernel built = build(*drawn, drawn->strategy, drawn->target, drawn->alignment);
      if (run) compare(name, *drawn, built);
    } catch (const Error& error) {
      ++counts.refused;
      ADD_FAILURE() << name << "\n  " << error.what();
    }
  }
  void finish() {
#ifdef GRADLOOM_WITH_CUDA
    batch_.flush();
#endif
  }

  PairCoverage pairs;
  Counts counts;

 private:
  BuiltKernel build(const Drawn& d, const std::string& strategy, const ir::Target& target, int64_t alignment) {
    if (d.op->schema().on_host && d.executor != on_llvm) {
      return author_kernel(*d.op, d.plan, strategy, target, d.any_shape, alignment, d.call.accumulate);
    }
    const Finish emit = [&](const BuiltKernel& built, const Strategy&) {
#ifdef GRADLOOM_WITH_CUDA
      if (target.gpu) codegen::emit_cuda(built.lowered), ++counts.cuda_texts;
#endif
      (void)built;
    };
    ServingKernel serving =
        build_serving(*d.op, d.plan, strategy, target, d.any_shape, alignment, d.call.accumulate, emit);
    counts.gave_way += static_cast<int64_t>(serving.gave_way.size());
    for (const GaveWay& one : serving.gave_way)
      ADD_FAILURE() << d.describe() << "\n  " << one.strategy << " gave way: " << one.why;
    return std::move(serving.built);
  }

  static std::vector<int64_t> scalars_of(const Drawn& d, const BuiltKernel& built) {
    std::vector<int64_t> scalars(built.sources.size());
    fill_scalars(d.plan, built.sources, scalars.data());
    return scalars;
  }

  static Bits interpreted(const std::string& what, const ir::Kernel& kernel, const Drawn& d, const BuiltKernel& built,
                          bool reverse) {
    SCOPED_TRACE(what);  // a check that fails in it does not identify the call
    return testing_ops::interpreted(kernel, d.call, d.plan, scalars_of(d, built), reverse);
  }

  // The drawn strategy on its own target, another one on the other: interpreted and run, all equal to the definition.
  void compare(const std::string& name, const Drawn& d, const BuiltKernel& drawn) {
    ++counts.run;
    const BuiltKernel direct = author_kernel(*d.op, d.plan, "direct", {}, false, 1, d.call.accumulate);
    const Bits want = interpreted(name + ", the definition", direct.authored, d, direct, false);
    if (d.op->schema().on_host && d.executor != on_llvm) return;  // done: Runtime interprets it
    if (d.target.gpu) {
      on_device(name, d, d.strategy, drawn, want);
      on_cpu(name, d, {}, {}, want);
    } else {
      on_cpu(name, d, d.strategy, drawn, want);
      on_device(name, d, {}, {}, want);
    }
  }

  static std::string other_strategy(const Drawn& d, const ir::Target& target) {
    const std::vector<std::string> offered = serving_names(*d.op, d.plan, target, d.any_shape);
    return offered[d.call.inputs.size() % offered.size()];
  }

  void on_cpu(const std::string& name, const Drawn& d, std::string strategy, std::optional<BuiltKernel> built,
              const Bits& want) {
#ifdef GRADLOOM_WITH_LLVM
    codegen::Isa isa = codegen::host_isa();
    if (built && d.executor == on_llvm) {
      if (d.target.name != isa.target.name) isa = codegen::isa_named(d.target.name);
    } else {
      ir::Target target = isa.target;
      target.threads = d.target.threads;
      small_caches(target);
      strategy = other_strategy(d, target);
      built = build(d, strategy, target, d.alignment);
    }
    const std::string what = name + "\n  run by llvm, " + isa.target.name + ", strategy " + strategy;
    check_interpreted(what, d, *built, want);
    const codegen::CompiledKernel code = codegen::compile(built->lowered, isa);
    Buffers buffers(d.call, d.plan, d.alignment == 1);
    EXPECT_EQ(run_code(code, buffers, scalars_of(d, *built)), INT64_MAX) << what;
    EXPECT_EQ(testing_ops::difference(buffers.bits(), want), "") << what << "\n" << ir::print(built->lowered);
    ++counts.on_llvm;
#else
    if (built && d.executor == on_llvm) check_interpreted(name + ", strategy " + strategy, d, *built, want);
#endif
  }

  void check_interpreted(const std::string& what, const Drawn& d, const BuiltKernel& built, const Bits& want) {
    ++counts.on_interpreter;
    const Bits got = interpreted(what, built.lowered, d, built, true);
    EXPECT_EQ(testing_ops::difference(got, want), "") << what << ", interpreted\n" << ir::print(built.lowered);
  }

  void on_device(const std::string& name, const Drawn& d, std::string strategy, std::optional<BuiltKernel> built,
                 Bits want) {
    if (d.op->schema().on_host) return;
    if (!built || !d.target.gpu) {
      ir::Target target = host_gpu_target();
      target.threads = d.target.threads;
      small_caches(target);
      strategy = other_strategy(d, target);
      built = build(d, strategy, target, d.alignment);
    }
    const std::string what = name + "\n  run by cuda-host, strategy " + strategy;
    const std::vector<int64_t> scalars = scalars_of(d, *built);
    // The recurrent ops' sums in parts differ in their last bits.
    if (find_strategy(*d.op, strategy).level != Determinism::sequential && d.call.op.starts_with("GRU")) {
      want = interpreted(what, built->lowered, d, *built, true);
      ++counts.on_interpreter;
    } else if (!(strategy == "staged" && d.any_shape)) {  // pads short rows to whole blocks: minutes
      check_interpreted(what, d, *built, want);
    }
#ifdef GRADLOOM_WITH_CUDA
    if ((d.seed * 0xd1342543de82ef95u >> 33) % static_cast<uint64_t>(cuda_host_one_in_) != 0) return;
    batch_.add(what, codegen::emit_cuda(built->lowered),
               [=, this](const codegen::CudaModule& module, const codegen::HostModule& loaded) {
                 Buffers buffers(d.call, d.plan, d.alignment == 1);
                 const int64_t bad =
                     codegen::run_on_host(module, loaded, buffers.pointers(), scalars, codegen::HostOrder::shuffled, 7);
                 EXPECT_EQ(bad, INT64_MAX) << what;
                 EXPECT_EQ(testing_ops::difference(buffers.bits(), want), "") << what << "\n" << module.text;
                 ++counts.on_cuda_host;
               });
#endif
  }

  const int64_t run_one_in_, cuda_host_one_in_ = std::max<int64_t>(environment("GRADLOOM_SWEEP_HOST_ONE_IN", 1), 1);
#ifdef GRADLOOM_WITH_CUDA
  HostBatch batch_;
#endif
};

TEST(Sweep, NoValidCallIsRefused) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(NDEBUG)
  constexpr int64_t usual = 1000;
#else
  constexpr int64_t usual = 10000;
#endif
  const int64_t runs = environment("GRADLOOM_SWEEP_RUNS", usual), first = environment("GRADLOOM_SWEEP_SEED", 1);
  const int64_t run_one_in = environment("GRADLOOM_SWEEP_RUN_ONE_IN", 20);
  const auto start = std::chrono::steady_clock::now();
  const PairCoverage none = call_pairs();
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<std::thread> threads;
  constexpr int64_t most_threads = 2;
  for (int64_t w = 0; w < most_threads; ++w) workers.push_back(std::make_unique<Worker>(none, run_one_in));
  for (int64_t w = 0; w < most_threads; ++w)
    threads.emplace_back([&, w] {
      for (int64_t seed = first + w; seed < first + runs; seed += most_threads)
        workers[w]->sweep(static_cast<uint64_t>(seed));
      workers[w]->finish();
    });
  for (std::thread& thread : threads) thread.join();
  PairCoverage pairs = none;
  Counts n;
  for (const auto& worker : workers) pairs.add(worker->pairs), n.add(worker->counts);
  const std::vector<std::string> missing = pairs.missing(), unexpected = pairs.unexpected();
  std::cout << n.calls << " calls (of " << runs << " seeds), " << n.refused << " refused, " << n.gave_way
            << " strategies gave way; " << n.run << " run: " << n.on_interpreter << " kernels interpreted, "
            << n.on_llvm << " run by llvm, " << n.on_cuda_host << " by cuda-host; " << n.cuda_texts << " CUDA texts; "
            << pairs.pairs().size() - missing.size() << " of " << pairs.pairs().size() << " pairs of values; "
            << std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() << " s\n";
  EXPECT_EQ(n.refused, 0);
  EXPECT_EQ(n.gave_way, 0);
  for (const std::string& pair : unexpected) ADD_FAILURE() << "said to be impossible: " << pair;
  if (runs < 4 * static_cast<int64_t>(pairs.pairs().size())) return;
  EXPECT_TRUE(missing.empty());
  for (const std::string& pair : missing) std::cout << "missing: " << pair << "\n";
}

}  // namespace
}  // namespace gradloom::sweep
