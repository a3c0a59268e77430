// What LLVM makes as it needs it, and exit destroys, is made with the first runtime: no compilation makes any. Else
// exit, called in the middle of one, would destroy what it uses before the handler is run that waits for it.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "gradloom/runtime.h"
#include "tests/support/all_calls.h"

namespace {
std::atomic<bool> counts{false};
std::atomic<int> made{0};
}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they have this function to themselves
// In front of the C library's, for this program and the libraries that it loads.
extern "C" int __cxa_atexit(void (*destroy)(void*), void* object, void* library) {
  using Register = int (*)(void (*)(void*), void*, void*);
  static Register const next = reinterpret_cast<Register>(dlsym(RTLD_NEXT, "__cxa_atexit"));
  Dl_info where;
  if (counts && dladdr(library, &where) && std::strstr(where.dli_fname, "LLVM")) ++made;
  return next(destroy, object, library);
}
#define GRADLOOM_COUNTS_DESTRUCTORS
#endif

namespace gradloom {
namespace {

TEST(LlvmPrepared, NoCompilationMakesWhatExitDestroys) {
#ifndef GRADLOOM_COUNTS_DESTRUCTORS
  GTEST_SKIP() << "the sanitizer has __cxa_atexit, which this test counts, to itself";
#endif
  counts = true;
  Runtime runtime({.threads = 2});
  EXPECT_GT(made.load(), 0) << "this test sees nothing";
  made = 0;
  const std::vector<testing_ops::Call> calls = testing_ops::all_calls();
  for (size_t i = 0; i < calls.size(); i += 8) {
    const testing_ops::Call& call = calls[i];
    EXPECT_TRUE(runtime.compile(call.op, call.inputs, call.attributes, {.accumulate = call.accumulate}).ok())
        << call.name;
    EXPECT_EQ(made.exchange(0), 0) << call.name;
  }
}

}  // namespace
}  // namespace gradloom
