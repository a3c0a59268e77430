// The arguments of GRUTraining and GRUGrad: schema, attributes, shapes.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>

#include "ops/gru/gru.h"

namespace gradloom {
namespace {

[[noreturn]] void bad(const OpSchema& schema, const std::string& what) {
  refuse(schema, ErrorCode::invalid_argument, what);
}

template <class T>
const T* attribute(const Request& request, std::string_view name) {
  const auto found = request.attributes.find(name);
  return found == request.attributes.end() ? nullptr
                                           : std::get_if<T>(&found->second);  // check_schema has verified its type
}

void read_direction(const OpSchema& schema, const Request& request, GruOptions& options) {
  const std::string* name = attribute<std::string>(request, "direction");
  if (!name || *name == "forward") return;
  if (*name == "reverse")
    options.reverse = true;
  else if (*name == "bidirectional")
    options.directions = 2;
  else
    bad(schema, fmt::format("attribute direction is \"{}\"; it must be forward, reverse or bidirectional", *name));
}

void read_clip(const OpSchema& schema, const Request& request, GruOptions& options) {
  const double* clip = attribute<double>(request, "clip");
  if (!clip) return;
  if (!(*clip > 0)) bad(schema, fmt::format("attribute clip is {}; it must be greater than 0", *clip));
  options.clip = *clip >= std::numeric_limits<float>::max() ? 0 : *clip;  // ORT's default is the largest float: none
}

// Values are consumed by the functions that have the parameter, in order.
double next_value(const OpSchema& schema, const char* name, const std::vector<double>* values, size_t& used,
                  const ActivationInfo& info, std::optional<double> otherwise) {
  if (values && used < values->size()) return (*values)[used++];
  if (!otherwise) bad(schema, fmt::format("attribute {} has no value for {}, which has no default", name, info.name));
  return *otherwise;
}

void read_activations(const OpSchema& schema, const Request& request, GruOptions& options) {
  const std::vector<std::string>* names = attribute<std::vector<std::string>>(request, "activations");
  const auto *alphas = attribute<std::vector<double>>(request, "activation_alpha"),
             *betas = attribute<std::vector<double>>(request, "activation_beta");
  const size_t wanted = 2 * options.directions;
  if (names && names->size() != wanted)
    bad(schema, fmt::format("attribute activations has {} names; it must have {}: f and g for each direction",
                            names->size(), wanted));
  size_t alpha = 0, beta = 0;
  for (size_t i = 0; i < wanted; ++i) {
    const std::string name = names ? (*names)[i] : i % 2 == 0 ? "Sigmoid" : "Tanh";
    const ActivationInfo* info = find_activation(name);
    if (!info)
      bad(schema, fmt::format("attribute activations[{}] is \"{}\"; allowed: {}", i, name, activation_names()));
    Activation f{.kind = info->kind};
    if (info->has_alpha) f.alpha = next_value(schema, "activation_alpha", alphas, alpha, *info, info->alpha);
    if (info->has_beta) f.beta = next_value(schema, "activation_beta", betas, beta, *info, info->beta);
    const bool one_sided = info->kind == Activation::Kind::leaky_relu || info->kind == Activation::Kind::elu;
    if (one_sided && f.alpha < 0)
      refuse(
          schema, ErrorCode::unsupported,
          fmt::format("attribute activation_alpha is {} for {}; a negative one is not supported", f.alpha, info->name));
    (i % 2 == 0 ? options.gate : options.hidden)[i / 2] = f;
  }
  if (alphas && alpha < alphas->size())
    bad(schema,
        fmt::format("attribute activation_alpha has {} values; the activations take {}", alphas->size(), alpha));
  if (betas && beta < betas->size())
    bad(schema, fmt::format("attribute activation_beta has {} values; the activations take {}", betas->size(), beta));
}

void check_rank(const OpSchema& schema, const Request& request, int input, int rank, const char* meaning) {
  const Dims& dims = request.input(input).dims;
  if (dims.size() != rank)
    bad(schema, fmt::format("{} has rank {} (shape {}); it must have rank {}: {}", describe_input(schema, input),
                            dims.size(), to_string(dims), rank, meaning));
}

}  // namespace

std::vector<ArgumentSchema> gru_inputs(const std::vector<DType>& t) {
  return {{.name = "X", .dtypes = t, .doc = "[S, N, I]: the input sequences", .type = "T"},
          {.name = "W",
           .dtypes = t,
           .doc = "[D, 3H, I]: weights of the gates z, r, h on the input; D is 2 for direction bidirectional, else 1",
           .type = "T"},
          {.name = "R", .dtypes = t, .doc = "[D, 3H, H]: weights on the state", .type = "T"},
          {.name = "B",
           .optional = true,
           .dtypes = t,
           .doc = "[D, 6H]: biases Wbz, Wbr, Wbh, Rbz, Rbr, Rbh; default 0",
           .type = "T"},
          {.name = "sequence_lens",
           .optional = true,
           .dtypes = {DType::i32},
           .doc = "[N]: steps of each sequence, 0 to S; default S"},
          {.name = "initial_h",
           .optional = true,
           .dtypes = t,
           .doc = "[D, N, H]: the state before the first step; default 0",
           .type = "T"}};
}

std::vector<AttributeSchema> gru_attributes() {
  return {{"activations", "strings", "f and g for each direction; default Sigmoid, Tanh"},
          {"activation_alpha", "floats", "alpha of the activations that have one, in order"},
          {"activation_beta", "floats", "beta of the activations that have one, in order"},
          {"clip", "float", "the inputs of activations are kept within [-clip, clip]; default: not"},
          {"direction", "string", "forward (default), reverse or bidirectional", std::string("forward")},
          {"hidden_size", "int", "H; default: R's"},
          {"linear_before_reset", "int",
           "1: r multiplies the candidate's recurrent product and its bias; 0 (default): the state", int64_t{0}}};
}

void check_gru_shape(const OpSchema& schema, const Request& request, int input, const Dims& wanted,
                     const char* meaning) {
  const Operand& operand = request.input(input);
  if (!operand.present || operand.dims == wanted) return;
  bad(schema, fmt::format("{} has shape {}; it must have {}: {}", describe_input(schema, input),
                          to_string(operand.dims), to_string(wanted), meaning));
}

void check_gru_dtype(const OpSchema& schema, const Request& request, int input) {
  const Operand &x = request.input(gru_x), &operand = request.input(input);
  if (operand.present && operand.dtype != x.dtype)
    bad(schema, fmt::format("{} has dtype {}; it must have X's, {}", describe_input(schema, input),
                            onnx_name(operand.dtype), onnx_name(x.dtype)));
}

GruOptions check_gru(const OpSchema& schema, const Request& request, GruSizes& sizes) {
  GruOptions options;
  read_direction(schema, request, options);
  read_clip(schema, request, options);
  read_activations(schema, request, options);
  const int64_t linear = int_attribute(request, "linear_before_reset", 0);
  if (linear != 0 && linear != 1)
    bad(schema, fmt::format("attribute linear_before_reset is {}; it must be 0 or 1", linear));
  options.linear_before_reset = linear == 1;
  options.accumulate = request.accumulate;
  options.wanted = request.outputs_wanted & ((1u << schema.outputs.size()) - 1);
  for (int i = 0; i < static_cast<int>(schema.inputs.size()); ++i)
    if (request.input(i).present) options.given |= 1u << i;

  check_rank(schema, request, gru_x, 3, "[S, N, I]");
  check_rank(schema, request, gru_r, 3, "[D, 3H, H]");
  const Dims& x = request.input(gru_x).dims;
  sizes = {x[0], x[1], x[2], request.input(gru_r).dims[2], options.directions};
  const int64_t hidden = int_attribute(request, "hidden_size", sizes.hidden);
  if (hidden <= 0) bad(schema, fmt::format("attribute hidden_size is {}; it must be greater than 0", hidden));
  if (hidden > std::numeric_limits<int64_t>::max() / 64)
    bad(schema, fmt::format("attribute hidden_size is {}; that is too large", hidden));
  sizes.hidden = hidden;
  for (const int input : {gru_w, gru_r, gru_b, gru_h0}) check_gru_dtype(schema, request, input);
  const int64_t d = sizes.directions;
  check_gru_shape(schema, request, gru_w, {d, 3 * hidden, sizes.inputs}, "[D, 3H, I]");
  check_gru_shape(schema, request, gru_r, {d, 3 * hidden, hidden}, "[D, 3H, H]");
  check_gru_shape(schema, request, gru_b, {d, 6 * hidden}, "[D, 6H]");
  check_gru_shape(schema, request, gru_lens, {sizes.batch}, "[N]");
  check_gru_shape(schema, request, gru_h0, {d, sizes.batch, hidden}, "[D, N, H]");
  return options;
}

void split_gates(View& view, int64_t gates) {
  const int64_t width = view.dims.back() / gates, stride = view.strides.back();
  view.dims.back() = gates;
  view.dims.push_back(width);
  view.strides.back() = width * stride;
  view.strides.push_back(stride);
}

GruSizes looped_sizes(const GruSizes& sizes, const Request& request, const GruOptions& options, int last_state) {
  GruSizes loops = sizes;
  if (sizes.batch == 0) loops.steps = 0;
  const auto given = [&](int input) { return request.input(input).present; };
  const bool batch_alone = given(gru_lens) || given(gru_h0) || given(gru_dhfinal) || options.wants(last_state);
  if (sizes.steps == 0 && !batch_alone) loops.batch = 0;
  return loops;
}

void add_gru_views(const Request& request, int inputs, const GruSizes& loops, GruOptions& options, Plan& plan) {
  // The dims of an input as loops see them: steps are dim 0 of X, HAll, ZRH and dHAll; `batch` is -1 where there is
  // none.
  const auto looped_dims = [&](int input, Dims dims) {
    const bool steps = input == gru_x || input == gru_hall || input == gru_zrh || input == gru_dhall;
    const int batch = input == gru_lens                                           ? 0
                      : input == gru_x || input == gru_h0 || input == gru_dhfinal ? 1
                      : steps                                                     ? 2
                                                                                  : -1;
    if (steps) dims[0] = loops.steps;
    if (batch >= 0) dims[batch] = loops.batch;
    return dims;
  };
  for (int i = 0; i < inputs; ++i) {
    const Operand& operand = request.input(i);
    if (!operand.present) continue;
    View view{.index = i, .dtype = operand.dtype, .dims = looped_dims(i, operand.dims), .strides = operand.strides};
    if (i == gru_x) {
      const Dims dims = view.dims, &strides = operand.strides;
      const bool in_line = dims[0] <= 1 || dims[1] == 1 || strides[0] == dims[1] * strides[1];
      options.flat_x = element_count(dims) == 0 || (in_line && (dims[2] == 1 || strides[2] == 1));
      if (options.flat_x) {
        view.dims = {dims[0] * dims[1], dims[2]};
        view.strides = {element_count(dims) == 0 ? dims[2] : dims[1] == 1 ? strides[0] : strides[1], 1};
      }
    }
    if (i == gru_b || i == gru_zrh) split_gates(view, i == gru_b ? 6 : 3);
    plan.bytes_read += element_count(operand.dims) * size_of(operand.dtype);
    plan.views.push_back(view);
  }
}

void add_gru_output(Plan& plan, const GruOptions& options, int output, DType dtype, const Dims& dims,
                    const Dims& view) {
  plan.outputs.push_back({.wanted = options.wants(output), .dtype = dtype, .dims = dims});
  if (!options.wants(output)) return;
  plan.views.push_back({.output = true, .index = output, .dtype = dtype, .dims = view, .strides = dense_strides(view)});
  const int64_t bytes = element_count(dims, size_of(dtype)) * size_of(dtype);
  plan.bytes_written += bytes;
  if (options.accumulate) plan.bytes_read += bytes;
}

Error GruOp::explain(const Request& request, const Plan&, int64_t position,
                     const std::function<int64_t(int, int64_t)>& values) const {
  return Error(ErrorCode::invalid_argument,
               fmt::format("{}: {}[{}] is {}; it must be in [0, {}], for X of shape {}", schema().name,
                           describe_input(schema(), gru_lens), position, values(gru_lens, position),
                           request.input(gru_x).dims[0], to_string(request.input(gru_x).dims)));
}

void finish_gru_plan(Plan& plan, const GruOptions& options) {
  // A larger hidden size would make R exceed max_elements; views of rank 2 are exempt, as rows of X and dX are steps
  // times batch.
  for (View& view : plan.views)
    if (view.dims.size() > 2) view.most_of_a_dim = int64_t{1} << 24;
  set_key(plan, options);
}

namespace {

bool has_units(const Plan& plan, const ir::Target& target) {
  return target.matrix_units && is_storage_float(plan.views[0].dtype);
}

// Sums of the per-step products in a fixed order other than along k.
Fit fit_split(const Plan& plan, const ir::Target& target, bool) {
  return target.gpu && !has_units(plan, target) ? Fit::preferred : Fit::none;
}
Fit fit_matrix(const Plan& plan, const ir::Target& target, bool) {
  return target.gpu && has_units(plan, target) ? Fit::preferred : Fit::none;
}
Fit fit_blocks(const Plan&, const ir::Target& target, bool) { return target.gpu ? Fit::preferred : Fit::none; }

Strategy gru_strategy(const char* name, decltype(Strategy::fit) fit, const GruWay& way, AuthorGru author) {
  return {name, way.in_order ? Determinism::sequential : Determinism::run_to_run, std::move(fit),
          [=](KernelFrame& frame, const ir::Target& target) { return author(frame, way, target); }};
}

}  // namespace

GruOp::GruOp(OpSchema schema, AuthorGru author)
    : Op(std::move(schema),
         {gru_strategy("matrix", fit_matrix, {.in_blocks = true, .in_order = false, .matrix_units = true}, author),
          gru_strategy("split", fit_split, {.in_blocks = true, .in_order = false}, author),
          gru_strategy("blocks", fit_blocks, {.in_blocks = true}, author), gru_strategy("direct", {}, {}, author)}) {}

}  // namespace gradloom
