/* What the C programs share: checks, and a call with its right result. */
#ifndef C_ABI_HARNESS_H
#define C_ABI_HARNESS_H
#include <gradloom/gradloom.h>
#include <stdio.h>
#include <string.h>

static int failures = 0;
#define CHECK(condition)                                                                                          \
  do {                                                                                                            \
    if (!(condition))                                                                                             \
      fprintf(stderr, "line %d: %s (last error: %s)\n", __LINE__, #condition, gradloom_last_error()), ++failures; \
  } while (0)
#define REFUSED(call, code, words)                                                                                    \
  do {                                                                                                                \
    const gradloom_status got = (call);                                                                               \
    if (got != (code) || !strstr(gradloom_last_error(), (words))) {                                                   \
      fprintf(stderr, "line %d: %s gave %s: \"%s\", wanted %s: \"%s\"\n", __LINE__, #call, gradloom_status_name(got), \
              gradloom_last_error(), gradloom_status_name(code), (words)),                                            \
          ++failures;                                                                                                 \
    }                                                                                                                 \
  } while (0)

static const DLDataType f32 = {kDLFloat, 32, 1}, i64 = {kDLInt, 64, 1};

static DLTensor tensor(void* data, DLDataType dtype, int32_t ndim, int64_t* shape) {
  DLTensor t;
  memset(&t, 0, sizeof t);
  t.data = data;
  t.device.device_type = kDLCPU;
  t.ndim = ndim;
  t.dtype = dtype;
  t.shape = shape;
  return t;
}

/* GatherGrad: rows of dy added to the rows of a 4 x 3 gradient that `indices` names. */
typedef struct {
  int64_t shape[2], shape_dims[1], indices[5], indices_dims[1], dy_dims[2], dx_dims[2];
  float dy[15], dx[12];
  DLTensor shape_tensor, indices_tensor, dy_tensor, dx_tensor;
  const DLTensor* inputs[3];
  DLTensor* outputs[1];
} Gather;

static void gather_init(Gather* g) {
  const int64_t indices[5] = {2, 0, 2, -1, 1};
  memset(g, 0, sizeof *g);
  g->shape[0] = 4, g->shape[1] = 3, g->shape_dims[0] = 2, g->indices_dims[0] = 5;
  g->dy_dims[0] = 5, g->dy_dims[1] = 3, g->dx_dims[0] = 4, g->dx_dims[1] = 3;
  memcpy(g->indices, indices, sizeof indices);
  for (int i = 0; i < 15; ++i) g->dy[i] = (float)(i + 1);
  g->shape_tensor = tensor(g->shape, i64, 1, g->shape_dims);
  g->indices_tensor = tensor(g->indices, i64, 1, g->indices_dims);
  g->dy_tensor = tensor(g->dy, f32, 2, g->dy_dims);
  g->dx_tensor = tensor(g->dx, f32, 2, g->dx_dims);
  g->inputs[0] = &g->shape_tensor, g->inputs[1] = &g->indices_tensor, g->inputs[2] = &g->dy_tensor;
  g->outputs[0] = &g->dx_tensor;
}

static int gather_right(const float* dx, float scale) {
  const float want[12] = {4, 5, 6, 13, 14, 15, 8, 10, 12, 10, 11, 12};
  for (int i = 0; i < 12; ++i)
    if (dx[i] != scale * want[i]) return 0;
  return 1;
}

#endif
