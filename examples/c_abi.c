#include <gradloom/gradloom.h>
#include <stdio.h>

int main(void) {
  gradloom_runtime* runtime;
  if (gradloom_runtime_create(NULL, &runtime)) return fprintf(stderr, "%s\n", gradloom_last_error()), 1;

  /* The gradient of an embedding lookup: 5 tokens of a vocabulary of 4, 3 features each. */
  int64_t shape[] = {4, 3}, tokens[] = {2, 0, 2, -1, 1}, two[] = {2}, five[] = {5}, upstream_shape[] = {5, 3};
  float upstream[5 * 3];
  for (int i = 0; i < 5 * 3; ++i) upstream[i] = 1;
  const DLDataType f32 = {kDLFloat, 32, 1}, i64 = {kDLInt, 64, 1};
  const DLTensor shape_tensor = {.data = shape, .device = {kDLCPU, 0}, .ndim = 1, .dtype = i64, .shape = two};
  const DLTensor tokens_tensor = {.data = tokens, .device = {kDLCPU, 0}, .ndim = 1, .dtype = i64, .shape = five};
  const DLTensor upstream_tensor = {
      .data = upstream, .device = {kDLCPU, 0}, .ndim = 2, .dtype = f32, .shape = upstream_shape};
  const DLTensor* inputs[] = {&shape_tensor, &tokens_tensor, &upstream_tensor};

  DLManagedTensor* gradient;
  if (gradloom_run(runtime, "GatherGrad", inputs, 3, NULL, NULL, &gradient, 1))
    return fprintf(stderr, "%s\n", gradloom_last_error()), 1;
  const float* rows = (const float*)gradient->dl_tensor.data;
  for (int row = 0; row < 4; ++row) printf("%g %g %g\n", rows[row * 3], rows[row * 3 + 1], rows[row * 3 + 2]);
  const int right = rows[2 * 3] == 2;

  gradient->deleter(gradient);
  gradloom_runtime_destroy(runtime);
  return right ? 0 : 1;
}
