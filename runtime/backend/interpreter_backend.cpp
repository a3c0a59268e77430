// Target interpreter: runs the definition itself. On GPU targets it also serves the ops of shapes, whose tensors are in
// host memory.
#include "ir/interpret/interpret.h"
#include "runtime/backend/backend.h"
#include "support/stack.h"

namespace gradloom {
namespace {

class InterpretedKernel : public LoadedKernel {
 public:
  explicit InterpretedKernel(const ir::Kernel& kernel) : kernel_(kernel) {}
  int64_t launch(void* const* buffers, const int64_t* scalars, const LaunchSite& site) const override {
    require_stack(interpreter_stack_bytes, site.name);
    const ir::InterpretOptions checks{.fault = site.own ? ErrorCode::invalid_argument : ErrorCode::internal};
    return ir::interpret(kernel_, {buffers, kernel_.buffers.size()}, {scalars, kernel_.scalars.size()}, checks)
        .bad_position;
  }
  int64_t code_bytes() const override { return 0; }
  bool interpreted() const override { return true; }

 private:
  const ir::Kernel kernel_;
};

class Interpreter : public Backend {
 public:
  std::string name() const override { return "interpreter"; }
  const ir::Target& target() const override { return target_; }
  bool runs_authored() const override { return true; }
  CompiledCode compile(const ir::Kernel& kernel) const override {
    return {.kernel = std::make_shared<InterpretedKernel>(kernel)};
  }
  std::vector<DumpFile> texts(const ir::Kernel&) const override { return {}; }

 private:
  const ir::Target target_;
};

}  // namespace

std::unique_ptr<Backend> open_interpreter() { return std::make_unique<Interpreter>(); }

}  // namespace gradloom
