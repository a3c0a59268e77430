// Linked into every test: the disk cache is off unless a test asks for one, so that compiles can be counted and
// nobody's home is written to.
#include <cstdlib>

namespace {
[[maybe_unused]] const int off = setenv("GRADLOOM_CACHE_DIR", "off", 0) | unsetenv("GRADLOOM_CACHE_READONLY");
}
