#include "python/arrays.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <unordered_map>

#include "gradloom/dlpack.h"
#include "python/errors.h"
#include "python/text.h"

namespace nb = nanobind;

namespace gradloom::python {
namespace {

// Python objects that calls use again and again. They live as long as the process does.
struct Names {
  PyObject* dlpack = PyUnicode_InternFromString("__dlpack__");
  PyObject* requires_grad = PyUnicode_InternFromString("requires_grad");
  PyObject* is_neg = PyUnicode_InternFromString("is_neg");
  PyObject* max_version = nullptr;  // the names and values of __dlpack__(max_version=(1, 1))
  PyObject* version = nullptr;
  Names() {
    max_version = Py_BuildValue("(s)", "max_version");
    version = Py_BuildValue("(ii)", 1, 1);
  }
};
const Names& names() {
  static const Names* const made = new Names;
  return *made;
}

// DLPack's table of C functions, which a type's __dlpack_c_exchange_api__ holds: no Python code runs in an exchange.
struct ExchangeApi {
  DLPackVersion version;
  const ExchangeApi* previous;  // of an older version
  void* allocate;
  int (*from_object)(void* object, DLManagedTensorVersioned** tensor);
  int (*to_object)(DLManagedTensorVersioned* tensor, void** object);  // takes the tensor
};

const ExchangeApi* exchange_api_of(PyTypeObject* type) {
  const nb::object capsule =
      nb::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__dlpack_c_exchange_api__"));
  const void* const table = capsule.is_valid() ? PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api") : nullptr;
  PyErr_Clear();
  const auto* api = static_cast<const ExchangeApi*>(table);
  while (api && api->version.major != DLPACK_MAJOR_VERSION) api = api->previous;
  return api;
}

// numpy's, once it is imported: an array of it exists only then.
struct Numpy {
  PyObject* ndarray = nullptr;
  PyObject* dtypes[dtype_count] = {};  // bf16: ml_dtypes', perhaps null
};
const Numpy* numpy(bool import) {
  static Numpy* made = nullptr;
  static bool missing = false;
  if (made || missing) return made;
  PyObject* const modules = PyImport_GetModuleDict();
  if (!import && !PyDict_GetItemString(modules, "numpy")) return nullptr;
  try {
    auto all = std::make_unique<Numpy>();
    const nb::module_ module = nb::module_::import_("numpy");
    all->ndarray = nb::object(module.attr("ndarray")).release().ptr();
    for (const DTypeInfo& info : dtype_table)
      if (info.dtype != DType::bf16)
        all->dtypes[static_cast<int>(info.dtype)] = nb::object(module.attr("dtype")(info.onnx_name)).release().ptr();
    made = all.release();
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_ImportError)) throw;
    missing = true;
  }
  return made;
}

// ml_dtypes' bfloat16 as numpy's dtype; none where that is not installed.
PyObject* numpy_bf16() {
  static PyObject* made = nullptr;
  static bool missing = false;
  if (made || missing) return made;
  try {
    made = nb::object(nb::module_::import_("numpy").attr("dtype")(nb::module_::import_("ml_dtypes").attr("bfloat16")))
               .release()
               .ptr();
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_ImportError)) throw;
    missing = true;
  }
  return made;
}

}  // namespace

struct Library {
  const ExchangeApi* api = nullptr;
  PyObject* from_dlpack = nullptr;
  bool has_negative_views = false;  // torch's, whose memory has the other sign; DLPack does not say so
};

namespace {

// Nothing of a type whose outputs are numpy's.
const Library* library_of(PyTypeObject* type) {
  // The types are kept, so that no other one can have their address.
  static auto* const known = new std::unordered_map<PyTypeObject*, Library*>;
  const auto found = known->find(type);
  if (found != known->end()) return found->second;
  const nb::handle object = reinterpret_cast<PyObject*>(type);
  nb::object importer = nb::module_::import_("gradloom._arrays").attr("from_dlpack_of")(object);
  object.inc_ref();
  const ExchangeApi* const api = exchange_api_of(type);
  const bool negative = PyObject_HasAttr(object.ptr(), names().is_neg) != 0;
  Library* const made = importer.is_none() && !api
                            ? nullptr
                            : new Library{api, importer.is_none() ? nullptr : importer.release().ptr(), negative};
  return known->emplace(type, made).first->second;
}

[[noreturn]] void refuse_at(const Place& place, const std::string& what, ErrorCode code = ErrorCode::invalid_argument) {
  throw Error(code, fmt::format("{} {}", to_string(place), what));
}

// The dtype of a format of the buffer protocol; none for others, such as records and the other byte order.
std::optional<DType> dtype_of_format(const char* format, Py_ssize_t bytes) {
  if (!format) return DType::u8;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (!*format || format[1]) return std::nullopt;
  const auto by_size = [&](DType one, DType two, DType four, DType eight) -> std::optional<DType> {
    switch (bytes) {
      case 1:
        return one;
      case 2:
        return two;
      case 4:
        return four;
      case 8:
        return eight;
      default:
        return std::nullopt;
    }
  };
  switch (*format) {
    case '?':
      return DType::boolean;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
    case 'n':
      return by_size(DType::i8, DType::i16, DType::i32, DType::i64);
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
    case 'N':
      return by_size(DType::u8, DType::u16, DType::u32, DType::u64);
    case 'e':
      return DType::f16;
    case 'f':
      return DType::f32;
    case 'd':
      return bytes == 8 ? std::optional(DType::f64) : std::nullopt;
    default:
      return std::nullopt;
  }
}

Tensor from_view(const Py_buffer& view, DType dtype, const Place& place) {
  if (view.ndim > max_rank) refuse_at(place, fmt::format("has rank {}; at most {}", view.ndim, max_rank));
  Dims dims, strides;
  for (int d = 0; d < view.ndim; ++d) {
    if (!view.strides) {  // row-major, as of ctypes' arrays
      dims.push_back(view.shape[d]);
      continue;
    }
    if (view.strides[d] % view.itemsize != 0)
      refuse_at(place,
                fmt::format("has a stride of {} bytes along axis {}, which is not a multiple of its element's {}",
                            view.strides[d], d, view.itemsize));
    dims.push_back(view.shape[d]);
    strides.push_back(view.strides[d] / view.itemsize);
  }
  return view.readonly ? Tensor::borrow(static_cast<const void*>(view.buf), dtype, dims, strides)
                       : Tensor::borrow(view.buf, dtype, dims, strides);
}

Tensor from_capsule(nb::handle capsule, const Place& place) {
  try {
    if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
      auto* const managed =
          static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
      Tensor tensor = Tensor::from_dlpack(managed);
      PyCapsule_SetName(capsule.ptr(), "used_dltensor_versioned");
      return tensor;
    }
    if (PyCapsule_IsValid(capsule.ptr(), "dltensor")) {
      auto* const managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
      Tensor tensor = Tensor::from_dlpack(managed);
      PyCapsule_SetName(capsule.ptr(), "used_dltensor");
      return tensor;
    }
  } catch (const Error& error) {
    refuse_at(place, fmt::format("cannot be taken: {}", error.what()), error.code());
  }
  if (!PyCapsule_CheckExact(capsule.ptr()))
    refuse_at(place, fmt::format("gives an object of type {} by __dlpack__; expected a capsule",
                                 Py_TYPE(capsule.ptr())->tp_name));
  const char* const name = PyCapsule_GetName(capsule.ptr());
  refuse_at(place, fmt::format("is a capsule {}; expected one of DLPack, not used before", name ? name : "of no name"));
}

Tensor from_ints(nb::handle list, const Place& place) {
  const nb::object items = tuple_of(list);
  const Py_ssize_t count = PyTuple_GET_SIZE(items.ptr());
  Tensor tensor = Tensor::empty(DType::i64, {count});
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const item = PyTuple_GET_ITEM(items.ptr(), i);
    const int64_t value = PyIndex_Check(item) ? PyLong_AsLongLong(item) : -1;
    if (!PyIndex_Check(item) || (value == -1 && PyErr_Occurred())) {
      PyErr_Clear();
      refuse_at(place, fmt::format("is a {} whose item {} is no int of 64 bits; give an array for other values",
                                   Py_TYPE(list.ptr())->tp_name, i));
    }
    static_cast<int64_t*>(tensor.data())[i] = value;
  }
  return tensor;
}

// The message of the current Python exception, which it clears.
std::string exception_text() {
  nb::python_error error;
  return nb::str(error.value()).c_str();
}

bool is_negative_view(nb::handle object, const Library* library) {
  if (!library || !library->has_negative_views) return false;
  const nb::object negative = nb::steal(PyObject_CallMethodNoArgs(object.ptr(), names().is_neg));
  if (!negative.is_valid()) PyErr_Clear();
  return negative.ptr() == Py_True;
}

// By the C functions of the object's type; absent where it has none, or the object needs more than they do: a device's
// memory waits for a stream, a value whose gradient is recorded is refused in its library's words.
Tensor from_exchange(nb::handle object, const Library* library, const Place& place) {
  if (!library || !library->api) return {};
  const nb::object recorded = nb::steal(PyObject_GetAttr(object.ptr(), names().requires_grad));
  if (!recorded.is_valid()) PyErr_Clear();
  if (recorded.ptr() == Py_True) return {};
  DLManagedTensorVersioned* managed = nullptr;
  if (library->api->from_object(object.ptr(), &managed) != 0) {
    PyErr_Clear();
    return {};
  }
  const auto give_back = [&] {
    if (managed->deleter) managed->deleter(managed);
  };
  if (managed->dl_tensor.device.device_type != kDLCPU) {
    give_back();
    return {};
  }
  try {
    return Tensor::from_dlpack(managed);
  } catch (const Error& error) {
    give_back();
    refuse_at(place, fmt::format("cannot be taken: {}", error.what()), error.code());
  }
}

// __dlpack__ of an object; nothing where it has none.
nb::object dlpack_capsule(nb::handle object) {
  const nb::object method = nb::steal(PyObject_GetAttr(object.ptr(), names().dlpack));
  if (!method.is_valid()) {
    PyErr_Clear();
    return {};
  }
  PyObject* const arguments[] = {nullptr, names().version};
  PyObject* capsule =
      PyObject_Vectorcall(method.ptr(), arguments + 1, PY_VECTORCALL_ARGUMENTS_OFFSET, names().max_version);
  if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear();
    capsule = PyObject_CallNoArgs(method.ptr());
  }
  if (!capsule) nb::raise_python_error();
  return nb::steal(capsule);
}

// Of a library that exchanges arrays by DLPack.
Tensor from_library(nb::handle object, bool written, const Place& place) {
  const Library* const library = library_of(Py_TYPE(object.ptr()));
  nb::object resolved;
  if (is_negative_view(object, library)) {
    if (written) refuse_at(place, "is a view whose elements have the other sign in memory; it cannot be written");
    resolved = object.attr("resolve_neg")();
    if (is_negative_view(resolved, library)) refuse_at(place, "is a view whose elements have the other sign in memory");
    object = resolved;
  }
  if (Tensor tensor = from_exchange(object, library, place); tensor.present()) return tensor;
  const nb::object capsule = dlpack_capsule(object);
  if (!capsule.is_valid())
    refuse_at(place, fmt::format("is of type {}; expected an array: DLPack or the buffer protocol",
                                 Py_TYPE(object.ptr())->tp_name));
  return from_capsule(capsule, place);
}

}  // namespace

std::string to_string(const Place& place) {
  return fmt::format("{}: {} {} ({})", place.kernel, place.what, place.position, place.name);
}

void Arrays::add(nb::handle object, bool written, const Place& place) {
  tensors_.push_back(taken(object, written, place));
}

Tensor Arrays::taken(nb::handle object, bool written, const Place& place) {
  if (object.is_none()) return {};
  Tensor tensor;
  if (PyObject_CheckBuffer(object.ptr()) && !nb::isinstance<Array>(object)) {
    tensor = from_buffer(object, written, place);
  } else if (nb::isinstance<Array>(object)) {
    if (!nb::inst_ready(object)) refuse_at(place, "is a gradloom.Array that holds nothing");
    tensor = nb::inst_ptr<Array>(object)->tensor;
  } else if (!written && (PyList_Check(object.ptr()) || PyTuple_Check(object.ptr()))) {
    return from_ints(object, place);
  } else if (PyCapsule_CheckExact(object.ptr())) {
    tensor = from_capsule(object, place);
  } else {
    tensor = from_library(object, written, place);
  }
  if (written && !tensor.writable()) refuse_at(place, "is read-only");
  return tensor;
}

Tensor Arrays::from_buffer(nb::handle object, bool written, const Place& place) {
  Py_buffer& view = views_.emplace_back();
  if (PyObject_GetBuffer(object.ptr(), &view, PyBUF_STRIDES | PyBUF_FORMAT) == 0) {
    if (const auto dtype = dtype_of_format(view.format, view.itemsize)) return from_view(view, *dtype, place);
    refuse_at(place, fmt::format("has elements of format \"{}\", {} bytes each; expected numbers of this machine's "
                                 "byte order",
                                 view.format ? view.format : "", view.itemsize));
  }
  views_.pop_back();
  const std::string why = exception_text();
  const Numpy* const np = numpy(false);
  // numpy exports no buffer of another package's dtypes.
  if (np && Py_TYPE(object.ptr()) == reinterpret_cast<PyTypeObject*>(np->ndarray)) {
    const nb::object dtype = object.attr("dtype");
    if (std::strcmp(nb::str(dtype.attr("name")).c_str(), "bfloat16") == 0) {
      const nb::object words = object.attr("view")("uint16");
      Tensor tensor = from_buffer(words, written, place);
      const Dims dims = tensor.dims(), strides = tensor.strides();
      return tensor.writable() ? Tensor::borrow(tensor.data(), DType::bf16, dims, strides)
                               : Tensor::borrow(static_cast<const void*>(tensor.data()), DType::bf16, dims, strides);
    }
    refuse_at(place, fmt::format("has dtype {}: {}", nb::str(dtype).c_str(), why));
  }
  const nb::object capsule = dlpack_capsule(object);
  if (capsule.is_valid()) return from_capsule(capsule, place);
  refuse_at(place, fmt::format("of type {} cannot be taken: {}", Py_TYPE(object.ptr())->tp_name, why));
}

void Kind::see(nb::handle input) {
  if (library_ || input.is_none()) return;
  const Numpy* const np = numpy(false);
  PyTypeObject* const type = Py_TYPE(input.ptr());
  if (np && type == reinterpret_cast<PyTypeObject*>(np->ndarray)) return;
  if (PyList_Check(input.ptr()) || PyTuple_Check(input.ptr())) return;
  library_ = library_of(type);
}

nb::object Kind::give(Tensor tensor) const {
  if (!tensor.present()) return nb::none();
  if (library_ && library_->api && tensor.device() < 0) {
    void* object = nullptr;
    if (library_->api->to_object(tensor.to_dlpack_versioned(), &object) != 0) nb::raise_python_error();
    return nb::steal(static_cast<PyObject*>(object));
  }
  const DType dtype = tensor.dtype();
  nb::object array = nb::cast(Array{std::move(tensor)});
  if (library_ && library_->from_dlpack) return nb::steal(PyObject_CallOneArg(library_->from_dlpack, array.ptr()));
  const Numpy* const np = numpy(true);
  if (!np) return array;
  PyObject* const element = dtype == DType::bf16 ? numpy_bf16() : np->dtypes[static_cast<int>(dtype)];
  if (!element) return array;
  const nb::tuple shape = shape_of(nb::inst_ptr<Array>(array)->tensor);
  PyObject* const arguments[] = {nullptr, shape.ptr(), element, array.ptr()};
  PyObject* const made = PyObject_Vectorcall(np->ndarray, arguments + 1, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  if (!made) nb::raise_python_error();
  return nb::steal(made);
}

}  // namespace gradloom::python
