// Serialises calls without their data. The frame format is that of the cache's files.
#include <fmt/format.h>

#include "runtime/cache/cache_entry.h"
#include "runtime/cache/saved_call.h"
#include "support/bytes.h"
#include "support/float_mode.h"

namespace gradloom {
namespace {

constexpr uint32_t target_level = ~0u;  // stored for a call that requests no level

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
    case 0:
      return in.value<int64_t>();
    case 1:
      return in.value<double>();
    case 2:
      return std::string(in.text());
    case 3:
      return read_list<int64_t>(in);
    case 4:
      return read_list<double>(in);
    case 5: {
      std::vector<std::string> values(in.count(8));
      for (std::string& value : values) value = in.text();
      return values;
    }
    default:
      throw Error(ErrorCode::invalid_argument, "it is of no known type, expected 0 to 5");
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
  out.value(call.options.determinism ? static_cast<uint32_t>(*call.options.determinism) : target_level);
  out.value(call.outputs_wanted);
  out.value(call.output_alignment);
}

void expect_dtype(uint32_t dtype) {
  if (dtype > static_cast<uint32_t>(DType::f64))
    throw Error(ErrorCode::invalid_argument,
                fmt::format("dtype {} is none, expected 0 to {}", dtype, static_cast<uint32_t>(DType::f64)));
}

// `member`: the name of the member being read, for the error message.
CallKey read_call(ByteReader& in, std::string& member) {
  CallKey call;
  member = "op";
  call.op = in.text();
  member = "inputs";
  call.inputs.resize(in.count(24));
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    member = fmt::format("inputs[{}]", i);
    CallKey::Input& input = call.inputs[i];
    input.present = in.value<uint32_t>() != 0;
    const auto dtype = in.value<uint32_t>();
    expect_dtype(dtype);
    input.dtype = static_cast<DType>(dtype);
    input.dims = read_dims(in);
    input.strides = read_dims(in);
    input.values = in.text();
  }
  member = "attributes";
  for (size_t n = in.count(12); n > 0; --n) {
    std::string name(in.text());
    member = "attributes." + name;
    call.attributes.emplace(std::move(name), read_attribute(in));
  }
  member = "accumulate";
  call.options.accumulate = in.value<uint32_t>() != 0;
  member = "strategy";
  call.options.strategy = in.text();
  member = "any_shape";
  call.options.any_shape = in.value<uint32_t>() != 0;
  member = "determinism";
  const auto determinism = in.value<uint32_t>();
  if (determinism != target_level && determinism > static_cast<uint32_t>(Determinism::relaxed)) {
    throw Error(ErrorCode::invalid_argument, fmt::format("level {} is none, expected 0 to {}", determinism,
                                                         static_cast<uint32_t>(Determinism::relaxed)));
  }
  if (determinism != target_level) call.options.determinism = static_cast<Determinism>(determinism);
  member = "outputs_wanted";
  call.outputs_wanted = in.value<uint32_t>();
  member = "output_alignment";
  call.output_alignment = in.value<int64_t>();
  check_output_alignment(call);
  return call;
}

}  // namespace

CallKey call_key(const PlannedCall& call) {
  CallKey key{.op = call.name(),
              .attributes = call.request->attributes,
              .options = call.options,
              .outputs_wanted = call.outputs_wanted,
              .output_alignment = call.output_alignment};
  key.options.strategy = call.strategy.name;
  key.options.policy.reset();
  key.options.determinism = call.request->determinism;
  for (const Operand& operand : call.request->inputs) {
    CallKey::Input input{operand.present, operand.dtype, operand.dims, operand.strides, {}};
    if (operand.host) {
      int64_t elements = 1;
      for (const int64_t dim : operand.dims) elements *= dim;
      input.values.assign(static_cast<const char*>(operand.host),
                          static_cast<size_t>(elements * size_of(operand.dtype)));
    }
    key.inputs.push_back(std::move(input));
  }
  return key;
}

void check_output_alignment(const CallKey& call) {
  if (call.output_alignment == aligned_outputs || call.output_alignment == any_outputs) return;
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: outputs are aligned to {} bytes, expected {} or {}",
                                                       call.op, call.output_alignment, any_outputs, aligned_outputs));
}

std::string save_call(const CallKey& call) {
  ByteWriter out;
  write_call(out, call);
  return out.take();
}

CallKey load_call(std::string_view bytes) {
  ByteReader in(bytes);
  std::string member;
  return read_call(in, member);
}

std::string save_calls(std::span<const CallKey> calls) {
  const FloatMode mode;
  ByteWriter out;
  out.value(static_cast<uint64_t>(calls.size()));
  for (const CallKey& call : calls) write_call(out, call);
  return cache_frame(CacheFile::calls, out.take());
}

Result<std::vector<CallKey>> load_calls(std::string_view file) {
  return capture([&] {
    const FloatMode mode;
    std::string where = "saved calls";
    try {
      ByteReader in(cache_body(CacheFile::calls, file));
      std::vector<CallKey> calls(in.count(64));
      for (size_t i = 0; i < calls.size(); ++i) {
        std::string member;
        try {
          calls[i] = read_call(in, member);
        } catch (const Error&) {
          where = fmt::format("saved calls: call {} of {}: {}", i + 1, calls.size(), member);
          throw;
        }
      }
      in.end();
      return calls;
    } catch (const Error& error) {
      throw Error(error.code(), where + ": " + error.what());
    }
  });
}

}  // namespace gradloom
