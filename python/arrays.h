#pragma once
// Python's arrays as tensors, without copies, and tensors as the caller's kind of array.
#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "gradloom/op.h"
#include "gradloom/tensor.h"

namespace gradloom::python {

// What an array is for, for messages: "GatherGrad: input 1 (indices)".
struct Place {
  const char* kernel;  // of the op or the kernel
  const char* what;    // "input", "output", "buffer"
  int position;
  const char* name;
};
std::string to_string(const Place& place);

// An output that its caller's library takes by DLPack or the buffer protocol.
struct Array {
  Tensor tensor;
};
nanobind::tuple shape_of(const Tensor& tensor);

// The arrays of one call, kept alive and exported until this is destroyed, which requires the interpreter's lock.
class Arrays {
 public:
  explicit Arrays(size_t most) { views_.reserve(most), tensors_.reserve(most); }
  ~Arrays() {
    for (Py_buffer& view : views_) PyBuffer_Release(&view);
  }
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;

  // None is an absent tensor. Without `written`, a list or tuple of ints is a tensor of i64.
  void add(nanobind::handle object, bool written, const Place& place);
  void add_absent() { tensors_.emplace_back(); }
  std::vector<Tensor>& tensors() { return tensors_; }

 private:
  Tensor taken(nanobind::handle object, bool written, const Place& place);
  Tensor from_buffer(nanobind::handle object, bool written, const Place& place);

  std::vector<Py_buffer> views_;  // reserved: a Py_buffer may not move
  std::vector<Tensor> tensors_;
};

struct Library;  // of arrays: how it exchanges them

// How a call's outputs are given back: as arrays of its first input's library that is not numpy, else as numpy's, and
// where that is not installed as gradloom.Array.
class Kind {
 public:
  void see(nanobind::handle input);
  nanobind::object give(Tensor tensor) const;

 private:
  const Library* library_ = nullptr;  // none: numpy
};

void bind_arrays(nanobind::module_& m);

}  // namespace gradloom::python
