// Emits the host part of a GPU kernel: a program of steps over slots, and one function per grid or cooperative loop.
#include <fmt/format.h>

#include "codegen/cuda/emitter.h"
#include "gradloom/refusal.h"
#include "ir/analysis/verify_gpu.h"
#include "ir/rewrite.h"

namespace gradloom::codegen {
namespace {

std::string plain_name(const std::string& kernel) {
  std::string name;
  for (const char c : kernel) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) ? "k" + name : name;
}

class ModuleEmitter {
 public:
  explicit ModuleEmitter(const ir::Kernel& kernel) : kernel_(kernel), ranges_(kernel) {}

  CudaModule run() {
    module_.buffers = static_cast<int>(kernel_.buffers.size());
    module_.scalars = static_cast<int>(kernel_.scalars.size());
    for (size_t i = 0; i < kernel_.buffers.size(); ++i) host_.buffers[kernel_.buffers[i]->id] = static_cast<int>(i);
    for (const ir::Scalar& s : kernel_.scalars) host_.slots[s.var.id] = module_.slots++;
    module_.text = "// kernel " + plain_name(kernel_.name) + "\n";
    module_.steps = steps(kernel_.body);
    return std::move(module_);
  }

 private:
  std::vector<HostStep> steps(const ir::Stmt& s) {
    std::vector<HostStep> list;
    if (s) std::visit([&](const auto& n) { step(n, list); }, s.node().value);
    return list;
  }

  void step(const ir::For& n, std::vector<HostStep>& list) {
    if (n.kind == ir::ForKind::grid || n.kind == ir::ForKind::cooperative) {
      const int index = static_cast<int>(module_.functions.size());
      FunctionEmitter function(host_, ranges_, fmt::format("{}_{}", plain_name(kernel_.name), index));
      module_.functions.push_back(function.emit(n, module_.text));
      list.push_back({.kind = HostStep::launch,
                      .index = index,
                      .value = n.kind == ir::ForKind::grid ? value(n.extent) : most_blocks(n)});
      return;
    }
    HostStep loop{.kind = HostStep::loop, .index = module_.slots++, .value = value(n.extent), .begin = value(n.begin)};
    host_.slots[n.var.id] = loop.index;
    const ir::Ranges::Mark mark = ranges_.mark();
    ranges_.enter(n);
    loop.body = steps(n.body);
    ranges_.restore(mark);
    list.push_back(std::move(loop));
  }
  void step(const ir::Block& n, std::vector<HostStep>& list) {
    for (const ir::Stmt& s : n.stmts)
      for (HostStep& each : steps(s)) list.push_back(std::move(each));
  }
  void step(const ir::Let& n, std::vector<HostStep>& list) {
    HostStep let{.kind = HostStep::let, .index = module_.slots++, .value = value(n.value)};
    host_.slots[n.var.id] = let.index;
    const ir::Ranges::Mark mark = ranges_.mark();
    ranges_.enter(n);
    let.body = steps(n.body);
    ranges_.restore(mark);
    list.push_back(std::move(let));
  }
  void step(const ir::If& n, std::vector<HostStep>& list) {
    HostStep branch{.kind = HostStep::branch, .value = value(n.condition)};
    const ir::Ranges::Mark mark = ranges_.mark();
    ranges_.assume(n.condition);
    branch.body = steps(n.then_case);
    ranges_.restore(mark);
    ranges_.assume(ir::unary(ir::UnaryOp::bit_not, n.condition));
    branch.otherwise = steps(n.else_case);
    ranges_.restore(mark);
    list.push_back(std::move(branch));
  }
  void step(const ir::Alloc& n, std::vector<HostStep>& list) {
    HostStep scratch{.kind = HostStep::scratch,
                     .index = module_.scratch_blocks++,
                     .value = {{HostCode::constant, size_of(n.buffer->dtype)}}};
    for (const ir::Expr& dim : n.buffer->dims) append(dim, scratch.value), scratch.value.push_back({HostCode::size, 0});
    host_.scratch[n.buffer->id] = scratch.index;
    scratch.body = steps(n.body);
    list.push_back(std::move(scratch));
  }
  void step(const ir::Evaluate&, std::vector<HostStep>&) {}
  void step(const ir::Barrier&, std::vector<HostStep>&) { misplaced("a barrier"); }
  void step(const ir::Reduce& n, std::vector<HostStep>&) { misplaced("a reduction into " + n.buffer->name); }
  void step(const ir::Store& n, std::vector<HostStep>&) { misplaced("a store to " + n.buffer->name); }
  void step(const ir::Accumulate& n, std::vector<HostStep>&) { misplaced("an accumulate into " + n.buffer->name); }
  void step(const ir::Check&, std::vector<HostStep>&) { misplaced("a check"); }
  [[noreturn]] void misplaced(const std::string& what) const {
    throw Error(ErrorCode::internal,
                "emit_cuda: kernel " + kernel_.name + ": " + what + " stands outside every grid loop");
  }

  // The largest extent of the grid loops inside.
  HostValue most_blocks(const ir::For& cooperative) {
    HostValue most;
    ir::walk(cooperative.body, [&](const ir::Stmt& s) {
      const ir::For* grid = s.as<ir::For>();
      if (!grid || grid->kind != ir::ForKind::grid) return;
      const bool first = most.empty();
      append(grid->extent, most);
      if (!first) most.push_back({.op = HostCode::binary, .what = static_cast<uint8_t>(ir::BinaryOp::max)});
    });
    return most;
  }

  HostValue value(const ir::Expr& e) const {
    HostValue program;
    append(e, program);
    return program;
  }
  void append(const ir::Expr& e, HostValue& to) const {
    try {
      ir::append(to, e, [&](const ir::Var& v) { return host_.slots.at(v.id); });
    } catch (const Error& error) {
      throw ir::LoweringRefusal(error.code(), "CUDA: kernel " + kernel_.name + ": " + error.what());
    }
  }

  const ir::Kernel& kernel_;
  ir::Ranges ranges_;
  HostScope host_;
  CudaModule module_;
};

}  // namespace

CudaModule emit_cuda(const ir::Kernel& lowered) {
  if (const std::string mismatch = ir::gpu_structure_error(lowered); !mismatch.empty())
    throw ir::LoweringRefusal(ErrorCode::unsupported, "CUDA: kernel " + lowered.name + ": " + mismatch);
  return ModuleEmitter(lowered).run();
}

}  // namespace gradloom::codegen
