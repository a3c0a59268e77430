// Target llvm: machine code for this machine's CPU.
#include <fmt/format.h>

#include "runtime/backend/function_kernel.h"
#include "runtime/diagnose/perf_map.h"
#ifdef GRADLOOM_WITH_LLVM
#include "codegen/llvm/compiler.h"
#endif

namespace gradloom {

#ifdef GRADLOOM_WITH_LLVM
namespace {

codegen::Isa choose_isa(const std::string& name) {
  codegen::Isa isa = name == "host" ? codegen::host_isa() : codegen::isa_named(name);
  if (!codegen::runs_here(isa))
    throw Error(ErrorCode::unsupported, fmt::format("isa {} does not run on this machine, which has {}", name,
                                                    codegen::host_isa().target.name));
  return isa;
}

std::shared_ptr<const LoadedKernel> kernel_of(codegen::CompiledKernel&& loaded) {
  add_to_perf_map(loaded.symbols);
  return std::make_shared<FunctionKernel>(loaded.function, loaded.code_bytes, std::move(loaded.code));
}

class Llvm : public Backend {
 public:
  explicit Llvm(const std::string& isa) : isa_(choose_isa(isa)) { codegen::prepare_to_compile(); }
  std::string name() const override { return "llvm " + isa_.target.name; }
  const ir::Target& target() const override { return isa_.target; }
  CompiledCode compile(const ir::Kernel& lowered) const override {
    codegen::ObjectCode object = codegen::compile_object(lowered, isa_);
    codegen::CompiledKernel loaded = codegen::load(object.bytes, lowered.name);
    const double link_ms = loaded.times.link_ms;
    return {.kernel = kernel_of(std::move(loaded)),
            .code = std::move(object.bytes),
            .ms = object.times.total() + link_ms,
            .stages = {object.times.emit_ms, object.times.optimize_ms, object.times.codegen_ms, link_ms}};
  }
  BackendToolchain toolchain() const override { return {codegen::toolchain_text(), isa_.features, isa_.cpu}; }
  std::shared_ptr<const LoadedKernel> load(const std::string& name, std::string_view code) const override {
    return kernel_of(codegen::load(code, name));
  }
  int64_t abandoned_compiles() const override { return codegen::abandoned_compilations(); }
  std::vector<DumpFile> texts(const ir::Kernel& lowered) const override {
    return {{"ll", codegen::emit_llvm(lowered, isa_, /*optimized=*/true)},
            {"s", codegen::emit_assembly(lowered, isa_)}};
  }

 private:
  const codegen::Isa isa_;
};

}  // namespace

bool has_llvm() { return true; }
std::unique_ptr<Backend> open_llvm(const RuntimeOptions& options) { return std::make_unique<Llvm>(options.isa); }
#else
bool has_llvm() { return false; }
std::unique_ptr<Backend> open_llvm(const RuntimeOptions&) {
  throw Error(ErrorCode::unsupported, "target llvm: this build has no LLVM; available: interpreter");
}
#endif

}  // namespace gradloom
