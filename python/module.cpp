// The extension module gradloom._gradloom; what it is for a user is in the package's own files.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "gradloom/log.h"
#include "python/arrays.h"
#include "python/builder.h"
#include "python/c_functions.h"
#include "python/errors.h"
#include "python/gil.h"
#include "python/logging.h"
#include "python/nest.h"
#include "python/runtime.h"

namespace nb = nanobind;
using namespace gradloom;

namespace {

void set_level(const std::string& name) {
  const auto level = log_level_from_string(name);
  if (!level) python::refuse("the log's level is " + name + "; allowed are off, error, warn, info, debug");
  set_log_level(*level);
}

}  // namespace

// The runtime, its threads and its log are the process's. Refused before nanobind's own state becomes another
// interpreter's.
#define PyInit__gradloom init_in_main
NB_MODULE(_gradloom, m) {
  nb::set_leak_warnings(false);  // a handle may live until the process ends
  python::bind_errors();
  python::bind_arrays(m);
  python::bind_nests(m);
  python::bind_builder(m);
  python::bind_runtime(m);
  python::bind_compiled(m);
  python::bind_c_functions(m);
  m.attr("version") = GRADLOOM_VERSION;
  m.def("set_log_level", set_level, nb::arg("level"),
        "What goes to logging.getLogger(\"gradloom\"): off, error, warn, info or debug.");
  m.def("log_level", [] { return to_string(log_level()); });
  python::start_logging();
  python::open_gate_in_children();
  nb::module_::import_("atexit").attr("register")(nb::cpp_function([] {
    python::stop_logging();
    python::close_gate();
  }));
}
#undef PyInit__gradloom

extern "C" NB_EXPORT PyObject* PyInit__gradloom() {
  if (PyInterpreterState_Get() == PyInterpreterState_Main()) return init_in_main();
  PyErr_SetString(PyExc_ImportError, "gradloom cannot be imported in a sub-interpreter; import it in the main one");
  return nullptr;
}
