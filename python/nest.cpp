#include "python/nest.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "gradloom/differentiate.h"
#include "gradloom/schedule.h"
#include "gradloom/text.h"
#include "ir/analysis/verify.h"
#include "ir/differentiate/zero_gradients.h"
#include "python/errors.h"
#include "python/gil.h"
#include "runtime/kernel_arguments.h"
#include "support/lines.h"

namespace nb = nanobind;

namespace gradloom::python {
namespace {

nb::object parse(const std::string& text) {
  ir::Kernel kernel;
  try {
    kernel = ir::parse(text);
  } catch (const Error& error) {
    set_parse_exception(error, text);
    nb::raise_python_error();
  }
  return nb::cast(verified(std::move(kernel)));
}

// Lines of a trace, or a list of them; empty ones are left out.
std::vector<std::string> steps_of(nb::handle given) {
  std::vector<std::string> steps;
  if (PyUnicode_Check(given.ptr())) return lines_of(nb::cast<std::string>(given));
  for (const nb::handle step : given) {
    if (!PyUnicode_Check(step.ptr())) refuse("a schedule's step is no str");
    for (std::string& line : lines_of(nb::cast<std::string>(step))) steps.push_back(std::move(line));
  }
  return steps;
}

Nest scheduled(const Nest& nest, nb::handle given) {
  const std::vector<std::string> steps = steps_of(given);
  return unlocked([&] {
    ir::Schedule schedule(nest.kernel);
    for (size_t i = 0; i < steps.size(); ++i) {
      try {
        schedule.replay({steps[i]});
      } catch (const Error& error) {
        throw Error(error.code(),
                    fmt::format("kernel {}: step {} (\"{}\"): {}", nest.kernel.name, i + 1, steps[i], error.what()));
      }
    }
    std::vector<std::string> trace = nest.trace;
    trace.insert(trace.end(), schedule.trace().begin(), schedule.trace().end());
    return Nest{nest.authored, schedule.kernel(), std::move(trace)};
  });
}

using Names = std::vector<std::string>;

Nest gradient(const Nest& nest, const Names& wanted, const std::optional<Names>& kept, const Names& inactive,
              const Names& known, const std::string& tie, const std::string& sums) {
  ir::Derivation how{.wanted = wanted, .kept = kept, .inactive = inactive};
  for (const std::string& text : known) how.known.push_back(ir::parse_element_value(*nest.authored, text));
  bool is_tie = false;
  for (const ir::Tie t : ir::all_ties)
    if (tie == ir::to_string(t)) how.tie = t, is_tie = true;
  if (sums != "loop" && sums != "tree") refuse("sums is " + sums + "; it must be loop or tree");
  how.sums = sums == "tree" ? ir::SumOrder::tree : ir::SumOrder::loop;
  if (!is_tie) refuse("tie is " + tie + "; it must be halves, first, second or none");
  Nest result = unlocked([&] { return verified(ir::differentiate(*nest.authored, how)); });
  for (const std::string& line : ir::zero_gradient_warnings(*nest.authored, *result.authored))
    if (PyErr_WarnEx(PyExc_UserWarning, line.c_str(), 1) < 0) throw nb::python_error();
  return result;
}

nb::list loops_of(const Nest& nest) {
  nb::list names;
  const ir::Schedule schedule(nest.kernel);
  for (const ir::Loop loop : schedule.loops()) names.append(schedule.get(loop).var.name);
  return names;
}

nb::list scalars_of(const Nest& nest) {
  nb::list all;
  const ParameterNames names(nest.kernel);
  for (size_t s = 0; s < names.scalars.size(); ++s)
    all.append(nb::make_tuple(names.scalars[s], onnx_name(nest.kernel.scalars[s].var.type.dtype)));
  return all;
}

nb::list buffers_of(const Nest& nest) {
  nb::list all;
  const ParameterNames names(nest.kernel);
  for (size_t b = 0; b < names.buffers.size(); ++b) {
    const ir::Buffer& buffer = nest.kernel.buffers[b];
    nb::list dims;
    for (const ir::Expr& dim : buffer->dims) dims.append(ir::print(dim));
    all.append(
        nb::make_tuple(names.buffers[b], ir::to_string(buffer->role), onnx_name(buffer->dtype), nb::tuple(dims)));
  }
  return all;
}

}  // namespace

Nest verified(ir::Kernel kernel) {
  try {
    ir::verify(kernel, ir::Stage::authored);
  } catch (const Error&) {
    ir::verify(kernel, ir::Stage::scheduled);  // its error takes precedence
  }
  return {std::make_shared<const ir::Kernel>(kernel), kernel, {}};
}

void bind_nests(nb::module_& m) {
  nb::class_<Nest>(m, "Kernel", "A loop nest: what gradloom.parse gives, and what each schedule gives again.")
      .def("schedule", scheduled, nb::arg("steps"),
           "The nest after these steps, a line each, such as \"split i 8\". One that is not proved right is refused.")
      .def(
          "emit",
          [](const Nest& nest, const std::string& stage, const std::string& target, const std::string& after,
             int threads) { return unlocked([&] {
                              return text_of(nest, {stage, target, after, threads});
                            }); },
          nb::arg("stage") = "lowered", nb::kw_only(), nb::arg("target") = "", nb::arg("after") = "",
          nb::arg("threads") = 0,
          "Its text at a stage (authored, scheduled, lowered, llvm-raw, llvm, asm; cuda, ptx, sass-report), or after a "
          "pass of the lowering. `target`: host, x86-64-v3, ..., or sm_90, ...")
      .def(
          "gradient", gradient, nb::arg("wanted"), nb::kw_only(), nb::arg("kept") = nb::none(),
          nb::arg("inactive") = Names(), nb::arg("known") = Names(), nb::arg("tie") = "halves",
          nb::arg("sums") = "loop",
          "The nest of the gradient of the nest as it was written, derived and proved, or refused: its inputs are what "
          "is kept and d_y of each float output y, its outputs d_x of each wanted input x.")
      .def_prop_ro("name", [](const Nest& nest) { return nest.kernel.name; })
      .def_prop_ro("trace", [](const Nest& nest) { return nest.trace; })
      .def_prop_ro("loops", loops_of)
      .def_prop_ro("scalars", scalars_of)
      .def_prop_ro("buffers", buffers_of)
      .def("__str__", [](const Nest& nest) { return ir::print(nest.kernel); })
      .def("__repr__", [](const Nest& nest) { return fmt::format("<gradloom.Kernel {}>", nest.kernel.name); });
  m.def("parse", parse, nb::arg("text"), "A loop nest from its text. gradloom.ParseError says where it is wrong.");
}

}  // namespace gradloom::python
