#include "cli/bench/bench_gpu.h"

#include "cli/command.h"
#include "support/error.h"
#ifdef GRADLOOM_WITH_CUDA
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/bench/bench_measure.h"
#include "cli/bench/gpu_cases.h"
#include "cli/bench/gpu_predict.h"
#include "cli/emit_gpu.h"
#include "cli/text.h"
#include "codegen/cuda/nvrtc.h"
#include "runtime/threads/usable_threads.h"
#endif

namespace gradloom::cli {

#ifdef GRADLOOM_WITH_CUDA
namespace {

constexpr double copy_gbs = 4153;  // of the H200 that the prototypes ran on

struct FunctionReport {
  codegen::CudaResources resources;
  int threads = 0;
  int64_t launches = 0, blocks = 0;  // of the largest launch
  GpuPrediction predicted;
};

struct CaseReport {
  std::string name, strategy;
  Variant variant;
  int architecture = 0;
  double nvrtc_ms = 0, cpu_ms = 0;  // medians
  int64_t compulsory_bytes = 0, scratch_bytes = 0, launches = 0;
  std::vector<FunctionReport> functions;

  double moved() const { return sum(&GpuPrediction::moved_bytes); }
  double accessed() const { return sum(&GpuPrediction::accessed_bytes); }
  double steps() const { return sum(&GpuPrediction::steps); }
  double copy_us() const { return moved() / copy_gbs * 1e-3; }
  int64_t spills() const {
    int64_t bytes = 0;
    for (const FunctionReport& f : functions) bytes += f.resources.spill_bytes;
    return bytes;
  }

 private:
  double sum(double GpuPrediction::*what) const {
    double total = 0;
    for (const FunctionReport& f : functions) total += f.predicted.*what;
    return total;
  }
};

double process_ms() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

// The host part walked with addresses that nothing reads.
void count_launches(const codegen::CudaModule& module, const std::vector<int64_t>& scalars, CaseReport& report) {
  alignas(16) static char nowhere[16];
  const std::vector<void*> buffers(static_cast<size_t>(module.buffers), nowhere);
  int64_t live = 0;
  const codegen::LaunchSink sink{.acquire =
                                     [&](int64_t bytes) {
                                       live += bytes;
                                       report.scratch_bytes = std::max(report.scratch_bytes, live);
                                       return static_cast<void*>(nowhere);
                                     },
                                 .release = [&](void*, int64_t bytes) { live -= bytes; },
                                 .zero = [](void*, int64_t) {},
                                 .launch =
                                     [&](const codegen::CudaFunction& function, int64_t blocks, std::span<void*>) {
                                       FunctionReport& f =
                                           report.functions[static_cast<size_t>(&function - module.functions.data())];
                                       ++f.launches, ++report.launches;
                                       f.blocks = std::max(f.blocks, blocks);
                                     }};
  codegen::launch_all(module, buffers, scalars, nowhere, sink);
}

CaseReport report_on(const std::string& name, Variant variant, const Lowered& lowered, int architecture, int repeats) {
  const codegen::Nvrtc& nvrtc = codegen::Nvrtc::get();
  const codegen::CudaModule module = codegen::emit_cuda(lowered.kernel);
  CaseReport report{.name = name,
                    .strategy = lowered.strategy,
                    .variant = variant,
                    .architecture = architecture,
                    .compulsory_bytes = lowered.compulsory_bytes};
  std::vector<double> wall, cpu;
  for (int i = 0; i < repeats; ++i) {
    const double begin = process_ms();
    wall.push_back(nvrtc.compile(module, architecture, false, usable_threads()).ms);
    cpu.push_back(process_ms() - begin);
  }
  report.nvrtc_ms = median(wall), report.cpu_ms = median(cpu);
  const codegen::CudaBinary binary = nvrtc.compile(module, architecture, true);
  if (binary.ptx)
    throw Error(ErrorCode::unsupported,
                fmt::format("NVRTC {} makes no machine code for sm_{}", nvrtc.version(), architecture));
  const std::vector<GpuPrediction> predicted = predict_gpu(lowered.kernel);
  if (predicted.size() != module.functions.size())
    throw Error(ErrorCode::internal, "gpu-report: launches were not told apart as emit_cuda does");
  for (size_t i = 0; i < module.functions.size(); ++i)
    report.functions.push_back(
        {.resources = binary.resources[i], .threads = module.functions[i].threads, .predicted = predicted[i]});
  count_launches(module, lowered.scalars, report);
  return report;
}

std::string mb(double bytes) {
  return bytes < 1e7 ? fmt::format("{:.2f}", bytes * 1e-6) : fmt::format("{:.0f}", bytes * 1e-6);
}

std::string levels_of(const CaseReport& r) {
  const Variant& v = r.variant;
  const char *first = level_names[static_cast<size_t>(v.level)], *last = level_names[static_cast<size_t>(v.weakest)];
  return v.level == v.weakest ? first : fmt::format("{} to {}", first, last);
}

void print_json(const CaseReport& r) {
  nlohmann::ordered_json line{{"case", r.name},
                              {"level", level_names[static_cast<size_t>(r.variant.level)]},
                              {"dtype", to_string(r.variant.dtype)},
                              {"strategy", r.strategy},
                              {"arch", fmt::format("sm_{}", r.architecture)},
                              {"nvrtc_ms", r.nvrtc_ms},
                              {"cpu_ms", r.cpu_ms},
                              {"launches", r.launches},
                              {"scratch_bytes", r.scratch_bytes},
                              {"compulsory_bytes", r.compulsory_bytes},
                              {"moved_bytes", r.moved()},
                              {"accessed_bytes", r.accessed()},
                              {"steps", r.steps()},
                              {"functions", nlohmann::ordered_json::array()}};
  for (const FunctionReport& f : r.functions)
    line["functions"].push_back({{"name", f.resources.function},
                                 {"launches", f.launches},
                                 {"blocks", f.blocks},
                                 {"threads", f.threads},
                                 {"registers", f.resources.registers},
                                 {"shared_bytes", f.resources.shared_bytes},
                                 {"spill_bytes", f.resources.spill_bytes},
                                 {"local_bytes", f.resources.local_bytes},
                                 {"code_bytes", f.resources.code_bytes},
                                 {"moved_bytes", f.predicted.moved_bytes},
                                 {"accessed_bytes", f.predicted.accessed_bytes},
                                 {"steps", f.predicted.steps}});
  fmt::print("{}\n", line.dump());
  std::fflush(stdout);
}

std::string joined(const std::vector<const CaseReport*>& list,
                   const std::function<std::string(const CaseReport&)>& value) {
  std::string text;
  for (const CaseReport* r : list) text += (text.empty() ? "" : " / ") + value(*r);
  return text;
}

using Rows = std::vector<std::vector<std::string>>;

void print_rows(const std::vector<std::string>& headers, const Rows& rows, ReportForm form) {
  if (form == ReportForm::table) {
    Table table(headers);
    for (const auto& row : rows) table.row(row);
    fmt::print("{}\n", table.text());
    return;
  }
  std::string head, rule;
  for (const std::string& h : headers) {
    head += "|" + (h.starts_with('>') ? h.substr(1) : h);
    rule += h.starts_with('>') ? "|-:" : "|-";
  }
  fmt::print("{}|\n{}|\n", head, rule);
  for (const auto& row : rows) fmt::print("|{}|\n", fmt::join(row, "|"));
  fmt::print("\n");
}

// Per case, the architectures side by side; what does not depend on them is the last one's.
void print_tables(const std::vector<std::vector<CaseReport>>& cases, ReportForm form) {
  Rows summary, functions;
  for (const std::vector<CaseReport>& reports : cases) {
    std::vector<const CaseReport*> all;
    for (const CaseReport& r : reports) all.push_back(&r);
    const CaseReport& r = reports[reports.size() / 2];
    std::string us, ms, kinds;
    for (const Prototype* p : prototypes_of(r.name, r.variant.dtype, r.variant.level, r.variant.weakest)) {
      const char* between = us.empty() ? "" : " / ";
      us += fmt::format("{}{:.0f}", between, p->us), kinds += fmt::format("{}{}", between, p->strategy);
      ms += between + (p->nvrtc_ms > 0 ? fmt::format("{:.0f}", p->nvrtc_ms) : std::string("-"));
    }
    summary.push_back({r.name, levels_of(r), to_string(r.variant.dtype), r.strategy,
                       joined(all, [](const CaseReport& c) { return fmt::format("{:.0f}", c.nvrtc_ms); }),
                       joined(all, [](const CaseReport& c) { return fmt::format("{:.0f}", c.cpu_ms); }),
                       joined(all, [](const CaseReport& c) { return fmt::format("{}", c.spills()); }),
                       fmt::format("{}", r.functions.size()), fmt::format("{}", r.launches),
                       fmt::format("{:.0f}", r.steps()), mb(static_cast<double>(r.scratch_bytes)),
                       mb(static_cast<double>(r.compulsory_bytes)), mb(r.moved()), mb(r.accessed()),
                       fmt::format("{:.0f}", r.copy_us()), us, ms, kinds});
    for (size_t i = 0; i < r.functions.size(); ++i) {
      const FunctionReport& f = r.functions[i];
      const auto same = [&](auto&& value) {
        return joined(all, [&](const CaseReport& c) {
          return i < c.functions.size() ? fmt::format("{}", value(c.functions[i].resources)) : std::string("-");
        });
      };
      functions.push_back(
          {r.name, f.resources.function, fmt::format("{}", f.launches), fmt::format("{}", f.blocks),
           fmt::format("{}", f.threads), same([](const codegen::CudaResources& x) { return x.registers; }),
           same([](const codegen::CudaResources& x) { return x.spill_bytes; }),
           fmt::format("{}", f.resources.shared_bytes), fmt::format("{}", f.resources.code_bytes),
           fmt::format("{:.0f}", f.predicted.steps), mb(f.predicted.moved_bytes), mb(f.predicted.accessed_bytes)});
    }
  }
  const std::string archs = joined(
      [&] {
        std::vector<const CaseReport*> all;
        for (const CaseReport& r : cases[0]) all.push_back(&r);
        return all;
      }(),
      [](const CaseReport& c) { return fmt::format("sm_{}", c.architecture); });
  fmt::print(
      "NVRTC {}, {}; the median of a few compiles, nvrtcCompileProgram alone, long texts in parts on up to {} threads: "
      "wall ms, and the threads' CPU ms "
      "together.\n\n",
      codegen::Nvrtc::get().version(), archs, usable_threads());
  print_rows({"case", "level", "dtype", "strategy", ">NVRTC ms", ">CPU ms", ">spill bytes", ">functions", ">launches",
              ">steps", ">scratch MB", ">compulsory MB", ">moved MB", ">accessed MB", ">moved at 4153 GB/s, us",
              ">prototype us", ">its NVRTC ms", "prototype"},
             summary, form);
  print_rows({"case", "function", ">launches", ">blocks", ">threads", ">registers", ">spill bytes", ">shared bytes",
              ">code bytes", ">steps", ">moved MB", ">accessed MB"},
             functions, form);
  fmt::print("{}",
             "compulsory: every value and index once. accessed: all accesses to global memory. moved: of them, in each "
             "launch, no more of a buffer than it holds,\n"
             "for reading and for writing. steps: dependent ones, of one thread, over all launches. Both are read off "
             "the lowered nest; loops whose length is data count\n"
             "at their mean. Launches, bytes, steps and code are of the architecture in the middle. Prototypes: "
             "hand-written kernels, measured on an H200.\n");
}

}  // namespace

int bench_gpu_report(const GpuReportOptions& options) {
  const std::vector<ReportCase> cases = report_cases(options.cases);
  codegen::CudaModule warm{.text = "GL_KERNEL(32) warm(float* x) {\n  x[gl_thread()] = 0;\n}\n",
                           .functions = {{.name = "warm", .threads = 32}}};
  codegen::Nvrtc::get().compile(warm, options.architectures[0]);  // a process's first compile sets the compiler up
  std::vector<std::vector<CaseReport>> reports;
  int status = 0;
  std::map<std::string, size_t> seen;  // of a case and dtype, at stronger levels: what strategies are reported where
  const auto one = [&](const ReportCase& c, Variant variant) {
    std::vector<CaseReport> own;
    std::vector<Lowered> lowered;
    std::string strategies;
    for (const int architecture : options.architectures) {
      lowered.push_back(c.lower(gpu_target(architecture), variant));
      strategies += lowered.back().strategy + " ";
    }
    if (const auto found = seen.find(strategies); found != seen.end()) {
      for (CaseReport& r : reports[found->second]) r.variant.weakest = variant.level;
      return;
    }
    for (size_t i = 0; i < lowered.size(); ++i)
      own.push_back(report_on(c.name, variant, lowered[i], options.architectures[i], options.repeats));
    if (options.form == ReportForm::json)
      for (const CaseReport& r : own) print_json(r);
    seen[strategies] = reports.size();
    reports.push_back(std::move(own));
  };
  std::vector<Determinism> levels = options.levels;
  std::sort(levels.begin(), levels.end());
  for (const ReportCase& c : cases)
    for (const DType dtype : options.dtypes) {
      if (c.f32_only && dtype != DType::f32) continue;
      seen.clear();
      for (const Determinism level : levels) try {
          one(c, {level, dtype});
        } catch (const Error& error) {
          fmt::print(stderr, "{}: {}\n", c.name, error.what());
          status = exit_failure;
        }
    }
  if (options.form != ReportForm::json && !reports.empty()) print_tables(reports, options.form);
  return status;
}
#else
int bench_gpu_report(const GpuReportOptions&) {
  throw Error(ErrorCode::unsupported, "bench: gpu-report: this build has no CUDA");
}
#endif

}  // namespace gradloom::cli
