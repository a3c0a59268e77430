// The extension module gradloom._gradloom; what it is for a user is in the package's own files.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "gradloom/log.h"
#include "python/arrays.h"
#include "python/builder.h"
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

NB_MODULE(_gradloom, m) {
  // The runtime, its threads and its log are the process's.
  if (PyInterpreterState_Get() != PyInterpreterState_Main())
    throw std::runtime_error("gradloom cannot be imported in a sub-interpreter; import it in the main one");
  nb::set_leak_warnings(false);  // a handle may live until the process ends
  python::bind_errors();
  python::bind_arrays(m);
  python::bind_nests(m);
  python::bind_builder(m);
  python::bind_runtime(m);
  python::bind_compiled(m);
  m.attr("version") = GRADLOOM_VERSION;
  m.def("set_log_level", set_level, nb::arg("level"),
        "What goes to logging.getLogger(\"gradloom\"): off, error, warn, info or debug.");
  m.def("log_level", [] { return to_string(log_level()); });
  python::start_logging();
  nb::module_::import_("atexit").attr("register")(nb::cpp_function([] {
    python::stop_logging();
    python::close_gate();
  }));
}
