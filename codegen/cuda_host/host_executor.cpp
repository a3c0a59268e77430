// Runs the blocks of a launch one after another and the threads of a block as coroutines, which switch where they wait.
// The blocks of a cooperative launch are all resident, and switch at grid-wide barriers.
#include "codegen/cuda_host/host_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "codegen/cuda_host/fiber.h"
#include "codegen/cuda_host/host_matrix.h"
#include "codegen/cuda_host/host_state.h"
#include "gradloom/error.h"
#include "ir/analysis/verify_gpu.h"
#include "support/per_thread.h"

namespace gradloom::codegen {
namespace {

constexpr int warp_lanes = 32;
constexpr int64_t most_fibers = 20000;  // limit of a cooperative launch

// The primitive that a thread waits in, for messages.
const char* name_of(GlWait kind) {
  switch (kind) {
    case gl_wait_block:
      return "gl_sync_block";
    case gl_wait_warp:
      return "gl_sync_warp";
    case gl_wait_ballot:
      return "gl_ballot";
    case gl_wait_match:
      return "gl_match";
    case gl_wait_shuffle:
      return "gl_shuffle";
    case gl_wait_matrix:
      return "gl_matrix_unit";
    case gl_wait_matrix_rows:
      return "gl_load_matrices";
    case gl_wait_shared:
      return "GL_SHARED";
    case gl_wait_grid:
      return "gl_sync_grid";
  }
  return "?";
}

// The free list of fibers per host thread: as many as a launch may have, since mapping their stacks anew for each
// launch took a fifth of the time. What they touched of their stacks, two pages each, stays until the thread ends.
class Fibers {
 public:
  Fiber& take() {
    if (free_.empty()) return *new Fiber();
    Fiber& fiber = *free_.back().release();
    free_.pop_back();
    return fiber;
  }
  void give(Fiber& fiber) {
    std::unique_ptr<Fiber> owned(&fiber);
    if (free_.size() < size_t{most_fibers}) free_.push_back(std::move(owned));
  }
  static Fibers& mine() { return per_thread<Fibers>(); }

 private:
  std::vector<std::unique_ptr<Fiber>> free_;
};

class Launch {
 public:
  Launch(const CudaFunction& function, void (*call)(void**), void** arguments, HostOrder order, uint64_t seed)
      : function_(function),
        call_(call),
        arguments_(arguments),
        order_(order),
        random_(seed * 0x9e3779b97f4a7c15u | 1),
        turns_(static_cast<size_t>(function.threads)) {
    state_.shared_bytes = function.shared_bytes;
    state_.wait = wait;
    state_.launch = this;
    std::iota(turns_.begin(), turns_.end(), 0);
    if (order == HostOrder::reverse) std::reverse(turns_.begin(), turns_.end());
  }
  ~Launch() {
    for (const auto& block : blocks_)
      for (Thread& t : block->threads)
        if (t.fiber) Fibers::mine().give(*t.fiber);
    if (spare_) Fibers::mine().give(*spare_);
  }

  GlHostState* state() { return &state_; }

  void run(int64_t blocks) {
    state_.blocks = blocks;
    if (function_.cooperative) return run_together(blocks);
    blocks_.push_back(std::make_unique<Block>(function_, 0));
    in_turn(blocks, [&](int64_t block) {
      block_ = blocks_[0].get();
      block_->number = block;
      begin_block();
      if (!block_->ended()) fail_parted();
    });
  }

 private:
  struct Thread {
    Fiber* fiber = nullptr;  // null before it begins and after it ends
    bool waits = false;
    GlWait kind = gl_wait_block;
    int site = 0, lane = 0;
    uint64_t value = 0;  // the operand, then the result
  };
  struct Block {
    Block(const CudaFunction& function, int64_t n)
        : number(n),
          threads(static_cast<size_t>(function.threads)),
          warp_waits(threads.size() / warp_lanes),
          memory(static_cast<size_t>(function.shared_bytes) + 16),
          shared(reinterpret_cast<unsigned char*>((reinterpret_cast<uintptr_t>(memory.data()) + 15) / 16 * 16)) {}
    bool ended() const { return ended_threads == static_cast<int>(threads.size()); }
    // All its threads wait at the same grid-wide barrier.
    bool waits_for_grid() const {
      return grid_waits == static_cast<int>(threads.size()) &&
             std::all_of(threads.begin(), threads.end(), [&](const Thread& t) { return t.site == threads[0].site; });
    }
    int64_t number;
    std::vector<Thread> threads;
    std::vector<int> warp_waits;  // per warp: lanes that wait in a warp-level primitive
    std::vector<unsigned char> memory;
    unsigned char* shared;
    int ended_threads = 0, block_waits = 0, grid_waits = 0;
  };
  struct State : GlHostState {
    Launch* launch = nullptr;
  };

  uint64_t random() {
    random_ ^= random_ << 13, random_ ^= random_ >> 7, random_ ^= random_ << 17;
    return random_;
  }

  template <class Visit>
  void in_turn(int64_t blocks, Visit&& visit) {
    // A stride coprime to the number of blocks visits each exactly once.
    int64_t stride = 1, block = order_ == HostOrder::reverse ? blocks - 1 : 0;
    if (order_ == HostOrder::reverse) stride = blocks - 1;
    if (order_ == HostOrder::shuffled) {
      do stride = static_cast<int64_t>(random() % static_cast<uint64_t>(blocks));
      while (std::gcd(stride, blocks) != 1);
      block = static_cast<int64_t>(random() % static_cast<uint64_t>(blocks));
    }
    for (int64_t k = 0; k < blocks; ++k, block = (block + stride) % blocks) visit(block);
  }

  // Runs all blocks, one after another, from one grid-wide barrier to the next.
  void run_together(int64_t blocks) {
    for (int64_t k = 0; k < blocks; ++k) blocks_.push_back(std::make_unique<Block>(function_, k));
    in_turn(blocks, [&](int64_t block) {
      block_ = blocks_[static_cast<size_t>(block)].get();
      begin_block();
    });
    while (!blocks_[0]->ended()) {
      for (const auto& block : blocks_) {
        block_ = block.get();
        if (block->ended() || block->threads[0].site != blocks_[0]->threads[0].site) fail_blocks_parted(*block);
      }
      in_turn(blocks, [&](int64_t block) {
        block_ = blocks_[static_cast<size_t>(block)].get();
        block_->grid_waits = 0;
        for (int t : turns_) go_on(t);
        until_it_waits();
      });
    }
    for (const auto& block : blocks_)
      if (!block->ended()) fail_blocks_parted(*block);
  }

  void begin_block() {
    std::memset(block_->shared, 0xff, static_cast<size_t>(function_.shared_bytes));
    if (order_ == HostOrder::shuffled) {
      for (size_t i = turns_.size(); i > 1; --i) std::swap(turns_[i - 1], turns_[random() % i]);
    }
    block_->ended_threads = block_->block_waits = block_->grid_waits = 0;
    std::fill(block_->warp_waits.begin(), block_->warp_waits.end(), 0);
    for (int t : turns_) begin(t);
    until_it_waits();
  }

  // Runs the block's threads until all have ended or wait at a grid-wide barrier.
  void until_it_waits() {
    Block& block = *block_;
    const int all = static_cast<int>(block.threads.size());
    while (!block.ended() && !block.waits_for_grid()) {
      bool moved = false;
      for (size_t i = 0; i < block.warp_waits.size(); ++i) {
        const size_t warp = order_ == HostOrder::reverse ? block.warp_waits.size() - 1 - i : i;
        if (block.warp_waits[warp] == warp_lanes) moved = true, step_warp(warp);
      }
      if (moved) continue;
      if (block.block_waits != all) fail_parted();
      for (const Thread& t : block.threads)
        if (t.site != block.threads[0].site) fail_parted();
      block.block_waits = 0;
      for (int t : turns_) go_on(t);
    }
  }

  void begin(int t) {
    Thread& thread = block_->threads[static_cast<size_t>(t)];
    if (!spare_) spare_ = &Fibers::mine().take(), spare_->start(entry, this);
    thread.fiber = std::exchange(spare_, nullptr);
    resume(t, thread);
    if (thread.waits) return;
    spare_ = std::exchange(thread.fiber, nullptr);  // its stack is reused by the next
    ++block_->ended_threads;
  }

  void go_on(int t) {
    Thread& thread = block_->threads[static_cast<size_t>(t)];
    resume(t, thread);
    if (thread.waits) return;
    Fibers::mine().give(*thread.fiber);
    thread.fiber = nullptr;
    ++block_->ended_threads;
  }

  void resume(int t, Thread& thread) {
    state_.thread = t, state_.block = block_->number, state_.shared = block_->shared;
    thread.waits = false;
    thread.fiber->resume();
    if (!thread.waits) return;
    if (thread.kind == gl_wait_shared) {
      throw Error(ErrorCode::internal,
                  fmt::format("kernel function {} wants {} bytes of shared memory, its launch has {}", function_.name,
                              thread.value, function_.shared_bytes));
    }
    if (thread.kind == gl_wait_grid && !function_.cooperative)
      throw Error(ErrorCode::internal,
                  fmt::format("kernel function {} waits for the whole grid in a launch that is not cooperative",
                              function_.name));
    ++(thread.kind == gl_wait_grid    ? block_->grid_waits
       : thread.kind == gl_wait_block ? block_->block_waits
                                      : block_->warp_waits[static_cast<size_t>(t / warp_lanes)]);
  }

  // All lanes have arrived: each gets its result and resumes.
  void step_warp(size_t warp) {
    Thread* const lanes = &block_->threads[warp * warp_lanes];
    uint64_t given[warp_lanes];
    for (int i = 0; i < warp_lanes; ++i) {
      if (lanes[i].kind != lanes[0].kind || lanes[i].site != lanes[0].site) fail_parted();
      given[i] = lanes[i].value;
    }
    for (int i = 0; i < warp_lanes; ++i) {
      uint64_t mask = 0;
      switch (lanes[i].kind) {
        case gl_wait_ballot:
          for (int k = 0; k < warp_lanes; ++k) mask |= static_cast<uint64_t>(given[k] != 0) << k;
          break;
        case gl_wait_match:
          for (int k = 0; k < warp_lanes; ++k) mask |= static_cast<uint64_t>(given[k] == given[i]) << k;
          break;
        case gl_wait_shuffle:
          mask = given[lanes[i].lane & (warp_lanes - 1)];
          break;
        case gl_wait_matrix:
          if (i == 0) matrix_unit(given);
          break;
        case gl_wait_matrix_rows:
          if (i == 0) load_matrices(given);
          break;
        case gl_wait_block:
        case gl_wait_warp:
        case gl_wait_shared:
        case gl_wait_grid:
          break;
      }
      lanes[i].value = mask;
    }
    block_->warp_waits[warp] = 0;
    const int first = static_cast<int>(warp) * warp_lanes;
    if (order_ == HostOrder::forward) {
      for (int i = 0; i < warp_lanes; ++i) go_on(first + i);
    } else {
      // Reversed; rotated by a random number of lanes if shuffled.
      const int turn = order_ == HostOrder::shuffled ? static_cast<int>(random() % warp_lanes) : warp_lanes - 1;
      for (int i = 0; i < warp_lanes; ++i) go_on(first + ((turn - i) & (warp_lanes - 1)));
    }
  }

  // Deadlock or divergence: no thread can resume, or threads that must synchronise wait at different call sites.
  [[noreturn]] void fail_parted() const {
    const std::vector<Thread>& threads = block_->threads;
    const auto describe = [&](size_t t) {
      const Thread& thread = threads[t];
      return thread.waits ? fmt::format("thread {} is at {} in line {}", t, name_of(thread.kind), thread.site)
                          : fmt::format("thread {} has ended", t);
    };
    const auto parted = [&](size_t a, size_t b) {
      const Thread &x = threads[a], &y = threads[b];
      return x.waits != y.waits || (x.waits && (x.kind != y.kind || x.site != y.site));
    };
    for (size_t t = 1; t < threads.size(); ++t) {
      if (parted(t - 1, t)) {
        throw Error(ErrorCode::internal, fmt::format("the threads of kernel function {}, block {}, part: {}, {}",
                                                     function_.name, state_.block, describe(t - 1), describe(t)));
      }
    }
    throw Error(ErrorCode::internal, fmt::format("the threads of kernel function {}, block {}, wait for ever: {}",
                                                 function_.name, state_.block, describe(0)));
  }

  // A block has diverged from the others since the last grid-wide barrier.
  [[noreturn]] void fail_blocks_parted(const Block& block) const {
    const auto describe = [](const Block& b) {
      return b.ended() ? fmt::format("block {} has ended", b.number)
                       : fmt::format("block {} is at gl_sync_grid in line {}", b.number, b.threads[0].site);
    };
    throw Error(ErrorCode::internal, fmt::format("the blocks of kernel function {} part: {}, {}", function_.name,
                                                 describe(*blocks_[0]), describe(block)));
  }

  static void entry(void* launch) {
    auto* self = static_cast<Launch*>(launch);
    self->call_(self->arguments_);
  }

  static unsigned long long wait(GlHostState* state, GlWait kind, int site, unsigned long long value, int lane) {
    Launch& launch = *static_cast<State*>(state)->launch;
    Thread& thread = launch.block_->threads[static_cast<size_t>(state->thread)];
    thread.waits = true, thread.kind = kind, thread.site = site, thread.value = value, thread.lane = lane;
    thread.fiber->wait();
    return thread.value;
  }

  const CudaFunction& function_;
  void (*const call_)(void**);
  void** const arguments_;
  const HostOrder order_;
  uint64_t random_;
  State state_{};
  std::vector<std::unique_ptr<Block>> blocks_;  // all of a cooperative launch; else one, reused for all
  Block* block_ = nullptr;                      // the one that runs
  std::vector<int> turns_;
  Fiber* spare_ = nullptr;  // prepared for this launch, free for the next thread that begins
};

}  // namespace

void HostModule::launch(const CudaFunction& function, int64_t blocks, std::span<void*> arguments, HostOrder order,
                        uint64_t seed) const {
  const auto call = calls_.find(function.name);
  if (call == calls_.end())
    throw Error(ErrorCode::internal, fmt::format("cuda-host: the module has no function {}", function.name));
  if (function.threads < 1 || function.threads > ir::most_block_threads || function.threads % warp_lanes != 0) {
    throw Error(ErrorCode::internal,
                fmt::format("kernel function {} has {} threads a block; it may have 32 to {}, in warps of 32",
                            function.name, function.threads, ir::most_block_threads));
  }
  if (function.cooperative && blocks * function.threads > most_fibers) {
    throw Error(ErrorCode::resource_exhausted, fmt::format("cuda-host: {} blocks of {} threads of the cooperative "
                                                           "function {} do not fit at once: at most {} threads do",
                                                           blocks, function.threads, function.name, most_fibers));
  }
  Launch run(function, call->second, arguments.data(), order, seed);
  enter_(run.state());
  run.run(blocks);
}

int64_t run_on_host(const CudaModule& module, const HostModule& loaded, std::span<void* const> buffers,
                    std::span<const int64_t> scalars, HostOrder order, uint64_t seed) {
  int64_t status = std::numeric_limits<int64_t>::max();
  const LaunchSink sink{.acquire =
                            [](int64_t bytes) {
                              void* data = bytes < std::numeric_limits<int64_t>::max() - 63
                                               ? std::aligned_alloc(64, static_cast<size_t>((bytes + 63) / 64 * 64))
                                               : nullptr;
                              if (data) std::memset(data, 0xff, static_cast<size_t>(bytes));
                              return data;
                            },
                        .release = [](void* data, int64_t) { std::free(data); },
                        .zero = [](void* data, int64_t bytes) { std::memset(data, 0, static_cast<size_t>(bytes)); },
                        .launch =
                            [&](const CudaFunction& function, int64_t blocks, std::span<void*> arguments) {
                              // Fewer blocks than a cooperative function has work for: grid-stride loops are tested.
                              constexpr int64_t few = 5;
                              loaded.launch(
                                  function,
                                  function.cooperative ? std::min(blocks, std::max(few, function.cooperative)) : blocks,
                                  arguments, order, seed);
                            }};
  launch_all(module, buffers, scalars, &status, sink);
  return status;
}

}  // namespace gradloom::codegen
