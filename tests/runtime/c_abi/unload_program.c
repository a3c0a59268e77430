/* Loads the shared library, runs kernels on several threads, unloads it, many times over: each time it must be gone
 * from this process, with its threads, and after all of them no memory may be missing. A thread of this program that
 * was in a call lives on throughout. */
#include <dirent.h>
#include <dlfcn.h>
#include <gradloom/gradloom.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { rows = 4096, features = 64, rounds = 260, settled = 60 };

#define FIND(library, name) ((__typeof__(&name))dlsym(library, #name))
#define FAIL(...) (fprintf(stderr, __VA_ARGS__), exit(1))

static int64_t shape[] = {rows, features}, indices[rows], two[] = {2}, many[] = {rows};
static float upstream[rows * features];

static gradloom_runtime* create(void* library) {
  gradloom_runtime_options options;
  gradloom_runtime* runtime;
  if (FIND(library, gradloom_runtime_options_init_sized)(&options, sizeof options)) FAIL("no options\n");
  options.threads = 2;
  if (FIND(library, gradloom_runtime_create)(&options, &runtime))
    FAIL("no runtime: %s\n", FIND(library, gradloom_last_error)());
  return runtime;
}

/* The gradient of a gather whose tokens are the even rows, each twice. */
static void run(void* library, gradloom_runtime* runtime, int thread) {
  const DLDataType f32 = {kDLFloat, 32, 1}, i64 = {kDLInt, 64, 1};
  const DLTensor shape_tensor = {.data = shape, .device = {kDLCPU, 0}, .ndim = 1, .dtype = i64, .shape = two};
  const DLTensor indices_tensor = {.data = indices, .device = {kDLCPU, 0}, .ndim = 1, .dtype = i64, .shape = many};
  const DLTensor upstream_tensor = {.data = upstream, .device = {kDLCPU, 0}, .ndim = 2, .dtype = f32, .shape = shape};
  const DLTensor* inputs[] = {&shape_tensor, &indices_tensor, &upstream_tensor};
  for (int call = 0; call < 3; ++call) {
    DLManagedTensor* gradient;
    if (FIND(library, gradloom_run)(runtime, "GatherGrad", inputs, 3, NULL, NULL, &gradient, 1))
      FAIL("no gradient: %s\n", FIND(library, gradloom_last_error)());
    const float* values = (const float*)gradient->dl_tensor.data;
    for (int i = 0; i < rows * features; ++i)
      if (values[i] != (i / features % 2 ? 0.0f : 2.0f)) FAIL("thread %d: a wrong gradient\n", thread);
    gradient->deleter(gradient);
  }
  /* An error's message is kept a thread. */
  if (!FIND(library, gradloom_run)(runtime, "NoSuchOp", inputs, 3, NULL, NULL, NULL, 0)) FAIL("no error\n");
}

static void* library;
static gradloom_runtime* given; /* to the other thread; none: it makes its own */
static sem_t go, done;
static int over;
static void* other_thread(void* unused) {
  for (;;) {
    sem_wait(&go);
    if (over) return unused;
    gradloom_runtime* const runtime = given ? given : create(library);
    run(library, runtime, 1);
    if (!given) FIND(library, gradloom_runtime_destroy)(runtime);
    sem_post(&done);
  }
}

static void load(const char* path) {
  library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) FAIL("%s\n", dlerror());
}

static int threads_now(void) {
  int count = 0;
  DIR* folder = opendir("/proc/self/task");
  for (const struct dirent* entry; (entry = readdir(folder));) count += entry->d_name[0] != '.';
  closedir(folder);
  return count;
}

/* The first mapping whose line holds the text. */
static int mapped(const char* text, char* line, int bytes) {
  FILE* maps = fopen("/proc/self/maps", "r");
  int found = 0;
  while (!found && fgets(line, bytes, maps)) found = strstr(line, text) != NULL;
  fclose(maps);
  return found;
}

static void unload(int round) {
  char line[1024];
  if (dlclose(library)) FAIL("%s\n", dlerror());
  if (mapped("libgradloom", line, sizeof line)) FAIL("round %d: it is still mapped: %s", round, line);
}

int main(int count, char** words) {
  pthread_t thread;
  size_t before = 0;
  long most = 0;
  if (count != 2) FAIL("usage: unload LIBRARY\n");
  for (int i = 0; i < rows; ++i) indices[i] = i / 2 * 2;
  for (int i = 0; i < rows * features; ++i) upstream[i] = 1;
  sem_init(&go, 0, 0), sem_init(&done, 0, 0);
  pthread_create(&thread, NULL, other_thread, NULL);
  const int threads_before = threads_now();
  for (int round = 0; round < rounds; ++round) {
    load(words[1]);
    gradloom_runtime* const runtime = create(library);
    run(library, runtime, 0);
    FIND(library, gradloom_runtime_destroy)(runtime);
    sem_post(&go), sem_wait(&done);
    unload(round);
    if (round == settled) before = mallinfo2().uordblks + mallinfo2().hblkhd;
    for (int wait = 0; threads_now() > threads_before && wait < 1000; ++wait) sched_yield();
    if (threads_now() > threads_before) FAIL("round %d: %d threads, %d before\n", round, threads_now(), threads_before);
  }
  most = (long)(mallinfo2().uordblks + mallinfo2().hblkhd) - (long)before;
  printf("%d times loaded and unloaded; heap in use grew by %ld bytes in the last %d\n", rounds, most,
         rounds - 1 - settled);
  /* A thread that was in a call and did not destroy the runtime leaves nothing behind either. */
  for (int round = 0; round < settled; ++round) {
    load(words[1]);
    given = create(library);
    sem_post(&go), sem_wait(&done);
    run(library, given, 0);
    FIND(library, gradloom_runtime_destroy)(given);
    unload(round);
  }
  over = 1, sem_post(&go), pthread_join(thread, NULL);
  return most > 128 * (rounds - 1 - settled); /* the allocator's own unrest; what leaks a load shows */
}
