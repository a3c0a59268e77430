#pragma once
// The memory of loaded code: one mapping a kernel. LLVM's own manager allocates while it holds a lock, and to free
// code; this one does neither. Private to this folder.
#include <llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h>

#include <cstddef>
#include <optional>
#include <string>

#include "gradloom/error.h"

namespace gradloom::codegen {

// Pages that are unmapped with it.
class CodePages {
 public:
  CodePages() = default;
  ~CodePages();
  CodePages(CodePages&& other) noexcept;
  CodePages& operator=(CodePages&& other) noexcept;

  static constexpr int no_error = 0;
  int map(size_t bytes);  // writable, zero; errno, or no_error
  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  char* data_ = nullptr;
  size_t bytes_ = 0;
};

// Takes the graph of one object.
class CodeMemory final : public llvm::jitlink::JITLinkMemoryManager {
 public:
  void allocate(const llvm::jitlink::JITLinkDylib*, llvm::jitlink::LinkGraph& graph,
                OnAllocatedFunction allocated) override;
  void deallocate(std::vector<FinalizedAlloc> allocs, OnDeallocatedFunction deallocated) override;

  CodePages take() { return std::move(pages_); }
  // What the system refused: memory, or memory that may be executed.
  const std::optional<Error>& refused() const { return refused_; }

 private:
  class InFlight;
  llvm::Error refuse(ErrorCode code, const std::string& what);
  llvm::Error protect(char* data, size_t bytes, llvm::orc::MemProt access);

  CodePages pages_;
  std::optional<Error> refused_;
};

}  // namespace gradloom::codegen
