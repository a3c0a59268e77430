/* A C program over what gradloom.h has for bindings: outputs ahead, memory and threads of the host's, the handle for
 * any shapes, schemas, own kernels, targets, the shared runtime, DLPack's newer structs. */
#include <pthread.h>
#include <stdlib.h>

#include "c_abi_harness.h"

static void* give(void* context, const char* op, int32_t output, DLDataType dtype, int32_t ndim, const int64_t* shape) {
  CHECK(strcmp(op, "GatherGrad") == 0 && output == 0 && dtype.code == kDLFloat && dtype.bits == 32 && ndim == 2 &&
        shape[0] == 4 && shape[1] == 3);
  return context;
}

static void outputs_ahead(gradloom_runtime* runtime) {
  Gather g;
  gradloom_output_info infos[2];
  gradloom_run_options options;
  gradloom_launch_options launch;
  DLManagedTensor* outputs[1];
  gather_init(&g);
  g.dy_tensor.data = NULL, g.indices_tensor.data = NULL; /* not read */
  memset(infos, 0x55, sizeof infos);
  CHECK(gradloom_infer_outputs(runtime, "GatherGrad", g.inputs, 3, NULL, NULL, infos, 2) == GRADLOOM_OK);
  CHECK(infos[0].given == 1 && infos[0].ndim == 2 && infos[0].shape[0] == 4 && infos[0].shape[1] == 3 &&
        infos[0].dtype.code == kDLFloat && infos[0].dtype.bits == 32 && infos[0].dtype.lanes == 1);
  CHECK(infos[1].given == 0 && infos[1].ndim == 0 && infos[1].shape[0] == 0);
  g.shape_tensor.data = NULL;
  REFUSED(gradloom_infer_outputs(runtime, "GatherGrad", g.inputs, 3, NULL, NULL, infos, 1), GRADLOOM_INVALID_ARGUMENT,
          "input 0 (shape) has no host data");
  CHECK(infos[0].given == 0);
  gather_init(&g);
  g.dy_dims[0] = g.dy_dims[1] = (int64_t)1 << 40;
  REFUSED(gradloom_infer_outputs(runtime, "GatherGrad", g.inputs, 3, NULL, NULL, infos, 1), GRADLOOM_INVALID_ARGUMENT,
          "inputs[2]: shape [1099511627776,1099511627776]");
  gather_init(&g);
  REFUSED(gradloom_infer_outputs(NULL, "GatherGrad", g.inputs, 3, NULL, NULL, infos, 1), GRADLOOM_INVALID_ARGUMENT,
          "runtime is null");
  REFUSED(gradloom_infer_outputs(runtime, NULL, g.inputs, 3, NULL, NULL, infos, 1), GRADLOOM_INVALID_ARGUMENT,
          "op is null");
  REFUSED(gradloom_infer_outputs(runtime, "GatherGrad", NULL, 3, NULL, NULL, infos, 1), GRADLOOM_INVALID_ARGUMENT,
          "inputs is null");
  REFUSED(gradloom_infer_outputs(runtime, "GatherGrad", g.inputs, 3, NULL, NULL, NULL, 1), GRADLOOM_INVALID_ARGUMENT,
          "outputs is null");

  CHECK(gradloom_launch_options_init(&launch) == GRADLOOM_OK && gradloom_run_options_init(&options) == GRADLOOM_OK);
  launch.allocate = give, launch.allocate_context = g.dx, options.launch = &launch;
  CHECK(gradloom_run(runtime, "GatherGrad", g.inputs, 3, NULL, &options, outputs, 1) == GRADLOOM_OK);
  CHECK(outputs[0] && outputs[0]->dl_tensor.data == g.dx && gather_right(g.dx, 1));
  if (outputs[0]) outputs[0]->deleter(outputs[0]);
  memset(g.dx, 0, sizeof g.dx); /* nothing to be given back */
  CHECK(gradloom_run(runtime, "GatherGrad", g.inputs, 3, NULL, &options, NULL, 0) == GRADLOOM_OK);
  CHECK(gather_right(g.dx, 1));
  launch.allocate_context = NULL;
  REFUSED(gradloom_run(runtime, "GatherGrad", g.inputs, 3, NULL, &options, outputs, 1), GRADLOOM_RESOURCE_EXHAUSTED,
          "output 0 (dX): the allocate callback gave no memory for shape [4,3], 48 bytes");
  CHECK(outputs[0] == NULL);
  launch.size = 4;
  REFUSED(gradloom_run(runtime, "GatherGrad", g.inputs, 3, NULL, &options, outputs, 1), GRADLOOM_INVALID_ARGUMENT,
          "options.launch.size is 4, expected ");
}

static void prepared_calls(gradloom_runtime* runtime) {
  Gather g;
  gradloom_attributes* attributes = NULL;
  gradloom_prepared* prepared = NULL;
  gradloom_launch_options launch;
  gradloom_output_info info;
  DLManagedTensor* output = NULL;
  int64_t strides[2] = {3, 1};
  gather_init(&g);
  CHECK(gradloom_attributes_create(&attributes) == GRADLOOM_OK);
  CHECK(gradloom_attributes_set_int(attributes, "axis", 0) == GRADLOOM_OK);
  CHECK(gradloom_prepare(runtime, "GatherGrad", attributes, NULL, &prepared) == GRADLOOM_OK);
  gradloom_attributes_destroy(attributes); /* they were copied */
  for (int repeat = 0; repeat < 3; ++repeat) {
    memset(g.dx, 0, sizeof g.dx);
    g.dy_tensor.strides = repeat == 1 ? strides : NULL; /* dense as well */
    CHECK(gradloom_prepared_run_into(prepared, g.inputs, 3, NULL, g.outputs, 1) == GRADLOOM_OK &&
          gather_right(g.dx, 1));
    g.dy_dims[0] = 3, g.indices_dims[0] = 3; /* another shape */
    CHECK(gradloom_prepared_run(prepared, g.inputs, 3, NULL, &output, 1) == GRADLOOM_OK);
    CHECK(output && ((const float*)output->dl_tensor.data)[2 * 3] == 1 + 7);
    if (output) output->deleter(output);
    g.dy_dims[0] = 5, g.indices_dims[0] = 5;
  }
  CHECK(gradloom_prepared_infer_outputs(prepared, g.inputs, 3, &info, 1) == GRADLOOM_OK && info.shape[0] == 4);
  gradloom_launch_options_init(&launch);
  launch.allocate = give, launch.allocate_context = g.dx;
  memset(g.dx, 0, sizeof g.dx);
  CHECK(gradloom_prepared_run(prepared, g.inputs, 3, &launch, NULL, 0) == GRADLOOM_OK && gather_right(g.dx, 1));

  /* What a struct of the caller's may hold, also where the same call is known. */
  g.dy_tensor.data = NULL;
  REFUSED(gradloom_prepared_run_into(prepared, g.inputs, 3, NULL, g.outputs, 1), GRADLOOM_INVALID_ARGUMENT,
          "input 2 (dY): a tensor of 15 elements has no data");
  gather_init(&g);
  g.dx_tensor.data = NULL;
  REFUSED(gradloom_prepared_run_into(prepared, g.inputs, 3, NULL, g.outputs, 1), GRADLOOM_INVALID_ARGUMENT,
          "output 0 (dX) has no data");
  gather_init(&g);
  g.dy_dims[1] = -3;
  REFUSED(gradloom_prepared_run_into(prepared, g.inputs, 3, NULL, g.outputs, 1), GRADLOOM_INVALID_ARGUMENT,
          "input 2 (dY): a tensor's dims are [5,-3]: none may be negative");
  gather_init(&g);
  g.dx_dims[0] = 5;
  REFUSED(gradloom_prepared_run_into(prepared, g.inputs, 3, NULL, g.outputs, 1), GRADLOOM_INVALID_ARGUMENT,
          "output 0 (dX) has shape [5,3]; it must have [4,3]");
  gather_init(&g);
  g.dy_tensor.dtype.lanes = 2;
  REFUSED(gradloom_prepared_run_into(prepared, g.inputs, 3, NULL, g.outputs, 1), GRADLOOM_UNSUPPORTED,
          "gradloom_prepared_run_into: inputs[2]: a DLPack tensor's dtype has code 2, 32 bits and 2 lanes");
  gather_init(&g);
  g.dy_tensor.shape = NULL;
  REFUSED(gradloom_prepared_run_into(prepared, g.inputs, 3, NULL, g.outputs, 1), GRADLOOM_INVALID_ARGUMENT,
          "inputs[2]: a DLPack tensor of rank 2 has no shape");
  gather_init(&g);
  g.dy_tensor.device.device_type = (DLDeviceType)9;
  REFUSED(gradloom_prepared_run_into(prepared, g.inputs, 3, NULL, g.outputs, 1), GRADLOOM_UNSUPPORTED,
          "inputs[2]: a DLPack tensor is on device type 9");
  gather_init(&g);
  g.dx_tensor.data = g.dy;
  REFUSED(gradloom_prepared_run_into(prepared, g.inputs, 3, NULL, g.outputs, 1), GRADLOOM_INVALID_ARGUMENT,
          "output 0 (dX) overlaps input 2 (dY)");
  gather_init(&g);
  g.indices[1] = 4;
  REFUSED(gradloom_prepared_run_into(prepared, g.inputs, 3, NULL, g.outputs, 1), GRADLOOM_OUT_OF_RANGE,
          "input 1 (indices)[1] is 4; it must be in [-4, 3]");
  gather_init(&g);
  {
    DLTensor* two[2];
    two[0] = two[1] = &g.dx_tensor;
    REFUSED(gradloom_prepared_run_into(prepared, g.inputs, 3, NULL, two, 2), GRADLOOM_INVALID_ARGUMENT,
            "GatherGrad: 2 outputs given; it has 1");
    two[1] = NULL;
    CHECK(gradloom_prepared_run_into(prepared, g.inputs, 3, NULL, two, 2) == GRADLOOM_OK && gather_right(g.dx, 1));
  }
  REFUSED(gradloom_prepared_run_into(prepared, g.inputs, 2, NULL, g.outputs, 1), GRADLOOM_INVALID_ARGUMENT,
          "input 2 (dY) is missing");
  REFUSED(gradloom_prepared_run_into(NULL, g.inputs, 3, NULL, g.outputs, 1), GRADLOOM_INVALID_ARGUMENT,
          "prepared is null");
  REFUSED(gradloom_prepared_run_into(prepared, NULL, 3, NULL, g.outputs, 1), GRADLOOM_INVALID_ARGUMENT,
          "inputs is null");
  REFUSED(gradloom_prepared_run_into(prepared, g.inputs, 3, NULL, NULL, 1), GRADLOOM_INVALID_ARGUMENT,
          "outputs is null");
  REFUSED(gradloom_prepared_run(NULL, g.inputs, 3, NULL, &output, 1), GRADLOOM_INVALID_ARGUMENT, "prepared is null");
  REFUSED(gradloom_prepared_infer_outputs(NULL, g.inputs, 3, &info, 1), GRADLOOM_INVALID_ARGUMENT, "prepared is null");
  gradloom_prepared_destroy(prepared);
  gradloom_prepared_destroy(NULL);
  REFUSED(gradloom_prepare(runtime, NULL, NULL, NULL, &prepared), GRADLOOM_INVALID_ARGUMENT, "op is null");
  REFUSED(gradloom_prepare(runtime, "NoOp", NULL, NULL, &prepared), GRADLOOM_UNSUPPORTED, "NoOp");
  CHECK(prepared == NULL);
  REFUSED(gradloom_prepare(NULL, "GatherGrad", NULL, NULL, &prepared), GRADLOOM_INVALID_ARGUMENT, "runtime is null");
  REFUSED(gradloom_prepare(runtime, "GatherGrad", NULL, NULL, NULL), GRADLOOM_INVALID_ARGUMENT, "prepared is null");
}

typedef struct {
  gradloom_body body;
  void* env;
  int64_t begin, end;
} Part;

static void* run_part(void* argument) {
  const Part* part = (const Part*)argument;
  part->body(part->env, part->begin, part->end);
  return NULL;
}

/* Counts its loops in `context`. */
static void two_threads(void* context, int64_t n, gradloom_body body, void* env) {
  Part upper;
  pthread_t thread;
  upper.body = body, upper.env = env, upper.begin = n / 2, upper.end = n;
  pthread_create(&thread, NULL, run_part, &upper);
  body(env, 0, n / 2);
  pthread_join(thread, NULL);
  ++*(int*)context;
}

/* A call large enough for threads. */
static void pools(void) {
  enum { rows = 8192, columns = 64 };
  int64_t shape[2] = {rows, columns}, shape_dims[1] = {2}, dims[2] = {rows, columns}, indices_dims[1] = {rows};
  int64_t* indices = (int64_t*)malloc(rows * sizeof *indices);
  float* dy = (float*)malloc(rows * columns * sizeof *dy);
  float* dx[2];
  int loops = 0;
  gradloom_runtime_options options;
  gradloom_runtime* runtime = NULL;
  gradloom_run_options run;
  gradloom_launch_options launch;
  char* target = NULL;
  for (int64_t i = 0; i < rows; ++i) indices[i] = (i * 7919) % rows;
  for (int64_t i = 0; i < rows * columns; ++i) dy[i] = (float)(i % 1000) * 0.37f;
  DLTensor shape_tensor = tensor(shape, i64, 1, shape_dims), indices_tensor = tensor(indices, i64, 1, indices_dims),
           dy_tensor = tensor(dy, f32, 2, dims), dx_tensor = tensor(NULL, f32, 2, dims);
  const DLTensor* inputs[3] = {&shape_tensor, &indices_tensor, &dy_tensor};
  DLTensor* outputs[1] = {&dx_tensor};
  CHECK(gradloom_runtime_options_init(&options) == GRADLOOM_OK);
  options.threads = 2;
  options.parallel_for = two_threads, options.parallel_for_context = &loops;
  CHECK(gradloom_runtime_create(&options, &runtime) == GRADLOOM_OK);
  CHECK(gradloom_target_name(runtime, &target) == GRADLOOM_OK);
  CHECK(gradloom_run_options_init(&run) == GRADLOOM_OK && gradloom_launch_options_init(&launch) == GRADLOOM_OK);
  for (int i = 0; i < 2; ++i) dx[i] = (float*)malloc(rows * columns * sizeof *dx[i]);
  if (strncmp(target, "llvm", 4) == 0) { /* too large for the interpreter, which has no threads */
    dx_tensor.data = dx[0];
    CHECK(gradloom_run_into(runtime, "GatherGrad", inputs, 3, NULL, &run, outputs, 1) == GRADLOOM_OK && loops > 0);
    int own = 0;
    launch.parallel_for = two_threads, launch.parallel_for_context = &own, run.launch = &launch;
    loops = 0;
    dx_tensor.data = dx[1];
    CHECK(gradloom_run_into(runtime, "GatherGrad", inputs, 3, NULL, &run, outputs, 1) == GRADLOOM_OK);
    CHECK(own > 0 && loops == 0 && memcmp(dx[0], dx[1], rows * columns * sizeof *dx[0]) == 0);
  }
  gradloom_string_free(target);
  gradloom_runtime_destroy(runtime);
  for (int i = 0; i < 2; ++i) free(dx[i]);
  free(dy), free(indices);
}

int main(void) {
  gradloom_runtime* runtime = NULL;
  gradloom_runtime_options options;
  CHECK(gradloom_runtime_options_init(&options) == GRADLOOM_OK);
  options.threads = 2;
  CHECK(gradloom_runtime_create(&options, &runtime) == GRADLOOM_OK);
  outputs_ahead(runtime);
  prepared_calls(runtime);
  pools();
  gradloom_runtime_destroy(runtime);
  return failures != 0;
}
