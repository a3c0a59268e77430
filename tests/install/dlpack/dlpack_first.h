// The official header, then gradloom's: its structs are used.
#include "dlpack.h"
#include <gradloom/gradloom.h>
gradloom_status first(gradloom_runtime* runtime, const DLTensor* x);
gradloom_status first(gradloom_runtime* runtime, const DLTensor* x) {
  DLManagedTensor* y;
  return gradloom_run(runtime, "Op", &x, 1, NULL, NULL, &y, 1);
}
