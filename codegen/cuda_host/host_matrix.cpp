#include "codegen/cuda_host/host_matrix.h"

#include <cmath>

#include "codegen/cuda_host/host_state.h"
#include "gradloom/error.h"
#include "ir/scalar_math.h"

namespace gradloom::codegen {
namespace {

float element(uint32_t both, int which, bool bf16) {
  const uint64_t bits = both >> (16 * which) & 0xffff;
  return static_cast<float>(ir::double_from_bits(bf16 ? DType::bf16 : DType::f16, bits));
}

}  // namespace

void matrix_unit(const uint64_t* pieces) {
  float a[16][16], b[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const auto& piece = *reinterpret_cast<const GlMatrixPiece*>(pieces[lane]);
    const int group = lane >> 2, in_group = lane & 3;
    for (int i = 0; i < 8; ++i) {
      const int row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
      const int k = in_group * 2 + (i & 1) + (i < 4 ? 0 : 8);
      a[row][k] = element(piece.a[i / 2], i & 1, piece.bf16);
    }
    for (int i = 0; i < 4; ++i)
      b[in_group * 2 + (i & 1) + (i < 2 ? 0 : 8)][group] = element(piece.b[i / 2], i & 1, piece.bf16);
  }
  for (int lane = 0; lane < 32; ++lane) {
    const auto& piece = *reinterpret_cast<const GlMatrixPiece*>(pieces[lane]);
    for (int i = 0; i < 4; ++i) {
      const int row = (lane >> 2) + (i < 2 ? 0 : 8), column = (lane & 3) * 2 + (i & 1);
      for (int k = 0; k < 16; ++k) piece.sums[i] = std::fma(a[row][k], b[k][column], piece.sums[i]);
    }
  }
}

void load_matrices(const uint64_t* rows) {
  const auto row = [&](int lane) -> const GlMatrixRow& { return *reinterpret_cast<const GlMatrixRow*>(rows[lane]); };
  for (int lane = 0; lane < 32; ++lane)
    if (reinterpret_cast<uintptr_t>(row(lane).row) % 16 != 0)
      throw Error(ErrorCode::internal, "gl_load_matrices: a row is not aligned to 16 bytes");
  for (int lane = 0; lane < 32; ++lane)
    for (int matrix = 0; matrix < 4; ++matrix) {
      const auto element = [&](int i, int j) { return static_cast<uint32_t>(row(matrix * 8 + i).row[j]); };
      const int own = lane / 4, pair = lane % 4 * 2;
      row(lane).piece[matrix] = row(lane).transposed ? element(pair, own) | element(pair + 1, own) << 16
                                                     : element(own, pair) | element(own, pair + 1) << 16;
    }
}

}  // namespace gradloom::codegen
