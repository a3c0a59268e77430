#include "ir/interpret/interpret.h"

#include "ir/interpret/code.h"
#include "ir/rewrite.h"
#include "ir/scalar_math.h"
#include "support/float_mode.h"

namespace gradloom::ir {
namespace {

using interp::Array;
using interp::fault;

Outcome interpret_kernel(const Kernel& kernel, std::span<void* const> buffers, std::span<const int64_t> scalars,
                         const InterpretOptions& options) {
  if (buffers.size() != kernel.buffers.size())
    fault("got " + std::to_string(buffers.size()) + " buffers, the kernel has " +
          std::to_string(kernel.buffers.size()));
  if (scalars.size() != kernel.scalars.size())
    fault("got " + std::to_string(scalars.size()) + " scalars, the kernel has " +
          std::to_string(kernel.scalars.size()));

  interp::Run run;
  run.check_races = options.check_races;
  run.reverse_parallel = options.reverse_parallel;
  run.races.explicit_barriers = options.explicit_barriers;
  if (kernel.body) walk(kernel.body, [&](const Stmt& s) { run.races.explicit_barriers |= s.as<Barrier>() != nullptr; });
  interp::Translator translate(run);

  // Translate everything first: the frame's size is known only then.
  std::vector<size_t> slots;
  for (const Scalar& s : kernel.scalars) {
    if (s.var.type.lanes != 1) fault("scalar " + s.var.name + " has " + std::to_string(s.var.type.lanes) + " lanes");
    slots.push_back(translate.declare(s.var));
  }
  struct Limits {
    interp::ExprPtr min, max;
  };
  std::vector<Limits> limits;
  for (const Scalar& s : kernel.scalars) {
    limits.push_back({s.min ? translate.expr(s.min) : nullptr, s.max ? translate.expr(s.max) : nullptr});
    for (const interp::ExprPtr* limit : {&limits.back().min, &limits.back().max})
      if (*limit && (*limit)->lanes != 1) fault("scalar " + s.var.name + ": a limit must be a scalar");
  }
  std::vector<interp::Translator::ShapeCode> shapes;
  for (const Buffer& b : kernel.buffers) {
    if (!b) fault("a buffer parameter is absent");
    shapes.push_back(translate.shape(b));
  }
  std::vector<size_t> places;
  for (const Buffer& b : kernel.buffers) places.push_back(translate.declare(b));
  const interp::StmtPtr body = kernel.body ? translate.stmt(kernel.body) : nullptr;

  interp::Frame frame = translate.frame();
  for (size_t i = 0; i < slots.size(); ++i) frame.vars[slots[i]] = bits_from_int(DType::i64, scalars[i]);
  for (size_t i = 0; i < slots.size(); ++i) {
    const int bits = size_of(kernel.scalars[i].var.type.dtype) * 8;
    if (bits < 64) frame.vars[slots[i]] &= (uint64_t{1} << bits) - 1;
    if (kernel.scalars[i].var.type.dtype == DType::boolean) frame.vars[slots[i]] = frame.vars[slots[i]] != 0;
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    const Scalar& s = kernel.scalars[i];
    const uint64_t value = frame.vars[slots[i]];
    const auto number = [](DType t, uint64_t bits) {
      return is_float(t) ? std::to_string(double_from_bits(t, bits)) : std::to_string(int_from_bits(t, bits));
    };
    const auto refuse = [&](const char* side, const Expr& limit, uint64_t bits) {
      fault("scalar " + s.var.name + " is " + number(s.var.type.dtype, value) + ", " + side + " " +
            number(limit.dtype(), bits));
    };
    if (limits[i].min)
      if (const uint64_t low = limits[i].min->scalar(frame); interp::less(s.var.type.dtype, value, s.min.dtype(), low))
        refuse("below its minimum", s.min, low);
    if (limits[i].max)
      if (const uint64_t high = limits[i].max->scalar(frame);
          interp::less(s.max.dtype(), high, s.var.type.dtype, value))
        refuse("above its maximum", s.max, high);
  }

  std::vector<Array> arrays(buffers.size(), Array(run));
  for (size_t i = 0; i < buffers.size(); ++i) {
    arrays[i].bind(*kernel.buffers[i], shapes[i](*kernel.buffers[i], frame), buffers[i]);
    frame.arrays[places[i]] = &arrays[i];
  }

  if (body) {
    interp::Frame* only = &frame;
    body->run({&only, 1});
  }
  Outcome outcome;
  if (run.failed) outcome.bad_position = run.bad_position;
  return outcome;
}

}  // namespace

Outcome interpret(const Kernel& kernel, std::span<void* const> buffers, std::span<const int64_t> scalars,
                  const InterpretOptions& options) {
  const FloatMode mode;
  try {
    return interpret_kernel(kernel, buffers, scalars, options);
  } catch (const Error& error) {
    throw Error(error.code() == ErrorCode::internal ? options.fault : error.code(),
                "kernel " + kernel.name + ": " + error.what());
  }
}

}  // namespace gradloom::ir
