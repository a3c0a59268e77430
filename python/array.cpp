// gradloom.Array: what its library reads of it by the buffer protocol and DLPack.
#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include "gradloom/dlpack.h"
#include "python/arrays.h"

namespace nb = nanobind;

namespace gradloom::python {
namespace {

const char* format_of(DType dtype) {
  switch (dtype) {
    case DType::boolean:
      return "?";
    case DType::i8:
      return "b";
    case DType::u8:
      return "B";
    case DType::i16:
      return "h";
    case DType::u16:
      return "H";
    case DType::i32:
      return "i";
    case DType::u32:
      return "I";
    case DType::i64:
      return "q";
    case DType::u64:
      return "Q";
    case DType::f16:
      return "e";
    case DType::f32:
      return "f";
    case DType::f64:
      return "d";
    case DType::bf16:
      break;
  }
  return nullptr;
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  if (!nb::inst_ready(self)) {
    PyErr_SetString(PyExc_BufferError, "the array holds nothing");
    return -1;
  }
  const Tensor& tensor = nb::inst_ptr<Array>(self)->tensor;
  const char* const format = format_of(tensor.dtype());
  if (!format && (flags & PyBUF_FORMAT) == PyBUF_FORMAT) {
    PyErr_SetString(PyExc_BufferError, "the buffer protocol has no bfloat16; take it by DLPack");
    return -1;
  }
  if ((flags & PyBUF_WRITABLE) && !tensor.writable()) {
    PyErr_SetString(PyExc_BufferError, "the array is read-only");
    return -1;
  }
  const int rank = tensor.dims().size();
  auto* const numbers = new Py_ssize_t[static_cast<size_t>(2 * rank + 1)];
  const Py_ssize_t width = size_of(tensor.dtype());
  for (int d = 0; d < rank; ++d) {
    numbers[d] = tensor.dims()[d];
    numbers[rank + d] = tensor.strides()[d] * width;
  }
  *view = {.buf = tensor.data(),
           .obj = Py_NewRef(self),
           .len = tensor.elements() * width,
           .itemsize = width,
           .readonly = !tensor.writable(),
           .ndim = rank,
           .format = (flags & PyBUF_FORMAT) ? const_cast<char*>(format) : nullptr,
           .shape = (flags & PyBUF_ND) ? numbers : nullptr,
           .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? numbers + rank : nullptr,
           .suboffsets = nullptr,
           .internal = numbers};
  return 0;
}

void release_buffer(PyObject*, Py_buffer* view) { delete[] static_cast<Py_ssize_t*>(view->internal); }

PyType_Slot array_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                             {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                             {0, nullptr}};

template <class Managed>
void delete_unused(PyObject* capsule, const char* name) {
  if (!PyCapsule_IsValid(capsule, name)) return;  // it was taken
  auto* const managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  managed->deleter(managed);
}

nb::object to_capsule(const Array& array, nb::kwargs options) {
  if (options.contains("copy") && options["copy"].ptr() == Py_True)
    throw nb::buffer_error("gradloom.Array gives its own memory, no copy");
  bool versioned = false;
  if (options.contains("max_version")) {
    const nb::object version = options["max_version"];
    versioned = !version.is_none() && nb::cast<int>(version[0]) >= 1;
  }
  if (versioned)
    return nb::steal(PyCapsule_New(array.tensor.to_dlpack_versioned(), "dltensor_versioned", [](PyObject* c) {
      delete_unused<DLManagedTensorVersioned>(c, "dltensor_versioned");
    }));
  return nb::steal(PyCapsule_New(array.tensor.to_dlpack(), "dltensor",
                                 [](PyObject* c) { delete_unused<DLManagedTensor>(c, "dltensor"); }));
}

}  // namespace

nb::tuple shape_of(const Tensor& tensor) {
  nb::object shape = nb::steal(PyTuple_New(tensor.dims().size()));
  for (int d = 0; d < tensor.dims().size(); ++d)
    PyTuple_SET_ITEM(shape.ptr(), d, PyLong_FromLongLong(tensor.dims()[d]));
  return nb::borrow<nb::tuple>(shape);
}

void bind_arrays(nb::module_& m) {
  nb::class_<Array>(m, "Array", nb::type_slots(array_slots),
                    "An output without a library: taken by DLPack or the buffer protocol, without a copy.")
      .def("__dlpack__", [](const Array& array, nb::kwargs options) { return to_capsule(array, options); })
      .def("__dlpack_device__",
           [](const Array& array) {
             const int device = array.tensor.device();
             return nb::make_tuple(device < 0 ? static_cast<int>(kDLCPU) : static_cast<int>(kDLCUDA),
                                   device < 0 ? 0 : device);
           })
      .def_prop_ro("shape", [](const Array& array) { return shape_of(array.tensor); })
      .def_prop_ro("dtype", [](const Array& array) { return onnx_name(array.tensor.dtype()); })
      .def("__repr__", [](const Array& array) {
        return fmt::format("gradloom.Array({}{})", onnx_name(array.tensor.dtype()),
                           gradloom::to_string(array.tensor.dims()));
      });
}

}  // namespace gradloom::python
