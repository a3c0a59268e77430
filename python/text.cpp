#include "python/text.h"

#include <fmt/format.h>

#include "python/errors.h"

namespace nb = nanobind;

namespace gradloom::python {
namespace {

template <class E>
struct Named {
  const char* name;
  E value;
};
constexpr Named<Determinism> levels[] = {{"sequential", Determinism::sequential},
                                         {"run_to_run", Determinism::run_to_run},
                                         {"relaxed", Determinism::relaxed}};
constexpr Named<Policy> policies[] = {{"specialise", Policy::specialise}, {"generic_first", Policy::generic_first}};
constexpr Named<Tuning> tunings[] = {{"off", Tuning::off}, {"use", Tuning::use}, {"background", Tuning::background}};
constexpr Named<TargetKind> targets[] = {{"automatic", TargetKind::automatic},
                                         {"llvm", TargetKind::llvm},
                                         {"interpreter", TargetKind::interpreter},
                                         {"cuda", TargetKind::cuda},
                                         {"cuda-host", TargetKind::cuda_host}};

template <class E, size_t N>
E find(const char* option, const Named<E> (&all)[N], std::string_view name) {
  std::string allowed;
  for (const Named<E>& one : all) {
    if (one.name == name) return one.value;
    allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", one.name);
  }
  refuse(fmt::format("{} is {}; allowed are {}", option, name, allowed));
}

}  // namespace

std::string_view view_of(nb::handle text) {
  Py_ssize_t bytes = 0;
  const char* const data = PyUnicode_AsUTF8AndSize(text.ptr(), &bytes);
  if (!data) {
    PyErr_Clear();
    refuse("a string is no valid Unicode: it has a lone surrogate");
  }
  return {data, static_cast<size_t>(bytes)};
}

std::string_view option_text(const char* option, nb::handle value) {
  if (!PyUnicode_Check(value.ptr()))
    refuse(fmt::format("{} is of type {}; expected str", option, Py_TYPE(value.ptr())->tp_name));
  return view_of(value);
}

bool option_flag(const char* option, nb::handle value) {
  if (!PyBool_Check(value.ptr()))
    refuse(fmt::format("{} is of type {}; expected bool", option, Py_TYPE(value.ptr())->tp_name));
  return value.ptr() == Py_True;
}

Determinism determinism_of(std::string_view name) { return find("determinism", levels, name); }
const char* to_name(Determinism determinism) { return levels[static_cast<size_t>(determinism)].name; }
Policy policy_of(std::string_view name) { return find("policy", policies, name); }
Tuning tuning_of(std::string_view name) { return find("tuning", tunings, name); }
TargetKind target_of(std::string_view name) { return find("target", targets, name); }

}  // namespace gradloom::python
