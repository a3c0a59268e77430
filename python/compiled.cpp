// A nest that a runtime has compiled, called with arrays and scalars by name.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <unordered_map>

#include "python/arrays.h"
#include "python/errors.h"
#include "python/gil.h"
#include "python/logging.h"
#include "python/nest.h"
#include "python/number.h"
#include "python/runtime.h"
#include "runtime/kernel_arguments.h"

namespace nb = nanobind;

namespace gradloom::python {
namespace {

class Compiled {
 public:
  Compiled(Nest nest, KernelExecutable executable, bool on_host)
      : nest_(std::move(nest)),
        executable_(std::move(executable)),
        on_host_(on_host),
        names_(nest_.kernel),
        declared_(nest_.kernel) {
    const ir::Kernel& kernel = nest_.kernel;
    for (size_t b = 0; b < kernel.buffers.size(); ++b) parameters_.emplace(names_.buffers[b], Parameter{false, b});
    for (size_t s = 0; s < kernel.scalars.size(); ++s) {
      parameters_.emplace(names_.scalars[s], Parameter{true, s});
      std::vector<Dim>& from = dims_.emplace_back();
      for (size_t b = 0; b < kernel.buffers.size(); ++b)
        for (size_t d = 0; d < kernel.buffers[b]->dims.size(); ++d)
          if (const auto* var = kernel.buffers[b]->dims[d].as<ir::Var>(); var && var->id == kernel.scalars[s].var.id)
            from.push_back({b, static_cast<int>(d)});
    }
  }

  nb::object call(const nb::kwargs& given) const {
    const ir::Kernel& kernel = nest_.kernel;
    std::vector<nb::handle> arrays(kernel.buffers.size());
    std::vector<std::optional<int64_t>> scalars(kernel.scalars.size());
    for (const auto& [key, value] : given) {
      const std::string name = nb::cast<std::string>(key);
      const auto found = parameters_.find(name);
      if (found == parameters_.end())
        fail(fmt::format("it has no {}; its buffers are {}, its scalars {}", name, fmt::join(names_.buffers, ", "),
                         names_.scalars.empty() ? "none" : fmt::format("{}", fmt::join(names_.scalars, ", "))));
      if (value.is_none()) continue;
      const auto& [scalar, index] = found->second;
      if (scalar)
        scalars[index] = slot(index, value);
      else
        arrays[index] = value;
    }

    Arrays buffers(kernel.buffers.size());
    Kind kind;
    for (size_t b = 0; b < arrays.size(); ++b) {
      const ir::Role role = kernel.buffers[b]->role;
      if (!arrays[b].is_valid()) {
        if (role != ir::Role::out)
          fail(fmt::format("buffer {} is missing; it is {}", names_.buffers[b], ir::to_string(role)));
        buffers.add_absent();
        continue;
      }
      kind.see(arrays[b]);
      buffers.add(arrays[b], role != ir::Role::in,
                  {kernel.name.c_str(), "buffer", static_cast<int>(b), names_.buffers[b].c_str()});
    }
    const std::vector<int64_t> slots = all_slots(scalars, buffers.tensors());
    std::vector<bool> made(arrays.size());
    for (size_t b = 0; b < arrays.size(); ++b) {
      if (arrays[b].is_valid()) continue;
      made[b] = true;
      buffers.tensors()[b] = allocated(b, slots);
    }
    const auto done = unlocked([&] { return executable_(buffers.tensors(), slots); });
    log_waiting();
    done.value();
    return outputs(arrays, made, buffers.tensors(), kind);
  }

  nb::dict report() const { return report_dict(executable_.report()); }
  const Nest& nest() const { return nest_; }

 private:
  struct Parameter {
    bool scalar;
    size_t index;
  };
  struct Dim {
    size_t buffer;
    int axis;
  };

  [[noreturn]] void fail(const std::string& what) const {
    refuse(fmt::format("kernel {}: {}", nest_.kernel.name, what));
  }

  int64_t slot(size_t s, nb::handle value) const {
    const DType dtype = nest_.kernel.scalars[s].var.type.dtype;
    try {
      if (PyBool_Check(value.ptr()) && dtype == DType::boolean) return value.ptr() == Py_True;
      const ir::Expr number = number_of(
          dtype, value,
          [&](const char* text) {
            fail(fmt::format("scalar {} is {}, which {} does not hold", names_.scalars[s], text, to_string(dtype)));
          },
          [&] {
            fail(fmt::format("scalar {} is of type {}; expected a number", names_.scalars[s],
                             Py_TYPE(value.ptr())->tp_name));
          });
      const auto* constant = number.as<ir::Const>();
      return constant ? static_cast<int64_t>(constant->bits) : 0;
    } catch (const Error& error) {
      if (std::string_view(error.what()).starts_with("kernel ")) throw;
      fail(fmt::format("scalar {}: {}", names_.scalars[s], error.what()));
    }
  }

  // A scalar that is not given is that of a dim which it is.
  std::vector<int64_t> all_slots(const std::vector<std::optional<int64_t>>& given,
                                 const std::vector<Tensor>& tensors) const {
    std::vector<int64_t> slots(given.size());
    for (size_t s = 0; s < given.size(); ++s) {
      std::optional<int64_t> value = given[s];
      for (const Dim& from : dims_[s]) {
        const Tensor& tensor = tensors[from.buffer];
        if (!value && tensor.present() && from.axis < tensor.dims().size()) value = tensor.dims()[from.axis];
      }
      if (!value)
        fail(fmt::format("scalar {} is missing, and no array that was given has it as a dim", names_.scalars[s]));
      slots[s] = *value;
    }
    return scalar_slots(nest_.kernel, slots);
  }

  Tensor allocated(size_t b, const std::vector<int64_t>& slots) const {
    const ir::Buffer& buffer = nest_.kernel.buffers[b];
    if (!buffer->strides.empty() || !on_host_)
      fail(fmt::format("buffer {} is missing: {}", names_.buffers[b],
                       on_host_ ? "one with strides is not allocated" : "a device's memory is the caller's"));
    declared_.check_scalars(slots);
    return Tensor::empty(buffer->dtype, declared_.dims(b, slots));
  }

  // The out buffers, and where there are none those that are inout.
  nb::object outputs(const std::vector<nb::handle>& arrays, const std::vector<bool>& made,
                     const std::vector<Tensor>& tensors, const Kind& kind) const {
    nb::list all;
    for (const ir::Role role : {ir::Role::out, ir::Role::inout}) {
      if (nb::len(all) > 0) break;
      for (size_t b = 0; b < arrays.size(); ++b)
        if (nest_.kernel.buffers[b]->role == role) all.append(made[b] ? kind.give(tensors[b]) : nb::borrow(arrays[b]));
    }
    if (nb::len(all) == 1) return all[0];
    return nb::tuple(all);
  }

  Nest nest_;
  KernelExecutable executable_;
  bool on_host_;
  ParameterNames names_;
  DeclaredArguments declared_;
  std::unordered_map<std::string, Parameter> parameters_;
  std::vector<std::vector<Dim>> dims_;  // of each scalar: those that it is
};

nb::object compile(PyRuntime& self, nb::handle given, nb::handle trace) {
  nb::object kernel = nb::borrow(given);
  if (PyUnicode_Check(given.ptr())) kernel = nb::module_::import_("gradloom._gradloom").attr("parse")(given);
  if (!nb::isinstance<Nest>(kernel))
    refuse(fmt::format("compile: the kernel is of type {}; expected gradloom.Kernel or its text",
                       Py_TYPE(given.ptr())->tp_name));
  if (nb::len(trace) > 0) kernel = kernel.attr("schedule")(trace);
  const Nest& nest = nb::cast<const Nest&>(kernel);
  auto executable =
      unlocked([&] { return self.runtime->compile(nest.kernel, {.default_schedule = nest.trace.empty()}); });
  log_waiting();
  return nb::cast(Compiled(nest, std::move(executable).value(), self.runtime->device() < 0));
}

}  // namespace

void bind_compiled(nb::module_& m) {
  nb::class_<Compiled>(m, "CompiledKernel", "A compiled loop nest.")
      .def(
          "__call__", [](const Compiled& self, const nb::kwargs& arguments) { return self.call(arguments); },
          nb::arg("arguments"),
          "Runs it with arrays and scalars by name. A scalar may be left out that is the dim of an array, and so may "
          "an "
          "output, which is then allocated. The outputs are returned: one as it is, several as a tuple.")
      .def_prop_ro("kernel", [](const Compiled& self) { return self.nest(); })
      .def("report", &Compiled::report)
      .def("__repr__",
           [](const Compiled& self) { return fmt::format("<gradloom.CompiledKernel {}>", self.nest().kernel.name); });
  nb::object(m.attr("Runtime")).attr("compile") =
      nb::cpp_function(compile, nb::name("compile"), nb::is_method(), nb::arg("kernel"), nb::arg("trace") = "",
                       "Compiles a loop nest, or its text, after the steps of `trace`. Only target interpreter checks "
                       "every access: try a "
                       "new nest there first.");
}

}  // namespace gradloom::python
