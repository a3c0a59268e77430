// SparseGatherGrad: GatherGrad's rows that indices name, and no other: the gradient of an embedding as a row-sparse
// one.
#include <fmt/format.h>

#include <limits>

#include "gradloom/merge_dims.h"
#include "gradloom/plan_key.h"
#include "gradloom/schedule_common.h"
#include "ops/index_error.h"
#include "ops/patterns/padding_index.h"
#include "ops/patterns/scatter.h"
#include "ops/patterns/sorted_groups.h"
#include "ops/registry.h"
#include "support/lasting.h"

namespace gradloom {
namespace {

using ir::Buffer;
using ir::Expr;
using ir::Loop;

constexpr int in_shape = 0, in_indices = 1, in_dy = 2;
constexpr int out_rows = 0, out_values = 1, out_found = 2;

OpSchema make_schema() {
  const std::vector<DType> floats = dtypes_where(is_float);
  OpSchema s;
  s.name = "SparseGatherGrad";
  s.on_host = true;
  s.doc = "The gradient of Gather along axis 0, row-sparse: the rows that indices name, and their sums.";
  s.inputs = {
      {.name = "shape", .dtypes = {DType::i64}, .shape_like = true, .doc = "the shape of Gather's data"},
      {.name = "indices", .dtypes = {DType::i32, DType::i64}, .doc = "any shape; values in [-s, s-1] for a dim 0 of s"},
      {.name = "dY", .dtypes = floats, .doc = "indices' dims, then shape without its first", .type = "T"}};
  s.outputs = {
      {.name = "rows", .dtypes = {DType::i64}, .doc = "rank 1: the rows that are named, ascending", .found_size = true},
      {.name = "values",
       .dtypes = floats,
       .doc = "shape with as many rows as there are in `rows`: those of GatherGrad's dX",
       .type = "T",
       .found_size = true}};
  s.attributes = {
      {"padding_idx", "int", "indices of this row are left out, negative counts from the end; default: none"}};
  return s;
}

// plan.views: indices and dY, rows, values, found: how many rows. plan.params: s, then padding's row where there is
// one.
struct SparseKey {
  int middle = 1, inner = 0;  // numbers of dims: indices has (middle), dY (middle, inner)
  bool padding = false;
  template <class Key, class Visit>
  static void fields(Key& key, Visit&& visit) {
    visit(key.middle, key.inner, key.padding);
  }
};

class SparseNest {
 public:
  SparseNest(KernelFrame& frame, const ir::Target& target)
      : b_(frame.builder),
        plan_(frame.plan()),
        target_(target),
        key_(key_of<SparseKey>(plan_)),
        indices_(frame.view(0, "indices")),
        dy_(frame.view(1, "dY")),
        rows_(frame.view(2, "rows")),
        values_(frame.view(3, "values")),
        found_(frame.view(4, "found")),
        size_(frame.param(0, "s", 0, std::numeric_limits<int64_t>::max())) {
    if (key_.padding) padding_ = frame.param(1, "padding", 0, std::numeric_limits<int64_t>::max());
  }

  void write() {
    const std::vector<Expr> middle(indices_->dims.begin(), indices_->dims.end());
    const std::vector<Expr> columns(values_->dims.begin() + 1, values_->dims.end());
    const DType sum = accumulator_of(values_->dtype);
    const SortedGroups sorted = sort_by_key(b_, rows_->dims[0], size_, [&](const PlaceKey& place) {
      b_.loops("k", middle, [&](const std::vector<Expr>& k) { place_index(k, place); });
    });
    b_.store(found_, {0}, ir::load(sorted.groups, {0}));
    b_.loop("r", 0, ir::load(sorted.groups, {0}),
            [&](const Expr& r) { b_.store(rows_, {r}, ir::load(sorted.keys, {r})); });
    loops_ = sum_groups(
        b_, sorted, sum, columns,
        [&](const Expr& position, const std::vector<Expr>& q) {
          std::vector<Expr> at = unflattened(position, middle);
          at.insert(at.end(), q.begin(), q.end());
          return ir::cast(sum, ir::load(dy_, at));
        },
        [&](const Expr& group, std::vector<Expr> q, const Expr& total) {
          q.insert(q.begin(), group);
          b_.store(values_, q, ir::cast(values_->dtype, total));
        });
  }

  void schedule(ir::Schedule& s) const {
    const View& values = plan_.views[3];
    if (loops_.size() > 1) vectorize_row(s, loops_.back(), values.dims.back(), accumulator_of(values.dtype), target_);
    if (worth_threads(plan_.bytes_read + plan_.bytes_written, target_)) s.parallel(loops_[0]);
  }

 private:
  void place_index(const std::vector<Expr>& k, const PlaceKey& place) {
    Expr position = k[0];
    for (size_t d = 1; d < k.size(); ++d) position = position * indices_->dims[d] + k[d];
    const Expr raw = b_.let("raw", ir::cast(DType::i64, ir::load(indices_, k))),
               row = b_.let("row", ir::select(raw < 0, raw + size_, raw));
    b_.check((row >= 0) & (row < size_), position, "indices",
             [&] { b_.guarded(padding_ ? row != padding_ : Expr(), [&] { place(position, row); }); });
  }

  ir::KernelBuilder& b_;
  const Plan& plan_;
  const ir::Target& target_;
  const SparseKey key_;
  const Buffer indices_, dy_, rows_, values_, found_;
  const Expr size_;
  Expr padding_;
  std::vector<Loop> loops_;
};

ScheduleNest author(KernelFrame& frame, const ir::Target& target) {
  ScheduleNest own = author_nest(std::make_shared<SparseNest>(frame, target));
  return target.gpu ? ScheduleNest() : own;
}

class SparseGatherGrad final : public Op {
 public:
  SparseGatherGrad() : Op(make_schema(), {{.name = "direct", .author = author}}) {}

  Error explain(const Request& request, const Plan& plan, int64_t position,
                const std::function<int64_t(int, int64_t)>& values) const override {
    const Dims& dims = request.input(in_indices).dims;
    Dims at;
    at.resize(dims.size());
    int64_t rest = position;
    for (int d = dims.size(); d-- > 0; rest /= dims[d]) at[d] = rest % dims[d];
    return index_error(schema(), in_indices, to_string(at), values(in_indices, position), plan.params[0]);
  }

  Dims found_dims(const Plan& plan, int output, std::span<void* const> outputs) const override {
    Dims dims = plan.outputs[output].dims;
    dims[0] = *static_cast<const int64_t*>(outputs[out_found]);
    return dims;
  }

 private:
  Plan plan(const Request& request) const override {
    const Operand &indices = request.input(in_indices), &dy = request.input(in_dy);
    const Dims shape = read_shape(schema(), request, in_shape, dy.dtype);
    if (request.accumulate) refuse(schema(), ErrorCode::unsupported, "accumulate; the rows are found by the call");
    if (shape.empty()) refuse(schema(), ErrorCode::invalid_argument, "shape has rank 0; it must have a first dim");
    if (shape.size() - 1 + indices.dims.size() > max_rank)
      refuse(
          schema(), ErrorCode::unsupported,
          fmt::format("dY of rank {}; at most rank {} is supported", shape.size() - 1 + indices.dims.size(), max_rank));
    Dims wanted = indices.dims, values;
    for (int d = 1; d < shape.size(); ++d) wanted.push_back(shape[d]);
    if (!(dy.dims == wanted))
      refuse(schema(), ErrorCode::invalid_argument,
             fmt::format("{} has shape {}; for shape {} and indices of shape {} it must be {}",
                         describe_input(schema(), in_dy), to_string(dy.dims), to_string(shape), to_string(indices.dims),
                         to_string(wanted)));
    const int64_t count = element_count(indices.dims);
    if (shape[0] == 0 && count != 0)
      refuse(schema(), ErrorCode::out_of_range,
             fmt::format("{} has {} values, but dim 0 of shape {} is 0, so that no index is allowed",
                         describe_input(schema(), in_indices), count, to_string(shape)));

    // At most as many rows as indices.
    Plan plan;
    values = shape;
    values[0] = count;
    try {
      element_count(values, size_of(dy.dtype));
    } catch (const Error& error) {
      refuse(schema(), ErrorCode::resource_exhausted, error.what());
    }
    plan.outputs.push_back({.dtype = DType::i64, .dims = {count}});
    plan.outputs.push_back({.dtype = dy.dtype, .dims = values});
    plan.outputs.push_back({.dtype = DType::i64, .dims = {1}, .internal = true});

    enum Role : int { middle, inner };
    LoopDims dims;
    for (int d = 0; d < dy.dims.size(); ++d) {
      const bool is_index = d < indices.dims.size();
      dims.push_back({.role = is_index ? middle : inner,
                      .full = dy.dims[d],
                      .extent = dy.dims[d],
                      .strides = {dy.strides[d], is_index ? indices.strides[d] : 0}});
    }
    const std::optional<int64_t> padding = padding_index(schema(), request, shape[0]);
    SparseKey key{.middle = 0, .padding = padding.has_value()};
    View index{.index = in_indices, .dtype = indices.dtype}, in{.index = in_dy, .dtype = dy.dtype},
        out{.output = true, .index = out_values, .dtype = dy.dtype};
    const auto add_middle = [&](const LoopDim& d) {
      index.dims.push_back(d.extent), index.strides.push_back(d.strides[1]);
      in.dims.push_back(d.extent), in.strides.push_back(d.strides[0]);
      if (key.middle++ == 0) out.dims.push_back(count);
    };
    for (const LoopDim& d : merge_dims(dims)) {
      if (d.role == middle) {
        add_middle(d);
        continue;
      }
      if (key.middle == 0) add_middle({.full = 1, .extent = 1, .strides = {1, 1}});
      in.dims.push_back(d.extent), in.strides.push_back(d.strides[0]);
      out.dims.push_back(d.extent);
      ++key.inner;
    }
    if (key.middle == 0) add_middle({.full = 1, .extent = 1, .strides = {1, 1}});
    out.strides = dense_strides(out.dims);
    plan.views.push_back(index);
    plan.views.push_back(in);
    plan.views.push_back({.output = true, .index = out_rows, .dtype = DType::i64, .dims = {count}, .strides = {1}});
    plan.views.push_back(out);
    plan.views.push_back({.output = true, .index = out_found, .dtype = DType::i64, .dims = {1}, .strides = {1}});
    plan.params.push_back(shape[0]);
    if (padding) plan.params.push_back(*padding);
    plan.bytes_read = element_count(dy.dims) * size_of(dy.dtype) + count * size_of(indices.dtype);
    plan.bytes_written = plan.bytes_read;
    set_key(plan, key);
    return plan;
  }
};

}  // namespace

const Op& sparse_gather_grad_op() {
  static constinit Lasting<const SparseGatherGrad> op;
  return *op;
}

}  // namespace gradloom
