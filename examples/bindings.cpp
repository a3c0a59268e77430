// What a binding calls: an op's schema, outputs ahead of a run, the handle for any shapes, memory of the host's, a
// column of a larger matrix as an output, and a loop nest from text.
#include <gradloom/runtime.h>

#include <cstdio>
#include <vector>

using namespace gradloom;

int main() {
  // One runtime for all of the process: whoever comes first makes it.
  const std::shared_ptr<Runtime> runtime = shared_runtime().value();
  const OpSchema& schema = find_op("GatherGrad")->schema();
  std::printf("%s: %zu inputs, axis is %s\n", schema.name.c_str(), schema.inputs.size(),
              schema.attributes[0].doc.c_str());

  // When a graph is loaded: the op and its attributes. When it runs: any shapes.
  const PreparedOp gather_grad = runtime->prepare("GatherGrad", {{"axis", int64_t{0}}}).value();
  std::vector<int64_t> shape{4, 3}, tokens{2, 0, 2, -1, 1};
  std::vector<float> upstream(5 * 3, 1.0f);
  const std::vector<Tensor> inputs{Tensor::borrow(shape.data(), DType::i64, {2}),
                                   Tensor::borrow(tokens.data(), DType::i64, {5}),
                                   Tensor::borrow(upstream.data(), DType::f32, {5, 3})};
  const OutputInfo info = gather_grad.infer_outputs(inputs).value()[0];

  // Memory that the host gives when it is asked.
  std::vector<float> mine;
  LaunchOptions launch;
  launch.allocate = [&](std::string_view, int, DType, const Dims& dims) -> void* {
    mine.resize(static_cast<size_t>(element_count(dims)));
    return mine.data();
  };
  if (const auto done = gather_grad.run(inputs, launch); !done) return std::printf("%s\n", done.error().what()), 1;

  // The first three columns of a matrix of five; the others stay as they are.
  std::vector<float> wide(4 * 5, -1.0f);
  std::vector<Tensor> columns{Tensor::borrow(static_cast<void*>(wide.data()), info.dtype, info.dims, {5, 1})};
  if (const auto done = gather_grad.run_into(inputs, columns); !done)
    return std::printf("%s\n", done.error().what()), 1;

  // A loop nest of one's own, with its schedule.
  const auto twice = runtime->compile_text(
      "kernel twice(n: i64 in [0, 1000000]) {\n"
      "  in x: f32[n]\n"
      "  out y: f32[n]\n"
      "  for i in 0 .. n {\n"
      "    y[i] = x[i] * 2.0f32\n"
      "  }\n"
      "}\n",
      "split i 8");
  if (!twice) return std::printf("%s\n", twice.error().what()), 1;
  std::vector<float> doubled(mine.size());
  const auto elements = static_cast<int64_t>(mine.size());
  const std::vector<Tensor> buffers{Tensor::borrow(static_cast<const void*>(mine.data()), DType::f32, {elements}),
                                    Tensor::borrow(static_cast<void*>(doubled.data()), DType::f32, {elements})};
  if (const auto done = twice.value()(buffers, std::vector<int64_t>{elements}); !done)
    return std::printf("%s\n", done.error().what()), 1;

  std::printf("dX%s: %g, doubled %g, beside it %g\n", to_string(info.dims).c_str(), mine[6], doubled[6], wide[13]);
  return mine[6] == 2 && wide[10] == 2 && wide[13] == -1 && doubled[6] == 4 ? 0 : 1;
}
