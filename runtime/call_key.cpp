// Calls without their data, saved and read again. The frame is that of the cache's files.
#include "runtime/build.h"
#include "runtime/bytes.h"
#include "runtime/cache_entry.h"
#include "runtime/planned_call.h"

namespace gradloom {
namespace {

template <class T>
void write_list(ByteWriter& out, const std::vector<T>& values) {
  out.value(static_cast<uint64_t>(values.size()));
  for (const T& value : values) out.value(value);
}

void write_dims(ByteWriter& out, const Dims& dims) {
  out.value(static_cast<int32_t>(dims.size()));
  for (const int64_t dim : dims) out.value(dim);
}

Dims read_dims(ByteReader& in) {
  Dims dims;
  for (int n = in.value<int32_t>(); n > 0; --n) dims.push_back(in.value<int64_t>());
  return dims;
}

void write_attribute(ByteWriter& out, const Attribute& attribute) {
  out.value(static_cast<uint32_t>(attribute.index()));
  struct {
    ByteWriter& out;
    void operator()(int64_t value) const { out.value(value); }
    void operator()(double value) const { out.value(value); }
    void operator()(const std::string& value) const { out.text(value); }
    void operator()(const std::vector<int64_t>& values) const { write_list(out, values); }
    void operator()(const std::vector<double>& values) const { write_list(out, values); }
    void operator()(const std::vector<std::string>& values) const {
      out.value(static_cast<uint64_t>(values.size()));
      for (const std::string& value : values) out.text(value);
    }
  } write{out};
  std::visit(write, attribute);
}

template <class T>
std::vector<T> read_list(ByteReader& in) {
  std::vector<T> values(in.count(sizeof(T)));
  for (T& value : values) value = in.value<T>();
  return values;
}

Attribute read_attribute(ByteReader& in) {
  switch (in.value<uint32_t>()) {
    case 0: return in.value<int64_t>();
    case 1: return in.value<double>();
    case 2: return std::string(in.text());
    case 3: return read_list<int64_t>(in);
    case 4: return read_list<double>(in);
    case 5: {
      std::vector<std::string> values(in.count(8));
      for (std::string& value : values) value = in.text();
      return values;
    }
    default: throw Error(ErrorCode::invalid_argument, "an attribute of no known type");
  }
}

void write_call(ByteWriter& out, const CallKey& call) {
  out.text(call.op);
  out.value(static_cast<uint64_t>(call.inputs.size()));
  for (const CallKey::Input& input : call.inputs) {
    out.value(static_cast<uint32_t>(input.present));
    out.value(static_cast<uint32_t>(input.dtype));
    write_dims(out, input.dims);
    write_dims(out, input.strides);
    out.text(input.values);
  }
  out.value(static_cast<uint64_t>(call.attributes.size()));
  for (const auto& [name, value] : call.attributes) {
    out.text(name);
    write_attribute(out, value);
  }
  out.value(static_cast<uint32_t>(call.options.accumulate));
  out.text(call.options.strategy);
  out.value(static_cast<uint32_t>(call.options.any_shape));
  out.value(static_cast<uint32_t>(call.options.determinism));
  out.value(call.outputs_wanted);
  out.value(call.output_alignment);
}

CallKey read_call(ByteReader& in) {
  CallKey call;
  call.op = in.text();
  call.inputs.resize(in.count(24));
  for (CallKey::Input& input : call.inputs) {
    input.present = in.value<uint32_t>() != 0;
    const auto dtype = in.value<uint32_t>();
    if (dtype > static_cast<uint32_t>(DType::f64)) throw Error(ErrorCode::invalid_argument, "an input of no known dtype");
    input.dtype = static_cast<DType>(dtype);
    input.dims = read_dims(in);
    input.strides = read_dims(in);
    input.values = in.text();
  }
  for (size_t n = in.count(12); n > 0; --n) {
    std::string name(in.text());
    call.attributes.emplace(std::move(name), read_attribute(in));
  }
  call.options.accumulate = in.value<uint32_t>() != 0;
  call.options.strategy = in.text();
  call.options.any_shape = in.value<uint32_t>() != 0;
  const auto determinism = in.value<uint32_t>();
  if (determinism > static_cast<uint32_t>(Determinism::relaxed)) throw Error(ErrorCode::invalid_argument, "a call of no known determinism");
  call.options.determinism = static_cast<Determinism>(determinism);
  call.outputs_wanted = in.value<uint32_t>();
  call.output_alignment = in.value<int64_t>();
  if (call.output_alignment != aligned_outputs && call.output_alignment != any_outputs) throw Error(ErrorCode::invalid_argument, "outputs of no known alignment");
  return call;
}

}  // namespace

CallKey call_key(const PlannedCall& call) {
  CallKey key{.op = call.op.schema().name,
              .attributes = call.request->attributes,
              .options = call.options,
              .outputs_wanted = call.outputs_wanted,
              .output_alignment = call.output_alignment};
  key.options.strategy = call.strategy;
  key.options.policy.reset();
  for (const Operand& operand : call.request->inputs) {
    CallKey::Input input{operand.present, operand.dtype, operand.dims, operand.strides, {}};
    if (operand.host) {
      int64_t elements = 1;
      for (const int64_t dim : operand.dims) elements *= dim;
      input.values.assign(static_cast<const char*>(operand.host), static_cast<size_t>(elements * size_of(operand.dtype)));
    }
    key.inputs.push_back(std::move(input));
  }
  return key;
}

std::string save_calls(std::span<const CallKey> calls) {
  ByteWriter out;
  out.value(static_cast<uint64_t>(calls.size()));
  for (const CallKey& call : calls) write_call(out, call);
  return cache_frame(CacheFile::calls, out.take());
}

Result<std::vector<CallKey>> load_calls(std::string_view file) {
  return capture([&] {
    try {
      ByteReader in(cache_body(CacheFile::calls, file));
      std::vector<CallKey> calls(in.count(64));
      for (CallKey& call : calls) call = read_call(in);
      in.end();
      return calls;
    } catch (const Error& error) {
      throw Error(error.code(), std::string("saved calls: ") + error.what());
    }
  });
}

}  // namespace gradloom
