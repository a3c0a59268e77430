#include "ops/declared/declared_nest.h"

#include <bit>
#include <utility>

#include "ir/index_math.h"

namespace gradloom {

using ir::Expr;

DeclaredNest::DeclaredNest(ir::KernelBuilder& builder, const Declaration& declaration, const DeclaredKey& key,
                           Index extents, DType wide)
    : b(builder),
      declaration_(declaration),
      key_(key),
      extents_(std::move(extents)),
      wide_(wide),
      at_(extents_.size()) {}

DeclaredNest::Field DeclaredNest::operator()(const std::string& name) const {
  const auto found = fields_.find(name);
  return found == fields_.end() ? Field() : found->second;
}

int DeclaredNest::word(const std::string& name) const {
  int word = 0;
  for (const AttributeSchema& attribute : declaration_.attributes) {
    if (attribute.name == "axis") continue;
    if (attribute.name == name) return word;
    word += 2;
  }
  throw Error(ErrorCode::internal, declaration_.name + " has no attribute " + name);
}

double DeclaredNest::float_attribute(const std::string& name) const {
  return std::bit_cast<double>(key_.attributes[word(name) + 1]);
}

std::optional<int64_t> DeclaredNest::int_attribute(const std::string& name) const {
  const int at = word(name);
  return key_.attributes[at] != 0 ? std::optional(key_.attributes[at + 1]) : std::nullopt;
}

const std::string& DeclaredNest::choice(const std::string& name) const {
  return declaration_.choices.at(static_cast<size_t>(key_.attributes[word(name) + 1]));
}

std::vector<int> DeclaredNest::dims_where(bool reduced) const {
  std::vector<int> dims;
  for (int d = 0; d < key_.rank; ++d)
    if (key_.is_reduced(d) == reduced) dims.push_back(d);
  return dims;
}

Expr DeclaredNest::reduced_count() const {
  Expr count = 1;
  for (const int d : dims_where(true)) count = ir::index_mul(count, extents_[d]);
  return ir::cast(wide_, count);
}

Expr DeclaredNest::reduced_extent() const { return extents_[dims_where(true)[0]]; }

Expr DeclaredNest::kept_position() const {
  Expr position = 0;
  for (const int d : dims_where(false)) position = ir::index_add(ir::index_mul(position, extents_[d]), at_[d]);
  return position;
}

void DeclaredNest::loops(const std::string& name, const std::vector<int>& dims, const std::function<void()>& body) {
  Index extents;
  for (const int d : dims) extents.push_back(extents_[d]);
  b.loops(name, extents, [&](const Index& i) {
    for (size_t k = 0; k < dims.size(); ++k) at_[dims[k]] = i[k];
    body();
    for (const int d : dims) at_[d] = {};
  });
}

void DeclaredNest::each_kept(const std::function<void()>& body) { loops("i", dims_where(false), body); }
void DeclaredNest::along(const std::function<void()>& body) { loops("j", dims_where(true), body); }

void DeclaredNest::reduce(const Field& field, ir::AccumulateOp op, const std::function<Expr()>& value) {
  fold(true, field, op, value);
}
void DeclaredNest::reduce_kept(const Field& field, ir::AccumulateOp op, const std::function<Expr()>& value) {
  fold(false, field, op, value);
}

void DeclaredNest::fold(bool reduced, const Field& field, ir::AccumulateOp op, const std::function<Expr()>& value) {
  constexpr int64_t block_of_neighbours = 256, block_of_rows = 16;
  const std::vector<int> dims = dims_where(reduced);
  if (dims.empty()) return b.store(field.buffer, index(field), value());
  std::vector<ir::KernelBuilder::Bounds> bounds;
  for (const int d : dims) bounds.push_back({"j" + std::to_string(d), 0, extents_[d]});
  const auto term = [&](const Index& j) {
    for (size_t k = 0; k < dims.size(); ++k) at_[dims[k]] = j[k];
    const Expr result = value();
    for (const int d : dims) at_[d] = {};
    return result;
  };
  const bool neighbours = dims.back() == key_.rank - 1 || !reduced;
  b.reduce(field.buffer, index(field), op, bounds, term,
           ir::SumOrder::in_tree(neighbours ? block_of_neighbours : block_of_rows));
}

DeclaredNest::Field DeclaredNest::alloc(const std::string& name, Over over) {
  Index dims;
  for (int d = 0; d < key_.rank; ++d)
    if (has_dim(over, key_.is_reduced(d))) dims.push_back(extents_[d]);
  if (dims.empty()) dims.push_back(1);
  return {b.alloc(name, wide_, std::move(dims), {}, over == Over::one ? ir::Space::registers : ir::Space::global),
          over};
}
DeclaredNest::Field DeclaredNest::local(const std::string& name) { return alloc(name, Over::one); }
DeclaredNest::Field DeclaredNest::row(const std::string& name) { return alloc(name, Over::reduced); }
DeclaredNest::Field DeclaredNest::array(const std::string& name) { return alloc(name, Over::kept); }

DeclaredNest::Index DeclaredNest::index(const Field& field) const {
  Index result;
  for (int d = 0; d < key_.rank; ++d)
    if (has_dim(field.over, key_.is_reduced(d))) result.push_back(at_[d]);
  if (result.empty()) result.push_back(0);
  return result;
}

Expr DeclaredNest::operator[](const Field& field) const {
  const Expr value = ir::load(field.buffer, index(field));
  return is_float(value.dtype()) ? ir::cast(wide_, value) : value;
}

Expr DeclaredNest::at(const std::string& name, const Expr& along, const Expr& on) {
  const Field field = (*this)(name);
  const int dim = dims_where(true)[0];
  const Expr outer = std::exchange(at_[dim], along);
  const Index where = index(field);
  at_[dim] = outer;
  return ir::cast(wide_, ir::load(field.buffer, where, on, ir::zero({field.buffer->dtype, 1})));
}

void DeclaredNest::put(const Field& field, const Expr& value) {
  if (field) b.store(field.buffer, index(field), ir::cast(field.buffer->dtype, value));
}

void DeclaredNest::known(const Field& field, const std::function<Expr()>& value) {
  if (!derived_) return;
  ir::Known known{.buffer = field.buffer};
  const Index outer = at_;
  for (int d = 0; d < key_.rank; ++d) {
    if (!has_dim(field.over, key_.is_reduced(d))) continue;
    known.index.push_back(ir::make_var("k" + std::to_string(d)));
    at_[d] = ir::var(known.index.back());
  }
  if (known.index.empty()) known.index.push_back(ir::make_var("k"));
  known.value = ir::cast(field.buffer->dtype, value());
  at_ = outer;
  known_.push_back(std::move(known));
}

}  // namespace gradloom
