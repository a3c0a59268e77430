#pragma once
// Python's numbers as constants of a dtype.
#include <nanobind/nanobind.h>

#include "gradloom/expr.h"

namespace gradloom::python {

// An int, what gives one by __index__, or what gives a float. `too_large(text)` is called for an int beyond 64 bits,
// `no_number()` for anything else; both throw.
template <class TooLarge, class NoNumber>
ir::Expr number_of(DType dtype, nanobind::handle value, TooLarge&& too_large, NoNumber&& no_number) {
  namespace nb = nanobind;
  if (PyIndex_Check(value.ptr())) {
    const nb::object whole = nb::steal(PyNumber_Index(value.ptr()));
    if (!whole.is_valid()) nb::raise_python_error();
    int overflow = 0;
    const int64_t narrow = PyLong_AsLongLongAndOverflow(whole.ptr(), &overflow);
    if (!overflow) return ir::number_like(dtype, narrow);
    const uint64_t wide = PyLong_AsUnsignedLongLong(whole.ptr());
    if (!PyErr_Occurred()) return ir::number_like(dtype, wide);
    PyErr_Clear();
    too_large(nb::str(whole).c_str());
  }
  const double real = PyFloat_AsDouble(value.ptr());
  if (real == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    no_number();
  }
  return ir::number_like(dtype, real);
}

}  // namespace gradloom::python
