#include "ir/schedule/fuse_segments.h"

#include <limits>

#include "ir/index_math.h"
#include "ir/rewrite.h"

namespace gradloom::ir {
namespace {

// An element of an i64 or narrower buffer, as an i64.
const Load* element(const Expr& e) {
  const Cast* cast = e.as<Cast>();
  const Load* l = (cast ? cast->value : e).as<Load>();
  return l && is_int(l->buffer->dtype) && l->buffer->dtype != DType::u64 && !l->guard ? l : nullptr;
}

// offsets[.., b + c] of a loop from offsets[.., b + c] to offsets[.., b + c + 1].
const Load* segment_start(const For& outer, const For& inner) {
  const Binary* length = inner.extent.as<Binary>();
  if (!length || length->op != BinaryOp::sub || !equal(length->b, inner.begin)) return nullptr;
  const Load *from = element(inner.begin), *to = element(length->a);
  if (!from || !to || !from->buffer.same_as(to->buffer) || !from->buffer->facts.nondecreasing) return nullptr;
  const size_t last = from->index.size() - 1;
  for (size_t d = 0; d < last; ++d)
    if (mentions(from->index[d], outer.var.id) || has_load(from->index[d]) || !equal(from->index[d], to->index[d]))
      return nullptr;
  const Linear at = linear(from->index[last]), step = linear(index_sub(to->index[last], from->index[last]));
  const bool next = at.exact && at.coefficient(var(outer.var)) == 1 && !has_load(from->index[last]) && step.exact &&
                    step.terms.empty() && step.constant == 1;
  return next && !writes(outer.body, from->buffer) ? from : nullptr;
}

}  // namespace

FusedSegments fuse_segments(const Site& site, int64_t inner_id) {
  const For& outer = *site.loop;
  const For* inner = outer.body.as<For>();
  if (!inner || inner->var.id != inner_id || outer.kind != ForKind::serial || inner->kind != ForKind::serial) return {};
  const Load* start = segment_start(outer, *inner);
  if (!start || has_load(outer.begin) || has_load(outer.extent)) return {};
  const Facts& facts = start->buffer->facts;
  if (!facts.min || !facts.max || site.scope.of(facts.min).min.value_or(-1) < 0)
    refuse("fuse", outer.var.name,
           "buffer " + start->buffer->name + " is not declared to be in a range from 0 on, which a table could hold");

  const Expr count = nonnegative(outer.extent, site.scope), end = index_add(outer.begin, count);
  const std::optional<int64_t> known = as_int(end);
  const DType dtype = known && *known < std::numeric_limits<int32_t>::max() && as_int(outer.begin).value_or(-1) >= 0
                          ? DType::i32
                          : DType::i64;
  const Buffer owner = make_buffer({.name = inner->var.name + "_" + outer.var.name,
                                    .dtype = dtype,
                                    .dims = {index_max(facts.max, 0)},
                                    .role = Role::temp,
                                    .facts = {.min = outer.begin, .max = index_sub(end, 1)}});
  const auto narrowed = [&](const Expr& e) { return dtype == DType::i64 ? e : cast(dtype, e); };
  const auto widened = [&](const Expr& e) { return dtype == DType::i64 ? e : cast(DType::i64, e); };
  const Var of = make_var(outer.var.name + "_f"), at = make_var(inner->var.name + "_f");
  const Substitution fresh{{outer.var.id, var(of)}};
  const Stmt fill = for_loop(of, outer.begin, count, ForKind::serial,
                             for_loop(at, substitute(inner->begin, fresh), substitute(inner->extent, fresh),
                                      ForKind::serial, store(owner, {var(at)}, narrowed(var(of)))));

  const auto bound = [&](const Expr& segment) {
    std::vector<Expr> index;
    for (const Expr& i : start->index) index.push_back(substitute(i, {{outer.var.id, segment}}));
    const Expr any = count > 0;  // else there may be no such element
    const Expr value = load(start->buffer, index, as_int(count).value_or(0) > 0 ? Expr() : any);
    return value.dtype() == DType::i64 ? value : cast(DType::i64, value);
  };
  const Var from = make_var(inner->var.name + "_from"), to = make_var(inner->var.name + "_to"),
            place = make_var(inner->var.name), segment = make_var(outer.var.name);
  const Stmt body = let(segment, widened(load(owner, {var(place)})),
                        substitute(inner->body, {{inner->var.id, var(place)}, {outer.var.id, var(segment)}}));
  const Stmt one = for_loop(place, var(from), index_sub(var(to), var(from)), ForKind::serial, body);
  const Stmt both = let(from, bound(outer.begin), let(to, bound(end), one));
  return {alloc(owner, block({fill, both})), place.id};
}

}  // namespace gradloom::ir
