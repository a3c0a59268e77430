#pragma once
// Errors that a user of gradloom sees. Internals throw `Error`; the public runtime returns `Result<T>`.
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#pragma GCC visibility push(default)
namespace gradloom {

enum class ErrorCode {
  invalid_argument,    // a bad argument: rank, dims, dtype, attribute, overlap
  out_of_range,        // a bad index value inside an index tensor
  unsupported,         // a valid request that this build or target cannot do
  resource_exhausted,  // out of memory or over a stated limit
  compile_failed,      // LLVM or NVRTC refused; the message holds its log
  device_error,        // a driver or device is missing or failed
  internal,            // a fault of gradloom itself
};

const char* to_string(ErrorCode code);

// Escapes control characters and invalid UTF-8 as \xNN, so that a message is one line whatever name or path it quotes.
std::string printable(std::string_view text);

// Its message is one line; that of compile_failed may hold a compiler's log, with the log's line ends.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message)
      : std::runtime_error(code == ErrorCode::compile_failed ? message : printable(message)), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

// A value or an Error. `value()` throws the Error when there is no value.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}
  Result(Error error) : state_(std::move(error)) {}
  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return std::get<1>(state_); }
  T& value() & { return check(), std::get<0>(state_); }
  const T& value() const& { return check(), std::get<0>(state_); }
  // By value: `for (x : f().value())` may not outlive what f returned.
  T value() && { return check(), std::move(std::get<0>(state_)); }

 private:
  void check() const {
    if (!ok()) throw error();
  }
  std::variant<T, Error> state_;
};

// resource_exhausted, "out of memory". Allocates nothing once a runtime has been made.
Error out_of_memory();

// Runs `body` and converts any exception into an Error: no exception escapes the public interface.
template <class Body>
auto capture(Body&& body) -> Result<decltype(body())> {
  try {
    return body();
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::exception& error) {
    return Error(ErrorCode::internal, error.what());
  } catch (...) {
    return Error(ErrorCode::internal, "something was thrown that is no std::exception");
  }
}

}  // namespace gradloom

#pragma GCC visibility pop
