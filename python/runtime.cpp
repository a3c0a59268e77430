#include "python/runtime.h"

#include <fmt/format.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/arrays.h"
#include "python/attributes.h"
#include "python/errors.h"
#include "python/gil.h"
#include "python/logging.h"
#include "python/text.h"

namespace nb = nanobind;

namespace gradloom::python {
namespace {

struct PyPrepared {
  PreparedOp prepared;
  std::string name;
  const Op* op = nullptr;
  RunOptions options;
};

constexpr size_t most_inputs = 64;  // the library refuses fewer than that, by name

// The outputs of one call: the caller's, or new ones.
nb::object given_back(const Kind& kind, std::vector<Tensor> outputs) {
  if (outputs.size() == 1) return kind.give(std::move(outputs[0]));
  nb::object all = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(outputs.size())));
  for (size_t o = 0; o < outputs.size(); ++o)
    PyTuple_SET_ITEM(all.ptr(), static_cast<Py_ssize_t>(o), kind.give(std::move(outputs[o])).release().ptr());
  return all;
}

// An output that was trimmed to the size found is the leading part of the caller's.
nb::object as_found(nb::handle array, const Tensor& before, const Tensor& after) {
  if (!after.present() || after.dims() == before.dims()) return nb::borrow(array);
  return array[nb::slice(nb::int_(0), nb::int_(after.dims()[0]), nb::none())];
}

Place place_of(std::string_view name, const char* what, size_t position, const std::vector<ArgumentSchema>* schemas) {
  const bool known = schemas && position < schemas->size();
  return {name.data(), what, static_cast<int>(position), known ? (*schemas)[position].name.c_str() : "unknown"};
}

// One call of an op: `run(inputs)` or `run_into(inputs, outputs)`, both without the interpreter's lock.
class Call {
 public:
  Call(std::string_view name, const Op* op) : name_(name), op_(op) {}

  template <class Run, class RunInto>
  nb::object operator()(PyObject* const* inputs, size_t count, nb::handle out, Run&& run, RunInto&& run_into) const {
    if (count > most_inputs) refuse(fmt::format("{}: got {} inputs", name_, count));
    Arrays arrays(count);
    Kind kind;
    for (size_t i = 0; i < count; ++i) {
      if (out.is_none()) kind.see(inputs[i]);
      arrays.add(inputs[i], false, place("input", i, op_ ? &op_->schema().inputs : nullptr));
    }
    const std::vector<Tensor>& tensors = arrays.tensors();
    if (out.is_none()) {
      auto outputs = unlocked([&] { return run(tensors); });
      log_waiting();
      return given_back(kind, std::move(outputs).value());
    }
    const bool several = PyList_Check(out.ptr()) || PyTuple_Check(out.ptr());
    // A list may change while the lock is released.
    const nb::object fixed = several ? tuple_of(out) : nb::object();
    PyObject* const single = out.ptr();
    PyObject* const* const outs = several ? PySequence_Fast_ITEMS(fixed.ptr()) : &single;
    const size_t out_count = several ? static_cast<size_t>(PyTuple_GET_SIZE(fixed.ptr())) : 1;
    if (out_count > most_inputs) refuse(fmt::format("{}: got {} outputs", name_, out_count));
    Arrays outputs(out_count);
    for (size_t o = 0; o < out_count; ++o)
      outputs.add(outs[o], true, place("output", o, op_ ? &op_->schema().outputs : nullptr));
    const bool trims = op_ && op_->schema().outputs[0].found_size;
    const std::vector<Tensor> before = trims ? outputs.tensors() : std::vector<Tensor>();
    const auto done = unlocked([&] { return run_into(tensors, outputs.tensors()); });
    log_waiting();
    done.value();
    if (!trims) return nb::borrow(out);
    if (!several) return as_found(out, before[0], outputs.tensors()[0]);
    nb::list found;
    for (size_t o = 0; o < out_count; ++o) found.append(as_found(outs[o], before[o], outputs.tensors()[o]));
    return nb::tuple(found);
  }

 private:
  Place place(const char* what, size_t position, const std::vector<ArgumentSchema>* schemas) const {
    return place_of(name_, what, position, schemas);
  }

  std::string_view name_;  // ends with a null
  const Op* op_;
};

nb::object run(PyRuntime& self, const std::string& name, nb::handle inputs, const nb::kwargs& given) {
  const Op* const op = find_op(name);
  const CallOptions options = call_options(name, op, given);
  if (!PyList_Check(inputs.ptr()) && !PyTuple_Check(inputs.ptr()))
    refuse(
        fmt::format("{}: the inputs are of type {}; expected a list of arrays", name, Py_TYPE(inputs.ptr())->tp_name));
  const nb::object fixed = tuple_of(inputs);
  const std::shared_ptr<Runtime> runtime = self.runtime;
  return Call(name, op)(
      PySequence_Fast_ITEMS(fixed.ptr()), static_cast<size_t>(PyTuple_GET_SIZE(fixed.ptr())), options.out,
      [&](const std::vector<Tensor>& tensors) { return runtime->run(name, tensors, options.attributes, options.run); },
      [&](const std::vector<Tensor>& tensors, std::vector<Tensor>& outputs) {
        return runtime->run_into(name, tensors, outputs, options.attributes, options.run);
      });
}

PyPrepared prepare(PyRuntime& self, const std::string& name, const nb::kwargs& given) {
  const Op* const op = find_op(name);
  const CallOptions options = call_options(name, op, given);
  if (!options.out.is_none()) refuse(fmt::format("{}: out is given with each call of the handle", name));
  auto prepared = unlocked([&] { return self.runtime->prepare(name, options.attributes, options.run); });
  log_waiting();
  return {std::move(prepared).value(), name, op, options.run};
}

nb::object call_prepared(const PyPrepared& self, const nb::args& inputs, nb::handle out) {
  return Call(self.name, self.op)(
      PySequence_Fast_ITEMS(inputs.ptr()), inputs.size(), out,
      [&](const std::vector<Tensor>& tensors) { return self.prepared.run(tensors); },
      [&](const std::vector<Tensor>& tensors, std::vector<Tensor>& outputs) {
        return self.prepared.run_into(tensors, outputs);
      });
}

nb::list infer_outputs(const PyRuntime& self, const std::string& name, nb::handle inputs, const nb::kwargs& given) {
  const Op* const op = find_op(name);
  const CallOptions options = call_options(name, op, given);
  Arrays arrays(nb::len(inputs));
  size_t position = 0;
  for (const nb::handle input : inputs)
    arrays.add(input, false, place_of(name, "input", position++, op ? &op->schema().inputs : nullptr));
  const auto infos =
      self.runtime->infer_outputs(name, std::span<const Tensor>(arrays.tensors()), options.attributes, options.run);
  nb::list all;
  for (const OutputInfo& info : infos.value()) {
    if (!info.wanted) {
      all.append(nb::none());
      continue;
    }
    nb::list shape;
    for (const int64_t dim : info.dims) shape.append(dim);
    all.append(nb::make_tuple(onnx_name(info.dtype), nb::tuple(shape)));
  }
  return all;
}

nb::dict stages_dict(const CompileStages& stages) {
  nb::dict d;
  d["emit_ms"] = stages.emit_ms, d["optimize_ms"] = stages.optimize_ms;
  d["codegen_ms"] = stages.codegen_ms, d["link_ms"] = stages.link_ms;
  return d;
}

nb::dict stats_dict(const Stats& s) {
  nb::dict d;
  const std::pair<const char*, int64_t> counts[] = {{"hits", s.hits},
                                                    {"misses", s.misses},
                                                    {"compiles", s.compiles},
                                                    {"launches", s.launches},
                                                    {"evictions", s.evictions},
                                                    {"entries", s.entries},
                                                    {"code_bytes", s.code_bytes},
                                                    {"interpreted", s.interpreted},
                                                    {"interpreter_launches", s.interpreter_launches},
                                                    {"disk_hits", s.disk_hits},
                                                    {"disk_misses", s.disk_misses},
                                                    {"disk_rejected", s.disk_rejected},
                                                    {"disk_write_failures", s.disk_write_failures},
                                                    {"disk_evictions", s.disk_evictions},
                                                    {"disk_bytes_read", s.disk_bytes_read},
                                                    {"disk_bytes_written", s.disk_bytes_written},
                                                    {"generic_calls", s.generic_calls},
                                                    {"specialised", s.specialised},
                                                    {"specialise_refused", s.specialise_refused},
                                                    {"live_specialisations", s.live_specialisations},
                                                    {"abandoned_compiles", s.abandoned_compiles},
                                                    {"strategies_refused", s.strategies_refused},
                                                    {"tuned", s.tuned},
                                                    {"tuning_runs", s.tuning_runs},
                                                    {"tuning_ignored", s.tuning_ignored}};
  for (const auto& [name, count] : counts) d[name] = count;
  d["compile_ms"] = s.compile_ms, d["build_ms"] = s.build_ms, d["read_ms"] = s.read_ms, d["load_ms"] = s.load_ms;
  d["stages"] = stages_dict(s.stages);
  d["disk_miss_parts"] = s.disk_miss_parts;
  d["disk_recent_misses"] = s.disk_recent_misses;
  return d;
}

// Attributes' defaults as the library has them.
nb::object value_of(const std::optional<Attribute>& attribute) {
  if (!attribute) return nb::none();
  return std::visit([](const auto& value) { return nb::cast(value); }, *attribute);
}

nb::list arguments_list(const std::vector<ArgumentSchema>& arguments) {
  nb::list all;
  for (const ArgumentSchema& argument : arguments) {
    nb::dict d;
    nb::list dtypes;
    for (const DType dtype : argument.dtypes) dtypes.append(onnx_name(dtype));
    d["name"] = argument.name, d["optional"] = argument.optional, d["dtypes"] = dtypes;
    d["shape_like"] = argument.shape_like, d["doc"] = argument.doc, d["type"] = argument.type;
    all.append(d);
  }
  return all;
}

nb::list schemas() {
  nb::list all;
  for (const Op* op : all_ops()) {
    const OpSchema& schema = op->schema();
    nb::list attributes;
    for (const AttributeSchema& attribute : schema.attributes) {
      nb::dict d;
      d["name"] = attribute.name, d["type"] = attribute.type, d["doc"] = attribute.doc;
      d["default"] = value_of(attribute.otherwise);
      attributes.append(d);
    }
    nb::dict d;
    d["name"] = schema.name, d["doc"] = schema.doc;
    d["inputs"] = arguments_list(schema.inputs), d["outputs"] = arguments_list(schema.outputs);
    d["attributes"] = attributes;
    all.append(d);
  }
  return all;
}

}  // namespace

nb::dict report_dict(const KernelReport& report) {
  nb::dict d;
  d["op"] = report.op, d["strategy"] = report.strategy, d["target"] = report.target;
  d["determinism"] = to_name(report.determinism);
  d["compiled"] = report.compiled, d["from_disk"] = report.from_disk, d["any_shape"] = report.any_shape;
  d["tuned"] = report.tuned;
  d["build_ms"] = report.build_ms, d["compile_ms"] = report.compile_ms;
  d["stages"] = stages_dict(report.stages);
  nb::dict passes;
  for (const auto& [pass, ms] : report.pass_ms) {
    nb::object before = passes.contains(pass.c_str()) ? nb::object(passes[pass.c_str()]) : nb::object(nb::float_(0.0));
    passes[pass.c_str()] = nb::cast<double>(before) + ms;
  }
  d["pass_ms"] = passes;
  d["schedule_trace"] = report.schedule_trace;
  return d;
}

void bind_runtime(nb::module_& m) {
  m.def("schemas", schemas);
  nb::class_<PyPrepared>(m, "Prepared",
                         "An op with its attributes, for inputs of any dtypes and shapes: for hot loops.")
      .def("__call__", call_prepared, nb::arg("inputs"), nb::arg("out").none() = nb::none(),
           "Runs the op on these inputs; with `out`, into it.")
      .def("__repr__", [](const PyPrepared& self) { return fmt::format("gradloom.Prepared({})", self.name); });

  nb::class_<PyRuntime>(
      m, "Runtime",
      "Compiles, caches and runs kernels, on threads of its own. May be used by any thread, and after a fork.")
      .def(
          "__init__",
          [](PyRuntime* self, const std::string& target, int threads, const std::string& isa, int64_t cache_bytes,
             int64_t recycle_bytes, const std::string& dump_folder, int device, const std::string& disk_cache,
             const std::vector<std::string>& disk_cache_read_only, int64_t disk_cache_bytes, const std::string& policy,
             int specialise_after, int specialisations, int compile_threads, const std::string& tuning,
             const std::string& tuning_log, bool shared) {
            RuntimeOptions options{.target = target_of(target),
                                   .threads = threads,
                                   .isa = isa,
                                   .cache_bytes = cache_bytes,
                                   .recycle_bytes = recycle_bytes,
                                   .dump_folder = dump_folder,
                                   .device = device,
                                   .disk_cache = disk_cache,
                                   .disk_cache_read_only = disk_cache_read_only,
                                   .disk_cache_bytes = disk_cache_bytes,
                                   .policy = policy_of(policy),
                                   .specialise_after = specialise_after,
                                   .specialisations = specialisations,
                                   .compile_threads = compile_threads,
                                   .tuning = tuning_of(tuning),
                                   .tuning_log = tuning_log};
            std::shared_ptr<Runtime> runtime =
                unlocked([&] { return shared ? shared_runtime(options).value() : std::make_shared<Runtime>(options); });
            log_waiting();
            new (self) PyRuntime{std::move(runtime)};
          },
          nb::kw_only(), nb::arg("target") = "automatic", nb::arg("threads") = 0, nb::arg("isa") = "host",
          nb::arg("cache_bytes") = int64_t{256} << 20, nb::arg("recycle_bytes") = int64_t{1} << 30,
          nb::arg("dump_folder") = "", nb::arg("device") = 0, nb::arg("disk_cache") = "",
          nb::arg("disk_cache_read_only") = std::vector<std::string>(), nb::arg("disk_cache_bytes") = int64_t{1} << 30,
          nb::arg("policy") = "generic_first", nb::arg("specialise_after") = 32, nb::arg("specialisations") = 4,
          nb::arg("compile_threads") = 1, nb::arg("tuning") = "off", nb::arg("tuning_log") = "",
          nb::arg("_shared") = false, "Its options are RuntimeOptions' (docs/python.md).")
      .def("run", run, nb::arg("op"), nb::arg("inputs"), nb::arg("options"),
           "Runs an op by its ONNX name, with its attributes and gradloom.Options by name: as gradloom.run.")
      .def("prepare", prepare, nb::arg("op"), nb::arg("options"), "A handle for hot loops: as gradloom.prepare.")
      .def("infer_outputs", infer_outputs, nb::arg("op"), nb::arg("inputs"), nb::arg("options"),
           "What such a run gives, without running it: dtype and shape; None for an output that is not wanted.")
      .def(
          "last_report", [](const PyRuntime& self) { return report_dict(self.runtime->last_report()); },
          "Which kernel served this thread's last call, and how: strategy, times, schedule.")
      .def(
          "stats", [](const PyRuntime& self) { return stats_dict(unlocked([&] { return self.runtime->stats(); })); },
          "Counts of calls, compiles and the caches, and times.")
      .def(
          "clear_cache", [](PyRuntime& self) { unlocked([&] { self.runtime->clear_cache(); }); },
          "Drops all kernels from memory; those on disk stay.")
      .def(
          "used_calls",
          [](const PyRuntime& self) {
            const std::string saved = save_calls(self.runtime->used_calls());
            return nb::bytes(saved.data(), saved.size());
          },
          "The calls whose kernels were used so far, for `prewarm` of a later process.")
      .def(
          "prewarm",
          [](PyRuntime& self, const nb::bytes& saved) {
            const std::string_view text(saved.c_str(), saved.size());
            const PrewarmReport report =
                unlocked([&] { return self.runtime->prewarm(load_calls(text).value()).value(); });
            log_waiting();
            nb::dict d;
            d["ready"] = report.ready, d["compiled"] = report.compiled, d["failed"] = report.failed;
            d["first_failure"] = report.first_failure;
            return d;
          },
          nb::arg("calls"), "Compiles the kernels of such calls ahead of them.")
      .def(
          "wait_for_background", [](const PyRuntime& self) { unlocked([&] { self.runtime->wait_for_background(); }); },
          "Until no specialisation is under way.")
      .def("synchronize", [](PyRuntime& self) { unlocked([&] { return self.runtime->synchronize(); }).value(); })
      .def_prop_ro("threads", [](const PyRuntime& self) { return self.runtime->threads(); })
      .def_prop_ro("target", [](const PyRuntime& self) { return self.runtime->target_name(); })
      .def("__repr__", [](const PyRuntime& self) {
        return fmt::format("gradloom.Runtime({}, {} threads)", self.runtime->target_name(), self.runtime->threads());
      });
}

}  // namespace gradloom::python
