#pragma once
// Draws of numbers, dtypes and list entries for random programs, all from one engine.
#include <cstdint>
#include <limits>
#include <vector>

#include "ir/scalar_math.h"
#include "tests/support/random_draw.h"

namespace gradloom::ir::testing {

inline constexpr int64_t lowest = std::numeric_limits<int64_t>::min(), highest = std::numeric_limits<int64_t>::max();

inline int64_t wrapped_add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

class ProgramDraw : protected RandomDraw {
 public:
  explicit ProgramDraw(std::mt19937_64& random) : RandomDraw(random) {}

 protected:
  DType number() {
    static const std::vector<DType> dtypes{DType::i64, DType::i64, DType::i64, DType::f32, DType::f64, DType::i32,
                                           DType::u32, DType::u64, DType::i16, DType::u16, DType::i8,  DType::u8};
    return any(dtypes);
  }
  DType element() {
    static const std::vector<DType> storage{DType::f16, DType::bf16, DType::boolean};
    return chance(20) ? any(storage) : number();
  }

  // A number near an edge case of integer arithmetic.
  int64_t edge() {
    static const std::vector<int64_t> places{
        0,       0,       0,     1, 8, 64, int64_t{1} << 31, int64_t{1} << 32, int64_t{1} << 60, int64_t{1} << 62,
        highest, highest, lowest};
    const int64_t at = any(places), by = pick(17) - 8;
    return wrapped_add(chance(30) ? static_cast<int64_t>(-static_cast<uint64_t>(at)) : at, by);
  }
  int64_t small() { return pick(25) - 8; }

  uint64_t float_bits(DType t) {
    static const std::vector<double> special{
        0.0, -0.0, 1e-42, -1e300, 1e-310, 65519.0, 1.0 / 0.0, -1.0 / 0.0, 0.0 / 0.0, 3e9, 9223372036854775807.0, -1.5};
    return bits_from_double(t, chance(15) ? any(special) : (pick(4001) - 2000) / 64.0);
  }
};

}  // namespace gradloom::ir::testing
