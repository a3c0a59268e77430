/* A host's runtime as a client: it asks for the output's shape, allocates the memory itself, and lends its own threads.
 * The gradient of an embedding lookup, 4096 tokens of a vocabulary of 1000. */
#include <gradloom/gradloom.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* The host's pool: threads that live as long as it does and take chunks of one loop at a time. */
enum { workers = 3, chunk = 1 };
typedef struct {
  pthread_mutex_t mutex;
  pthread_cond_t work, done;
  pthread_t threads[workers];
  gradloom_body body;
  void* env;
  int64_t next, end; /* iterations that nobody has taken */
  int running, stop;
  long loops;
} Pool;

/* Requires the lock, and keeps it between chunks. */
static void take_chunks(Pool* pool) {
  while (pool->next < pool->end) {
    const int64_t begin = pool->next;
    const int64_t end = begin + chunk < pool->end ? begin + chunk : pool->end;
    gradloom_body body = pool->body;
    void* env = pool->env;
    pool->next = end;
    ++pool->running;
    pthread_mutex_unlock(&pool->mutex);
    body(env, begin, end);
    pthread_mutex_lock(&pool->mutex);
    if (--pool->running == 0) pthread_cond_broadcast(&pool->done);
  }
}

static void* worker(void* argument) {
  Pool* pool = (Pool*)argument;
  pthread_mutex_lock(&pool->mutex);
  while (!pool->stop) {
    take_chunks(pool);
    pthread_cond_wait(&pool->work, &pool->mutex);
  }
  pthread_mutex_unlock(&pool->mutex);
  return NULL;
}

/* A gradloom_parallel_for; this host makes one call at a time. */
static void run_in_pool(void* context, int64_t n, gradloom_body body, void* env) {
  Pool* pool = (Pool*)context;
  pthread_mutex_lock(&pool->mutex);
  pool->body = body, pool->env = env, pool->next = 0, pool->end = n;
  ++pool->loops;
  pthread_cond_broadcast(&pool->work);
  take_chunks(pool);
  while (pool->running > 0) pthread_cond_wait(&pool->done, &pool->mutex);
  pthread_mutex_unlock(&pool->mutex);
}

static DLTensor tensor(void* data, DLDataType dtype, int32_t ndim, int64_t* shape) {
  const DLTensor t = {.data = data, .device = {kDLCPU, 0}, .ndim = ndim, .dtype = dtype, .shape = shape};
  return t;
}

static void require(gradloom_status status) {
  if (status == GRADLOOM_OK) return;
  fprintf(stderr, "%s: %s\n", gradloom_status_name(status), gradloom_last_error());
  exit(1);
}

int main(void) {
  Pool pool = {.mutex = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};
  for (int w = 0; w < workers; ++w) pthread_create(&pool.threads[w], NULL, worker, &pool);

  gradloom_runtime_options options;
  gradloom_runtime* runtime;
  require(gradloom_runtime_options_init(&options));
  options.threads = workers + 1; /* that kernels are cut for */
  options.parallel_for = run_in_pool, options.parallel_for_context = &pool;
  require(gradloom_runtime_create(&options, &runtime));

  /* The op with its attributes, once; calls may then have any shapes. */
  gradloom_attributes* attributes;
  gradloom_prepared* gather_grad;
  require(gradloom_attributes_create(&attributes));
  require(gradloom_attributes_set_int(attributes, "axis", 0));
  require(gradloom_prepare(runtime, "GatherGrad", attributes, NULL, &gather_grad));
  gradloom_attributes_destroy(attributes);

  const int64_t rows = 1000, features = 64, tokens = 4096;
  int64_t shape[] = {rows, features}, shape_dims[] = {2}, tokens_dims[] = {tokens},
          upstream_dims[] = {tokens, features};
  int64_t* token = malloc(tokens * sizeof *token);
  float* upstream = malloc(tokens * features * sizeof *upstream);
  for (int64_t t = 0; t < tokens; ++t) token[t] = t % rows;
  for (int64_t i = 0; i < tokens * features; ++i) upstream[i] = 0.25f;
  const DLDataType f32 = {kDLFloat, 32, 1}, i64 = {kDLInt, 64, 1};
  const DLTensor shape_tensor = tensor(shape, i64, 1, shape_dims), token_tensor = tensor(token, i64, 1, tokens_dims),
                 upstream_tensor = tensor(upstream, f32, 2, upstream_dims);
  const DLTensor* inputs[] = {&shape_tensor, &token_tensor, &upstream_tensor};

  /* What it will give, and memory for that. */
  gradloom_output_info info;
  require(gradloom_prepared_infer_outputs(gather_grad, inputs, 3, &info, 1));
  int64_t elements = 1;
  for (int32_t d = 0; d < info.ndim; ++d) elements *= info.shape[d];
  float* gradient = malloc((size_t)elements * info.dtype.bits / 8);
  DLTensor gradient_tensor = tensor(gradient, info.dtype, info.ndim, info.shape);
  DLTensor* outputs[] = {&gradient_tensor};
  require(gradloom_prepared_run_into(gather_grad, inputs, 3, NULL, outputs, 1));

  /* Token t appears 5 times if t < 96, else 4 times. */
  int right = 1;
  for (int64_t i = 0; i < elements; ++i) right = right && gradient[i] == 0.25f * (i / features < 96 ? 5 : 4);
  printf("dX[%lld,%lld] in memory of the host, %ld loops in its pool: %s\n", (long long)info.shape[0],
         (long long)info.shape[1], pool.loops, right ? "right" : "wrong");

  gradloom_prepared_destroy(gather_grad);
  gradloom_runtime_destroy(runtime);
  pthread_mutex_lock(&pool.mutex);
  pool.stop = 1;
  pthread_cond_broadcast(&pool.work);
  pthread_mutex_unlock(&pool.mutex);
  for (int w = 0; w < workers; ++w) pthread_join(pool.threads[w], NULL);
  free(gradient), free(upstream), free(token);
  return right ? 0 : 1;
}
