#include "tests/support/program_run.h"

#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <set>

#include "gradloom/text.h"
#include "ir/analysis/verify.h"
#include "tests/support/program_text.h"
#include "tests/support/program_way.h"

namespace gradloom::ir::testing {
namespace {

constexpr int block_seeds = 48;
constexpr int seconds = sanitized ? 50 : 5;  // of CPU time per program: more counts as a hang

// A child's record for its parent, readable however the child ends.
struct Note {
  char stage[64], what[4096], text[1 << 18];
  int64_t seed;
};
struct Shared {
  Note now;  // the current step
  int failures;
  Note failed[block_seeds];
  ProgramCounts counts;
};

template <size_t n>
void copy_text(char (&to)[n], const std::string& from) {
  std::memcpy(to, from.c_str(), std::min(from.size() + 1, n));
  to[n - 1] = 0;
}

void limit_time() {
  const itimerval limit{{0, 0}, {seconds, 0}};
  setitimer(ITIMER_VIRTUAL, &limit, nullptr);
}

ProgramShape shape_of(const ProgramOptions& options, int64_t seed) {
  ProgramShape shape;
  shape.statements = options.statements <= 40
                         ? 2 + static_cast<int>((static_cast<uint64_t>(seed) * 0x9e3779b97f4a7c15u >> 40) %
                                                (2 * static_cast<uint64_t>(options.statements)))
                         : options.statements;
  shape.vectors = seed % 5 != 0;
  return shape;
}

// Runs a block of seeds, in a child.
void run_block(const ProgramOptions& options, int64_t first, int64_t last, const std::set<int64_t>& bad,
               Shared& shared) {
  ProgramCounts counts;
  const std::function<void(const char*)> at = [&](const char* stage) { copy_text(shared.now.stage, stage); };
  struct Waiting {
    RandomProgram program;
    Result expected;
#if GRADLOOM_WITH_CUDA
    codegen::CudaModule module;
#endif
    int64_t seed;
  };
  std::vector<Waiting> waiting;
  const auto failed = [&](const ProgramFailure& failure, int64_t seed) {
    Note& note = shared.failed[shared.failures++];
    note.seed = seed;
    copy_text(note.stage, failure.stage), copy_text(note.what, failure.what);
  };
  for (int64_t seed = first; seed < last; ++seed) {
    if (bad.contains(seed)) continue;
    limit_time();
    shared.now.seed = seed;
    at("generate");
    ProgramShape shape = shape_of(options, seed);
    shape.before_verify = [&](const Kernel& kernel) { copy_text(shared.now.text, print(kernel)); };
    RandomProgram program;
    try {
      program = random_program(static_cast<uint64_t>(seed), shape);
    } catch (const Error& error) {
      failed({"generate", std::string("error: ") + error.what()}, seed);
      continue;
    }
    if (options.print) std::cout << print(program.kernel) << std::endl;
    ++counts.programs;
    ProgramWay way(program, seed, at, counts);
    way.cuda = options.cuda > 0 && seed % options.cuda == 0;
    const ProgramFailure failure = way.run();
    if (!failure.stage.empty()) failed(failure, seed);
#if GRADLOOM_WITH_CUDA
    if (way.module) waiting.push_back({program, way.expected(), *way.module, seed});
#endif
  }
#if GRADLOOM_WITH_CUDA
  if (!waiting.empty()) {
    shared.now.seed = 0;
    at("host compiler");
    std::vector<const codegen::CudaModule*> modules;
    for (const Waiting& w : waiting) modules.push_back(&w.module);
    std::vector<std::shared_ptr<const codegen::HostModule>> loaded;
    try {
      loaded = codegen::HostModule::compile(modules);
    } catch (const Error&) {  // one of them does not compile
      for (const Waiting& w : waiting) {
        loaded.emplace_back();
        try {
          loaded.back() = codegen::HostModule::compile(w.module);
        } catch (const Error& error) {
          failed({"cuda-host", std::string("error: ") + error.what()}, w.seed);
        }
      }
    }
    for (size_t k = 0; k < waiting.size(); ++k) {
      if (!loaded[k]) continue;
      limit_time();
      shared.now.seed = waiting[k].seed;
      at("cuda-host");
      ++counts.cuda;
      const ProgramFailure failure = run_cuda(waiting[k].program, waiting[k].expected, waiting[k].module, *loaded[k]);
      if (!failure.stage.empty()) failed(failure, waiting[k].seed);
    }
  }
#endif
  shared.counts = counts;
}

std::string signal_text(int status) {
  if (WIFSIGNALED(status))
    return WTERMSIG(status) == SIGVTALRM ? "hang: no end after " + std::to_string(seconds) + " s"
                                         : "signal " + std::to_string(WTERMSIG(status));
  return "exit " + std::to_string(WEXITSTATUS(status));
}

int in_child(const std::function<void()>& body) {
  std::cout.flush();
  const pid_t child = fork();
  if (child == 0) {
    body();
    std::cout.flush();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

// Messages that differ only in numbers and names are of the same kind.
std::string kind_of(const ProgramFailure& failure) {
  std::string kind = failure.stage + ": ";
  for (const char c : failure.what.substr(0, failure.what.starts_with("error") ? 60 : 10))
    if (!std::isdigit(static_cast<unsigned char>(c))) kind += c;
  return kind;
}

// In a child, so that a crash is just a result.
ProgramFailure run_in_child(const RandomProgram& program, int64_t seed, bool verify_only, bool cuda, bool strict,
                            Shared& shared) {
  shared.failures = 0;
  const int status = in_child([&] {
    limit_time();
    const std::function<void(const char*)> at = [&](const char* stage) { copy_text(shared.now.stage, stage); };
    at("generate");
    ProgramFailure failure;
    try {
      verify(program.kernel, Stage::scheduled);
      if (!verify_only) failure = run_program(program, seed, at, cuda, strict);
    } catch (const Error& error) {  // not a valid program
      if (strict) failure = {"generate", std::string("error: ") + error.what()};
    }
    if (failure.stage.empty()) return;
    copy_text(shared.failed[0].stage, failure.stage), copy_text(shared.failed[0].what, failure.what);
    shared.failures = 1;
  });
  if (status != 0) return {shared.now.stage, signal_text(status)};
  if (shared.failures) return {shared.failed[0].stage, shared.failed[0].what};
  return {};
}

void report(const ProgramOptions& options, const ProgramFailure& failure, const std::string& text, int64_t seed,
            Shared& shared) {
  std::cout << "== " << kind_of(failure) << " == seed " << seed << std::endl;
  RandomProgram program;
  const bool generating = failure.stage == "generate";
  try {
    if (generating)
      program.kernel = parse(text), program.buffers.resize(program.kernel.buffers.size()),
      program.origins.resize(program.buffers.size()), program.scalars.resize(program.kernel.scalars.size());
    else
      program = random_program(static_cast<uint64_t>(seed), shape_of(options, seed));
  } catch (const Error& error) {
    std::cout << "seed " << seed << ", " << failure.stage << ": " << failure.what << " (" << error.what() << ")\n"
              << text << std::endl;
    return;
  }
  const bool cuda = failure.stage == "cuda-host" || failure.stage == "emit for a GPU";
  if (options.shrink)
    program = shrink_program(program, [&](const RandomProgram& trial) {
      return kind_of(run_in_child(trial, seed, generating, cuda, false, shared)) == kind_of(failure);
    });
  const ProgramFailure now = options.shrink ? run_in_child(program, seed, generating, cuda, false, shared) : failure;
  print_failure(program, now.stage.empty() ? failure : now, seed);
}

Shared& map_shared() {
  return *static_cast<Shared*>(
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
}

}  // namespace

std::string replay_program(const std::string& text) {
  const RandomProgram program = read_program(text);
  if (program.scalars.size() != program.kernel.scalars.size() ||
      program.buffers.size() != program.kernel.buffers.size())
    return "scalars or data are missing";
  Shared& shared = map_shared();
  const ProgramFailure failure = run_in_child(program, 0, false, true, true, shared);
  munmap(&shared, sizeof(Shared));
  return failure.stage.empty() ? "" : failure.stage + ": " + failure.what;
}

ProgramCounts run_programs(const ProgramOptions& options) {
  Shared& shared = map_shared();
  ProgramCounts total;
  for (int64_t first = options.first; first < options.first + options.count && total.failures < options.most_failures;
       first += block_seeds) {
    const int64_t last = std::min(first + block_seeds, options.first + options.count);
    std::set<int64_t> bad;
    std::vector<std::pair<ProgramFailure, std::pair<int64_t, std::string>>> found;
    while (true) {
      shared.failures = 0, shared.counts = {};
      const int status = in_child([&] { run_block(options, first, last, bad, shared); });
      if (status == 0) break;
      found.push_back({{shared.now.stage, signal_text(status)}, {shared.now.seed, shared.now.text}});
      if (!bad.insert(shared.now.seed).second || shared.now.seed == 0) break;
    }
    const ProgramCounts& n = shared.counts;
    total.programs += n.programs, total.skipped += n.skipped, total.failed_checks += n.failed_checks,
        total.compiled += n.compiled, total.cuda += n.cuda;
    if (n.slowest_us > total.slowest_us) total.slowest_us = n.slowest_us, total.slowest_seed = n.slowest_seed;
    for (int k = 0; k < shared.failures; ++k)
      found.push_back({{shared.failed[k].stage, shared.failed[k].what}, {shared.failed[k].seed, ""}});
    for (const auto& [failure, where] : found) {
      ++total.failures;
      report(options, failure, where.second, where.first, shared);
    }
  }
  munmap(&shared, sizeof(Shared));
  return total;
}

}  // namespace gradloom::ir::testing
