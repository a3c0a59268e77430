#include "cli/bench/bench_nests.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "cli/bench/bench_measure.h"
#include "cli/bench/bench_roof.h"
#include "cli/bench/nest_cases.h"
#include "cli/command.h"
#include "cli/text.h"

namespace gradloom::cli {
namespace {

// Memory of one contestant: it reads what all read, and writes its own.
struct Arguments {
  std::vector<Tensor> tensors;
  std::vector<void*> pointers;
  std::vector<size_t> written;
};

Arguments arguments(const ir::Kernel& kernel, const std::vector<Tensor>& drawn) {
  Arguments a;
  for (size_t i = 0; i < drawn.size(); ++i) {
    const bool writes = kernel.buffers[i]->role != ir::Role::in;
    a.tensors.push_back(writes ? copy_of(drawn[i]) : drawn[i]);
    a.pointers.push_back(a.tensors.back().data());
    if (writes) a.written.push_back(i);
  }
  return a;
}

int64_t bytes_of(const Tensor& t) { return t.elements() * size_of(t.dtype()); }

std::string difference(const Arguments& a, const Arguments& b) {
  for (const size_t i : a.written) {
    const auto *x = static_cast<const char*>(a.pointers[i]), *y = static_cast<const char*>(b.pointers[i]);
    const int64_t bytes = bytes_of(a.tensors[i]), element = size_of(a.tensors[i].dtype());
    const int64_t at = std::mismatch(x, x + bytes, y).first - x;
    if (at < bytes) return fmt::format("buffer {} differs from the plain loop's at element {}", i, at / element);
  }
  return {};
}

struct Times {
  double nest = 0, plain = 0, tuned = 0, roof = 0, compile = 0;  // ms; tuned 0: none
  std::string wrong;
};

Times measure(const NestCase& c, Runtime& runtime, ProbeTeam& team, const NestOptions& options) {
  const ir::Kernel kernel = nest_kernel(c, options.any_shape);
  const std::vector<Tensor> drawn = nest_buffers(c);
  const Arguments of_nest = arguments(kernel, drawn), of_plain = arguments(kernel, drawn),
                  of_tuned = arguments(kernel, drawn), probed = arguments(kernel, drawn);
  const KernelExecutable executable = runtime.compile(kernel).value();
  const std::vector<int64_t> scalars = options.any_shape ? c.scalars : std::vector<int64_t>{};
  std::vector<std::function<void()>> contestants{
      [&] { executable(of_nest.tensors, scalars).value(); },
      [&] { c.plain(of_plain.pointers.data(), c.scalars.data()); },
  };
  if (c.tuned) contestants.push_back([&] { c.tuned(of_tuned.pointers.data(), c.scalars.data()); });
  Times t{.compile = executable.report().compile_ms + executable.report().build_ms};
  for (const auto& run : contestants) run();
  t.wrong = difference(of_nest, of_plain);
  if (c.tuned && t.wrong.empty() && !difference(of_tuned, of_plain).empty()) t.wrong = "the loops by hand differ";

  std::vector<Span> reads, writes;
  for (size_t i = 0; i < probed.tensors.size(); ++i) {
    const Span span{probed.pointers[i], bytes_of(probed.tensors[i])};
    if (kernel.buffers[i]->role != ir::Role::out) reads.push_back(span);
    if (kernel.buffers[i]->role != ir::Role::in) writes.push_back(span);
  }
  constexpr double shortest_sample_ms = 0.2;
  std::vector<int> batches;
  for (const auto& run : contestants) {
    const double begin = elapsed_ms();
    run();
    batches.push_back(std::max(1, static_cast<int>(shortest_sample_ms / std::max(1e-5, elapsed_ms() - begin))));
  }
  Roof roof(team, true);
  roof.select(reads, writes);
  std::vector<std::vector<double>> samples(contestants.size());
  const double deadline = elapsed_ms() + options.seconds * 1000;
  while (samples[0].size() < 5 || (samples[0].size() < 1000 && elapsed_ms() < deadline)) {
    for (size_t i = 0; i < contestants.size(); ++i) {
      contestants[i]();  // untimed: the others have evicted its memory
      const double begin = elapsed_ms();
      for (int b = 0; b < batches[i]; ++b) contestants[i]();
      samples[i].push_back((elapsed_ms() - begin) / batches[i]);
    }
    roof.sample(reads, writes);
  }
  t.nest = median(samples[0]), t.plain = median(samples[1]), t.roof = roof.read_ms() + roof.write_ms();
  if (c.tuned) t.tuned = median(samples[2]);
  return t;
}

std::vector<const NestCase*> chosen(const std::vector<std::string>& names) {
  const auto named = [&](std::string_view name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  std::vector<const NestCase*> cases;
  for (const NestCase& c : nest_cases())
    if (names.empty() || named("all") || named(c.name)) cases.push_back(&c);
  return cases;
}

}  // namespace

void check_nest_names(const std::vector<std::string>& names) {
  std::vector<std::string> known{"all"};
  for (const NestCase& c : nest_cases()) known.push_back(c.name);
  for (const std::string& name : names)
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw UsageError(fmt::format("bench nests: got \"{}\", expected {}", name, fmt::join(known, ", ")));
}

int bench_nests(const NestOptions& options, Runtime& runtime) {
  ProbeTeam team(runtime.threads());
  Table table({"nest", ">threads", ">median ms", ">plain loop", ">x plain", ">by hand", ">x by hand", ">roof",
               ">x roof", ">cold ms", "verified"});
  int status = 0;
  for (const NestCase* c : chosen(options.cases)) {
    const Times t = measure(*c, runtime, team, options);
    if (!t.wrong.empty()) {
      status = exit_failure;
      to_stderr("{}: {}\n", c->name, t.wrong);
    }
    if (options.json) {
      nlohmann::ordered_json line{
          {"nest", c->name},   {"threads", runtime.threads()}, {"median_ms", t.nest},        {"plain_ms", t.plain},
          {"roof_ms", t.roof}, {"cold_ms", t.compile},         {"verified", t.wrong.empty()}};
      if (c->tuned) line["by_hand_ms"] = t.tuned;
      fmt::print("{}\n", line.dump());
      std::fflush(stdout);
      continue;
    }
    const auto times = [&](double other) { return fmt::format("{:.2f}", t.nest / other); };
    table.row({c->name, std::to_string(runtime.threads()), milliseconds_text(t.nest), milliseconds_text(t.plain),
               times(t.plain), c->tuned ? milliseconds_text(t.tuned) : "", c->tuned ? times(t.tuned) : "",
               milliseconds_text(t.roof), times(t.roof), milliseconds_text(t.compile),
               t.wrong.empty() ? "yes" : "WRONG"});
  }
  if (!options.json)
    fmt::print(
        "{}, {}\n\n{}\nplain loop: the nest in C++, by hand: a scatter made fast in C++, both on one thread; roof: {} "
        "(what is\nadded to counts as both); cold: schedule, lowering and compile. Verified: the plain loop's bits.\n",
        cpu_and_threads(runtime.threads()), runtime.target_name(), table.text(), what_the_roof_is);
  return status;
}

}  // namespace gradloom::cli
