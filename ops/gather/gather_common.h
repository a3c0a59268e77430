#pragma once
// GatherGrad and GatherElementsGrad are one scatter-add over merged dims:
//
//   dX[p.., jj, q..] += dY[p.., k.., q..]
//
// with j = indices[k..] (GatherGrad) or indices[p.., k, q..] (GatherElementsGrad), and
//
//   jj = j < 0 ? j + s : j
//
// p.. are the outer dims, k.. the middle ones (GatherElementsGrad has exactly one), q.. the inner ones; there may be no
// outer or inner dim. s is the extent of dX's axis. Dense operands have at most one dim of each kind. The checks and
// views are here, apart from the strategies' nests.
#include "gradloom/plan_key.h"

namespace gradloom {

// The structure of a call, which holds in the any-shape kernel as well. Views: 0 indices, 1 dY, 2 dX; when `empty` (no
// index at all, or no element in dY) dX, flat, then with `only_checks` indices.
struct GatherRoles {
  bool accumulate = false;
  bool empty = false;
  bool only_checks = false;              // empty, but a bad index is an error all the same
  bool varying = false;                  // indices has dims (outer, middle, inner), else (middle)
  int outer = 0, middle = 1, inner = 0;  // numbers of dims
  uint32_t shorter = 0;  // varying only: bit d: outer dim d, bit outer + d: inner dim d of indices and dY may be
                         // shorter than dX's: the leading corner
  int index_input = 0;   // the position of indices among the op's inputs

  template <class Key, class Visit>
  static void fields(Key& key, Visit&& visit) {
    visit(key.accumulate, key.empty, key.only_checks, key.varying, key.outer, key.middle, key.inner, key.shorter,
          key.index_input);
  }
  int axis() const { return outer; }  // dX's dim s
  bool outer_shorter(int d) const { return shorter >> d & 1; }
  bool inner_shorter(int d) const { return shorter >> (outer + d) & 1; }
};
inline GatherRoles gather_roles(const Plan& plan) { return key_of<GatherRoles>(plan); }

// The operands' descriptors, with dims already checked by the op.
struct GatherOperands {
  const Operand& indices;
  const Operand& dy;
  const Dims& shape;
  int axis;
};
// Outputs, views, key and traffic of a checked call.
Plan gather_plan(const GatherOperands& operands, bool varying, const Request& request, int index_input);

// The parts that every strategy's nest shares.
struct GatherFrame {
  GatherFrame(KernelFrame& frame, const GatherRoles& roles);
  GatherFrame(ir::KernelBuilder& b, const GatherRoles& roles, ir::Buffer indices, ir::Buffer dy, ir::Buffer dx);
  const GatherRoles roles;
  ir::KernelBuilder& b;
  ir::Buffer indices, dy, dx;
  DType sum;  // the accumulator's dtype

  std::vector<ir::Expr> outer_dims(const ir::Buffer& buffer) const;  // of dY or dX
  std::vector<ir::Expr> middle_dims() const;
  std::vector<ir::Expr> inner_dims(const ir::Buffer& buffer) const;
  ir::Expr axis_extent() const { return dx->dims[roles.axis()]; }

  using Index = std::vector<ir::Expr>;
  static Index joined(Index p, const Index& k,
                      const Index& q);  // into dY, and into dX where k is the index along the axis
  Index index_at(const Index& p, const Index& k, const Index& q) const;  // into indices
  ir::Expr position(const Index& index) const;  // row-major in the caller's indices tensor: a Check's position
  // Loads the index at `index` once (as i64, negatives wrapped into a let), checks it, and runs body(jj) guarded.
  // `before` runs before the check, whatever the index.
  void checked_index(const Index& index, const std::function<void(ir::Expr)>& body,
                     const std::function<void(ir::Expr)>& before = {}) const;
  // The same for an index that is already loaded (`read`).
  void checked_index(const ir::Expr& read, const Index& index, const std::function<void(ir::Expr)>& body,
                     const std::function<void(ir::Expr)>& before = {}) const;
  ir::Expr wrapped(const ir::Expr& read) const;  // i64, counted from the start
  // Whether dX's (p, q) lies in the leading corner that indices cover; absent when it always does.
  ir::Expr covered(const Index& p, const Index& q) const;
  // The operand over whose outer and inner dims a nest goes: accumulated, dX is touched only where dY may name it.
  const ir::Buffer& spanned() const { return roles.accumulate ? dy : dx; }
  // dX[index] = total or, accumulated, added_to(dX[index], total).
  void store_total(const Index& index, const ir::Expr& total) const;
};

// The table of both ops (gather_strategies.h says what each strategy is for).
std::vector<Strategy> gather_strategies();

// What both ops have in common; each adds its schema and its check.
class GatherOp : public Op {
 public:
  explicit GatherOp(OpSchema schema) : Op(std::move(schema), gather_strategies()) {}
  Error explain(const Request& request, const Plan& plan, int64_t position,
                const std::function<int64_t(int, int64_t)>& values) const final;

 protected:
  int axis_of(const Request& request, int rank) const {
    return wrap_axis(schema(), int_attribute(request, "axis", 0), rank, "attribute axis");
  }
  // Refuses indices into a dim of 0.
  void require_indexable(const Request& request, int in_indices, const Dims& shape, int axis) const;
};

}  // namespace gradloom
