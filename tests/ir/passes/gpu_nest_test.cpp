// Any nest on a GPU, file by file: each tests/gpu_nest/*.loop has a kernel below comment lines that define its run.
//
//   // bound                    some loops are bound already; else the general schedule binds all
//   // run n=5 m=-3             once with these scalars (a float's are its bits): the definition, its lowered form
//                               and its text compiled for this machine, with three thread orders, agree in what the
//                               check at the smallest bad position reports, else in every bit
//   // bad 7                    ... and the last run fails its check at this position
//   // fails: message           ... or the last run's launch throws an error with this message
//   // refused: message         no run: scheduling, lowering or emission is refused with this message, without the
//                               kernel's name
//
// GRADLOOM_GPU_NESTS: another folder of such files.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "gradloom/schedule.h"
#include "gradloom/text.h"
#include "ir/analysis/verify.h"
#include "ir/passes/passes.h"
#include "ir/schedule/schedule_gpu.h"
#include "tests/support/kernel_run.h"
#ifdef GRADLOOM_WITH_CUDA
#include "tests/support/host_batch.h"
#endif

namespace gradloom::ir {
namespace {

using testing::difference, testing::Memory, testing::pointers, testing::Result;

const Target gpu{.gpu = true, .multiprocessors = 4, .block_threads = 32, .shared_bytes = 1024};

// The value of a dim or fact, evaluated by a kernel.
int64_t value_of(const Expr& e, const Kernel& kernel, const std::vector<int64_t>& scalars) {
  Kernel own{.name = "value",
             .scalars = kernel.scalars,
             .buffers = {make_buffer({.name = "v", .dtype = DType::i64, .dims = {1}, .role = Role::out})},
             .body = {}};
  own.body = store(own.buffers[0], {0}, cast(DType::i64, e));
  int64_t value = 0;
  void* const place = &value;
  interpret(own, std::span(&place, 1), scalars);
  return value;
}

Memory contents(const Kernel& kernel, const std::vector<int64_t>& scalars) {
  std::mt19937_64 random(11);
  Memory memory;
  for (const Buffer& b : kernel.buffers) {
    int64_t elements = 1;
    for (const Expr& dim : b->dims) elements *= std::max<int64_t>(value_of(dim, kernel, scalars), 0);
    const int64_t low = b->facts.min ? value_of(b->facts.min, kernel, scalars) : -9,
                  high = b->facts.max ? value_of(b->facts.max, kernel, scalars) : low + 20;
    std::vector<int64_t> values;
    for (int64_t i = 0; i < elements; ++i)
      values.push_back(low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1)));
    if (b->facts.nondecreasing) std::sort(values.begin(), values.end());
    std::vector<uint8_t> bytes;
    for (const int64_t v : values) {
      const uint64_t bits =
          is_float(b->dtype) ? bits_from_double(b->dtype, static_cast<double>(v) / 4) : bits_from_int(b->dtype, v);
      const auto* first = reinterpret_cast<const uint8_t*>(&bits);
      bytes.insert(bytes.end(), first, first + size_of(b->dtype));
    }
    memory.push_back(std::move(bytes));
  }
  return memory;
}

struct Trial {
  std::string text;
  std::vector<int64_t> scalars;
  std::optional<int64_t> bad;
  std::string fails;
};

struct NestFile {
  std::string kernel, refused;
  std::vector<Trial> runs;
  bool bound = false;
};

NestFile read(const std::filesystem::path& path) {
  std::ifstream file(path);
  NestFile nest;
  std::vector<std::string> header;
  for (std::string line; std::getline(file, line);) {
    (nest.kernel.empty() && line.starts_with("//") ? header.emplace_back(line) : nest.kernel += line + "\n");
  }
  const Kernel kernel = parse(nest.kernel);
  for (const std::string& line : header) {
    std::istringstream words(line.substr(2));
    std::string word;
    words >> word;
    if (word == "bound") nest.bound = true;
    if (word == "refused:") nest.refused = line.substr(line.find(": ") + 2);
    if (word == "bad") words >> nest.runs.back().bad.emplace();
    if (word == "fails:") nest.runs.back().fails = line.substr(line.find(": ") + 2);
    if (word != "run") continue;
    Trial run{.text = line, .scalars = std::vector<int64_t>(kernel.scalars.size()), .bad = {}, .fails = {}};
    while (words >> word) {
      const size_t equals = word.find('=');
      bool found = false;
      for (size_t i = 0; i < kernel.scalars.size(); ++i)
        if (kernel.scalars[i].var.name == word.substr(0, equals))
          found = true, run.scalars[i] = std::stoll(word.substr(equals + 1));
      EXPECT_TRUE(found) << line;
    }
    nest.runs.push_back(std::move(run));
  }
  EXPECT_FALSE(nest.runs.empty() && nest.refused.empty()) << "the file expects nothing";
  return nest;
}

class GpuNest : public ::testing::TestWithParam<std::filesystem::path> {
 protected:
#ifdef GRADLOOM_WITH_CUDA
  static void TearDownTestSuite() { batch.flush(); }
  static inline HostBatch batch{codegen::HostOverflow::traps};
#endif
};

TEST_P(GpuNest, MeansWhatTheInterpreterSays) {
  const NestFile file = read(GetParam());
  const std::string name = GetParam().stem().string();
  const Kernel kernel = parse(file.kernel);
  verify(kernel, file.bound ? Stage::scheduled : Stage::authored);
  Kernel lowered;
#ifdef GRADLOOM_WITH_CUDA
  codegen::CudaModule emitted;
#endif
  try {
    Schedule schedule(kernel);
    schedule_gpu(schedule, gpu);
    verify(schedule.kernel(), Stage::scheduled);
    lowered = lower(schedule.kernel(), {.gpu = true, .shared_bytes = gpu.shared_bytes});
    verify(lowered, Stage::lowered);
#ifdef GRADLOOM_WITH_CUDA
    emitted = codegen::emit_cuda(lowered);
#endif
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_FALSE(file.refused.empty()) << message << "\n" << (lowered.body ? print(lowered) : "");
    EXPECT_NE(message.find(file.refused), std::string::npos) << message;
    return;
  }
  EXPECT_EQ(file.refused, "") << print(lowered);
  for (const Trial& run : file.runs) {
    SCOPED_TRACE(run.text);
    const auto interpreted = [&](const Kernel& k, const InterpretOptions& options) {
      Result result{contents(kernel, run.scalars)};
      result.bad_position = interpret(k, pointers(result.memory), run.scalars, options).bad_position;
      return result;
    };
    const Result expected = run.fails.empty() ? interpreted(kernel, {}) : Result{};
    if (run.bad) {
      EXPECT_EQ(expected.bad_position, *run.bad);
    }
    if (run.fails.empty()) {
      EXPECT_EQ(
          difference(kernel, expected, interpreted(lowered, {.explicit_barriers = true, .reverse_parallel = true})), "")
          << print(lowered);
    }
#ifdef GRADLOOM_WITH_CUDA
    batch.add(name, emitted, [=](const codegen::CudaModule& module, const codegen::HostModule& loaded) {
      using codegen::HostOrder;
      for (const HostOrder order : {HostOrder::forward, HostOrder::reverse, HostOrder::shuffled}) {
        Result result{contents(kernel, run.scalars)};
        try {
          result.bad_position = codegen::run_on_host(module, loaded, pointers(result.memory), run.scalars, order, 7);
          EXPECT_EQ(run.fails, "") << name << ", " << run.text << ": no error";
          if (!run.fails.empty()) return;
          const std::string d = difference(kernel, expected, result);
          EXPECT_EQ(d, "") << name << ", " << run.text << ", order " << static_cast<int>(order) << "\n"
                           << module.text << print(lowered);
          if (!d.empty()) return;
        } catch (const Error& error) {
          if (run.fails.empty() || std::string(error.what()).find(run.fails) == std::string::npos)
            ADD_FAILURE() << name << ", " << run.text << ": " << error.what();
          return;
        }
      }
    });
#endif
  }
}

std::vector<std::filesystem::path> files() {
  const char* other = std::getenv("GRADLOOM_GPU_NESTS");
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(other ? other : GRADLOOM_TEST_DIR "/gpu_nest"))
    if (entry.path().extension() == ".loop") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

INSTANTIATE_TEST_SUITE_P(Nests, GpuNest, ::testing::ValuesIn(files()),
                         [](const auto& info) { return info.param.stem().string(); });

}  // namespace
}  // namespace gradloom::ir
