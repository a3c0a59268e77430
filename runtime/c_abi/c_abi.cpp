// The C interface on top of the C++ one: unwraps handles, borrows and exports tensors, converts every exception to a
// status.
#include "runtime/c_abi/c_abi.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "runtime/diagnose/log.h"
#include "support/lasting.h"

namespace gradloom::c_abi {
namespace {

// Of fixed size: storing an error allocates nothing when out of memory, and needs no destructor at thread exit.
constexpr size_t message_bytes = 4096;
thread_local char last_message[message_bytes];

// A JSON string.
std::string quoted(std::string_view text) {
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') json += '\\';
    json += c;
  }
  return json + '"';
}

}  // namespace

gradloom_status fail(gradloom_status status, const char* message) noexcept {
  const size_t length = std::min(std::strlen(message), message_bytes - 1);
  std::memmove(last_message, message, length);
  last_message[length] = 0;
  return status;
}

gradloom_status status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return GRADLOOM_INVALID_ARGUMENT;
    case ErrorCode::out_of_range:
      return GRADLOOM_OUT_OF_RANGE;
    case ErrorCode::unsupported:
      return GRADLOOM_UNSUPPORTED;
    case ErrorCode::resource_exhausted:
      return GRADLOOM_RESOURCE_EXHAUSTED;
    case ErrorCode::compile_failed:
      return GRADLOOM_COMPILE_FAILED;
    case ErrorCode::device_error:
      return GRADLOOM_DEVICE_ERROR;
    case ErrorCode::internal:
      return GRADLOOM_INTERNAL;
  }
  return GRADLOOM_INTERNAL;
}

void require(const void* pointer, const char* function, const char* argument) {
  if (!pointer) throw Error(ErrorCode::invalid_argument, fmt::format("{}: {} is null", function, argument));
}

void check_count(const void* array, int32_t count, const char* function, const char* argument) {
  if (count < 0)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: the number of {} is {}, allowed is 0 or more", function, argument, count));
  if (count > 0) require(array, function, argument);
}

char* c_string(const std::string& text) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (!copy) throw std::bad_alloc();
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

const Attributes& attributes_of(const gradloom_attributes* attributes) {
  static constinit Lasting<const Attributes> none;
  return attributes ? attributes->values : *none;
}

namespace {

template <class T>
void set_attribute(gradloom_attributes* attributes, const char* name, T value, const char* function) {
  require(attributes, function, "attributes");
  require(name, function, "name");
  attributes->values.insert_or_assign(name, Attribute(std::move(value)));
}

template <class T, class From>
std::vector<T> values_of(const From* values, int32_t count, const char* function) {
  check_count(values, count, function, "values");
  return {values, values + count};
}

// Its strings are already printable: they come from keys and messages.
std::string json_of(const Stats& s) {
  std::string parts, recent;
  for (const auto& [part, count] : s.disk_miss_parts)
    parts += fmt::format("{}{}:{}", parts.empty() ? "" : ",", quoted(part), count);
  for (const std::string& line : s.disk_recent_misses)
    recent += fmt::format("{}{}", recent.empty() ? "" : ",", quoted(printable(line)));
  return fmt::format(
      R"({{"hits":{},"misses":{},"compiles":{},"launches":{},"evictions":{},"entries":{},"code_bytes":{},"compile_ms":{},)"
      R"("stages":{{"emit_ms":{},"optimize_ms":{},"codegen_ms":{},"link_ms":{}}},"build_ms":{},"load_ms":{},"disk_hits":{},"disk_misses":{},"disk_rejected":{},)"
      R"("disk_write_failures":{},"disk_evictions":{},"disk_bytes_read":{},"disk_bytes_written":{},"generic_calls":{},"specialised":{},"specialise_refused":{},)"
      R"("live_specialisations":{},"strategies_refused":{},"abandoned_compiles":{},)"
      R"("tuned":{},"tuning_runs":{},"tuning_ignored":{},)"
      R"("read_ms":{},"disk_miss_parts":{{{}}},"disk_recent_misses":[{}]}})",
      s.hits, s.misses, s.compiles, s.launches, s.evictions, s.entries, s.code_bytes, s.compile_ms, s.stages.emit_ms,
      s.stages.optimize_ms, s.stages.codegen_ms, s.stages.link_ms, s.build_ms, s.load_ms, s.disk_hits, s.disk_misses,
      s.disk_rejected, s.disk_write_failures, s.disk_evictions, s.disk_bytes_read, s.disk_bytes_written,
      s.generic_calls, s.specialised, s.specialise_refused, s.live_specialisations, s.strategies_refused,
      s.abandoned_compiles, s.tuned, s.tuning_runs, s.tuning_ignored, s.read_ms, parts, recent);
}

}  // namespace
}  // namespace gradloom::c_abi

using namespace gradloom;
using namespace gradloom::c_abi;

const char* gradloom_version(void) { return GRADLOOM_VERSION; }

const char* gradloom_status_name(gradloom_status status) {
  switch (status) {
    case GRADLOOM_OK:
      return "ok";
    case GRADLOOM_INVALID_ARGUMENT:
      return "invalid_argument";
    case GRADLOOM_OUT_OF_RANGE:
      return "out_of_range";
    case GRADLOOM_UNSUPPORTED:
      return "unsupported";
    case GRADLOOM_RESOURCE_EXHAUSTED:
      return "resource_exhausted";
    case GRADLOOM_COMPILE_FAILED:
      return "compile_failed";
    case GRADLOOM_DEVICE_ERROR:
      return "device_error";
    case GRADLOOM_INTERNAL:
      return "internal";
  }
  return "unknown";
}

const char* gradloom_last_error(void) { return last_message; }

gradloom_status gradloom_runtime_create(const gradloom_runtime_options* given, gradloom_runtime** runtime) {
  const char* const name = __func__;
  if (runtime) *runtime = nullptr;
  return entry([&] {
    require(runtime, name, "runtime");
    *runtime = new gradloom_runtime{std::make_shared<Runtime>(runtime_options(given, name))};
  });
}

gradloom_status gradloom_shared_runtime(const gradloom_runtime_options* given, gradloom_runtime** runtime) {
  const char* const name = __func__;
  if (runtime) *runtime = nullptr;
  return entry([&] {
    require(runtime, name, "runtime");
    *runtime = new gradloom_runtime{shared_runtime(runtime_options(given, name)).value()};
  });
}

void gradloom_runtime_destroy(gradloom_runtime* runtime) { delete runtime; }

gradloom_status gradloom_attributes_create(gradloom_attributes** attributes) {
  const char* const name = __func__;
  return entry([&] {
    require(attributes, name, "attributes");
    *attributes = nullptr;
    *attributes = new gradloom_attributes;
  });
}

void gradloom_attributes_destroy(gradloom_attributes* attributes) { delete attributes; }

gradloom_status gradloom_attributes_set_int(gradloom_attributes* attributes, const char* name, int64_t value) {
  const char* const function = __func__;
  return entry([&] { set_attribute(attributes, name, value, function); });
}

gradloom_status gradloom_attributes_set_float(gradloom_attributes* attributes, const char* name, double value) {
  const char* const function = __func__;
  return entry([&] { set_attribute(attributes, name, value, function); });
}

gradloom_status gradloom_attributes_set_string(gradloom_attributes* attributes, const char* name, const char* value) {
  const char* const function = __func__;
  return entry([&] {
    require(value, function, "value");
    set_attribute(attributes, name, std::string(value), function);
  });
}

gradloom_status gradloom_attributes_set_ints(gradloom_attributes* attributes, const char* name, const int64_t* values,
                                             int32_t count) {
  const char* const function = __func__;
  return entry([&] { set_attribute(attributes, name, values_of<int64_t>(values, count, function), function); });
}

gradloom_status gradloom_attributes_set_floats(gradloom_attributes* attributes, const char* name, const double* values,
                                               int32_t count) {
  const char* const function = __func__;
  return entry([&] { set_attribute(attributes, name, values_of<double>(values, count, function), function); });
}

gradloom_status gradloom_attributes_set_strings(gradloom_attributes* attributes, const char* name,
                                                const char* const* values, int32_t count) {
  const char* const function = __func__;
  return entry([&] {
    check_count(values, count, function, "values");
    for (int32_t i = 0; i < count; ++i) require(values[i], function, fmt::format("values[{}]", i).c_str());
    set_attribute(attributes, name, values_of<std::string>(values, count, function), function);
  });
}

gradloom_status gradloom_run(gradloom_runtime* runtime, const char* op, const DLTensor* const* inputs,
                             int32_t input_count, const gradloom_attributes* attributes,
                             const gradloom_run_options* options, DLManagedTensor** outputs, int32_t output_count) {
  const char* const name = __func__;
  return give_outputs(outputs, output_count, name, [&] {
    require(runtime, name, "runtime");
    require(op, name, "op");
    const std::vector<Tensor> tensors = borrow_all(inputs, input_count, name, "inputs");
    return runtime->runtime->run(op, tensors, attributes_of(attributes), run_options(options, name)).value();
  });
}

gradloom_status gradloom_run_into(gradloom_runtime* runtime, const char* op, const DLTensor* const* inputs,
                                  int32_t input_count, const gradloom_attributes* attributes,
                                  const gradloom_run_options* options, DLTensor* const* outputs, int32_t output_count) {
  const char* const name = __func__;
  return entry([&] {
    require(runtime, name, "runtime");
    require(op, name, "op");
    const std::vector<Tensor> tensors = borrow_all(inputs, input_count, name, "inputs");
    std::vector<Tensor> results = borrow_all(outputs, output_count, name, "outputs");
    runtime->runtime->run_into(op, tensors, results, attributes_of(attributes), run_options(options, name)).value();
    for (int32_t o = 0; o < output_count; ++o)
      if (results[o].present()) write_shape(*outputs[o], results[o].dims());
  });
}

gradloom_status gradloom_compile(gradloom_runtime* runtime, const char* op, const DLTensor* const* inputs,
                                 int32_t input_count, const gradloom_attributes* attributes,
                                 const gradloom_run_options* options, gradloom_executable** executable) {
  const char* const name = __func__;
  if (executable) *executable = nullptr;
  return entry([&] {
    require(runtime, name, "runtime");
    require(op, name, "op");
    require(executable, name, "executable");
    const std::vector<Tensor> tensors = borrow_all(inputs, input_count, name, "inputs");
    *executable = new gradloom_executable{
        runtime->runtime->compile(op, tensors, attributes_of(attributes), run_options(options, name)).value()};
  });
}

void gradloom_executable_destroy(gradloom_executable* executable) {
  const Entry entered;  // it may release the last reference to the runtime's threads and caches
  delete executable;
}

gradloom_status gradloom_call(const gradloom_executable* executable, const DLTensor* const* inputs, int32_t input_count,
                              DLTensor* const* outputs, int32_t output_count) {
  const char* const name = __func__;
  return entry([&] {
    require(executable, name, "executable");
    const std::vector<Tensor> tensors = borrow_all(inputs, input_count, name, "inputs");
    const std::vector<Tensor> results = borrow_all(outputs, output_count, name, "outputs");
    executable->executable(tensors, results).value();
  });
}

gradloom_status gradloom_save_calls(const gradloom_runtime* runtime, void** bytes, uint64_t* size) {
  const char* const name = __func__;
  if (bytes) *bytes = nullptr;
  if (size) *size = 0;
  return entry([&] {
    require(runtime, name, "runtime");
    require(bytes, name, "bytes");
    require(size, name, "size");
    const std::string file = save_calls(runtime->runtime->used_calls());
    *bytes = c_string(file);
    *size = file.size();
  });
}

gradloom_status gradloom_prewarm(gradloom_runtime* runtime, const void* bytes, uint64_t size,
                                 gradloom_prewarm_report* report) {
  const char* const name = __func__;
  if (report) *report = {};
  return entry([&] {
    require(runtime, name, "runtime");
    require(bytes, name, "bytes");
    const std::vector<CallKey> calls = load_calls({static_cast<const char*>(bytes), size}).value();
    const PrewarmReport made = runtime->runtime->prewarm(calls).value();
    if (!report) return;
    report->ready = made.ready, report->compiled = made.compiled, report->failed = made.failed;
    std::strncpy(report->first_failure, made.first_failure.c_str(), sizeof report->first_failure - 1);
  });
}

gradloom_status gradloom_wait_for_background(const gradloom_runtime* runtime) {
  const char* const name = __func__;
  return entry([&] {
    require(runtime, name, "runtime");
    runtime->runtime->wait_for_background();
  });
}

void gradloom_bytes_free(void* bytes) { std::free(bytes); }

gradloom_status gradloom_stats_json(const gradloom_runtime* runtime, char** json) {
  const char* const name = __func__;
  if (json) *json = nullptr;
  return entry([&] {
    require(runtime, name, "runtime");
    require(json, name, "json");
    *json = c_string(json_of(runtime->runtime->stats()));
  });
}

gradloom_status gradloom_target_name(const gradloom_runtime* runtime, char** target) {
  const char* const name = __func__;
  if (target) *target = nullptr;
  return entry([&] {
    require(runtime, name, "runtime");
    require(target, name, "name");
    *target = c_string(runtime->runtime->target_name());
  });
}

void gradloom_string_free(char* string) { std::free(string); }

gradloom_status gradloom_set_log_level(int32_t level) {
  const char* const name = __func__;
  return entry([&] { set_log_level(checked<LogLevel>(level, GRADLOOM_LOG_DEBUG, name, "level")); });
}

gradloom_status gradloom_set_log_sink(gradloom_log_sink sink, void* context) {
  return entry([&] {
    if (!sink) return set_log_sink({});
    set_log_sink([sink, context](LogLevel level, std::string_view message) {
      sink(context, static_cast<gradloom_log_level>(level), std::string(message).c_str());
    });
  });
}
