#pragma once
// The matrix unit of a warp, for cuda-host.
#include <cstdint>

namespace gradloom::codegen {

// The addresses of 32 lanes' GlMatrixPiece: their sums += a b, 16 rows by 8 columns by 16 along k, added in the order
// of k with one rounding each, as the interpreter does. Elements lie in lanes and registers as the PTX ISA lays them
// out for mma.m16n8k16 with operands of 16 bits, so that a kernel which holds them otherwise gets wrong sums here too.
void matrix_unit(const uint64_t* pieces);

// The addresses of 32 lanes' GlMatrixRow: four matrices of 8 by 8, each lane's elements as the PTX ISA has them for
// ldmatrix.x4. Throws Error(internal) for a row that is not aligned to 16 bytes, as a device would stop.
void load_matrices(const uint64_t* rows);

}  // namespace gradloom::codegen
