// LLVM's compression of debug sections, as LLVM is without zlib and zstd: its archive member of the same functions is
// then not linked, and neither are those libraries. Kernels have no debug sections.
#include <llvm/ADT/SmallVector.h>
#include <llvm/Support/Compression.h>
#include <llvm/Support/Error.h>

namespace llvm::compression {
namespace {

constexpr const char* why = "gradloom is built without compression";

Error refused() { return createStringError(inconvertibleErrorCode(), why); }

}  // namespace

bool zlib::isAvailable() { return false; }
void zlib::compress(ArrayRef<uint8_t>, SmallVectorImpl<uint8_t>&, int) {}
Error zlib::decompress(ArrayRef<uint8_t>, uint8_t*, size_t&) { return refused(); }
Error zlib::decompress(ArrayRef<uint8_t>, SmallVectorImpl<uint8_t>&, size_t) { return refused(); }

bool zstd::isAvailable() { return false; }
void zstd::compress(ArrayRef<uint8_t>, SmallVectorImpl<uint8_t>&, int, bool) {}
Error zstd::decompress(ArrayRef<uint8_t>, uint8_t*, size_t&) { return refused(); }
Error zstd::decompress(ArrayRef<uint8_t>, SmallVectorImpl<uint8_t>&, size_t) { return refused(); }

const char* getReasonIfUnsupported(Format) { return why; }
void compress(Params, ArrayRef<uint8_t>, SmallVectorImpl<uint8_t>&) {}
Error decompress(DebugCompressionType, ArrayRef<uint8_t>, uint8_t*, size_t) { return refused(); }
Error decompress(Format, ArrayRef<uint8_t>, SmallVectorImpl<uint8_t>&, size_t) { return refused(); }
Error decompress(DebugCompressionType, ArrayRef<uint8_t>, SmallVectorImpl<uint8_t>&, size_t) { return refused(); }

}  // namespace llvm::compression
