// Linked into every test: the disk cache is off unless a test enables it, so that compiles can be counted and no home
// folder is written to.
#include <cstdlib>

namespace {
[[maybe_unused]] const int off = setenv("GRADLOOM_CACHE_DIR", "off", 0) | unsetenv("GRADLOOM_CACHE_READONLY");
}
