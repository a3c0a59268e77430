#include "runtime/backend/function_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "support/fork.h"

namespace gradloom {
namespace {

// The callback environment of generated code.
struct Launch {
  LaunchContext context;
  const Threads& threads;
  Recycler& recycler;
  const ParallelFor& pool;     // of this call, or empty
  std::exception_ptr failure;  // from the embedder's pool; no exception may propagate through generated code

  static Launch& of(LaunchContext* context) { return *static_cast<Launch*>(context->owner); }
};

void parallel_for(LaunchContext* context, int64_t n, void (*fn)(void* env, int64_t begin, int64_t end), void* env) {
  Launch& launch = Launch::of(context);
  try {
    launch.threads.parallel_for(n, fn, env, launch.pool);
  } catch (...) {
    static constinit Mutex mutex;  // regions may nest, so several may fail at once
    std::lock_guard lock(mutex);
    launch.failure = std::current_exception();
  }
}

void* acquire_scratch(LaunchContext* context, int64_t bytes) {
  return Launch::of(context).recycler.try_allocate(std::max<int64_t>(bytes, 1));
}

void release_scratch(LaunchContext* context, void* data, int64_t bytes) {
  Launch::of(context).recycler.release(data, std::max<int64_t>(bytes, 1));
}

}  // namespace

int64_t FunctionKernel::launch(void* const* buffers, const int64_t* scalars, const LaunchSite& site) const {
  Launch launch{
      .context = {.parallel_for = parallel_for, .acquire_scratch = acquire_scratch, .release_scratch = release_scratch},
      .threads = site.threads,
      .recycler = site.recycler,
      .pool = site.options.parallel_for,
      .failure = {}};
  launch.context.owner = &launch;
  function_(&launch.context, buffers, scalars);
  if (launch.failure) {
    try {
      std::rethrow_exception(launch.failure);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}: {}", site.name, error.what()));
    } catch (const std::exception& error) {
      throw Error(ErrorCode::internal,
                  fmt::format("{}: the pool that runs parallel loops threw: {}", site.name, error.what()));
    } catch (...) {
      throw Error(ErrorCode::internal, fmt::format("{}: the pool that runs parallel loops threw", site.name));
    }
  }
  if (launch.context.out_of_scratch)
    throw Error(ErrorCode::resource_exhausted, fmt::format("{}: no memory for the kernel's scratch", site.name));
  return launch.context.bad_position;
}

}  // namespace gradloom
