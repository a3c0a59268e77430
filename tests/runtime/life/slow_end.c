/* Another library of the process, whose destructor takes its time: what a host's own libraries and tools do. */
#include <time.h>

__attribute__((destructor)) static void ends(void) {
  const struct timespec time = {0, 300 * 1000000L};
  nanosleep(&time, NULL);
}
