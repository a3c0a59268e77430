/* A C program over the ops' schemas, own kernels, targets, the shared runtime, and DLPack's newer structs. */
#include "c_abi_harness.h"

static const gradloom_argument_schema* argument(const gradloom_argument_schema* const* all, int32_t count,
                                                const char* name) {
  for (int32_t i = 0; i < count; ++i)
    if (strcmp(all[i]->name, name) == 0) return all[i];
  CHECK(!"an argument of that name");
  return all[0];
}

static void schemas(void) {
  const gradloom_op_schema* const* ops = NULL;
  const gradloom_op_schema* op = NULL;
  int32_t count = 0;
  CHECK(gradloom_ops(&ops, &count) == GRADLOOM_OK && count >= 24);
  for (int32_t i = 0; i < count; ++i) {
    CHECK(ops[i]->size == sizeof(gradloom_op_schema) && ops[i]->name[0] && ops[i]->doc[0]);
    CHECK(ops[i]->input_count > 0 && ops[i]->output_count > 0);
    for (int32_t a = 0; a < ops[i]->input_count; ++a)
      CHECK(ops[i]->inputs[a]->name[0] && ops[i]->inputs[a]->doc[0] && ops[i]->inputs[a]->dtype_count > 0);
    for (int32_t a = 0; a < ops[i]->attribute_count; ++a) {
      const gradloom_attribute_schema* attribute = ops[i]->attributes[a];
      CHECK(attribute->name[0] && attribute->doc[0] && attribute->kind >= GRADLOOM_INT &&
            attribute->kind <= GRADLOOM_STRINGS);
      if (attribute->default_count < 0)
        CHECK(!attribute->default_ints && !attribute->default_floats && !attribute->default_strings);
    }
    CHECK(gradloom_find_op(ops[i]->name, &op) == GRADLOOM_OK && op == ops[i]);
  }
  CHECK(gradloom_find_op("GRUGrad", &op) == GRADLOOM_OK && op->input_count == 10 && op->output_count == 5);
  {
    const gradloom_argument_schema *x = argument(op->inputs, op->input_count, "X"),
                                   *lens = argument(op->inputs, op->input_count, "sequence_lens");
    CHECK(!x->optional && strcmp(x->type, "T") == 0 && x->dtype_count == 4);
    CHECK(lens->optional && strcmp(lens->type, "") == 0 && lens->dtype_count == 1 && lens->dtypes[0].code == kDLInt &&
          lens->dtypes[0].bits == 32 && lens->dtypes[0].lanes == 1);
    CHECK(argument(op->outputs, op->output_count, "dW")->optional);
    for (int32_t a = 0; a < op->attribute_count; ++a) {
      const gradloom_attribute_schema* attribute = op->attributes[a];
      if (strcmp(attribute->name, "direction") == 0)
        CHECK(attribute->kind == GRADLOOM_STRING && attribute->default_count == 1 &&
              strcmp(attribute->default_strings[0], "forward") == 0);
      if (strcmp(attribute->name, "linear_before_reset") == 0)
        CHECK(attribute->kind == GRADLOOM_INT && attribute->default_count == 1 && attribute->default_ints[0] == 0);
      if (strcmp(attribute->name, "activations") == 0)
        CHECK(attribute->kind == GRADLOOM_STRINGS && attribute->default_count == -1);
    }
  }
  CHECK(gradloom_find_op("GatherGrad", &op) == GRADLOOM_OK && op->inputs[0]->shape_like && !op->on_host);
  CHECK(gradloom_find_op("BroadcastGradientArgs", &op) == GRADLOOM_OK && op->on_host && op->outputs[0]->found_size);
  REFUSED(gradloom_find_op("NoOp", &op), GRADLOOM_UNSUPPORTED, "there is no op \"NoOp\"; there are: BroadcastGrad, ");
  CHECK(op == NULL);
  REFUSED(gradloom_find_op(NULL, &op), GRADLOOM_INVALID_ARGUMENT, "name is null");
  REFUSED(gradloom_find_op("GatherGrad", NULL), GRADLOOM_INVALID_ARGUMENT, "op is null");
  REFUSED(gradloom_ops(NULL, &count), GRADLOOM_INVALID_ARGUMENT, "ops is null");
  REFUSED(gradloom_ops(&ops, NULL), GRADLOOM_INVALID_ARGUMENT, "count is null");
}

static void own_kernels(gradloom_runtime* runtime) {
  static const char nest[] =
      "kernel scale(n: i64 in [0, 1000000], by: f32) {\n"
      "  in x: f32[n]\n"
      "  out y: f32[n]\n"
      "  for i in 0 .. n {\n"
      "    y[i] = x[i] * by\n"
      "  }\n"
      "}\n";
  gradloom_kernel* kernel = NULL;
  int64_t dims[1] = {37}, scalars[2] = {37, 0};
  const float by = 0.5f;
  float x[37], y[37];
  DLTensor x_tensor = tensor(x, f32, 1, dims), y_tensor = tensor(y, f32, 1, dims);
  const DLTensor* buffers[2] = {&x_tensor, &y_tensor};
  const char* const traces[3] = {NULL, "", "split i 8\n\nparallel i_o\n"};
  memcpy(&scalars[1], &by, sizeof by);
  for (int i = 0; i < 37; ++i) x[i] = (float)i;
  for (int t = 0; t < 3; ++t) {
    memset(y, 0, sizeof y);
    CHECK(gradloom_kernel_compile(runtime, nest, traces[t], &kernel) == GRADLOOM_OK);
    CHECK(gradloom_kernel_call(kernel, buffers, 2, scalars, 2, NULL) == GRADLOOM_OK);
    for (int i = 0; i < 37; ++i) CHECK(y[i] == x[i] * by);
    if (t < 2) gradloom_kernel_destroy(kernel);
  }
  REFUSED(gradloom_kernel_call(kernel, buffers, 1, scalars, 2, NULL), GRADLOOM_INVALID_ARGUMENT,
          "kernel scale: 1 buffers given; it takes 2");
  REFUSED(gradloom_kernel_call(kernel, buffers, 2, scalars, 1, NULL), GRADLOOM_INVALID_ARGUMENT, "1 scalars given");
  scalars[0] = 38;
  REFUSED(gradloom_kernel_call(kernel, buffers, 2, scalars, 2, NULL), GRADLOOM_INVALID_ARGUMENT, "buffer x has shape");
  REFUSED(gradloom_kernel_call(NULL, buffers, 2, scalars, 2, NULL), GRADLOOM_INVALID_ARGUMENT, "kernel is null");
  REFUSED(gradloom_kernel_call(kernel, NULL, 2, scalars, 2, NULL), GRADLOOM_INVALID_ARGUMENT, "buffers is null");
  REFUSED(gradloom_kernel_call(kernel, buffers, 2, NULL, 2, NULL), GRADLOOM_INVALID_ARGUMENT, "scalars is null");
  gradloom_kernel_destroy(kernel);
  gradloom_kernel_destroy(NULL);
  REFUSED(gradloom_kernel_compile(runtime, "kernel k(", NULL, &kernel), GRADLOOM_INVALID_ARGUMENT, "nest: 1:");
  CHECK(kernel == NULL);
  REFUSED(gradloom_kernel_compile(runtime, nest, "fly i", &kernel), GRADLOOM_INVALID_ARGUMENT, "trace: ");
  REFUSED(gradloom_kernel_compile(runtime, nest, "split j 8", &kernel), GRADLOOM_INVALID_ARGUMENT, "trace: ");
  REFUSED(gradloom_kernel_compile(NULL, nest, NULL, &kernel), GRADLOOM_INVALID_ARGUMENT, "runtime is null");
  REFUSED(gradloom_kernel_compile(runtime, NULL, NULL, &kernel), GRADLOOM_INVALID_ARGUMENT, "nest is null");
  REFUSED(gradloom_kernel_compile(runtime, nest, NULL, NULL), GRADLOOM_INVALID_ARGUMENT, "kernel is null");
}

static void targets(gradloom_runtime* host) {
  Gather g;
  gradloom_runtime_options options;
  gradloom_runtime* runtime = NULL;
  gradloom_launch_options launch;
  DLManagedTensor* copy = NULL;
  char* name = NULL;
  gather_init(&g);
  CHECK(gradloom_runtime_options_init(&options) == GRADLOOM_OK);
  options.target = GRADLOOM_TARGET_CUDA_HOST;
  if (gradloom_runtime_create(&options, &runtime) == GRADLOOM_OK) { /* else a build without CUDA */
    CHECK(gradloom_target_name(runtime, &name) == GRADLOOM_OK && strncmp(name, "cuda-host sm_", 13) == 0);
    gradloom_string_free(name);
    CHECK(gradloom_run_into(runtime, "GatherGrad", g.inputs, 3, NULL, NULL, g.outputs, 1) == GRADLOOM_OK &&
          gather_right(g.dx, 1));
    CHECK(gradloom_synchronize(runtime, NULL) == GRADLOOM_OK);
    gradloom_runtime_destroy(runtime);
  } else {
    CHECK(strstr(gradloom_last_error(), "target cuda: "));
  }
  options.target = GRADLOOM_TARGET_CUDA;
  options.device = -1;
  REFUSED(gradloom_runtime_create(&options, &runtime), GRADLOOM_INVALID_ARGUMENT, "device is -1");
  gradloom_launch_options_init(&launch);
  launch.check = 2;
  {
    gradloom_run_options run;
    gradloom_run_options_init(&run);
    run.launch = &launch;
    REFUSED(gradloom_run_into(host, "GatherGrad", g.inputs, 3, NULL, &run, g.outputs, 1), GRADLOOM_INVALID_ARGUMENT,
            "options.launch.check is 2, allowed are 0 to 1");
  }
  CHECK(gradloom_to_device(host, &g.dy_tensor, NULL, &copy) == GRADLOOM_OK && copy->dl_tensor.data == g.dy);
  copy->deleter(copy);
  CHECK(gradloom_to_host(host, &g.dy_tensor, NULL, &copy) == GRADLOOM_OK && copy->dl_tensor.shape[0] == 5);
  copy->deleter(copy);
  REFUSED(gradloom_to_host(host, NULL, NULL, &copy), GRADLOOM_INVALID_ARGUMENT, "tensor is null");
  CHECK(copy == NULL);
  REFUSED(gradloom_to_device(NULL, &g.dy_tensor, NULL, &copy), GRADLOOM_INVALID_ARGUMENT, "runtime is null");
  REFUSED(gradloom_synchronize(NULL, NULL), GRADLOOM_INVALID_ARGUMENT, "runtime is null");
}

static void shared_runtimes(void) {
  gradloom_runtime_options options;
  gradloom_runtime *first = NULL, *second = NULL;
  char* name = NULL;
  Gather g;
  gather_init(&g);
  CHECK(gradloom_runtime_options_init(&options) == GRADLOOM_OK);
  options.target = GRADLOOM_TARGET_INTERPRETER;
  CHECK(gradloom_shared_runtime(&options, &first) == GRADLOOM_OK);
  CHECK(gradloom_shared_runtime(NULL, &second) == GRADLOOM_OK && first != second);
  CHECK(gradloom_target_name(second, &name) == GRADLOOM_OK && strcmp(name, "interpreter") == 0);
  gradloom_string_free(name);
  gradloom_runtime_destroy(first); /* the other still has it */
  CHECK(gradloom_run_into(second, "GatherGrad", g.inputs, 3, NULL, NULL, g.outputs, 1) == GRADLOOM_OK &&
        gather_right(g.dx, 1));
  gradloom_runtime_destroy(second);
  options.threads = -1; /* a new one: its options are read */
  REFUSED(gradloom_shared_runtime(&options, &first), GRADLOOM_INVALID_ARGUMENT, "threads is -1");
  CHECK(first == NULL);
  REFUSED(gradloom_shared_runtime(NULL, NULL), GRADLOOM_INVALID_ARGUMENT, "runtime is null");
}

static int deleted = 0;
static void count_deleted(DLManagedTensor* self) { deleted += self->manager_ctx == &deleted; }
static void count_versioned(DLManagedTensorVersioned* self) { deleted += self->manager_ctx == &deleted; }

static void versioned_capsules(void) {
  Gather g;
  DLManagedTensor old, *back = NULL;
  DLManagedTensorVersioned newer, *made = NULL;
  gather_init(&g);
  memset(&old, 0, sizeof old), memset(&newer, 0, sizeof newer);
  old.dl_tensor = g.dy_tensor, old.manager_ctx = &deleted, old.deleter = count_deleted;
  CHECK(gradloom_to_versioned(&old, &made) == GRADLOOM_OK && made->version.major == 1 && made->flags == 0 &&
        made->dl_tensor.data == g.dy && made->dl_tensor.ndim == 2);
  CHECK(gradloom_from_versioned(made, 1, &back) == GRADLOOM_OK && back->dl_tensor.data == g.dy && deleted == 0);
  back->deleter(back);
  CHECK(deleted == 1);
  newer.version.major = 1, newer.version.minor = 3, newer.flags = DLPACK_FLAG_BITMASK_READ_ONLY;
  newer.dl_tensor = g.dy_tensor, newer.manager_ctx = &deleted, newer.deleter = count_versioned;
  REFUSED(gradloom_from_versioned(&newer, 1, &back), GRADLOOM_INVALID_ARGUMENT, "versioned is read-only");
  CHECK(back == NULL && deleted == 1);
  CHECK(gradloom_from_versioned(&newer, 0, &back) == GRADLOOM_OK);
  back->deleter(back);
  CHECK(deleted == 2);
  newer.version.major = 2;
  REFUSED(gradloom_from_versioned(&newer, 0, &back), GRADLOOM_UNSUPPORTED,
          "versioned is of DLPack 2.3; supported is 1");
  REFUSED(gradloom_from_versioned(NULL, 0, &back), GRADLOOM_INVALID_ARGUMENT, "versioned is null");
  REFUSED(gradloom_from_versioned(&newer, 0, NULL), GRADLOOM_INVALID_ARGUMENT, "tensor is null");
  REFUSED(gradloom_to_versioned(NULL, &made), GRADLOOM_INVALID_ARGUMENT, "tensor is null");
  REFUSED(gradloom_to_versioned(&old, NULL), GRADLOOM_INVALID_ARGUMENT, "versioned is null");
}

int main(void) {
  gradloom_runtime* runtime = NULL;
  CHECK(gradloom_runtime_create(NULL, &runtime) == GRADLOOM_OK);
  schemas();
  own_kernels(runtime);
  targets(runtime);
  shared_runtimes();
  versioned_capsules();
  gradloom_runtime_destroy(runtime);
  return failures != 0;
}
