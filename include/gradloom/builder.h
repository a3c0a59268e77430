#pragma once
// Builds a kernel in program order: statements are appended to the innermost open scope; a let or an alloc is live to
// the end of that scope.
//
//   KernelBuilder b("scale");
//   Buffer x = b.input("x", DType::f32, {n}), y = b.output("y", DType::f32, {n});
//   b.loop("i", 0, n, [&](Expr i) { b.store(y, {i}, load(x, {i}) * 2); });
//   Kernel kernel = b.build();
#include <functional>

#include "gradloom/stmt.h"

#pragma GCC visibility push(default)
namespace gradloom::ir {

class KernelBuilder {
 public:
  explicit KernelBuilder(std::string name);

  // Parameters, in the order of the calls. A scalar with its declared inclusive range:
  Expr scalar(std::string name, Expr min = {}, Expr max = {}, DType dtype = DType::i64);
  Buffer input(std::string name, DType dtype, std::vector<Expr> dims, std::vector<Expr> strides = {});
  Buffer output(std::string name, DType dtype, std::vector<Expr> dims, int64_t alignment = 1);
  Buffer inout(std::string name, DType dtype, std::vector<Expr> dims, int64_t alignment = 1);
  Buffer parameter(Buffer buffer);  // any other

  // Returns the loop's handle, by which a schedule refers to it.
  Loop loop(std::string name, Expr begin, Expr extent, const std::function<void(Expr)>& body,
            ForKind kind = ForKind::serial);
  // One loop per dim, outermost first; the body gets all indices. The loops are named name0, name1, ... Returns their
  // handles.
  std::vector<Loop> loops(std::string name, const std::vector<Expr>& extents,
                          const std::function<void(const std::vector<Expr>&)>& body);
  Expr let(std::string name, Expr value);
  Buffer alloc(std::string name, DType dtype, std::vector<Expr> dims, Facts facts = {}, Space space = Space::global);
  void store(const Buffer& buffer, std::vector<Expr> index, Expr value, Expr guard = {}, bool streaming = false);
  template <Number T>  // of the buffer's dtype
  void store(const Buffer& buffer, std::vector<Expr> index, T value, Expr guard = {}, bool streaming = false) {
    store(buffer, std::move(index), number_like(buffer->dtype, value), std::move(guard), streaming);
  }
  void accumulate(const Buffer& buffer, std::vector<Expr> index, Expr value, AccumulateOp op = AccumulateOp::add,
                  Expr factor = {}, bool atomic = false);
  template <Number T>
  void accumulate(const Buffer& buffer, std::vector<Expr> index, T value, AccumulateOp op = AccumulateOp::add,
                  Expr factor = {}, bool atomic = false) {
    accumulate(buffer, std::move(index), number_like(buffer->dtype, value), op, std::move(factor), atomic);
  }
  // The sum of value(i) for i in [begin, begin + extent), in a declared order (stmt.h); the least, the largest of them.
  // It is computed here, once, and the expression is good to the end of the scope. A value of f16 or bf16 is cast
  // first.
  //   b.store(y, {i}, b.sum("k", 0, n, [&](Expr k) { return load(x, {i, k}); }));
  using Term = std::function<Expr(Expr)>;
  Expr sum(std::string name, Expr begin, Expr extent, const Term& value, SumOrder order = SumOrder::in_tree());
  Expr min(std::string name, Expr begin, Expr extent, const Term& value);
  Expr max(std::string name, Expr begin, Expr extent, const Term& value);
  // The sum of products, each rounded once, with its addition.
  Expr dot(std::string name, Expr begin, Expr extent, const Term& a, const Term& b,
           SumOrder order = SumOrder::in_tree());
  // buffer[index] = the fold of value over several variables, outermost first. The value may use lets, as of exp, but
  // no other statement. Returns the reduction's handle, as of a loop.
  struct Bounds {
    std::string name;
    Expr begin, extent;
  };
  Loop reduce(const Buffer& buffer, std::vector<Expr> index, AccumulateOp op, const std::vector<Bounds>& bounds,
              const std::function<Expr(const std::vector<Expr>&)>& value, SumOrder order = SumOrder::in_tree());
  void if_then(Expr condition, const std::function<void()>& then_case, const std::function<void()>& else_case = {});
  void guarded(const Expr& condition,
               const std::function<void()>& body);  // if_then; without a condition the body is unconditional
  void check(Expr condition, Expr position, std::string argument, const std::function<void()>& body);
  void prefetch(const Buffer& buffer, std::vector<Expr> index, int level);
  void append(Stmt stmt);

  Kernel build();  // the builder is spent

 private:
  struct Scope {
    std::vector<Stmt> stmts;
    std::vector<std::function<Stmt(Stmt)>> wrappers;  // lets and allocs, outermost first, each over what follows it
    std::vector<size_t> starts;                       // the first statement that each wrapper covers
  };
  using Terms = std::function<Expr(const std::vector<Expr>&)>;
  Loop reduce(Reduce node, const std::vector<Bounds>& bounds, const Terms& value, const Terms& factor);
  Expr total(AccumulateOp op, Bounds bounds, const Term& value, const Term& factor, SumOrder order);
  Stmt scoped(const std::function<void()>& body);
  Stmt close();
  void wrap(std::function<Stmt(Stmt)> wrapper);

  Kernel kernel_;
  std::vector<Scope> scopes_;
};

}  // namespace gradloom::ir

#pragma GCC visibility pop
