#ifdef GRADLOOM_WITH_CUDA
#include "runtime/backend/cuda_code.h"

#include "codegen/cuda/nvrtc.h"
#include "support/bytes.h"

namespace gradloom {
namespace {

using codegen::CudaArgument;
using codegen::CudaFunction;
using codegen::HostCode;
using codegen::HostStep;
using codegen::HostValue;

constexpr int deepest = 1000;  // maximum nesting of loops and branches

[[noreturn]] void refuse(const char* what) { throw Error(ErrorCode::invalid_argument, what); }

// An enum's value and a number.
template <class Kind>
Kind read_kind(ByteReader& in, Kind last) {
  const auto kind = in.value<uint8_t>();
  if (kind > static_cast<uint8_t>(last)) refuse("a step of a kernel's host part is of no kind");
  return static_cast<Kind>(kind);
}

void write(ByteWriter& out, const HostValue& value) {
  out.value(static_cast<uint64_t>(value.size()));
  for (const HostCode& code : value) {
    out.value(static_cast<uint8_t>(code.op));
    out.value(static_cast<uint8_t>(code.dtype));
    out.value(code.what);
    out.value(code.value);
  }
}
HostValue read_value(ByteReader& in, int slots) {
  HostValue value;
  for (size_t n = in.count(11); n > 0; --n) {
    HostCode code{.op = read_kind(in, HostCode::last)};
    code.dtype = static_cast<DType>(in.value<uint8_t>());
    code.what = in.value<uint8_t>();
    code.value = in.value<int64_t>();
    value.push_back(code);
  }
  if (!value.empty() && !ir::is_well_formed(value, slots))
    refuse("a value of a kernel's host part cannot be evaluated");
  return value;
}

void write(ByteWriter& out, const std::vector<HostStep>& steps) {
  out.value(static_cast<uint64_t>(steps.size()));
  for (const HostStep& step : steps) {
    out.value(static_cast<uint8_t>(step.kind));
    out.value(step.index);
    write(out, step.value);
    write(out, step.begin);
    write(out, step.body);
    write(out, step.otherwise);
  }
}
std::vector<HostStep> read_steps(ByteReader& in, int slots, int depth = 0) {
  if (depth > deepest) refuse("a kernel's host part is nested too deeply");
  std::vector<HostStep> steps;
  for (size_t n = in.count(37); n > 0; --n) {
    HostStep step{.kind = read_kind(in, HostStep::last),
                  .index = in.value<int>(),
                  .value = {},
                  .begin = {},
                  .body = {},
                  .otherwise = {}};
    step.value = read_value(in, slots);
    step.begin = read_value(in, slots);
    step.body = read_steps(in, slots, depth + 1);
    step.otherwise = read_steps(in, slots, depth + 1);
    steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace

std::string encode(const CudaCode& code) {
  ByteWriter out;
  const codegen::CudaModule& m = code.module;
  for (const int count : {m.buffers, m.scalars, m.slots, m.scratch_blocks}) out.value(count);
  out.value(static_cast<uint64_t>(m.functions.size()));
  for (const CudaFunction& f : m.functions) {
    out.text(f.name);
    out.value(f.threads);
    out.value(f.shared_bytes);
    out.value(f.cooperative);
    out.value(static_cast<uint64_t>(f.arguments.size()));
    for (const CudaArgument& a : f.arguments) {
      out.value(static_cast<uint8_t>(a.kind));
      out.value(a.index);
    }
  }
  write(out, m.steps);
  out.value(static_cast<uint64_t>(code.images.size()));
  for (const codegen::CudaImage& image : code.images) {
    out.text(image.bytes);
    out.value(image.functions);
  }
  return out.take();
}

CudaCode decode_cuda_code(std::string_view bytes) {
  ByteReader in(bytes);
  CudaCode code;
  codegen::CudaModule& m = code.module;
  for (int* count : {&m.buffers, &m.scalars, &m.slots, &m.scratch_blocks}) *count = in.value<int>();
  for (size_t n = in.count(36); n > 0; --n) {
    CudaFunction f{.name = std::string(in.text()),
                   .threads = in.value<int>(),
                   .shared_bytes = in.value<int64_t>(),
                   .arguments = {},
                   .cooperative = in.value<int64_t>()};
    for (size_t arguments = in.count(5); arguments > 0; --arguments) {
      const auto kind = read_kind(in, CudaArgument::last);
      f.arguments.push_back({kind, in.value<int>()});
    }
    m.functions.push_back(std::move(f));
  }
  m.steps = read_steps(in, m.slots);
  size_t held = 0;
  for (size_t n = in.count(12); n > 0; --n) {
    codegen::CudaImage image{.bytes = std::string(in.text()), .functions = in.value<int>()};
    if (image.functions < 0) refuse("an image of a kernel holds less than no function");
    held += static_cast<size_t>(image.functions);
    code.images.push_back(std::move(image));
  }
  if (held != m.functions.size()) refuse("the images of a kernel hold other functions than it has");
  in.end();
  return code;
}

CudaCode compile_cuda(const ir::Kernel& lowered, int architecture, int threads, double& ms) {
  CudaCode code{codegen::emit_cuda(lowered), {}};
  codegen::CudaBinary binary = codegen::Nvrtc::get().compile(code.module, architecture, false, threads);
  ms = binary.ms;
  code.images = std::move(binary.images);
  code.module.text.clear();
  return code;
}

std::string cuda_toolchain() { return "nvrtc " + codegen::Nvrtc::get().version(); }

}  // namespace gradloom
#endif
