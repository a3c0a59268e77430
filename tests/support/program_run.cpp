#include "tests/support/program_run.h"

#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "ir/analysis/gpu_form.h"
#include "ir/analysis/verify.h"
#include "ir/passes/passes.h"
#include "ir/rewrite.h"
#include "ir/schedule/schedule_gpu.h"
#include "ir/text/print.h"
#include "tests/support/kernel_run.h"
#if GRADLOOM_WITH_CUDA
#include "codegen/cuda_host/host_executor.h"
#endif

namespace gradloom::ir::testing {
namespace {

constexpr int block_seeds = 48;
constexpr int seconds = sanitized ? 50 : 5;  // of CPU time for one program: more is a hang

// What a child leaves for its parent, whatever ends it.
struct Note {
  char stage[64], what[4096], text[1 << 18];
  int64_t seed;
};
struct Shared {
  Note now;  // what is being done
  int failures;
  Note failed[block_seeds];
  ProgramCounts counts;
};

template <size_t n>
void copy_text(char (&to)[n], const std::string& from) {
  std::memcpy(to, from.c_str(), std::min(from.size() + 1, n));
  to[n - 1] = 0;
}

Result interpreted(const RandomProgram& program, const Kernel& kernel, const InterpretOptions& options = {}) {
  Result result{program.buffers};
  result.bad_position =
      interpret(kernel, pointers(result.memory, program.origins), program.scalars, options).bad_position;
  return result;
}

class AllSerial : public Rewriter {
  Stmt rewrite(const For& n, const Stmt&) override {
    return for_loop(n.var, n.begin, n.extent, ForKind::serial, (*this)(n.body));
  }
};

const Target gpu_target{.gpu = true, .multiprocessors = 4, .block_threads = 32, .shared_bytes = 256};

// One program's way through all executors but the last. `at` is told each stage before it begins.
class Way {
 public:
  Way(const RandomProgram& program, int64_t seed, const std::function<void(const char*)>& at, ProgramCounts& counts)
      : program_(program), seed_(seed), at_(at), counts_(counts) {}

  ProgramFailure run() {
    try {
      return steps();
    } catch (const std::exception& error) {
      return {stage_, std::string("error: ") + error.what()};
    }
  }
  const Result& expected() const { return expected_; }
#if GRADLOOM_WITH_CUDA
  std::optional<codegen::CudaModule> module;  // for the last executor
#endif
  bool cuda = true;

 private:
  void at(const char* stage) { at_(stage_ = stage); }
  ProgramFailure differs(const Result& result) const {
    const std::string d = difference(program_.kernel, expected_, result);
    return d.empty() ? ProgramFailure{} : ProgramFailure{stage_, "difference: " + d};
  }

  ProgramFailure steps() {
    const Kernel& kernel = program_.kernel;
    at("serial");
    const Kernel serial = AllSerial()(kernel);
    try {
      expected_ = interpreted(program_, serial);
    } catch (const Error& error) {  // the author's fault
      ++counts_.skipped;
      if (std::getenv("GRADLOOM_PROGRAM_SKIPS"))
        std::cout << "seed " << seed_ << " skipped: " << error.what() << std::endl;
      return {};
    }
    counts_.failed_checks += expected_.bad_position != Outcome{}.bad_position;
    at("text");
    const std::string text = print(kernel);
    if (print(parse(text)) != text) return {stage_, "difference: the text is printed differently once read"};
    at("scheduled");
    if (ProgramFailure f = differs(interpreted(program_, kernel)); !f.stage.empty()) return f;
    if (ProgramFailure f = differs(interpreted(program_, kernel, {.reverse_parallel = true})); !f.stage.empty())
      return f;
    at("lower");
    const auto start = std::chrono::steady_clock::now();
    const Kernel lowered = lower(kernel);
    const int64_t us =
        std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start).count();
    if (us > counts_.slowest_us) counts_.slowest_us = us, counts_.slowest_seed = seed_;
    at("verify lowered");
    verify(lowered, Stage::lowered);
    at("lowered");
    if (ProgramFailure f = differs(interpreted(program_, lowered, {.reverse_parallel = true})); !f.stage.empty())
      return f;
#if GRADLOOM_WITH_LLVM
    for (const codegen::Isa& isa : instruction_sets(static_cast<uint64_t>(seed_))) {
      at("llvm");
      ++counts_.compiled;
      Result result{program_.buffers};
      result.bad_position = run_compiled(lowered, isa, pointers(result.memory, program_.origins), program_.scalars);
      if (ProgramFailure f = differs(result); !f.stage.empty()) return {f.stage, f.what + " (" + isa.name + ")"};
    }
#endif
    at("schedule for a GPU");
    Schedule blocks(kernel);
    schedule_gpu(blocks, gpu_target);
    verify(blocks.kernel(), Stage::scheduled);
    at("lower for a GPU");
    const Kernel launched = lower(blocks.kernel(), {.gpu = true, .shared_bytes = gpu_target.shared_bytes});
    at("verify lowered for a GPU");
    verify(launched, Stage::lowered);
    at("lowered for a GPU");
    if (ProgramFailure f = differs(interpreted(program_, launched, {.reverse_parallel = true})); !f.stage.empty())
      return f;
#if GRADLOOM_WITH_CUDA
    at("emit for a GPU");
    if (cuda) module = codegen::emit_cuda(launched);
#endif
    return {};
  }

  const RandomProgram& program_;
  const int64_t seed_;
  const std::function<void(const char*)>& at_;
  ProgramCounts& counts_;
  const char* stage_ = "";
  Result expected_;
};

#if GRADLOOM_WITH_CUDA
ProgramFailure run_cuda(const RandomProgram& program, const Result& expected, const codegen::CudaModule& module,
                        const codegen::HostModule& loaded) {
  using codegen::HostOrder;
  try {
    for (const HostOrder order : {HostOrder::forward, HostOrder::shuffled}) {
      Result result{program.buffers};
      result.bad_position =
          codegen::run_on_host(module, loaded, pointers(result.memory, program.origins), program.scalars, order, 7);
      if (const std::string d = difference(program.kernel, expected, result); !d.empty())
        return {"cuda-host", "difference: " + d};
    }
  } catch (const std::exception& error) {
    return {"cuda-host", std::string("error: ") + error.what()};
  }
  return {};
}
#endif

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

// The whole of a program, in this process.
ProgramFailure run_one(const RandomProgram& program, int64_t seed, const std::function<void(const char*)>& at,
                       bool cuda, bool strict) {
  ProgramCounts counts;
  Way way(program, seed, at, counts);
  way.cuda = cuda;
  ProgramFailure failure = way.run();
  if (strict && counts.skipped) failure = {"serial", "the program has no defined result"};
#if GRADLOOM_WITH_CUDA
  if (failure.stage.empty() && way.module) {
    at("cuda-host");
    try {
      failure = run_cuda(program, way.expected(), *way.module, *codegen::HostModule::compile(*way.module));
    } catch (const Error& error) {
      failure = {"cuda-host", std::string("error: ") + error.what()};
    }
  }
#endif
  return failure;
}

// A block of seeds, in a child.
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
    Way way(program, seed, at, counts);
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
    } catch (const Error&) {  // one of them
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

// Whatever numbers and names a message holds, two of one kind are alike.
std::string kind_of(const ProgramFailure& failure) {
  std::string kind = failure.stage + ": ";
  for (const char c : failure.what.substr(0, failure.what.starts_with("error") ? 60 : 10))
    if (!std::isdigit(static_cast<unsigned char>(c))) kind += c;
  return kind;
}

// In a child, so that a crash is only an answer.
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
      if (!verify_only) failure = run_one(program, seed, at, cuda, strict);
    } catch (const Error& error) {  // no program
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

std::string number_text(DType t, uint64_t bits) {
  if (!is_float(t)) return t == DType::u64 ? std::to_string(bits) : std::to_string(int_from_bits(t, bits));
  const double value = double_from_bits(t, bits);
  if (std::isnan(value)) return "\"nan\"";
  if (std::isinf(value)) return value > 0 ? "\"inf\"" : "\"-inf\"";
  char text[64];
  std::snprintf(text, sizeof text, value == std::floor(value) && std::fabs(value) < 1e15 ? "%.1f" : "%.17g", value);
  return text;
}

void print_failure(const RandomProgram& program, const ProgramFailure& failure, int64_t seed) {
  std::cout << "// seed " << seed << ", " << failure.stage << ": " << failure.what << "\n// scalars:";
  for (size_t k = 0; k < program.kernel.scalars.size(); ++k) {
    const Var& v = program.kernel.scalars[k].var;
    std::cout << " --scalar " << v.name << "="
              << number_text(v.type.dtype, bits_from_int(DType::i64, program.scalars[k]));
  }
  std::cout << "\n// origins:";
  for (const size_t origin : program.origins) std::cout << " " << origin;
  std::cout << "\n// data: {";
  for (size_t k = 0; k < program.kernel.buffers.size(); ++k) {
    const Buffer& b = program.kernel.buffers[k];
    std::cout << (k ? ", " : "") << "\"" << b->name << "\": [";
    const size_t size = static_cast<size_t>(size_of(b->dtype));
    for (size_t i = 0; i < program.buffers[k].size(); i += size) {
      uint64_t bits = 0;
      std::memcpy(&bits, &program.buffers[k][i], size);
      std::cout << (i ? ", " : "") << number_text(b->dtype, bits);
    }
    std::cout << "]";
  }
  std::cout << "}\n" << print(program.kernel) << std::endl;
}

template <class Json>
uint64_t bits_of(DType t, const Json& value) {
  if (value.is_string()) return bits_from_double(t, value == "inf" ? INFINITY : value == "-inf" ? -INFINITY : NAN);
  if (value.is_number_float()) return bits_from_double(t, value.template get<double>());
  return bits_from_int(t, value.is_number_unsigned() ? static_cast<int64_t>(value.template get<uint64_t>())
                                                     : value.template get<int64_t>());
}

RandomProgram read_program(const std::string& text) {
  RandomProgram program{parse(text), {}, {}, {}};
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    words >> word >> word;
    if (word == "scalars:") {
      for (const Scalar& s : program.kernel.scalars) {
        words >> word >> word;
        const uint64_t bits = bits_of(s.var.type.dtype, nlohmann::json::parse(word.substr(word.find('=') + 1)));
        program.scalars.push_back(is_float(s.var.type.dtype) ? static_cast<int64_t>(bits)
                                                             : int_from_bits(s.var.type.dtype, bits));
      }
    } else if (word == "origins:") {
      for (size_t origin; words >> origin;) program.origins.push_back(origin);
    } else if (word == "data:") {
      const nlohmann::json data = nlohmann::json::parse(line.substr(line.find('{')));
      for (const Buffer& b : program.kernel.buffers) {
        const size_t size = static_cast<size_t>(size_of(b->dtype));
        std::vector<uint8_t> bytes;
        for (const nlohmann::json& value : data.at(b->name)) {
          const uint64_t bits = bits_of(b->dtype, value);
          bytes.resize(bytes.size() + size);
          std::memcpy(&bytes[bytes.size() - size], &bits, size);
        }
        program.buffers.push_back(std::move(bytes));
      }
    }
  }
  program.origins.resize(program.buffers.size());
  return program;
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
