#include "python/attributes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "python/errors.h"
#include "python/text.h"

namespace nb = nanobind;

namespace gradloom::python {
namespace {

class AttributeReader {
 public:
  AttributeReader(std::string_view op, std::string_view name, std::string_view type)
      : op_(op), name_(name), type_(type) {}

  Attribute read(nb::handle value) const {
    if (!PyList_Check(value.ptr()) && !PyTuple_Check(value.ptr())) return scalar(value);
    const nb::object items = tuple_of(value);
    const Py_ssize_t count = PyTuple_GET_SIZE(items.ptr());
    std::vector<int64_t> ints;
    std::vector<double> floats;
    std::vector<std::string> strings;
    for (Py_ssize_t i = 0; i < count; ++i) {
      const Attribute item = scalar(PyTuple_GET_ITEM(items.ptr(), i));
      if (const auto* number = std::get_if<int64_t>(&item)) {
        ints.push_back(*number), floats.push_back(static_cast<double>(*number));
      } else if (const auto* real = std::get_if<double>(&item)) {
        floats.push_back(*real);
      } else {
        strings.push_back(std::get<std::string>(item));
      }
    }
    const auto all = static_cast<size_t>(count);
    if (strings.size() == all && (all > 0 || type_ == "strings")) return strings;
    if (ints.size() == all && type_ != "floats") return ints;
    if (floats.size() == all) return floats;
    refuse(fmt::format("{}: attribute {} is a list of numbers and strings; expected one of them", op_, name_));
  }

 private:
  Attribute scalar(nb::handle value) const {
    if (PyUnicode_Check(value.ptr())) return std::string(view_of(value));
    if (PyBytes_Check(value.ptr()))
      return std::string(PyBytes_AS_STRING(value.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(value.ptr())));
    if (PyIndex_Check(value.ptr())) {
      const nb::object number = nb::steal(PyNumber_Index(value.ptr()));
      int overflow = 0;
      const int64_t bits = number.is_valid() ? PyLong_AsLongLongAndOverflow(number.ptr(), &overflow) : 0;
      if (!number.is_valid()) nb::raise_python_error();
      if (overflow)
        refuse(fmt::format("{}: attribute {} is {}, which 64 bits do not hold", op_, name_, nb::str(number).c_str()));
      if (type_ == "float" || type_ == "floats") return static_cast<double>(bits);
      return bits;
    }
    if (PyFloat_Check(value.ptr()) ||
        (Py_TYPE(value.ptr())->tp_as_number && Py_TYPE(value.ptr())->tp_as_number->nb_float)) {
      const double number = PyFloat_AsDouble(value.ptr());
      if (number == -1 && PyErr_Occurred()) nb::raise_python_error();
      return number;
    }
    refuse(fmt::format("{}: attribute {} is of type {}; expected a number, a string or a list of them", op_, name_,
                       Py_TYPE(value.ptr())->tp_name));
  }

  std::string_view op_, name_, type_;
};

std::string_view type_of(const Op* op, std::string_view attribute) {
  if (op)
    for (const AttributeSchema& schema : op->schema().attributes)
      if (schema.name == attribute) return schema.type;
  return {};
}

uint32_t wanted(std::string_view name, const Op* op, nb::handle given) {
  if (!op) return ~0u;
  if (!PyList_Check(given.ptr()) && !PyTuple_Check(given.ptr()))
    refuse(fmt::format("{}: outputs is of type {}; expected a list of names", name, Py_TYPE(given.ptr())->tp_name));
  uint32_t bits = 0;
  for (const nb::handle item : given) {
    const std::string_view output = option_text("outputs", item);
    bool found = false;
    std::vector<std::string> all;
    for (size_t o = 0; o < op->schema().outputs.size(); ++o) {
      all.push_back(op->schema().outputs[o].name);
      if (all.back() == output) bits |= 1u << o, found = true;
    }
    if (!found) refuse(fmt::format("{}: outputs has {}; allowed are {}", name, output, fmt::join(all, ", ")));
  }
  return bits;
}

}  // namespace

CallOptions call_options(std::string_view name, const Op* op, const nb::kwargs& given) {
  CallOptions options;
  options.out = nb::none();
  PyObject *key, *item;
  for (Py_ssize_t position = 0; PyDict_Next(given.ptr(), &position, &key, &item);) {
    const std::string_view option = view_of(key);
    const nb::handle value = item;
    if (value.is_none()) continue;
    if (option == "out") {
      options.out = nb::borrow(value);
    } else if (option == "outputs") {
      options.run.outputs_wanted = wanted(name, op, value);
      options.named_outputs = true;
    } else if (option == "accumulate") {
      options.run.accumulate = option_flag("accumulate", value);
    } else if (option == "any_shape") {
      options.run.any_shape = option_flag("any_shape", value);
    } else if (option == "strategy") {
      options.run.strategy = option_text("strategy", value);
    } else if (option == "determinism") {
      options.run.determinism = determinism_of(option_text("determinism", value));
    } else if (option == "policy") {
      options.run.policy = policy_of(option_text("policy", value));
    } else {
      options.attributes.emplace(option, AttributeReader(name, option, type_of(op, option)).read(value));
    }
  }
  return options;
}

}  // namespace gradloom::python
