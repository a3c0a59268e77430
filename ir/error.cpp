#include "ir/error.h"

namespace gradloom {

const char* to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument: return "invalid_argument";
    case ErrorCode::out_of_range: return "out_of_range";
    case ErrorCode::unsupported: return "unsupported";
    case ErrorCode::resource_exhausted: return "resource_exhausted";
    case ErrorCode::compile_failed: return "compile_failed";
    case ErrorCode::device_error: return "device_error";
    case ErrorCode::internal: return "internal";
  }
  return "internal";
}

}  // namespace gradloom
