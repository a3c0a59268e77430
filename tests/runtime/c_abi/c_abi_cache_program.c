/* A C program over gradloom.h's caches: on disk, saved calls, policies; and options of other versions of the header. */
#include <stddef.h>
#include <stdlib.h>

#include "c_abi_harness.h"
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

/* A folder of this test's own under `path`, which must hold 64 bytes. */
static void make_folder(char* path) {
  const char* base = getenv("TMPDIR");
  snprintf(path, 64, "%.40s/gradloom-c-XXXXXX", base && strlen(base) <= 40 ? base : "/tmp");
  CHECK(mkdtemp(path) != NULL);
}

static void remove_folder(const char* path) {
  char command[96];
  snprintf(command, sizeof command, "rm -r '%s'", path);
  CHECK(system(command) == 0);
}

static int stats_hold(gradloom_runtime* runtime, const char* words) {
  char* text = NULL;
  int held = 0;
  CHECK(gradloom_stats_json(runtime, &text) == GRADLOOM_OK);
  held = text && strstr(text, words) != NULL;
  if (!held) fprintf(stderr, "no %s in %s\n", words, text ? text : "nothing");
  gradloom_string_free(text);
  return held;
}

static int compiles_code(gradloom_runtime* runtime) {
  char* name = NULL;
  CHECK(gradloom_target_name(runtime, &name) == GRADLOOM_OK);
  const int llvm = name && strncmp(name, "llvm", 4) == 0;
  gradloom_string_free(name);
  return llvm;
}

/* A cache on disk serves another runtime, from its own folder and as a read-only one; what a job needed is saved and
 * made ready by the next. */
static void caches(void) {
  char folder[64], other[64];
  const char* read_only[1];
  gradloom_runtime *first = NULL, *second = NULL, *third = NULL;
  gradloom_runtime_options options;
  gradloom_prewarm_report report;
  void* bytes = NULL;
  uint64_t size = 0;
  Gather g;
  gather_init(&g);
  make_folder(folder), make_folder(other);
  CHECK(gradloom_runtime_options_init(&options) == GRADLOOM_OK);
  options.threads = 1, options.disk_cache = folder;
  CHECK(gradloom_runtime_create(&options, &first) == GRADLOOM_OK);
  CHECK(gradloom_run_into(first, "GatherGrad", g.inputs, 3, NULL, NULL, g.outputs, 1) == GRADLOOM_OK &&
        gather_right(g.dx, 1));
  CHECK(gradloom_save_calls(first, &bytes, &size) == GRADLOOM_OK && bytes && size > 0);
  CHECK(stats_hold(first, "\"compiles\":1,") && stats_hold(first, "\"disk_miss_parts\":{"));

  CHECK(gradloom_runtime_create(&options, &second) == GRADLOOM_OK);
  CHECK(gradloom_prewarm(second, bytes, size, &report) == GRADLOOM_OK);
  CHECK(report.ready == 1 && report.failed == 0 && strcmp(report.first_failure, "") == 0);
  CHECK(gradloom_run_into(second, "GatherGrad", g.inputs, 3, NULL, NULL, g.outputs, 1) == GRADLOOM_OK &&
        gather_right(g.dx, 1));
  CHECK(stats_hold(second, "\"hits\":1,\"misses\":1,"));
  if (compiles_code(second))
    CHECK(report.compiled == 0 && stats_hold(second, "\"compiles\":0,") && stats_hold(second, "\"disk_hits\":1,"));

  read_only[0] = folder;
  options.disk_cache = other, options.disk_cache_read_only = read_only, options.disk_cache_read_only_count = 1;
  CHECK(gradloom_runtime_create(&options, &third) == GRADLOOM_OK);
  CHECK(gradloom_run_into(third, "GatherGrad", g.inputs, 3, NULL, NULL, g.outputs, 1) == GRADLOOM_OK &&
        gather_right(g.dx, 1));
  if (compiles_code(third)) CHECK(stats_hold(third, "\"compiles\":0,"));

  ((char*)bytes)[size / 2] ^= 1;
  REFUSED(gradloom_prewarm(second, bytes, size, &report), GRADLOOM_INVALID_ARGUMENT, "saved calls: ");
  REFUSED(gradloom_prewarm(second, bytes, 3, NULL), GRADLOOM_INVALID_ARGUMENT, "saved calls: ");
  REFUSED(gradloom_prewarm(second, NULL, size, NULL), GRADLOOM_INVALID_ARGUMENT, "bytes is null");
  REFUSED(gradloom_prewarm(NULL, bytes, size, NULL), GRADLOOM_INVALID_ARGUMENT, "runtime is null");
  gradloom_bytes_free(bytes);
  REFUSED(gradloom_save_calls(NULL, &bytes, &size), GRADLOOM_INVALID_ARGUMENT, "runtime is null");
  REFUSED(gradloom_save_calls(first, NULL, &size), GRADLOOM_INVALID_ARGUMENT, "bytes is null");
  REFUSED(gradloom_save_calls(first, &bytes, NULL), GRADLOOM_INVALID_ARGUMENT, "size is null");
  REFUSED(gradloom_wait_for_background(NULL), GRADLOOM_INVALID_ARGUMENT, "runtime is null");
  gradloom_runtime_destroy(first), gradloom_runtime_destroy(second), gradloom_runtime_destroy(third);
  remove_folder(folder), remove_folder(other);
}

/* The any-shape kernel answers, until a shape that comes often has its own. */
static void policies(void) {
  gradloom_runtime* runtime = NULL;
  gradloom_runtime_options options;
  gradloom_run_options run;
  Gather g;
  gather_init(&g);
  CHECK(gradloom_runtime_options_init(&options) == GRADLOOM_OK);
  options.threads = 1, options.policy = GRADLOOM_POLICY_GENERIC_FIRST, options.specialise_after = 3,
  options.specialisations = 1, options.compile_threads = 1;
  CHECK(gradloom_runtime_create(&options, &runtime) == GRADLOOM_OK);
  for (int i = 0; i < 8; ++i)
    CHECK(gradloom_run_into(runtime, "GatherGrad", g.inputs, 3, NULL, NULL, g.outputs, 1) == GRADLOOM_OK &&
          gather_right(g.dx, 1));
  CHECK(gradloom_wait_for_background(runtime) == GRADLOOM_OK);
  CHECK(stats_hold(runtime, "\"specialised\":1,") && stats_hold(runtime, "\"live_specialisations\":1,"));
  gradloom_runtime_destroy(runtime);

  options.policy = GRADLOOM_POLICY_DEFAULT; /* and a single call asks for the other */
  CHECK(gradloom_runtime_create(&options, &runtime) == GRADLOOM_OK);
  CHECK(gradloom_run_options_init(&run) == GRADLOOM_OK && run.policy == GRADLOOM_POLICY_DEFAULT);
  CHECK(gradloom_run_into(runtime, "GatherGrad", g.inputs, 3, NULL, &run, g.outputs, 1) == GRADLOOM_OK &&
        stats_hold(runtime, "\"generic_calls\":0,"));
  run.policy = GRADLOOM_POLICY_GENERIC_FIRST, run.accumulate = 1;
  CHECK(gradloom_run_into(runtime, "GatherGrad", g.inputs, 3, NULL, &run, g.outputs, 1) == GRADLOOM_OK &&
        gather_right(g.dx, 2));
  CHECK(stats_hold(runtime, "\"generic_calls\":1,"));
  run.policy = 3;
  REFUSED(gradloom_run_into(runtime, "GatherGrad", g.inputs, 3, NULL, &run, g.outputs, 1), GRADLOOM_INVALID_ARGUMENT,
          "policy is 3, allowed are 0 to 2");
  gradloom_runtime_destroy(runtime);
}

/* Options of an older header end earlier, those of a newer one later. */
static void versions(void) {
  struct {
    gradloom_runtime_options known;
    int64_t more[4];
  } newer;
  gradloom_runtime_options options;
  gradloom_runtime* runtime = NULL;
  const uint64_t older = offsetof(gradloom_runtime_options, disk_cache);
  const uint64_t second = offsetof(gradloom_runtime_options, parallel_for);
  const uint64_t third = offsetof(gradloom_runtime_options, tuning_log);
  const char* const folders[1] = {NULL};
  memset(&options, 0x55, sizeof options);
  CHECK(gradloom_runtime_options_init_sized(&options, older) == GRADLOOM_OK && options.size == older &&
        options.policy == 0x55555555);
  CHECK(gradloom_runtime_create(&options, &runtime) == GRADLOOM_OK); /* what lies beyond its size is not read */
  gradloom_runtime_destroy(runtime);
  CHECK(gradloom_runtime_options_init_sized(&options, second) == GRADLOOM_OK &&
        gradloom_runtime_create(&options, &runtime) == GRADLOOM_OK);
  gradloom_runtime_destroy(runtime);
  CHECK(gradloom_runtime_options_init_sized(&options, third) == GRADLOOM_OK &&
        gradloom_runtime_create(&options, &runtime) == GRADLOOM_OK);
  gradloom_runtime_destroy(runtime);
  REFUSED(gradloom_runtime_options_init_sized(&options, older - 1), GRADLOOM_INVALID_ARGUMENT, "size is ");
  /* A size that ends amid a member, as half a pointer, is no header's. */
  for (uint64_t size = older + 1; size < sizeof options; ++size) {
    if (size == second || size == third) continue;
    REFUSED(gradloom_runtime_options_init_sized(&options, size), GRADLOOM_INVALID_ARGUMENT, "size is ");
    CHECK(gradloom_runtime_options_init(&options) == GRADLOOM_OK);
    options.disk_cache = "off", options.size = size;
    REFUSED(gradloom_runtime_create(&options, &runtime), GRADLOOM_INVALID_ARGUMENT, "options.size is ");
  }
  REFUSED(gradloom_runtime_options_init_sized(&options, 1 << 20), GRADLOOM_INVALID_ARGUMENT, "size is 1048576");
  CHECK(gradloom_runtime_options_init_sized(&newer.known, sizeof newer) == GRADLOOM_OK && newer.more[3] == 0);
  CHECK(gradloom_runtime_create(&newer.known, &runtime) == GRADLOOM_OK);
  gradloom_runtime_destroy(runtime);
  CHECK(gradloom_runtime_options_init(&options) == GRADLOOM_OK);
  options.disk_cache_bytes = -1;
  REFUSED(gradloom_runtime_create(&options, &runtime), GRADLOOM_INVALID_ARGUMENT, "disk_cache_bytes is -1");
  gradloom_runtime_options_init(&options);
  options.tuning = 3;
  REFUSED(gradloom_runtime_create(&options, &runtime), GRADLOOM_INVALID_ARGUMENT, "tuning is 3, allowed are 0 to 2");
  gradloom_runtime_options_init(&options);
  options.tuning = GRADLOOM_TUNING_USE, options.tuning_log = "/no/such/tuning.log"; /* as good as an empty one */
  CHECK(gradloom_runtime_create(&options, &runtime) == GRADLOOM_OK);
  gradloom_runtime_destroy(runtime);
  gradloom_runtime_options_init(&options);
  options.specialise_after = 0;
  REFUSED(gradloom_runtime_create(&options, &runtime), GRADLOOM_INVALID_ARGUMENT, "specialise_after is 0");
  gradloom_runtime_options_init(&options);
  options.disk_cache_read_only_count = 1;
  REFUSED(gradloom_runtime_create(&options, &runtime), GRADLOOM_INVALID_ARGUMENT,
          "options.disk_cache_read_only is null");
  options.disk_cache_read_only = folders;
  REFUSED(gradloom_runtime_create(&options, &runtime), GRADLOOM_INVALID_ARGUMENT,
          "options.disk_cache_read_only[0] is null");
  gradloom_runtime_options_init(&options);
  options.policy = -1;
  REFUSED(gradloom_runtime_create(&options, &runtime), GRADLOOM_INVALID_ARGUMENT, "policy is -1");
}

int main(void) {
#if defined(__SSE__)
  _MM_SET_EXCEPTION_MASK(0); /* as a host that traps every floating-point exception */
#endif
  caches();
  policies();
  versions();
  return failures != 0;
}
