#pragma once
// What a declaration writes its forward nest with. Operands and locals are fields: buffers over some of the call's
// dims, whose elements are read and written where the nest stands. Values are f64 where a float of the call is, else
// f32.
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "gradloom/builder.h"
#include "ops/declared/declared_plan.h"

namespace gradloom {

class DeclaredNest {
 public:
  using Index = std::vector<ir::Expr>;
  struct Field {
    ir::Buffer buffer;
    Over over = Over::all;
    explicit operator bool() const { return static_cast<bool>(buffer); }
  };

  // `extents`: of the merged dims. `wide`: of values.
  DeclaredNest(ir::KernelBuilder& builder, const Declaration& declaration, const DeclaredKey& key, Index extents,
               DType wide);
  void add(const std::string& name, Field field) { fields_[name] = field; }

  ir::KernelBuilder& b;

  Field operator()(const std::string& name) const;  // absent: an operand that the call does not have
  ir::Expr number(double value) const { return ir::constant(wide_, value); }
  double float_attribute(const std::string& name) const;
  std::optional<int64_t> int_attribute(const std::string& name) const;
  const std::string& choice(const std::string& name) const;
  // How many elements are reduced, as a value; the extent of the one dim that is.
  ir::Expr reduced_count() const;
  ir::Expr reduced_extent() const;
  // How many elements are kept before the one where the nest stands: its row-major position.
  ir::Expr kept_position() const;

  // Loops over the dims that are kept, which are all where none is reduced; in those, over the reduced ones.
  void each_kept(const std::function<void()>& body);
  void along(const std::function<void()>& body);
  // field = the fold of value along the reduced dims.
  void reduce(const Field& field, ir::AccumulateOp op, const std::function<ir::Expr()>& value);
  // The same along the kept ones, outside of their loops.
  void reduce_kept(const Field& field, ir::AccumulateOp op, const std::function<ir::Expr()>& value);

  Field local(const std::string& name);  // one value, in this scope
  Field row(const std::string& name);    // a value for each reduced element
  Field array(const std::string& name);  // a value for each kept element
  // The element of the field here.
  ir::Expr operator[](const Field& field) const;
  ir::Expr operator[](const std::string& name) const { return (*this)[(*this)(name)]; }
  // The element at an index along the one reduced dim; 0, and nothing is read, where `on` does not hold.
  ir::Expr at(const std::string& name, const ir::Expr& index, const ir::Expr& on);
  void put(const Field& field, const ir::Expr& value);  // nothing where the field is absent
  void put(const std::string& name, const ir::Expr& value) { put((*this)(name), value); }
  Index index(const Field& field) const;

  // What the gradient reads in place of the field: `value` where it stands. In the forward op, nothing.
  void known(const Field& field, const std::function<ir::Expr()>& value);
  void derive() { derived_ = true; }  // the nest is to be derived
  const std::vector<ir::Known>& all_known() const { return known_; }

 private:
  int word(const std::string& attribute) const;
  std::vector<int> dims_where(bool reduced) const;
  void fold(bool reduced, const Field& field, ir::AccumulateOp op, const std::function<ir::Expr()>& value);
  Field alloc(const std::string& name, Over over);
  void loops(const std::string& name, const std::vector<int>& dims, const std::function<void()>& body);

  const Declaration& declaration_;
  const DeclaredKey& key_;
  const Index extents_;
  const DType wide_;
  std::map<std::string, Field> fields_;
  Index at_;  // of each dim, where the nest stands; absent: not in its loop
  bool derived_ = false;
  std::vector<ir::Known> known_;
};

}  // namespace gradloom
