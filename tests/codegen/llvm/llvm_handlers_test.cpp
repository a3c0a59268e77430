// An embedder's own handlers for LLVM's errors stay where they are; gradloom's are there while it compiles.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "codegen/llvm/compiler.h"
#include "gradloom/text.h"

// Of LLVM's headers, which are seen in codegen/llvm alone.
namespace llvm {
using fatal_error_handler_t = void (*)(void* data, const char* reason, bool diagnose);
void install_fatal_error_handler(fatal_error_handler_t handler, void* data);
void remove_fatal_error_handler();
void install_bad_alloc_error_handler(fatal_error_handler_t handler, void* data);
void remove_bad_alloc_error_handler();
[[noreturn]] void report_fatal_error(const char* reason, bool diagnose);
void report_bad_alloc_error(const char* reason, bool diagnose);
}  // namespace llvm

namespace gradloom::codegen {
namespace {

void compile_one() {
  const ir::Kernel kernel = ir::parse(
      "kernel twice() {\n  in x: f32[4]\n  out y: f32[4]\n  for i in 0 .. 4 {\n    y[i] = x[i] + x[i]\n  }\n}\n");
  EXPECT_NE(compile(kernel, host_isa()).function, nullptr);
}

// What a child process printed, and how it ended.
template <class Body>
std::string in_child(Body&& body) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    dup2(ends[1], STDERR_FILENO);
    body();
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char buffer[256];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(got));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return text + (WIFSIGNALED(status) ? "signal" : "exit " + std::to_string(WEXITSTATUS(status)));
}

int mine = 0;
void on_fatal(void* data, const char* reason, bool) {
  _exit(data == &mine && std::string(reason) == "fatal" ? 42 : 43);
}
void on_bad_alloc(void* data, const char* reason, bool) {
  _exit(data == &mine && std::string(reason) == "memory" ? 44 : 45);
}
void fail_fatally() { llvm::report_fatal_error("fatal", false); }
void fail_for_memory() { llvm::report_bad_alloc_error("memory", false); }

TEST(LlvmHandlers, TheEmbeddersStay) {
  llvm::install_fatal_error_handler(on_fatal, &mine);
  llvm::install_bad_alloc_error_handler(on_bad_alloc, &mine);
  for (int repeat = 0; repeat < 2; ++repeat) {
    compile_one();
    EXPECT_EQ(in_child(fail_fatally), "exit 42");
    EXPECT_EQ(in_child(fail_for_memory), "exit 44");
  }
  llvm::remove_fatal_error_handler();
  llvm::remove_bad_alloc_error_handler();
}

TEST(LlvmHandlers, NoneStaysNone) {
  compile_one();
  EXPECT_EQ(in_child(fail_fatally), "LLVM ERROR: fatal\nexit 1");
  EXPECT_NE(in_child(fail_for_memory).find("out of memory"), std::string::npos);
}

TEST(LlvmHandlers, OnesInstalledBetweenCompilationsStay) {
  compile_one();
  llvm::install_fatal_error_handler(on_fatal, &mine);
  compile_one();
  EXPECT_EQ(in_child(fail_fatally), "exit 42");
  llvm::remove_fatal_error_handler();
  compile_one();
  EXPECT_EQ(in_child(fail_fatally), "LLVM ERROR: fatal\nexit 1");
}

// A failure on another thread than those that compile is the embedder's.
TEST(LlvmHandlers, OthersFailuresWhileThreadsCompile) {
  EXPECT_EQ(in_child([] {
              llvm::install_fatal_error_handler(on_fatal, &mine);
              std::atomic<int> compiled{0};
              std::vector<std::thread> threads;
              for (int t = 0; t < 3; ++t)
                threads.emplace_back([&] {
                  for (;; ++compiled) compile_one();
                });
              while (compiled < 6) std::this_thread::yield();
              fail_fatally();
            }),
            "exit 42");
}

}  // namespace
}  // namespace gradloom::codegen
