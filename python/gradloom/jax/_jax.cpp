// GatherGrad and GatherElementsGrad as handlers of XLA's foreign function interface: XLA calls them with its own
// memory, from its own threads, inside of a compiled program.
#include <xla/ffi/api/ffi.h>

#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "../_c_functions.h"

namespace ffi = xla::ffi;

namespace {

const GradloomFunctions* functions = nullptr;
gradloom_runtime* runtime = nullptr;  // of all programs; never destroyed, since XLA may call until the process ends

std::optional<DLDataType> dtype_of(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::F64:
      return DLDataType{kDLFloat, 64, 1};
    case ffi::DataType::F32:
      return DLDataType{kDLFloat, 32, 1};
    case ffi::DataType::F16:
      return DLDataType{kDLFloat, 16, 1};
    case ffi::DataType::BF16:
      return DLDataType{kDLBfloat, 16, 1};
    case ffi::DataType::S32:
      return DLDataType{kDLInt, 32, 1};
    case ffi::DataType::S64:
      return DLDataType{kDLInt, 64, 1};
    default:
      return std::nullopt;
  }
}

ffi::Error failed(gradloom_status status) {
  const char* message = functions->last_error();
  switch (status) {
    case GRADLOOM_OUT_OF_RANGE:
      return {ffi::ErrorCode::kOutOfRange, message};
    case GRADLOOM_INVALID_ARGUMENT:
      return {ffi::ErrorCode::kInvalidArgument, message};
    case GRADLOOM_UNSUPPORTED:
      return {ffi::ErrorCode::kUnimplemented, message};
    case GRADLOOM_RESOURCE_EXHAUSTED:
      return {ffi::ErrorCode::kResourceExhausted, message};
    default:
      return {ffi::ErrorCode::kInternal, message};
  }
}

// One op's handles, one for each axis, for any shapes and dtypes.
class Op {
 public:
  explicit Op(const char* name) : name_(name) {}

  gradloom_status prepared(int64_t axis, gradloom_prepared** handle) {
    const std::lock_guard lock(mutex_);
    gradloom_prepared*& made = handles_[axis];
    if (made == nullptr) {
      gradloom_attributes* attributes = nullptr;
      gradloom_status status = functions->attributes_create(&attributes);
      if (status == GRADLOOM_OK) status = functions->attributes_set_int(attributes, "axis", axis);
      if (status == GRADLOOM_OK) status = functions->prepare(runtime, name_, attributes, nullptr, &made);
      if (attributes != nullptr) functions->attributes_destroy(attributes);
      if (status != GRADLOOM_OK) return status;
    }
    *handle = made;
    return GRADLOOM_OK;
  }

 private:
  const char* name_;
  std::mutex mutex_;
  std::map<int64_t, gradloom_prepared*> handles_;
};

DLTensor tensor_of(void* data, ffi::AnyBuffer::Dimensions dims, DLDataType dtype) {
  return {.data = data,
          .device = {kDLCPU, 0},
          .ndim = static_cast<int32_t>(dims.size()),
          .dtype = dtype,
          .shape = const_cast<int64_t*>(dims.begin()),
          .strides = nullptr,
          .byte_offset = 0};
}

// `shape_first`: the inputs are shape, indices, dY; otherwise dY, shape, indices.
ffi::Error run(Op& op, bool shape_first, const ffi::AnyBuffer& indices, const ffi::AnyBuffer& dy, int64_t axis,
               ffi::AnyBuffer& dx) {
  const auto values = dtype_of(dy.element_type()), positions = dtype_of(indices.element_type());
  if (!values || !positions || dx.element_type() != dy.element_type())
    return {ffi::ErrorCode::kUnimplemented, "gradloom.jax: a dtype that the op does not take"};
  gradloom_prepared* handle = nullptr;
  if (const gradloom_status status = op.prepared(axis, &handle)) return failed(status);

  const auto dims = dx.dimensions();
  int64_t rank = static_cast<int64_t>(dims.size());
  const DLTensor shape = tensor_of(const_cast<int64_t*>(dims.begin()), {&rank, 1}, {kDLInt, 64, 1});
  const DLTensor places = tensor_of(indices.untyped_data(), indices.dimensions(), *positions);
  const DLTensor upstream = tensor_of(dy.untyped_data(), dy.dimensions(), *values);
  DLTensor gradient = tensor_of(dx.untyped_data(), dims, *values);
  const std::array<const DLTensor*, 3> inputs = shape_first
                                                    ? std::array<const DLTensor*, 3>{&shape, &places, &upstream}
                                                    : std::array<const DLTensor*, 3>{&upstream, &shape, &places};
  DLTensor* outputs[] = {&gradient};
  if (const gradloom_status status = functions->prepared_run_into(handle, inputs.data(), 3, nullptr, outputs, 1))
    return failed(status);
  return ffi::Error::Success();
}

ffi::Error gather_grad(ffi::AnyBuffer indices, ffi::AnyBuffer dy, int64_t axis, ffi::Result<ffi::AnyBuffer> dx) {
  static Op op("GatherGrad");
  return run(op, true, indices, dy, axis, *dx);
}

ffi::Error gather_elements_grad(ffi::AnyBuffer indices, ffi::AnyBuffer dy, int64_t axis,
                                ffi::Result<ffi::AnyBuffer> dx) {
  static Op op("GatherElementsGrad");
  return run(op, false, indices, dy, axis, *dx);
}

}  // namespace

#pragma GCC visibility push(default)

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    gradloom_gather_grad, gather_grad,
    ffi::Ffi::Bind().Arg<ffi::AnyBuffer>().Arg<ffi::AnyBuffer>().Attr<int64_t>("axis").Ret<ffi::AnyBuffer>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    gradloom_gather_elements_grad, gather_elements_grad,
    ffi::Ffi::Bind().Arg<ffi::AnyBuffer>().Arg<ffi::AnyBuffer>().Attr<int64_t>("axis").Ret<ffi::AnyBuffer>());

// Once, before any handler runs. A refusal, or null.
extern "C" const char* gradloom_open(const GradloomFunctions* table) {
  if (table == nullptr || table->version != GRADLOOM_FUNCTIONS_VERSION || table->size != sizeof(GradloomFunctions))
    return "it was built for another gradloom";
  gradloom_runtime_options options;
  if (table->runtime_options_init_sized(&options, sizeof options) != GRADLOOM_OK) return table->last_error();
  options.policy = GRADLOOM_POLICY_GENERIC_FIRST;
  if (table->runtime_create(&options, &runtime) != GRADLOOM_OK) return table->last_error();
  functions = table;
  return nullptr;
}

#pragma GCC visibility pop
