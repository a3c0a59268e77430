/* A host whose threads call while it ends, forks or unloads: life_host SCENARIO MILLISECONDS [LIBRARY]. Linked to the
 * library, shared or as an archive, or (LIFE_DLOPEN) loading LIBRARY. The exit code of a run that went well is 7, or
 * 0 for "unload"; a scenario whose end is a signal ends by it. life_test.cpp runs it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <gradloom/gradloom.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { well = 7, callers = 4, features = 16, most_rows = 64 };

#ifdef LIFE_DLOPEN
static void* library;
#define USE(name) ((__typeof__(&name))dlsym(library, #name))
#else
#define USE(name) (&name)
#endif
#define FAIL(...) (fprintf(stderr, "life_host: " __VA_ARGS__), _exit(1))

static gradloom_runtime* runtime;
static volatile int stop, ends, rests;

static void load(const char* path) {
#ifdef LIFE_DLOPEN
  library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) FAIL("%s\n", dlerror());
#else
  (void)path;
#endif
}

static gradloom_runtime* create(int policy) {
  gradloom_runtime_options options;
  gradloom_runtime* made = NULL;
  if (USE(gradloom_runtime_options_init_sized)(&options, sizeof options)) FAIL("no options\n");
  options.threads = 2;
  options.policy = policy;
  options.specialise_after = 1;
  if (USE(gradloom_runtime_create)(&options, &made) && !ends) FAIL("no runtime: %s\n", USE(gradloom_last_error)());
  return made;
}

/* GatherGrad: `rows` ones into row 0 of 2; whether it was right. */
static int call_once(gradloom_runtime* on, int64_t rows) {
  static int64_t indices[most_rows];
  static float ones[most_rows * features];
  int64_t shape[] = {2, features}, two[] = {2}, many[] = {rows}, upstream[] = {rows, features};
  const DLDataType f32 = {kDLFloat, 32, 1}, i64 = {kDLInt, 64, 1};
  for (int i = 0; i < features; ++i) ones[i] = 1; /* the same value by every thread: only row 0 is not zero */
  const DLTensor shape_tensor = {.data = shape, .device = {kDLCPU, 0}, .ndim = 1, .dtype = i64, .shape = two};
  const DLTensor index_tensor = {.data = indices, .device = {kDLCPU, 0}, .ndim = 1, .dtype = i64, .shape = many};
  const DLTensor ones_tensor = {.data = ones, .device = {kDLCPU, 0}, .ndim = 2, .dtype = f32, .shape = upstream};
  const DLTensor* inputs[] = {&shape_tensor, &index_tensor, &ones_tensor};
  DLManagedTensor* gradient = NULL;
  if (!on || USE(gradloom_run)(on, "GatherGrad", inputs, 3, NULL, NULL, &gradient, 1)) return 0;
  const float* values = (const float*)gradient->dl_tensor.data;
  const int right = values[0] == 1 && values[features - 1] == 1 && values[features] == 0;
  gradient->deleter(gradient);
  return right;
}

static void sleep_ms(int ms) {
  const struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
  nanosleep(&time, NULL);
}

static void* calls(void* unused) {
  for (int64_t rows = 1; !stop; rows = rows % most_rows + 1) {
    pthread_testcancel();
    while (rests && !stop) sleep_ms(1);
    if (!call_once(runtime, rows) && !ends) FAIL("a wrong gradient: %s\n", USE(gradloom_last_error)());
  }
  return unused;
}

static void late_call(void) {
  call_once(runtime, 3);
  call_once(runtime, 70 % most_rows + 1);
  gradloom_runtime* const late = create(GRADLOOM_POLICY_SPECIALISE);
  call_once(late, 5);
  USE(gradloom_runtime_destroy)(late);
}

static int calls_when_destroyed;
__attribute__((destructor)) static void destroyed(void) {
  if (calls_when_destroyed) late_call();
}

static void* exits(void* unused) {
  ends = 1;
  exit(well);
  return unused;
}
static void leaves(int signal) {
  (void)signal;
  _exit(well);
}

/* A child calls while the parent's threads do. */
static void child_calls(void) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    stop = 1;
    int right = call_once(runtime, 3);
    for (int64_t rows = 20; rows < 22; ++rows) right = right && call_once(runtime, rows);
    gradloom_runtime* const fresh = create(GRADLOOM_POLICY_GENERIC_FIRST);
    right = right && call_once(fresh, 4);
    USE(gradloom_wait_for_background)(fresh);
    USE(gradloom_runtime_destroy)(fresh);
    USE(gradloom_wait_for_background)(runtime);
    USE(gradloom_runtime_destroy)(runtime);
    exit(right ? 0 : 1);
  }
  int status = -1;
  rests = 1; /* leaving the processors to the child */
  if (child < 0 || waitpid(child, &status, 0) != child) FAIL("no child: %s\n", strerror(errno));
  rests = 0;
  if (status) FAIL("the child: status %d\n", status);
}

/* As a user that root's rights do not help, with no thread to be had. */
static void starve_of_threads(void) {
  const struct rlimit one = {1, 1};
  if (getuid() == 0 && (setgid(65534) || setuid(65534))) FAIL("cannot become another user\n");
  if (setrlimit(RLIMIT_NPROC, &one)) FAIL("no limit: %s\n", strerror(errno));
  pthread_t thread;
  if (!pthread_create(&thread, NULL, exits, NULL)) FAIL("a thread was made\n");
}

static void starve_of_memory(int mebibytes) {
  char line[4096];
  unsigned long pages = 0;
  FILE* const file = fopen("/proc/self/statm", "r");
  if (!file || !fgets(line, sizeof line, file) || sscanf(line, "%lu", &pages) != 1) FAIL("no statm\n");
  fclose(file);
  const rlim_t bytes = pages * (unsigned long)sysconf(_SC_PAGESIZE) + (rlim_t)mebibytes * (1 << 20);
  const struct rlimit limit = {bytes, bytes};
  if (setrlimit(RLIMIT_AS, &limit)) FAIL("no limit: %s\n", strerror(errno));
}

/* SliceGrad of all rows but the first, large enough for parallel loops. Compiled first, so that `between` comes before
 * the first of them; whether all was right. */
static int call_wide(gradloom_runtime* on, void (*between)(int), int argument) {
  enum { rows = 1 << 14, wide = 64 };
  static float ones[rows * wide], gradient[rows * wide];
  int64_t shape[] = {rows, wide}, window[] = {rows - 1, wide}, starts[] = {1}, ends_at[] = {rows}, one[] = {1},
          two[] = {2};
  const DLDataType f32 = {kDLFloat, 32, 1}, i64 = {kDLInt, 64, 1};
  for (int i = 0; i < rows * wide; ++i) ones[i] = 1;
  const DLTensor ones_tensor = {.data = ones, .device = {kDLCPU, 0}, .ndim = 2, .dtype = f32, .shape = window};
  const DLTensor shape_tensor = {.data = shape, .device = {kDLCPU, 0}, .ndim = 1, .dtype = i64, .shape = two};
  const DLTensor starts_tensor = {.data = starts, .device = {kDLCPU, 0}, .ndim = 1, .dtype = i64, .shape = one};
  const DLTensor ends_tensor = {.data = ends_at, .device = {kDLCPU, 0}, .ndim = 1, .dtype = i64, .shape = one};
  const DLTensor* inputs[] = {&ones_tensor, &shape_tensor, &starts_tensor, &ends_tensor};
  DLTensor gradient_tensor = {.data = gradient, .device = {kDLCPU, 0}, .ndim = 2, .dtype = f32, .shape = shape};
  DLTensor* outputs[] = {&gradient_tensor};
  gradloom_executable* handle;
  if (USE(gradloom_compile)(on, "SliceGrad", inputs, 4, NULL, NULL, &handle)) return 0;
  if (between) between(argument);
  int right = 1;
  for (int calls = 0; calls < 3 && right; ++calls) {
    memset(gradient, 0xff, sizeof gradient);
    right = !USE(gradloom_call)(handle, inputs, 4, outputs, 1);
    for (int i = 0; i < rows * wide && right; ++i) right = gradient[i] == (i < wide ? 0 : 1);
  }
  USE(gradloom_executable_destroy)(handle);
  return right;
}

static void join(pthread_t* threads, int count) {
  stop = 1;
  for (int i = 0; i < count; ++i) pthread_join(threads[i], NULL);
  stop = 0;
}

/* Thread after thread is cancelled, in whatever it does, while the others go on. */
static void cancel_callers(void) {
  pthread_t threads[callers];
  void* ended;
  for (int i = 0; i < callers; ++i) pthread_create(&threads[i], NULL, calls, NULL);
  for (int round = 0; round < 40; ++round) {
    pthread_t* const one = &threads[round % callers];
    sleep_ms(round % 5);
    if (pthread_cancel(*one) || pthread_join(*one, &ended)) FAIL("not cancelled\n");
    pthread_create(one, NULL, calls, NULL);
  }
  join(threads, callers);
}

static void* calls_wide(void* unused) {
  if (!call_wide(runtime, NULL, 0)) FAIL("not right: %s\n", USE(gradloom_last_error)());
  return unused;
}

static void* calls_once(void* kibibytes) {
  if (!call_once(runtime, 9) && (!strstr(USE(gradloom_last_error)(), "stack") || *(int*)kibibytes >= 128))
    FAIL("%d KiB: %s\n", *(int*)kibibytes, USE(gradloom_last_error)());
  return NULL;
}

/* Each stack size gets a kernel of its own to build; whether a stack of 128 KiB or more sufficed. */
static void call_on_small_stacks(void) {
  for (int kibibytes = 32; kibibytes <= 256; kibibytes += 8) {
    pthread_attr_t attributes;
    pthread_t thread;
    runtime = create(GRADLOOM_POLICY_SPECIALISE);
    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, (size_t)kibibytes << 10)) FAIL("no stack\n");
    if (pthread_create(&thread, &attributes, calls_once, &kibibytes)) FAIL("no thread\n");
    pthread_join(thread, NULL);
    USE(gradloom_runtime_destroy)(runtime);
  }
}

int main(int count, char** words) {
  if (count < 3) FAIL("usage: life_host SCENARIO MILLISECONDS [LIBRARY]\n");
  const char* const scenario = words[1];
  const int ms = atoi(words[2]);
  const char* const path = count > 3 ? words[3] : NULL;
  pthread_t threads[callers], wide;
  const int unloads = !strcmp(scenario, "unload"), idle = !strcmp(scenario, "idle");

  /* Neither this thread nor one that lives on ever calls. */
  for (int round = 0; unloads && round < 3; ++round) {
    load(path);
    runtime = create(GRADLOOM_POLICY_GENERIC_FIRST);
    for (int i = 0; i < callers; ++i) pthread_create(&threads[i], NULL, calls, NULL);
    pthread_create(&wide, NULL, calls_wide, NULL);
    sleep_ms(ms);
    pthread_join(wide, NULL);
    join(threads, callers);
    USE(gradloom_runtime_destroy)(runtime);
#ifdef LIFE_DLOPEN
    if (dlclose(library)) FAIL("%s\n", dlerror());
#endif
  }
  if (unloads) return 0;

  if (!strcmp(scenario, "atexit")) atexit(late_call);
  calls_when_destroyed = !strcmp(scenario, "destructor");
  load(path);
  if (!strcmp(scenario, "small-stack")) return call_on_small_stacks(), well;
  if (!strcmp(scenario, "no-threads")) starve_of_threads();
  runtime = create(GRADLOOM_POLICY_GENERIC_FIRST);
  if (!strcmp(scenario, "no-threads")) {
    if (!call_wide(runtime, NULL, 0)) FAIL("not right: %s\n", USE(gradloom_last_error)());
    USE(gradloom_wait_for_background)(runtime);
    USE(gradloom_runtime_destroy)(runtime);
    return well;
  }
  if (!strcmp(scenario, "little-memory")) {
    if (!call_wide(runtime, starve_of_memory, ms) && !strstr(USE(gradloom_last_error)(), "memory"))
      FAIL("neither right nor out of memory: %s\n", USE(gradloom_last_error)());
    USE(gradloom_runtime_destroy)(runtime);
    return well;
  }
  if (!strcmp(scenario, "cancel")) {
    cancel_callers();
    USE(gradloom_runtime_destroy)(runtime);
    return well;
  }
  if (!strcmp(scenario, "atexit-after")) atexit(late_call);
  if (idle) { /* only the background compiles */
    for (int64_t rows = 1; rows < 12; ++rows) call_once(runtime, rows);
  } else {
    for (int i = 0; i < callers; ++i) pthread_create(&threads[i], NULL, calls, NULL);
  }
  if (!strcmp(scenario, "fork")) {
    for (int forks = 0; forks < 3; ++forks) {
      sleep_ms(ms / 3);
      child_calls();
    }
  } else {
    sleep_ms(ms);
  }
  ends = 1;
  if (!strcmp(scenario, "exit-thread")) {
    pthread_create(&threads[0], NULL, exits, NULL);
    for (;;) pause();
  }
  if (!strcmp(scenario, "exit")) exit(well);
  if (!strcmp(scenario, "_exit")) _exit(well);
  if (!strcmp(scenario, "quick_exit")) quick_exit(well);
  if (!strcmp(scenario, "abort")) abort();
  if (!strcmp(scenario, "abort-handler")) signal(SIGABRT, leaves), abort();
  if (!strcmp(scenario, "term-handler")) signal(SIGTERM, leaves), kill(getpid(), SIGTERM), sleep_ms(60000);
  if (!strcmp(scenario, "term")) kill(getpid(), SIGTERM), sleep_ms(60000);
  return well;
}
