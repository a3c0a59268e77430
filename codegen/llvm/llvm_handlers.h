#pragma once
// LLVM reports a fatal error, and memory that cannot be had, to a function of the process. An embedder that uses the
// same LLVM may have functions of its own there: ours are installed while a thread compiles, and theirs come back.
// Private to this folder.
#include <string>

#include "gradloom/error.h"

namespace gradloom::codegen {

// Thrown by LLVM's handlers. LLVM is built without exceptions: what it held is not unwound.
struct LlvmFailure {
  ErrorCode code;
  std::string message;
};

// While one lives, a failure of LLVM on this thread is thrown as LlvmFailure or std::bad_alloc; one on another thread
// goes to the embedder's handler. Throws std::bad_alloc.
class LlvmHandlers {
 public:
  LlvmHandlers();
  ~LlvmHandlers();
  LlvmHandlers(const LlvmHandlers&) = delete;
  LlvmHandlers& operator=(const LlvmHandlers&) = delete;
};

}  // namespace gradloom::codegen
