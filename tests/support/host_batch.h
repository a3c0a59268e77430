#pragma once
// Texts of GPU kernels, compiled by the host's C++ compiler in batches: its startup costs more than a small kernel.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "codegen/cuda_host/host_executor.h"
#include "gradloom/error.h"

namespace gradloom {

class HostBatch {
 public:
  explicit HostBatch(codegen::HostOverflow overflow = codegen::HostOverflow::wraps) : overflow_(overflow) {}
  using Run = std::function<void(const codegen::CudaModule& module, const codegen::HostModule& loaded)>;

  // `run` is called once the module is loaded, by flush() at the latest; `name` identifies the text that fails to
  // compile.
  void add(std::string name, codegen::CudaModule module, Run run) {
    waiting_.push_back({std::move(name), std::move(module), std::move(run)});
    if (waiting_.size() == most) flush();
  }
  void flush() {
    std::vector<Waiting> now = std::exchange(waiting_, {});
    if (now.empty()) return;
    kernels_ += static_cast<int>(now.size());
    std::vector<const codegen::CudaModule*> modules;
    for (const Waiting& w : now) modules.push_back(&w.module);
    std::vector<std::shared_ptr<const codegen::HostModule>> loaded;
    try {
      loaded = codegen::HostModule::compile(modules, overflow_);
    } catch (const Error&) {
      loaded = one_by_one(now);
    }
    for (size_t i = 0; i < now.size(); ++i)
      if (loaded[i]) now[i].run(now[i].module, *loaded[i]);
  }
  int kernels() const { return kernels_; }

 private:
  struct Waiting {
    std::string name;
    codegen::CudaModule module;
    Run run;
  };
  static constexpr size_t most = 24;

  static std::vector<std::shared_ptr<const codegen::HostModule>> one_by_one(const std::vector<Waiting>& all) {
    std::vector<std::shared_ptr<const codegen::HostModule>> loaded;
    for (const Waiting& w : all) {
      loaded.emplace_back();
      try {
        loaded.back() = codegen::HostModule::compile(w.module);
      } catch (const Error& error) {
        ADD_FAILURE() << w.name << ": " << error.what() << "\n" << w.module.text;
      }
    }
    return loaded;
  }

  const codegen::HostOverflow overflow_;
  std::vector<Waiting> waiting_;
  int kernels_ = 0;
};

}  // namespace gradloom
