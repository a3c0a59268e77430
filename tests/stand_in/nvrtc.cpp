// An NVRTC for machines without one: its "cubin" is the text, which the stand-in driver (cuda.cpp) runs on the host.
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {
struct Program {
  std::string text, log;
};
std::atomic<int> compiles{0};
const std::string& image_of(void* program) { return static_cast<Program*>(program)->text; }
}  // namespace

extern "C" {
// For the tests.
int stand_in_compiles() { return compiles; }

int nvrtcVersion(int* major, int* minor) {
  const char* const other = std::getenv("STAND_IN_NVRTC_MINOR");
  return *major = 13, *minor = other ? std::atoi(other) : 0, 0;
}
int nvrtcGetNumSupportedArchs(int* count) { return *count = 3, 0; }
int nvrtcGetSupportedArchs(int* list) { return list[0] = 80, list[1] = 90, list[2] = 100, 0; }
const char* nvrtcGetErrorString(int code) { return code ? "NVRTC_ERROR_COMPILATION" : "NVRTC_SUCCESS"; }
int nvrtcCreateProgram(void** program, const char* text, const char*, int, const char* const*, const char* const*) {
  return *program = new Program{text, {}}, 0;
}
int nvrtcDestroyProgram(void** program) { return delete static_cast<Program*>(*program), 0; }
int nvrtcCompileProgram(void*, int, const char* const*) { return ++compiles, 0; }
int nvrtcGetProgramLogSize(void*, size_t* bytes) { return *bytes = 1, 0; }
int nvrtcGetProgramLog(void*, char* text) { return *text = 0, 0; }
int nvrtcGetCUBINSize(void* program, size_t* bytes) { return *bytes = image_of(program).size(), 0; }
int nvrtcGetCUBIN(void* program, char* image) {
  return std::memcpy(image, image_of(program).data(), image_of(program).size()), 0;
}
int nvrtcGetPTXSize(void* program, size_t* bytes) { return nvrtcGetCUBINSize(program, bytes); }
int nvrtcGetPTX(void* program, char* image) { return nvrtcGetCUBIN(program, image); }
}
