/* A C program over gradloom.h: right results, errors, null pointers, threads. Built as C by the tests, also against the
 * installed tree. */
#include <pthread.h>

#include "c_abi_harness.h"
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

static void results(gradloom_runtime* runtime) {
  Gather g;
  DLManagedTensor* output = NULL;
  gradloom_attributes* attributes = NULL;
  gradloom_executable* executable = NULL;
  gradloom_run_options options;
  char* text = NULL;
  gather_init(&g);
  CHECK(gradloom_attributes_create(&attributes) == GRADLOOM_OK);
  CHECK(gradloom_attributes_set_int(attributes, "axis", 1) == GRADLOOM_OK);
  CHECK(gradloom_attributes_set_int(attributes, "axis", 0) == GRADLOOM_OK);

  CHECK(gradloom_run(runtime, "GatherGrad", g.inputs, 3, attributes, NULL, &output, 1) == GRADLOOM_OK);
  CHECK(output && output->dl_tensor.ndim == 2 && output->dl_tensor.shape[0] == 4 && output->dl_tensor.shape[1] == 3);
  CHECK(output && gather_right((const float*)((const char*)output->dl_tensor.data + output->dl_tensor.byte_offset), 1));
  if (output) output->deleter(output);
  CHECK(gradloom_run(runtime, "GatherGrad", g.inputs, 3, NULL, NULL, NULL, 0) ==
        GRADLOOM_OK); /* its output is dropped */

  CHECK(gradloom_run_into(runtime, "GatherGrad", g.inputs, 3, NULL, NULL, g.outputs, 1) == GRADLOOM_OK);
  CHECK(gather_right(g.dx, 1));
  CHECK(gradloom_run_options_init(&options) == GRADLOOM_OK);
  options.accumulate = 1, options.any_shape = 1, options.strategy = "direct", options.determinism = GRADLOOM_SEQUENTIAL;
  CHECK(gradloom_run_into(runtime, "GatherGrad", g.inputs, 3, attributes, &options, g.outputs, 1) == GRADLOOM_OK);
  CHECK(gather_right(g.dx, 2));

  /* A shape that stays as it is may lie in constant memory. */
  {
    static const int64_t constant[2] = {4, 3};
    g.dx_tensor.shape = (int64_t*)constant;
    CHECK(gradloom_run_into(runtime, "GatherGrad", g.inputs, 3, NULL, NULL, g.outputs, 1) == GRADLOOM_OK);
    g.dx_tensor.shape = g.dx_dims;
  }

  memset(g.dx, 0, sizeof g.dx);
  CHECK(gradloom_compile(runtime, "GatherGrad", g.inputs, 3, attributes, NULL, &executable) == GRADLOOM_OK);
  CHECK(gradloom_call(executable, g.inputs, 3, g.outputs, 1) == GRADLOOM_OK);
  CHECK(gather_right(g.dx, 1));

  /* An output whose size the kernel finds. */
  {
    int64_t a[2] = {4, 1}, b[2] = {4, 3}, two[1] = {2}, axes_dims[2][1] = {{2}, {2}}, axes[2][2];
    DLTensor ta = tensor(a, i64, 1, two), tb = tensor(b, i64, 1, two), o0 = tensor(axes[0], i64, 1, axes_dims[0]),
             o1 = tensor(axes[1], i64, 1, axes_dims[1]);
    const DLTensor* inputs[2] = {&ta, &tb};
    DLTensor* outputs[2] = {&o0, &o1};
    CHECK(gradloom_run_into(runtime, "BroadcastGradientArgs", inputs, 2, NULL, NULL, outputs, 2) == GRADLOOM_OK);
    CHECK(axes_dims[0][0] == 1 && axes[0][0] == 1 && axes_dims[1][0] == 0);
  }

  CHECK(gradloom_stats_json(runtime, &text) == GRADLOOM_OK);
  CHECK(text && strstr(text, "\"launches\":") && strstr(text, "\"stages\":{\"emit_ms\":") &&
        text[strlen(text) - 1] == '}');
  gradloom_string_free(text);
  CHECK(gradloom_target_name(runtime, &text) == GRADLOOM_OK && text && text[0]);
  gradloom_string_free(text);
  CHECK(strcmp(gradloom_version(), "0.1.0") == 0);
  gradloom_executable_destroy(executable);
  gradloom_attributes_destroy(attributes);
}

static void errors(gradloom_runtime* runtime) {
  Gather g;
  DLManagedTensor* output = (DLManagedTensor*)&g;
  gradloom_run_options options;
  gradloom_runtime_options runtime_options;
  gradloom_runtime* other = runtime;
  gather_init(&g);
  g.indices[1] = 4;
  REFUSED(gradloom_run(runtime, "GatherGrad", g.inputs, 3, NULL, NULL, &output, 1), GRADLOOM_OUT_OF_RANGE, "4");
  CHECK(output == NULL);
  gather_init(&g);
  REFUSED(gradloom_run(runtime, "NoSuchOp", g.inputs, 3, NULL, NULL, &output, 1), GRADLOOM_UNSUPPORTED,
          "there is no op \"NoSuchOp\"");
  REFUSED(gradloom_run(runtime, "GatherGrad", g.inputs, -1, NULL, NULL, &output, 1), GRADLOOM_INVALID_ARGUMENT,
          "the number of inputs is -1");
  REFUSED(gradloom_run(runtime, "GatherGrad", g.inputs, 2, NULL, NULL, &output, 1), GRADLOOM_INVALID_ARGUMENT,
          "GatherGrad: ");
  g.dy_tensor.device.device_type = kDLCUDA;
  REFUSED(gradloom_run(runtime, "GatherGrad", g.inputs, 3, NULL, NULL, &output, 1), GRADLOOM_INVALID_ARGUMENT,
          "is in memory of cuda device 0; it must be in host memory");
  g.dy_tensor.device.device_id = -1; /* not the host */
  REFUSED(gradloom_run(runtime, "GatherGrad", g.inputs, 3, NULL, NULL, &output, 1), GRADLOOM_INVALID_ARGUMENT,
          "cuda device -1; devices are numbered from 0");
  gather_init(&g);
  g.dy_tensor.dtype.lanes = 4;
  REFUSED(gradloom_run(runtime, "GatherGrad", g.inputs, 3, NULL, NULL, &output, 1), GRADLOOM_UNSUPPORTED, "4 lanes");
  gather_init(&g);
  g.dy_tensor.ndim = 17;
  REFUSED(gradloom_run(runtime, "GatherGrad", g.inputs, 3, NULL, NULL, &output, 1), GRADLOOM_UNSUPPORTED, "rank 17");
  gather_init(&g);
  g.dy_tensor.shape = NULL;
  REFUSED(gradloom_run(runtime, "GatherGrad", g.inputs, 3, NULL, NULL, &output, 1), GRADLOOM_INVALID_ARGUMENT,
          "has no shape");
  gather_init(&g);
  g.dy_tensor.data = NULL;
  REFUSED(gradloom_run(runtime, "GatherGrad", g.inputs, 3, NULL, NULL, &output, 1), GRADLOOM_INVALID_ARGUMENT,
          "has no data");
  gather_init(&g);
  g.dx_tensor.data = g.dy;
  REFUSED(gradloom_run_into(runtime, "GatherGrad", g.inputs, 3, NULL, NULL, g.outputs, 1), GRADLOOM_INVALID_ARGUMENT,
          "overlap");
  gather_init(&g);
  memset(&options, 0, sizeof options);
  REFUSED(gradloom_run(runtime, "GatherGrad", g.inputs, 3, NULL, &options, &output, 1), GRADLOOM_INVALID_ARGUMENT,
          "options.size is 0");
  gradloom_run_options_init(&options);
  options.determinism = (gradloom_determinism)9;
  REFUSED(gradloom_run(runtime, "GatherGrad", g.inputs, 3, NULL, &options, &output, 1), GRADLOOM_INVALID_ARGUMENT,
          "determinism is 9, allowed are 0 to 3");
  gradloom_run_options_init(&options);
  options.strategy = "no_such";
  REFUSED(gradloom_run(runtime, "GatherGrad", g.inputs, 3, NULL, &options, &output, 1), GRADLOOM_INVALID_ARGUMENT,
          "no_such");
  gradloom_runtime_options_init(&runtime_options);
  runtime_options.target = (gradloom_target)7;
  REFUSED(gradloom_runtime_create(&runtime_options, &other), GRADLOOM_INVALID_ARGUMENT, "target is 7");
  CHECK(other == NULL);
  REFUSED(gradloom_set_log_level((gradloom_log_level)5), GRADLOOM_INVALID_ARGUMENT, "level is 5");
  CHECK(strcmp(gradloom_status_name((gradloom_status)99), "unknown") == 0);
  CHECK(gradloom_run(runtime, "GatherGrad", g.inputs, 3, NULL, NULL, &output, 1) == GRADLOOM_OK); /* still usable */
  CHECK(strstr(gradloom_last_error(), "level is 5")); /* a success leaves the message */
  if (output) output->deleter(output);
}

static void nulls(gradloom_runtime* runtime) {
  Gather g;
  gradloom_attributes* attributes = NULL;
  gradloom_executable* executable = NULL;
  DLManagedTensor* output = NULL;
  const int64_t ints[1] = {1};
  const char* strings[1] = {NULL};
  char* text = NULL;
  const gradloom_status null = GRADLOOM_INVALID_ARGUMENT;
  gather_init(&g);
  CHECK(gradloom_attributes_create(&attributes) == GRADLOOM_OK);
  REFUSED(gradloom_runtime_create(NULL, NULL), null, "gradloom_runtime_create: runtime is null");
  REFUSED(gradloom_runtime_options_init(NULL), null, "options is null");
  REFUSED(gradloom_run_options_init(NULL), null, "options is null");
  REFUSED(gradloom_attributes_create(NULL), null, "attributes is null");
  REFUSED(gradloom_attributes_set_int(NULL, "a", 1), null, "attributes is null");
  REFUSED(gradloom_attributes_set_int(attributes, NULL, 1), null, "gradloom_attributes_set_int: name is null");
  REFUSED(gradloom_attributes_set_float(NULL, "a", 1), null, "attributes is null");
  REFUSED(gradloom_attributes_set_float(attributes, NULL, 1), null, "name is null");
  REFUSED(gradloom_attributes_set_string(NULL, "a", "b"), null, "attributes is null");
  REFUSED(gradloom_attributes_set_string(attributes, NULL, "b"), null, "name is null");
  REFUSED(gradloom_attributes_set_string(attributes, "a", NULL), null, "value is null");
  REFUSED(gradloom_attributes_set_ints(NULL, "a", ints, 1), null, "attributes is null");
  REFUSED(gradloom_attributes_set_ints(attributes, NULL, ints, 1), null, "name is null");
  REFUSED(gradloom_attributes_set_ints(attributes, "a", NULL, 1), null, "values is null");
  REFUSED(gradloom_attributes_set_floats(attributes, "a", NULL, 1), null, "values is null");
  REFUSED(gradloom_attributes_set_floats(NULL, "a", NULL, 0), null, "attributes is null");
  REFUSED(gradloom_attributes_set_floats(attributes, NULL, NULL, 0), null, "name is null");
  REFUSED(gradloom_attributes_set_strings(attributes, "a", NULL, 1), null, "values is null");
  REFUSED(gradloom_attributes_set_strings(attributes, "a", strings, 1), null, "values[0] is null");
  REFUSED(gradloom_attributes_set_strings(NULL, "a", NULL, 0), null, "attributes is null");
  REFUSED(gradloom_attributes_set_strings(attributes, NULL, NULL, 0), null, "name is null");
  REFUSED(gradloom_run(NULL, "GatherGrad", g.inputs, 3, NULL, NULL, &output, 1), null, "gradloom_run: runtime is null");
  REFUSED(gradloom_run(runtime, NULL, g.inputs, 3, NULL, NULL, &output, 1), null, "op is null");
  REFUSED(gradloom_run(runtime, "GatherGrad", NULL, 3, NULL, NULL, &output, 1), null, "inputs is null");
  REFUSED(gradloom_run(runtime, "GatherGrad", g.inputs, 3, NULL, NULL, NULL, 1), null, "outputs is null");
  REFUSED(gradloom_run_into(NULL, "GatherGrad", g.inputs, 3, NULL, NULL, g.outputs, 1), null, "runtime is null");
  REFUSED(gradloom_run_into(runtime, NULL, g.inputs, 3, NULL, NULL, g.outputs, 1), null, "op is null");
  REFUSED(gradloom_run_into(runtime, "GatherGrad", NULL, 3, NULL, NULL, g.outputs, 1), null, "inputs is null");
  REFUSED(gradloom_run_into(runtime, "GatherGrad", g.inputs, 3, NULL, NULL, NULL, 1), null, "outputs is null");
  REFUSED(gradloom_compile(NULL, "GatherGrad", g.inputs, 3, NULL, NULL, &executable), null, "runtime is null");
  REFUSED(gradloom_compile(runtime, NULL, g.inputs, 3, NULL, NULL, &executable), null, "op is null");
  REFUSED(gradloom_compile(runtime, "GatherGrad", NULL, 3, NULL, NULL, &executable), null, "inputs is null");
  REFUSED(gradloom_compile(runtime, "GatherGrad", g.inputs, 3, NULL, NULL, NULL), null, "executable is null");
  CHECK(gradloom_compile(runtime, "GatherGrad", g.inputs, 3, NULL, NULL, &executable) == GRADLOOM_OK);
  REFUSED(gradloom_call(NULL, g.inputs, 3, g.outputs, 1), null, "executable is null");
  REFUSED(gradloom_call(executable, NULL, 3, g.outputs, 1), null, "inputs is null");
  REFUSED(gradloom_call(executable, g.inputs, 3, NULL, 1), null, "outputs is null");
  REFUSED(gradloom_stats_json(NULL, &text), null, "runtime is null");
  REFUSED(gradloom_stats_json(runtime, NULL), null, "json is null");
  REFUSED(gradloom_target_name(NULL, &text), null, "runtime is null");
  REFUSED(gradloom_target_name(runtime, NULL), null, "name is null");
  CHECK(gradloom_set_log_sink(NULL, NULL) == GRADLOOM_OK);
  /* An input that is given as null is an argument that is not there. */
  g.inputs[2] = NULL;
  REFUSED(gradloom_run(runtime, "GatherGrad", g.inputs, 3, NULL, NULL, &output, 1), null, "GatherGrad: ");
  gradloom_runtime_destroy(NULL);
  gradloom_attributes_destroy(NULL);
  gradloom_executable_destroy(NULL);
  gradloom_string_free(NULL);
  gradloom_executable_destroy(executable);
  gradloom_attributes_destroy(attributes);
}

typedef struct {
  gradloom_runtime* runtime;
  const gradloom_executable* executable;
  int number, wrong;
} Worker;

static void* work(void* argument) {
  Worker* w = (Worker*)argument;
  char name[32], words[64];
  snprintf(name, sizeof name, "NoOp%d", w->number);
  snprintf(words, sizeof words, "there is no op \"%s\"", name);
  for (int i = 0; i < 200; ++i) {
    Gather g;
    DLManagedTensor* output = NULL;
    gather_init(&g);
    if (gradloom_run(w->runtime, name, g.inputs, 3, NULL, NULL, &output, 1) != GRADLOOM_UNSUPPORTED) ++w->wrong;
    if (gradloom_call(w->executable, g.inputs, 3, g.outputs, 1) != GRADLOOM_OK || !gather_right(g.dx, 1)) ++w->wrong;
    if (gradloom_run(w->runtime, "GatherGrad", g.inputs, 3, NULL, NULL, &output, 1) != GRADLOOM_OK ||
        !gather_right((const float*)output->dl_tensor.data, 1))
      ++w->wrong;
    if (output) output->deleter(output);
    if (!strstr(gradloom_last_error(), words)) ++w->wrong; /* each thread has its own */
  }
  return NULL;
}

static void threads(gradloom_runtime* runtime) {
  enum { count = 4 };
  pthread_t thread[count];
  Worker workers[count];
  gradloom_executable* executable = NULL;
  Gather g;
  gather_init(&g);
  CHECK(gradloom_compile(runtime, "GatherGrad", g.inputs, 3, NULL, NULL, &executable) == GRADLOOM_OK);
  for (int t = 0; t < count; ++t) {
    const Worker w = {runtime, executable, t, 0};
    workers[t] = w;
    pthread_create(&thread[t], NULL, work, &workers[t]);
  }
  for (int t = 0; t < count; ++t) {
    pthread_join(thread[t], NULL);
    CHECK(workers[t].wrong == 0);
  }
  gradloom_executable_destroy(executable);
}

static void count_lines(void* context, gradloom_log_level level, const char* message) {
  *(int*)context += level == GRADLOOM_LOG_WARN && strstr(message, "dump: cannot make the folder") != NULL;
}

/* Outputs and handles outlive the runtime; a dump that cannot be written is a line in the log. */
static void lifetimes(void) {
  gradloom_runtime* runtime = NULL;
  gradloom_runtime_options options;
  gradloom_executable* executable = NULL;
  DLManagedTensor* output = NULL;
  Gather g;
  int lines = 0;
  gather_init(&g);
  CHECK(gradloom_set_log_sink(count_lines, &lines) == GRADLOOM_OK);
  CHECK(gradloom_runtime_options_init(&options) == GRADLOOM_OK);
  options.target = GRADLOOM_TARGET_INTERPRETER, options.threads = 1, options.dump_folder = "/dev/null/no";
  CHECK(gradloom_runtime_create(&options, &runtime) == GRADLOOM_OK);
  CHECK(gradloom_compile(runtime, "GatherGrad", g.inputs, 3, NULL, NULL, &executable) == GRADLOOM_OK);
  CHECK(lines == 1);
  CHECK(gradloom_set_log_sink(NULL, NULL) == GRADLOOM_OK);
  CHECK(gradloom_run(runtime, "GatherGrad", g.inputs, 3, NULL, NULL, &output, 1) == GRADLOOM_OK);
  gradloom_runtime_destroy(runtime);
  CHECK(gradloom_call(executable, g.inputs, 3, g.outputs, 1) == GRADLOOM_OK && gather_right(g.dx, 1));
  gradloom_executable_destroy(executable);
  CHECK(output && gather_right((const float*)output->dl_tensor.data, 1));
  if (output) output->deleter(output);
}

int main(void) {
  gradloom_runtime* runtime = NULL;
#if defined(__SSE__)
  _MM_SET_EXCEPTION_MASK(0); /* a host that traps every floating-point exception: no entry may raise one */
#endif
  CHECK(strcmp(gradloom_last_error(), "") == 0);
  CHECK(gradloom_runtime_create(NULL, &runtime) == GRADLOOM_OK);
  if (!runtime) return 1;
  results(runtime);
  errors(runtime);
  nulls(runtime);
  threads(runtime);
  gradloom_runtime_destroy(runtime);
  lifetimes();
  return failures != 0;
}
