#include "ir/analysis/fragment_product.h"

#include <fmt/format.h>

#include "ir/analysis/ranges.h"
#include "ir/index_math.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

// cast(f32, x[...]) of f16 or bf16, whose address is linear in `own` and k and independent of `other`; else why not.
std::string match_operand(const Expr& value, const Var& own, const Var& k, const Var& other,
                          FragmentProduct::Operand& operand) {
  const Cast* cast = value.as<Cast>();
  const Load* load = cast ? cast->value.as<Load>() : nullptr;
  if (!load || load->guard || value.type() != Type{DType::f32} || !is_storage_float(load->buffer->dtype))
    return "an operand is not an element of f16 or bf16 cast to f32, without guard";
  const Buffer& b = load->buffer;
  if (b->space != Space::global && b->space != Space::shared)
    return "the operand " + b->name + " is neither shared nor global";
  operand.buffer = b;
  operand.begin = 0;
  int64_t stride = 1;
  for (size_t d = load->index.size(); d-- > 0;) {
    const std::optional<int64_t> step = b->strides.empty() ? std::optional(stride) : as_int(b->strides[d]);
    Linear place = linear(load->index[d]);
    const int64_t along = place.coefficient(var(own)), along_k = place.coefficient(var(k));
    place.add(var(own), -along), place.add(var(k), -along_k);
    const Expr begin = to_expr(place);
    for (const Var* v : {&own, &k, &other})
      if (!place.exact || mentions(begin, v->id))
        return "the place of operand " + b->name + " is not linear in the loops";
    if (!step) return "a stride of operand " + b->name + " is no constant";
    operand.along += along * *step, operand.along_k += along_k * *step;
    operand.begin = index_add(operand.begin, index_mul(begin, *step));
    if (d == 0 || !b->strides.empty()) continue;
    const std::optional<int64_t> dim = as_int(b->dims[d]);
    if (!dim) return "a dim of operand " + b->name + " is no constant";
    stride *= *dim;
  }
  return {};
}

bool tiles(const For& n, int64_t unit) {
  return is_const(n.begin, 0) && as_int(n.extent) && *as_int(n.extent) > 0 && *as_int(n.extent) % unit == 0;
}

}  // namespace

FragmentProduct match_fragment_product(const For& rows, std::string& mismatch) {
  const For* columns = rows.body.as<For>();
  const For* k = columns ? columns->body.as<For>() : nullptr;
  if (!k || k->kind != ForKind::matrix_unit) return {};
  const auto refuse = [&](const std::string& why) {
    mismatch = "the matrix_unit loop " + k->var.name + ": " + why;
    return FragmentProduct{};
  };
  if (!tiles(*k, unit_depth)) return refuse(fmt::format("it does not run from 0 over a multiple of {}", unit_depth));
  const Accumulate* n = k->body.as<Accumulate>();
  if (!n || n->op != AccumulateOp::fma || n->guard || n->atomic || n->value.lanes() != 1 ||
      n->buffer->space != Space::per_warp || n->buffer->dtype != DType::f32)
    return refuse("it holds something besides one fma into a per_warp buffer of f32, without guard");
  FragmentProduct p{.rows = as_int(rows.extent).value_or(0),
                    .columns = as_int(columns->extent).value_or(0),
                    .depth = *as_int(k->extent)};
  for (const std::string& why : {match_operand(n->value, rows.var, k->var, columns->var, p.a),
                                 match_operand(n->factor, columns->var, k->var, rows.var, p.b)})
    if (!why.empty()) return refuse(why);
  if (p.a.buffer->dtype != p.b.buffer->dtype)
    return refuse(std::string("its operands are ") + to_string(p.a.buffer->dtype) + " and " +
                  to_string(p.b.buffer->dtype));
  p.sums = n->buffer;
  return p;
}

}  // namespace gradloom::ir
