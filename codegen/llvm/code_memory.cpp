#include "codegen/llvm/code_memory.h"

#include <fmt/format.h>
#include <llvm/ExecutionEngine/JITLink/JITLink.h>
#include <llvm/Support/Memory.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace gradloom::codegen {
namespace {

size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

size_t whole_pages(size_t bytes) { return (bytes + page_bytes() - 1) / page_bytes() * page_bytes(); }

}  // namespace

CodePages::~CodePages() {
  if (data_) munmap(data_, bytes_);
}

CodePages::CodePages(CodePages&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

CodePages& CodePages::operator=(CodePages&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

int CodePages::map(size_t bytes) {
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return errno;
  data_ = static_cast<char*>(data);
  bytes_ = bytes;
  return no_error;
}

llvm::Error CodeMemory::refuse(ErrorCode code, const std::string& what) {
  refused_.emplace(code, "llvm: " + what);
  return llvm::make_error<llvm::StringError>(what, llvm::inconvertibleErrorCode());
}

llvm::Error CodeMemory::protect(char* data, size_t bytes, llvm::orc::MemProt access) {
  const std::error_code error =
      llvm::sys::Memory::protectMappedMemory({data, bytes}, llvm::orc::toSysMemoryProtectionFlags(access));
  if (!error) return llvm::Error::success();
  if (error == std::errc::not_enough_memory)
    return refuse(ErrorCode::resource_exhausted,
                  fmt::format("code of {} bytes is not mapped: {}", bytes, error.message()));
  return refuse(
      ErrorCode::unsupported,
      fmt::format("executable memory was denied (mprotect: {}); a policy of the system or of this process, such as "
                  "seccomp or PR_SET_MDWE, forbids compiled code",
                  error.message()));
}

class CodeMemory::InFlight final : public InFlightAlloc {
 public:
  InFlight(CodeMemory& memory, llvm::jitlink::BasicLayout layout) : memory_(memory), layout_(std::move(layout)) {}
  void abandon(OnAbandonedFunction abandoned) override {
    memory_.pages_ = CodePages();
    abandoned(llvm::Error::success());
  }
  void finalize(OnFinalizedFunction finalized) override {
    if (!layout_.graphAllocActions().empty())
      return finalized(llvm::make_error<llvm::StringError>("the object asks for calls when it is loaded",
                                                           llvm::inconvertibleErrorCode()));
    for (auto& [group, segment] : layout_.segments()) {
      const size_t bytes = whole_pages(segment.ContentSize + segment.ZeroFillSize);
      if (bytes == 0) continue;
      if (auto error = memory_.protect(segment.WorkingMem, bytes, group.getMemProt()))
        return finalized(std::move(error));
    }
    finalized(FinalizedAlloc(llvm::orc::ExecutorAddr::fromPtr(memory_.pages_.data())));
  }

 private:
  CodeMemory& memory_;
  llvm::jitlink::BasicLayout layout_;
};

void CodeMemory::allocate(const llvm::jitlink::JITLinkDylib*, llvm::jitlink::LinkGraph& graph,
                          OnAllocatedFunction allocated) {
  llvm::jitlink::BasicLayout layout(graph);
  auto sizes = layout.getContiguousPageBasedLayoutSizes(page_bytes());
  if (!sizes) return allocated(sizes.takeError());
  if (const int error = pages_.map(sizes->total()); error != CodePages::no_error)
    return allocated(refuse(ErrorCode::resource_exhausted,
                            fmt::format("no memory for code of {} bytes: {}", sizes->total(), std::strerror(error))));
  char* next = pages_.data();
  for (auto& [group, segment] : layout.segments()) {
    segment.WorkingMem = next;
    segment.Addr = llvm::orc::ExecutorAddr::fromPtr(next);
    next += whole_pages(segment.ContentSize + segment.ZeroFillSize);
  }
  if (auto error = layout.apply()) return allocated(std::move(error));
  allocated(std::make_unique<InFlight>(*this, std::move(layout)));
}

// The linker has it done when a link fails after its code was protected.
void CodeMemory::deallocate(std::vector<FinalizedAlloc> allocs, OnDeallocatedFunction deallocated) {
  for (FinalizedAlloc& alloc : allocs) alloc.release();
  pages_ = CodePages();
  deallocated(llvm::Error::success());
}

}  // namespace gradloom::codegen
