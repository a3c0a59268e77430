#include "python/errors.h"

#include <charconv>

namespace nb = nanobind;

namespace gradloom::python {
namespace {

nb::object text_of(std::string_view text) {
  return nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

const char* class_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "InvalidArgument";
    case ErrorCode::out_of_range:
      return "OutOfRange";
    case ErrorCode::unsupported:
      return "Unsupported";
    case ErrorCode::resource_exhausted:
      return "ResourceExhausted";
    case ErrorCode::compile_failed:
      return "CompileFailed";
    case ErrorCode::device_error:
      return "DeviceError";
    case ErrorCode::internal:
      break;
  }
  return "InternalError";
}

}  // namespace

void set_exception(const Error& error) {
  try {
    const nb::object type = nb::module_::import_("gradloom.errors").attr(class_name(error.code()));
    PyErr_SetObject(type.ptr(), text_of(error.what()).ptr());
  } catch (nb::python_error& failure) {
    failure.restore();
  }
}

void set_parse_exception(const Error& error, const std::string& text) {
  const std::string_view message = error.what();
  int line = 0, column = 0;
  const char* const end = message.data() + message.size();
  auto read = std::from_chars(message.data(), end, line);
  if (read.ec != std::errc() || read.ptr == end || *read.ptr != ':') return set_exception(error);
  read = std::from_chars(read.ptr + 1, end, column);
  if (read.ec != std::errc()) return set_exception(error);
  try {
    const nb::object type = nb::module_::import_("gradloom.errors").attr("ParseError");
    const nb::object made = type(text_of(message), line, column, text_of(text));
    PyErr_SetObject(type.ptr(), made.ptr());
  } catch (nb::python_error& failure) {
    failure.restore();
  }
}

void bind_errors() {
  nb::register_exception_translator(
      [](const std::exception_ptr& thrown, void*) {
        try {
          std::rethrow_exception(thrown);
        } catch (const Error& error) {
          set_exception(error);
        } catch (const std::bad_alloc&) {
          set_exception(out_of_memory());
        }
      },
      nullptr);
}

}  // namespace gradloom::python
