#include "cli/bench/bench_accumulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "cli/bench/bench_goal.h"
#include "cli/bench/bench_measure.h"
#include "cli/text.h"

namespace gradloom::cli {
namespace {

struct AccumulateCase {
  const char* name;
  bool rows;       // GatherGrad along axis 0; else GatherElementsGrad
  int axis;        // of GatherElementsGrad
  Dims dx, index;  // float32, int64
  double most;     // wanted: times the plain loop
};
const std::vector<AccumulateCase> all_cases{{"gg_acc_few", true, 0, {50257, 768}, {8}, 2},
                                            {"ge_acc_ax0", false, 0, {4096, 4096}, {1, 4096}, 2},
                                            {"ge_acc_ax1", false, 1, {4096, 4096}, {1, 4096}, 2}};

// The gradient of one element is added at once: the same sums, where no element is named twice.
void plain_loop(const AccumulateCase& c, float* dx, const int64_t* index, const float* dy) {
  const int64_t width = c.dx[1];
  for (int64_t k = 0; k < c.index[0]; ++k)
    for (int64_t j = 0; j < width; ++j) {
      const int64_t row = c.rows ? index[k] : c.axis == 0 ? index[k * width + j] : k;
      dx[row * width + (c.axis == 0 ? j : index[k * width + j])] += dy[k * width + j];
    }
}

// Medians of a call and of the loop, sampled in turn; several calls a sample.
std::pair<double, double> medians_us(const std::function<void()>& call, const std::function<void()>& loop,
                                     double seconds) {
  constexpr int calls = 16;
  std::vector<double> of_call, of_loop;
  const auto sample = [](const std::function<void()>& body) {
    const double begin = elapsed_ms();
    for (int i = 0; i < calls; ++i) body();
    return (elapsed_ms() - begin) * 1e3 / calls;
  };
  for (const double end = elapsed_ms() + seconds * 1e3; elapsed_ms() < end || of_call.size() < 9;)
    of_call.push_back(sample(call)), of_loop.push_back(sample(loop));
  return {median(of_call), median(of_loop)};
}

}  // namespace

int bench_accumulate(Runtime& runtime, double seconds, bool json) {
  std::vector<Goal> goals;
  Table table({"case", "strategy", ">call us", ">plain loop us", ">x loop", "verified"});
  for (const AccumulateCase& c : all_cases) {
    const Dims dy_dims = c.rows ? Dims{c.index[0], c.dx[1]} : c.index;
    std::vector<int64_t> index(static_cast<size_t>(element_count(c.index)));
    // All different: 1031 is prime.
    for (size_t i = 0; i < index.size(); ++i) index[i] = static_cast<int64_t>(i) * 1031 % c.dx[c.axis];
    std::vector<float> dy(static_cast<size_t>(element_count(dy_dims)));
    for (size_t i = 0; i < dy.size(); ++i) dy[i] = static_cast<float>(i % 31) * 0.25f - 3;
    std::vector<float> dx(static_cast<size_t>(element_count(c.dx)), 0.5f), want = dx;
    const Tensor values = Tensor::borrow(dy.data(), DType::f32, dy_dims),
                 at = Tensor::borrow(index.data(), DType::i64, c.index),
                 shape = Tensor::of(DType::i64, {2}, std::vector<int64_t>{c.dx[0], c.dx[1]});
    const std::vector<Tensor> inputs =
        c.rows ? std::vector<Tensor>{shape, at, values} : std::vector<Tensor>{values, shape, at};
    const std::vector<Tensor> into{Tensor::borrow(dx.data(), DType::f32, c.dx)};
    const Executable handle = runtime
                                  .compile(c.rows ? "GatherGrad" : "GatherElementsGrad", inputs,
                                           {{"axis", int64_t{c.axis}}}, {.accumulate = true})
                                  .value();
    const auto call = [&] { handle(inputs, into).value(); };
    const auto loop = [&] { plain_loop(c, want.data(), index.data(), dy.data()); };
    call();
    loop();
    const bool right = std::memcmp(dx.data(), want.data(), dx.size() * sizeof(float)) == 0;
    const auto [call_us, loop_us] = medians_us(call, loop, seconds);
    goals.push_back({fmt::format("{} beside a plain loop", c.name), call_us / loop_us, c.most, true, "x"});
    goals.push_back({fmt::format("{}: wrong results", c.name), right ? 0.0 : 1.0, 0, true, ""});
    if (json)
      fmt::print("{}\n", nlohmann::ordered_json{{"case", c.name},
                                                {"strategy", handle.report().strategy},
                                                {"call_us", call_us},
                                                {"loop_us", loop_us},
                                                {"verified", right}}
                             .dump());
    else
      table.row({c.name, handle.report().strategy, fmt::format("{:.3g}", call_us), fmt::format("{:.3g}", loop_us),
                 fmt::format("{:.2f}", call_us / loop_us), right ? "yes" : "WRONG"});
  }
  if (json) return 0;
  fmt::print("{}", table.text());
  return verdict(goals);
}

}  // namespace gradloom::cli
