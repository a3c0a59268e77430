#pragma once
// Emulates the matrix unit of a warp, for cuda-host.
#include <cstdint>

namespace gradloom::codegen {

// `pieces`: the addresses of 32 lanes' GlMatrixPiece. Computes sums += a b for 16 rows, 8 columns and 16 along k, added
// in the order of k with one rounding each, as the interpreter does. Elements are distributed over lanes and registers
// as the PTX ISA defines for mma.m16n8k16 with 16-bit operands, so a kernel that distributes them otherwise gets wrong
// sums here too.
void matrix_unit(const uint64_t* pieces);

// `rows`: the addresses of 32 lanes' GlMatrixRow. Loads four 8x8 matrices, distributing elements over lanes as the PTX
// ISA defines for ldmatrix.x4. Throws Error(internal) for a row that is not 16-byte aligned, which faults on a device.
void load_matrices(const uint64_t* rows);

}  // namespace gradloom::codegen
