#pragma once
// The interface of an op: it checks a call, describes the outputs, and writes the loop nest and its schedule. An op
// sees operand descriptors, never tensors.
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gradloom/builder.h"
#include "gradloom/dims.h"
#include "gradloom/strategy.h"

#pragma GCC visibility push(default)
namespace gradloom {

using Attribute =
    std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>, std::vector<std::string>>;
using Attributes = std::map<std::string, Attribute, std::less<>>;

// One input of a call, as the op sees it.
struct Operand {
  bool present = false;
  DType dtype = DType::f32;
  Dims dims = {};
  Dims strides = {};  // in elements, one a dim
  const void* host =
      nullptr;  // the values of a shape-like input (shape, starts, ...; dense); other inputs may not be read
};

struct Request {
  std::span<const Operand> inputs = {};  // in the schema's order; trailing optional ones may be missing
  const Attributes& attributes;
  uint32_t outputs_wanted = ~0u;                      // bit o: output o is requested
  bool accumulate = false;                            // add the gradient to the outputs' old contents
  Determinism determinism = Determinism::sequential;  // the weakest that the caller accepts
  const Operand& input(int i) const;                  // an absent operand beyond the end
};

struct OutputInfo {
  bool wanted = true;
  DType dtype = DType::f32;
  Dims dims = {};  // allocated for the caller; for an output whose size the kernel computes: the capacity
  // Visible only to the kernel and found_dims: the launcher allocates dense memory for it and frees it after the call.
  // Such outputs follow the schema's.
  bool internal = false;
};

// One buffer of the kernel: an operand viewed with merged dims (an input that is dense over several axes needs one loop
// for them).
struct View {
  bool output = false;
  int index = 0;  // of the input or output
  DType dtype = DType::f32;
  Dims dims = {};
  Dims strides = {};                                             // in elements
  int64_t least_of_a_dim = 0, most_of_a_dim = ir::max_elements;  // that the any-shape kernel serves
};

// The part of a view's strides that an any-shape kernel's code depends on: 0 when dense, else one of four classes per
// axis (0, 1, -1, any other). The any-shape key of a kernel consists of each view's rank and this.
int64_t stride_class(const View& view);

inline constexpr int max_views = 16, max_outputs = 8;  // of a Plan

// The result of checking one call: all that launching needs, and all that may affect the code.
struct Plan {
  InlineVector<OutputInfo, max_outputs> outputs = {};
  InlineVector<View, max_views> views = {};  // the kernel's buffers, in order
  // Values for the kernel's own scalars (starts, ...): these do not change the code.
  InlineVector<int64_t, 2 * max_rank> params = {};
  // What affects the code beyond dtypes, views and strategy: a struct of the op's (plan_key.h), one word per field.
  InlineVector<int64_t, 4 * max_rank> key = {};
  int64_t bytes_read = 0, bytes_written = 0;  // compulsory traffic
  // The weakest determinism level of a strategy that may serve the call: set by Op::check.
  Determinism determinism = Determinism::sequential;
};

// Whether the any-shape kernel serves these views: each has at most max_elements elements (dims of 0 left out), no dim
// beyond its maximum and no stride so large that an address could wrap. A call with larger dims (it is empty, or
// repeats elements) gets a specialised kernel, as if any_shape had not been requested.
bool serves_any_shape(const Plan& plan);

// The source of a kernel's scalar at launch.
struct ScalarSource {
  enum Kind : uint8_t { param, dim, stride } kind = param;
  int view = 0;   // dim, stride
  int index = 0;  // of the param, or the axis
};

// Makes a kernel's buffers from a plan's views: dims are constants or, in the any-shape kernel, scalars "<buffer>_d0".
class KernelFrame {
 public:
  // Alignments are in bytes, of the first element.
  KernelFrame(std::string name, const Plan& plan, bool any_shape, int64_t output_alignment,
              int64_t input_alignment = 1);
  ir::KernelBuilder builder;
  // Views must be taken in order, each once, before the nest is written. A view of role out becomes inout when `inout`.
  ir::Buffer view(int v, std::string name, bool inout = false);
  // The scalar for plan.params[p], with its inclusive range.
  ir::Expr param(int p, std::string name, ir::Expr min = {}, ir::Expr max = {});
  bool any_shape() const { return any_shape_; }
  const Plan& plan() const { return plan_; }
  std::vector<ScalarSource> take_sources() { return std::move(sources_); }

 private:
  const Plan& plan_;
  bool any_shape_;
  int64_t output_alignment_, input_alignment_;
  std::vector<ScalarSource> sources_;
};

struct ArgumentSchema {
  std::string name = {};
  bool optional = false;
  std::vector<DType> dtypes = {};
  bool shape_like = false;  // host memory on every target; its values are read when the call is checked
  std::string doc = {};     // one line: shape and meaning
  std::string type = {};    // arguments of one type ("T") have one dtype in a call; empty: a dtype of its own
  bool found_size = false;  // of an output: the kernel finds its size, see Op::found_dims
};
struct AttributeSchema {
  std::string name = {}, type = {}, doc = {};  // type: "int", "float", "string", "ints", "floats", "strings"
  std::optional<Attribute> otherwise = {};     // what an absent one means, where that is a value
};
struct OpSchema {
  std::string name = {};  // ORT's
  std::string doc = {};   // one line
  std::vector<ArgumentSchema> inputs = {}, outputs = {};
  std::vector<AttributeSchema> attributes = {};
  bool on_host = false;  // of shapes: all its tensors are host memory on every target
};

// An op is a constant object: its schema, its strategies, and its check of a call.
class Op {
 public:
  // `strategies`: in order of preference. The last one is the definition: the reference nest, whose interpreted result
  // is what others are compared with; it serves every call on every target.
  Op(OpSchema schema, std::vector<Strategy> strategies);
  virtual ~Op() = default;
  const OpSchema& schema() const { return schema_; }
  std::span<const Strategy> strategies() const { return strategies_; }

  // Checks everything that is known without reading device data. Throws Error naming op, argument, position, value and
  // what was allowed.
  Plan check(const Request& request) const;
  // The part of it that depends on the attributes alone: their names and types.
  void check_attributes(const Attributes& attributes) const;

  // The caller's Error for a failed Check. `values` reads element i of input's data (only after a failure).
  virtual Error explain(const Request& request, const Plan& plan, int64_t bad_position,
                        const std::function<int64_t(int input, int64_t element)>& values) const;

  // The dims, after the run, of an output of found_size, from the outputs' data (host targets). Default: the plan's.
  virtual Dims found_dims(const Plan& plan, int output, std::span<void* const> outputs) const;

 private:
  // The result of `check`, after the checks that every op shares.
  virtual Plan plan(const Request& request) const = 0;

  const OpSchema schema_;
  const std::vector<Strategy> strategies_;
  Determinism weakest_ = Determinism::sequential;  // of the strategies
};

// The registry, of all ops of the library by name:
std::vector<const Op*> all_ops();
const Op* find_op(std::string_view name);  // nullptr when there is none

int64_t int_attribute(const Request& request, std::string_view name, int64_t otherwise);
// Error{code, "<op>: <what>"}.
[[noreturn]] void refuse(const OpSchema& schema, ErrorCode code, const std::string& what);
// "input 0 (dY)", for messages.
std::string describe_input(const OpSchema& schema, int input);
// A shape-like input's values as i64 (int32 or int64 data), read flat; at most max_rank of them.
InlineVector<int64_t, max_rank> read_ints(const OpSchema& schema, const Request& request, int input);
// A `shape` input: rank 1 or 2, read flat, no negative dim, and elements of `dtype` that fit in 2^63 - 1 bytes.
Dims read_shape(const OpSchema& schema, const Request& request, int input, DType dtype);
// An axis attribute or value in [-rank, rank - 1], wrapped. `what` names it in the message.
int wrap_axis(const OpSchema& schema, int64_t axis, int rank, const std::string& what);
// The same of an input's value number `position`, which is named in the message only.
int wrap_axis(const OpSchema& schema, int64_t axis, int rank, int input, int position);

}  // namespace gradloom

#pragma GCC visibility pop
