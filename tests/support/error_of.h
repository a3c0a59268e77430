#pragma once
// The error that a body throws, as a message to compare.
#include "gradloom/error.h"

namespace gradloom {

// Empty where it throws no Error; the message is prefixed by the code unless that is invalid_argument.
template <class Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    const bool usual = error.code() == ErrorCode::invalid_argument;
    return (usual ? "" : std::string(to_string(error.code())) + ": ") + error.what();
  }
  return "";
}

}  // namespace gradloom
