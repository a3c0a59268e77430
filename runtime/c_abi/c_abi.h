#pragma once
// Shared by the files of the C interface: handles, statuses, and the only conversion of exceptions to statuses.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "gradloom/gradloom.h"
#include "gradloom/runtime.h"
#include "support/entry.h"

struct gradloom_runtime {
  std::shared_ptr<gradloom::Runtime> runtime;
};
struct gradloom_attributes {
  gradloom::Attributes values;
};
struct gradloom_executable {
  gradloom::Executable executable;
};
struct gradloom_kernel {
  gradloom::KernelExecutable executable;
};
struct gradloom_prepared {
  gradloom::PreparedOp prepared;
};

namespace gradloom::c_abi {

// Stores the message for gradloom_last_error and returns the status.
gradloom_status fail(gradloom_status status, const char* message) noexcept;
gradloom_status status_of(ErrorCode code);

// Runs the body of every entry point.
template <class Body>
gradloom_status entry(Body&& body) noexcept {
  const Entry entered;
  try {
    body();
    return GRADLOOM_OK;
  } catch (const Error& error) {
    return fail(status_of(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return fail(GRADLOOM_RESOURCE_EXHAUSTED, "out of memory");
  } catch (const std::exception& error) {
    return fail(GRADLOOM_INTERNAL, error.what());
  } catch (...) {
    return fail(GRADLOOM_INTERNAL, "something was thrown that is no exception of the C++ library");
  }
}

// Throw Error(invalid_argument) that names the function and the argument.
void require(const void* pointer, const char* function, const char* argument);
void check_count(const void* array, int32_t count, const char* function, const char* argument);

// A named option with an out-of-range enum value.
template <class E>
E checked(int value, int last, const char* function, const char* argument) {
  if (value < 0 || value > last)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: {} is {}, allowed are 0 to {}", function, argument, value, last));
  return static_cast<E>(value);
}

// Allocated for gradloom_string_free.
char* c_string(const std::string& text);

// From the caller's struct, perhaps of an older or a newer header; null: the defaults.
RuntimeOptions runtime_options(const gradloom_runtime_options* given, const char* function);
RunOptions run_options(const gradloom_run_options* given, const char* function);
LaunchOptions launch_options(const gradloom_launch_options* given, const char* function,
                             const char* argument = "launch");
const Attributes& attributes_of(const gradloom_attributes* attributes);  // none of null

// Tensors of the caller, borrowed for the call. Throw Error that names the function, the argument and its position.
Tensor borrow_one(const DLTensor& tensor, const char* function, const char* argument, int32_t position);
std::vector<Tensor> borrow_all(const DLTensor* const* tensors, int32_t count, const char* function,
                               const char* argument);
// An output's shape after a run. Writes only what changed: a shape may be in constant memory, or shared with another
// thread's call.
inline void write_shape(const DLTensor& output, const Dims& dims) {
  if (!std::equal(dims.begin(), dims.end(), output.shape)) std::copy(dims.begin(), dims.end(), output.shape);
}

// Runs, and gives the outputs to the caller, who has room for `count`; on failure, gives none.
gradloom_status give_outputs(DLManagedTensor** outputs, int32_t count, const char* function,
                             const std::function<std::vector<Tensor>()>& run) noexcept;

}  // namespace gradloom::c_abi
