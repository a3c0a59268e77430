#include "python/builder.h"

#include <fmt/format.h>
#include <nanobind/operators.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <functional>
#include <optional>
#include <variant>

#include "gradloom/builder.h"
#include "gradloom/math.h"
#include "gradloom/text.h"
#include "ir/reduction.h"
#include "python/errors.h"
#include "python/nest.h"
#include "python/number.h"

namespace nb = nanobind;

namespace gradloom::python {
namespace {

using ir::Expr;

DType dtype_named(const std::string& name) {
  if (const auto dtype = dtype_from_string(name)) return *dtype;
  refuse(fmt::format("dtype is {}; expected one like f32 or float32", name));
}

// A number as a constant of this dtype.
Expr number(DType dtype, nb::handle value) {
  if (PyBool_Check(value.ptr())) return ir::number_like(dtype, value.ptr() == Py_True);
  return number_of(
      dtype, value, [&](const char* text) { refuse(fmt::format("{} is no number of {}", text, to_string(dtype))); },
      [&] {
        refuse(fmt::format("a value is of type {}; expected an expression or a number", Py_TYPE(value.ptr())->tp_name));
      });
}

Expr expr_of(nb::handle value, DType dtype) {
  if (nb::isinstance<Expr>(value)) return nb::cast<Expr>(value);
  return number(dtype, value);
}

Expr maybe(nb::handle value, DType dtype) { return value.is_none() ? Expr() : expr_of(value, dtype); }

std::vector<Expr> index_of(nb::handle given) {
  std::vector<Expr> all;
  if (PyTuple_Check(given.ptr()) || PyList_Check(given.ptr()))
    for (const nb::handle one : given) all.push_back(expr_of(one, DType::i64));
  else
    all.push_back(expr_of(given, DType::i64));
  return all;
}

// Two operands, one of which may be a number, which has the other's dtype.
std::pair<Expr, Expr> both(nb::handle a, nb::handle b) {
  if (nb::isinstance<Expr>(a)) {
    const Expr left = nb::cast<Expr>(a);
    return {left, expr_of(b, left.dtype())};
  }
  if (!nb::isinstance<Expr>(b)) refuse("expected an expression among the operands, got two numbers");
  const Expr right = nb::cast<Expr>(b);
  return {expr_of(a, right.dtype()), right};
}

Expr binary(ir::BinaryOp op, nb::handle a, nb::handle b) {
  auto [left, right] = both(a, b);
  return ir::binary(op, std::move(left), std::move(right));
}

template <class E, size_t N>
E named(const char* what, const E (&all)[N], const std::string& name) {
  std::string allowed;
  for (const E one : all) {
    if (name == ir::to_string(one)) return one;
    allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", ir::to_string(one));
  }
  refuse(fmt::format("{} is {}; allowed are {}", what, name, allowed));
}

constexpr ir::AccumulateOp accumulate_ops[] = {ir::AccumulateOp::add, ir::AccumulateOp::min, ir::AccumulateOp::max,
                                               ir::AccumulateOp::fma, ir::AccumulateOp::mul};
constexpr ir::Space spaces[] = {ir::Space::global,     ir::Space::registers, ir::Space::shared,
                                ir::Space::per_thread, ir::Space::per_block, ir::Space::per_warp};

class Builder {
 public:
  explicit Builder(std::string name) : kernel_{.name = std::move(name)}, scopes_(1) {}

  Expr scalar(const std::string& name, nb::handle min, nb::handle max, const std::string& dtype) {
    const DType type = dtype_named(dtype);
    const ir::Var v = ir::make_var(name, {type, 1});
    kernel_.scalars.push_back({v, maybe(min, type), maybe(max, type)});
    return ir::var(v);
  }

  ir::Buffer parameter(ir::Role role, const std::string& name, const std::string& dtype, nb::handle dims,
                       nb::handle strides, int64_t alignment) {
    ir::BufferNode node{.name = name, .dtype = dtype_named(dtype), .dims = index_of(dims), .role = role};
    node.alignment = alignment;
    if (!strides.is_none()) node.strides = index_of(strides);
    return kernel_.buffers.emplace_back(ir::make_buffer(std::move(node)));
  }

  ir::Buffer alloc(const std::string& name, const std::string& dtype, nb::handle dims, const std::string& space) {
    const ir::Buffer buffer = ir::make_buffer(
        {.name = name, .dtype = dtype_named(dtype), .dims = index_of(dims), .space = named("space", spaces, space)});
    wrap([buffer](ir::Stmt body) { return ir::alloc(buffer, std::move(body)); });
    return buffer;
  }

  Expr let(const std::string& name, const Expr& value) {
    const ir::Var v = ir::make_var(name, value.type());
    wrap([v, value](ir::Stmt body) { return ir::let(v, value, std::move(body)); });
    return ir::var(v);
  }

  void store(const ir::Buffer& buffer, nb::handle index, nb::handle value, nb::handle guard, bool streaming) {
    add(ir::store(buffer, index_of(index), expr_of(value, buffer->dtype), maybe(guard, DType::boolean), streaming));
  }

  void accumulate(const ir::Buffer& buffer, nb::handle index, nb::handle value, const std::string& op,
                  nb::handle factor, nb::handle guard, bool atomic) {
    add(ir::accumulate(buffer, index_of(index), named("op", accumulate_ops, op), expr_of(value, buffer->dtype),
                       maybe(factor, buffer->dtype), maybe(guard, DType::boolean), atomic));
  }

  Expr open_loop(const std::string& name) {
    const ir::Var v = ir::make_var(name);
    scopes_.push_back({.var = v});
    return ir::var(v);
  }
  void close_loop(nb::handle begin, nb::handle extent, const std::string& kind) {
    const ir::Var v = innermost().var;
    ir::Stmt body = close();
    add(ir::for_loop(v, expr_of(begin, DType::i64), expr_of(extent, DType::i64), named("kind", ir::all_for_kinds, kind),
                     std::move(body)));
  }
  // The terms of a reduction are evaluated in a scope of their own, which may hold lets.
  std::vector<Expr> open_reduction(const std::vector<std::string>& names) {
    Scope scope;
    std::vector<Expr> at;
    for (const std::string& name : names) at.push_back(ir::var(scope.reduced.emplace_back(ir::make_var(name))));
    scopes_.push_back(std::move(scope));
    return at;
  }
  void close_reduction(const ir::Buffer& buffer, nb::handle index, const std::string& op, nb::handle begins,
                       nb::handle extents, nb::handle value, nb::handle factor, nb::handle guard,
                       const std::string& order) {
    const Expr term = expr_of(value, buffer->dtype);
    add(reduction(buffer, index_of(index), op, begins, extents, term, factor, guard, order));
  }
  // The same into a scalar of its own.
  Expr close_total(const std::string& op, nb::handle begins, nb::handle extents, const Expr& value, nb::handle factor,
                   nb::handle guard, const std::string& order) {
    const ir::Buffer total = ir::make_buffer({.name = innermost().reduced.at(0).name + "_total",
                                              .dtype = accumulator_of(value.dtype()),
                                              .dims = {1},
                                              .space = ir::Space::registers});
    ir::Stmt made = reduction(total, {0}, op, begins, extents, value, factor, guard, order);
    wrap([total](ir::Stmt body) { return ir::alloc(total, std::move(body)); });
    add(std::move(made));
    return ir::load(total, {0});
  }
  void open() { scopes_.emplace_back(); }
  void drop() { scopes_.pop_back(); }
  size_t depth() const { return scopes_.size(); }
  void close_if(const Expr& condition) { add(ir::if_then(condition, close())); }
  void close_else() {
    ir::Stmt body = close();
    auto& items = scopes_.back().items;
    const auto* last = items.empty() ? nullptr : std::get_if<ir::Stmt>(&items.back());
    const auto* branch = last ? last->as<ir::If>() : nullptr;
    if (!branch || branch->else_case) refuse("otherwise: it must follow an if_then");
    items.back() = ir::if_then(branch->condition, branch->then_case, std::move(body));
  }
  void close_check(const Expr& condition, nb::handle position, const std::string& argument) {
    ir::Stmt body = close();
    add(ir::check(condition, expr_of(position, DType::i64), argument, std::move(body)));
  }

  // The lets that an elementary function appends to a builder's scope, taken into this one's.
  template <Expr (*function)(ir::KernelBuilder&, Expr)>
  Expr math(const Expr& x) {
    return elementary([&](ir::KernelBuilder& b) { return function(b, x); });
  }
  Expr power(const Expr& x, double exponent) {
    return elementary([&](ir::KernelBuilder& b) { return ir::pow(b, x, exponent); });
  }
  Expr elementary(const std::function<Expr(ir::KernelBuilder&)>& function) {
    ir::KernelBuilder scratch("scratch");
    const Expr result = function(scratch);
    const ir::Buffer end = ir::make_buffer({.name = "end", .dtype = result.dtype(), .role = ir::Role::out});
    scratch.store(end, {}, result);
    const ir::Kernel made = scratch.build();
    ir::Stmt rest = made.body;
    while (const auto* let = rest.as<ir::Let>()) {
      wrap([v = let->var, value = let->value](ir::Stmt body) { return ir::let(v, value, std::move(body)); });
      const ir::Stmt inner = let->body;
      rest = inner;
    }
    return result;
  }

  Nest build() {
    if (built_) refuse(fmt::format("kernel {}: it was built already, a builder builds one", kernel_.name));
    if (scopes_.size() != 1) refuse(fmt::format("kernel {}: build: a scope is still open", kernel_.name));
    ir::Stmt body = close();
    built_ = true;
    kernel_.body = std::move(body);
    return verified(kernel_);
  }

 private:
  using Wrapper = std::function<ir::Stmt(ir::Stmt)>;
  struct Scope {
    ir::Var var = {};
    std::vector<ir::Var> reduced = {};
    std::vector<std::variant<ir::Stmt, Wrapper>> items = {};
  };

  Scope& innermost() {
    if (scopes_.empty()) refuse(fmt::format("kernel {}: it was built already, a builder builds one", kernel_.name));
    return scopes_.back();
  }
  void add(ir::Stmt stmt) { innermost().items.emplace_back(std::move(stmt)); }
  void wrap(Wrapper wrapper) { innermost().items.emplace_back(std::move(wrapper)); }

  static Expr summed(const Expr& term) { return ir::cast(accumulator_of(term.dtype()), term); }
  ir::Stmt reduction(const ir::Buffer& buffer, std::vector<Expr> index, const std::string& op, nb::handle begins,
                     nb::handle extents, const Expr& value, nb::handle factor, nb::handle guard,
                     const std::string& order) {
    ir::Reduce n{.buffer = buffer, .index = std::move(index), .op = named("op", accumulate_ops, op)};
    n.value = summed(value);
    if (const Expr times = maybe(factor, value.dtype())) n.factor = summed(times);
    n.guard = maybe(guard, DType::boolean);
    n.order = ir::sum_order(order);
    const std::vector<Expr> first = index_of(begins), count = index_of(extents);
    const std::vector<ir::Var> vars = innermost().reduced;
    for (size_t i = 0; i < vars.size(); ++i) n.ranges.push_back({vars[i], first.at(i), count.at(i)});
    const std::optional<ir::Reduce> whole = ir::with_lets_of(std::move(n), close());
    if (!whole)
      refuse(
          "the terms of a reduction may use lets, but no other statements; one over several variables is one reduce");
    return ir::reduce(*whole);
  }

  // A wrapper stands around all that follows it in its scope.
  ir::Stmt close() {
    Scope scope = std::move(innermost());
    scopes_.pop_back();
    std::vector<ir::Stmt> following;
    for (size_t i = scope.items.size(); i-- > 0;) {
      if (auto* stmt = std::get_if<ir::Stmt>(&scope.items[i])) {
        following.insert(following.begin(), std::move(*stmt));
      } else {
        ir::Stmt wrapped = std::get<Wrapper>(scope.items[i])(ir::block(std::move(following)));
        following.clear();
        following.push_back(std::move(wrapped));
      }
    }
    return ir::block(std::move(following));
  }

  ir::Kernel kernel_;
  std::vector<Scope> scopes_;
  bool built_ = false;
};

template <ir::BinaryOp op>
nb::object operate(nb::handle a, nb::handle b) {
  return nb::cast(binary(op, a, b));
}
template <ir::BinaryOp op>
nb::object operate_reversed(nb::handle a, nb::handle b) {
  return nb::cast(binary(op, b, a));
}

void bind_expressions(nb::module_& m) {
  using enum ir::BinaryOp;
  nb::class_<Expr>(m, "Expr")
      .def(nb::init<const Expr&>())
      .def("__add__", operate<add>)
      .def("__radd__", operate_reversed<add>)
      .def("__sub__", operate<sub>)
      .def("__rsub__", operate_reversed<sub>)
      .def("__mul__", operate<mul>)
      .def("__rmul__", operate_reversed<mul>)
      .def("__truediv__", operate<ir::BinaryOp::div>)
      .def("__rtruediv__", operate_reversed<ir::BinaryOp::div>)
      .def("__floordiv__", operate<floor_div>)
      .def("__rfloordiv__", operate_reversed<floor_div>)
      .def("__mod__", operate<floor_mod>)
      .def("__rmod__", operate_reversed<floor_mod>)
      .def("__and__", operate<bit_and>)
      .def("__rand__", operate_reversed<bit_and>)
      .def("__or__", operate<bit_or>)
      .def("__ror__", operate_reversed<bit_or>)
      .def("__xor__", operate<bit_xor>)
      .def("__rxor__", operate_reversed<bit_xor>)
      .def("__lshift__", operate<shl>)
      .def("__rshift__", operate<shr>)
      .def("__eq__", operate<eq>)
      .def("__ne__", operate<ne>)
      .def("__lt__", operate<lt>)
      .def("__le__", operate<le>)
      .def("__gt__", operate<gt>)
      .def("__ge__", operate<ge>)
      .def("__neg__", [](const Expr& a) { return ir::unary(ir::UnaryOp::neg, a); })
      .def("__abs__", [](const Expr& a) { return ir::unary(ir::UnaryOp::abs, a); })
      .def("__invert__", [](const Expr& a) { return ir::unary(ir::UnaryOp::bit_not, a); })
      .def("__bool__",
           [](const Expr& a) -> bool {
             refuse(fmt::format("{} has no value while a nest is built; use select, if_then, & and |", ir::print(a)));
           })
      .def_prop_ro("dtype", [](const Expr& a) { return onnx_name(a.dtype()); })
      .def("__str__", [](const Expr& a) { return ir::print(a); })
      .def("__repr__", [](const Expr& a) { return fmt::format("<gradloom.Expr {}>", ir::print(a)); });

  m.def(
      "_load",
      [](const ir::Buffer& buffer, nb::handle index, nb::handle guard, nb::handle otherwise) {
        return ir::load(buffer, index_of(index), maybe(guard, DType::boolean), maybe(otherwise, buffer->dtype));
      },
      nb::arg("buffer"), nb::arg("index"), nb::arg("guard").none() = nb::none(),
      nb::arg("otherwise").none() = nb::none());
  m.def("_min", operate<ir::BinaryOp::min>);
  m.def("_max", operate<ir::BinaryOp::max>);
  m.def("_select", [](const Expr& condition, nb::handle a, nb::handle b) {
    auto [yes, no] = both(a, b);
    return ir::select(condition, std::move(yes), std::move(no));
  });
  m.def("_fma", [](const Expr& a, nb::handle b, nb::handle c) {
    return ir::fma(a, expr_of(b, a.dtype()), expr_of(c, a.dtype()));
  });
  m.def("_cast", [](const std::string& dtype, const Expr& a) { return ir::cast(dtype_named(dtype), a); });
  m.def("_bitcast", [](const std::string& dtype, const Expr& a) { return ir::bitcast(dtype_named(dtype), a); });
  m.def("_constant", [](const std::string& dtype, nb::handle value) { return number(dtype_named(dtype), value); });
  m.def("_unary", [](const std::string& op, const Expr& a) {
    constexpr ir::UnaryOp ops[] = {ir::UnaryOp::sqrt, ir::UnaryOp::floor, ir::UnaryOp::ceil, ir::UnaryOp::trunc};
    return ir::unary(named("op", ops, op), a);
  });
}

}  // namespace

void bind_builder(nb::module_& m) {
  bind_expressions(m);
  nb::class_<ir::Buffer>(m, "_Buffer")
      .def_prop_ro("name", [](const ir::Buffer& b) { return b->name; })
      .def_prop_ro("dtype", [](const ir::Buffer& b) { return onnx_name(b->dtype); });
  nb::class_<Builder> builder(m, "_Builder");
  builder.def(nb::init<std::string>())
      .def("scalar", &Builder::scalar, nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg())
      .def("alloc", &Builder::alloc)
      .def("let", &Builder::let)
      .def("store", &Builder::store, nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg())
      .def("accumulate", &Builder::accumulate, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(),
           nb::arg().none(), nb::arg())
      .def("open_loop", &Builder::open_loop)
      .def("close_loop", &Builder::close_loop)
      .def("open_reduction", &Builder::open_reduction)
      .def("close_reduction", &Builder::close_reduction, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
           nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg())
      .def("close_total", &Builder::close_total, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(),
           nb::arg().none(), nb::arg())
      .def("open", &Builder::open)
      .def("drop", &Builder::drop)
      .def_prop_ro("depth", &Builder::depth)
      .def("close_if", &Builder::close_if)
      .def("close_else", &Builder::close_else)
      .def("close_check", &Builder::close_check)
      .def("exp", &Builder::math<ir::exp>)
      .def("expm1", &Builder::math<ir::expm1>)
      .def("log", &Builder::math<ir::log>)
      .def("log1p", &Builder::math<ir::log1p>)
      .def("tanh", &Builder::math<ir::tanh>)
      .def("logistic", &Builder::math<ir::logistic>)
      .def("softplus", &Builder::math<ir::softplus>)
      .def("erf", &Builder::math<ir::erf>)
      .def("sin", &Builder::math<ir::sin>)
      .def("cos", &Builder::math<ir::cos>)
      .def("pow", &Builder::power)
      .def("build", &Builder::build);
  const auto parameter = [&](const char* name, ir::Role role) {
    builder.def(
        name,
        [role](Builder& self, const std::string& buffer, const std::string& dtype, nb::handle dims, nb::handle strides,
               int64_t alignment) { return self.parameter(role, buffer, dtype, dims, strides, alignment); },
        nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg());
  };
  parameter("input", ir::Role::in);
  parameter("output", ir::Role::out);
  parameter("inout", ir::Role::inout);
}

}  // namespace gradloom::python
