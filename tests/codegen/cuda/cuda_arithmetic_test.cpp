// Semantics of the operators and conversions in kernel text, against the definitions in ir/scalar_math.h: exhaustive
// for types with few values.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

#include "codegen/cuda_host/host_executor.h"
#include "gradloom/builder.h"
#include "gradloom/schedule.h"
#include "gradloom/text.h"
#include "ir/interpret/interpret.h"
#include "ir/passes/passes.h"
#include "ir/scalar_math.h"

namespace gradloom {
namespace {

constexpr int64_t chunk = 1 << 16;

// y[i] = f(x[i], w[i]) for `chunk` elements, one thread each.
class Elementwise {
 public:
  using F = std::function<ir::Expr(ir::Expr x, ir::Expr w)>;
  Elementwise(DType from, DType to, const F& f) : from_(from), to_(to) {
    ir::KernelBuilder b("elementwise");
    const ir::Buffer x = b.input("x", from, {chunk}), w = b.input("w", from, {chunk}), y = b.output("y", to, {chunk});
    b.loop("i", 0, chunk, [&](ir::Expr i) { b.store(y, {i}, f(ir::load(x, {i}), ir::load(w, {i}))); });
    ir::Schedule s(b.build());
    const ir::Schedule::Split cut = s.split(s.loop("i"), 256);
    s.bind(cut.outer, ir::ForKind::grid);
    s.bind(cut.inner, ir::ForKind::thread);
    lowered_ = ir::lower(s.kernel());
    module_ = codegen::emit_cuda(lowered_);
  }

  // Many kernels per compiler run.
  static void load(std::vector<Elementwise>& all) {
    std::vector<const codegen::CudaModule*> modules;
    for (const Elementwise& e : all) modules.push_back(&e.module_);
    const auto loaded = codegen::HostModule::compile(modules);
    for (size_t i = 0; i < all.size(); ++i) all[i].loaded_ = loaded[i];
  }
  static Elementwise loaded(DType from, DType to, const F& f) {
    std::vector<Elementwise> one{Elementwise(from, to, f)};
    load(one);
    return one[0];
  }
  DType from() const { return from_; }
  DType to() const { return to_; }

  // Bits of each element, zero-extended.
  std::vector<uint64_t> operator()(const std::vector<uint64_t>& x, const std::vector<uint64_t>& w) const {
    const std::vector<uint8_t> a = packed(x), b = packed(w);
    std::vector<uint8_t> y(static_cast<size_t>(chunk * size_of(to_)), 0xff);
    void* const buffers[] = {const_cast<uint8_t*>(a.data()), const_cast<uint8_t*>(b.data()), y.data()};
    codegen::run_on_host(module_, *loaded_, buffers, {});
    std::vector<uint64_t> out(chunk, 0);
    for (int64_t i = 0; i < chunk; ++i) std::memcpy(&out[i], y.data() + i * size_of(to_), size_of(to_));
    return out;
  }

 private:
  std::vector<uint8_t> packed(const std::vector<uint64_t>& values) const {
    std::vector<uint8_t> bytes(static_cast<size_t>(chunk * size_of(from_)));
    for (int64_t i = 0; i < chunk; ++i)
      std::memcpy(bytes.data() + i * size_of(from_), &values[static_cast<size_t>(i) % values.size()], size_of(from_));
    return bytes;
  }
  DType from_, to_;
  ir::Kernel lowered_;
  codegen::CudaModule module_;
  std::shared_ptr<const codegen::HostModule> loaded_;
};

bool same(DType t, uint64_t a, uint64_t b) {
  return a == b || (is_float(t) && std::isnan(ir::double_from_bits(t, a)) && std::isnan(ir::double_from_bits(t, b)));
}

std::vector<uint64_t> all_of_16_bits() {
  std::vector<uint64_t> v(chunk);
  for (int64_t i = 0; i < chunk; ++i) v[i] = static_cast<uint64_t>(i);
  return v;
}

// Values at which conversions change their result, and random ones.
std::vector<uint64_t> samples(DType t, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint64_t> v;
  if (is_float(t)) {
    // Midpoints between neighbours of every 16-bit type, and values one bit off them; around the limits of integers.
    for (int64_t i = 0; i < chunk && v.size() < chunk / 2; i += 7)
      for (const DType half : {DType::f16, DType::bf16}) {
        const double a = ir::double_from_bits(half, static_cast<uint64_t>(i)),
                     b = ir::double_from_bits(half, static_cast<uint64_t>(i) ^ 1);
        const uint64_t middle = ir::bits_from_double(t, (a + b) / 2);
        for (const uint64_t bits : {middle, middle + 1, middle - 1}) v.push_back(bits);
      }
    for (int power = 0; power < 65; ++power)
      for (const double sign : {1.0, -1.0})
        for (const double beside : {0.0, 0.5, -0.5, 1.0, -1.0}) {
          const uint64_t bits = ir::bits_from_double(t, sign * (std::ldexp(1.0, power) + beside));
          for (const uint64_t near : {bits, bits + 1, bits - 1}) v.push_back(near);
        }
  } else {
    for (int power = 0; power < size_of(t) * 8; ++power)
      for (const uint64_t beside : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}})
        for (const uint64_t low :
             {uint64_t{0}, uint64_t{1} << (power / 2), uint64_t{1} << (power > 11 ? power - 11 : 0),
              uint64_t{1} << (power > 8 ? power - 8 : 0)}) {
          const uint64_t value = (uint64_t{1} << power) + beside + low;
          v.push_back(value), v.push_back(~value);
        }
  }
  while (v.size() < chunk) v.push_back(random());
  const uint64_t mask = size_of(t) == 8 ? ~uint64_t{0} : (uint64_t{1} << (size_of(t) * 8)) - 1;
  for (uint64_t& bits : v) bits = t == DType::boolean ? bits & 1 : bits & mask;
  return v;
}

TEST(CudaArithmetic, ConversionsOfAllTypes) {
  std::vector<Elementwise> conversions;
  for (int f = 0; f < dtype_count; ++f)
    for (int t = 0; t < dtype_count; ++t)
      if (const DType from = static_cast<DType>(f), to = static_cast<DType>(t); from != to)
        conversions.emplace_back(from, to, [to](ir::Expr x, ir::Expr) { return ir::cast(to, x); });
  Elementwise::load(conversions);
  for (const Elementwise& convert : conversions) {
    const DType from = convert.from(), to = convert.to();
    const std::vector<uint64_t> x = size_of(from) == 2 ? all_of_16_bits() : samples(from, 1), y = convert(x, x);
    for (int64_t i = 0; i < chunk; ++i)
      ASSERT_TRUE(same(to, y[i], ir::eval_cast(from, to, x[i])))
          << to_string(from) << " " << ir::double_from_bits(from, x[i]) << " (bits " << x[i] << ") to " << to_string(to)
          << ": got " << y[i] << ", want " << ir::eval_cast(from, to, x[i]);
  }
}

// Every float by GRADLOOM_EXHAUSTIVE=1, else every 4099th.
TEST(CudaArithmetic, EveryFloatToSixteenBits) {
  const uint64_t step = std::getenv("GRADLOOM_EXHAUSTIVE") ? 1 : 4099;
  for (const DType to : {DType::f16, DType::bf16}) {
    const Elementwise convert =
        Elementwise::loaded(DType::f32, to, [&](ir::Expr x, ir::Expr) { return ir::cast(to, x); });
    for (uint64_t first = 0; first < uint64_t{1} << 32; first += chunk * step) {
      std::vector<uint64_t> x(chunk);
      for (int64_t i = 0; i < chunk; ++i) x[i] = (first + static_cast<uint64_t>(i) * step) & 0xffffffffu;
      const std::vector<uint64_t> y = convert(x, x);
      for (int64_t i = 0; i < chunk; ++i)
        ASSERT_TRUE(same(to, y[i], ir::eval_cast(DType::f32, to, x[i]))) << to_string(to) << " of bits " << x[i];
    }
  }
}

TEST(CudaArithmetic, ACopyKeepsEveryBitOfANan) {
  for (const DType t : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    const Elementwise copy = Elementwise::loaded(t, t, [](ir::Expr x, ir::Expr) { return x; });
    const Elementwise chosen = Elementwise::loaded(
        t, t, [](ir::Expr x, ir::Expr w) { return ir::select(ir::constant_int(DType::boolean, 1), x, w); });
    std::vector<uint64_t> x = size_of(t) == 2 ? all_of_16_bits() : samples(t, 2);
    if (t == DType::f32)
      for (int64_t i = 0; i < chunk; i += 2)
        x[i] = 0x7f800000u | (x[i] & 0x807fffffu);  // infinities and NaNs, quiet and signalling
    if (t == DType::f64)
      for (int64_t i = 0; i < chunk; i += 2) x[i] |= 0x7ff0000000000000u;
    EXPECT_EQ(copy(x, x), x) << to_string(t);
    EXPECT_EQ(chosen(x, x), x) << to_string(t);
  }
}

TEST(CudaArithmetic, OperatorsOfTwo) {
  using ir::BinaryOp;
  for (const DType t : {DType::i8, DType::u8, DType::i16, DType::u16, DType::i32, DType::u32, DType::i64, DType::u64,
                        DType::f32, DType::f64}) {
    std::vector<BinaryOp> ops{BinaryOp::add, BinaryOp::sub, BinaryOp::mul, BinaryOp::min,
                              BinaryOp::max, BinaryOp::lt,  BinaryOp::le,  BinaryOp::eq};
    if (is_float(t))
      ops.push_back(BinaryOp::div);
    else
      ops.insert(ops.end(), {BinaryOp::floor_div, BinaryOp::floor_mod, BinaryOp::bit_and, BinaryOp::bit_or,
                             BinaryOp::bit_xor, BinaryOp::shl, BinaryOp::shr});
    const auto divides = [](BinaryOp op) { return op == BinaryOp::floor_div || op == BinaryOp::floor_mod; };
    const auto shifts = [](BinaryOp op) { return op == BinaryOp::shl || op == BinaryOp::shr; };
    std::vector<Elementwise> kernels;
    for (const BinaryOp op : ops)
      kernels.emplace_back(t, ir::is_comparison(op) ? DType::boolean : t, [=](ir::Expr x, ir::Expr y) {
        if (divides(op)) y = ir::select(y == ir::constant_int(t, 0), ir::constant_int(t, 3), y);
        if (shifts(op)) y = y & ir::constant_int(t, size_of(t) * 8 - 1);
        return ir::binary(op, x, y);
      });
    Elementwise::load(kernels);
    const std::vector<uint64_t> x = samples(t, 3), w = samples(t, 4);
    for (size_t k = 0; k < ops.size(); ++k) {
      const std::vector<uint64_t> got = kernels[k](x, w);
      for (int64_t i = 0; i < chunk; ++i) {
        const uint64_t y = divides(ops[k]) && w[i] == 0 ? 3
                           : shifts(ops[k])             ? w[i] & static_cast<uint64_t>(size_of(t) * 8 - 1)
                                                        : w[i];
        ASSERT_TRUE(same(kernels[k].to(), got[i], ir::eval_binary(ops[k], t, x[i], y)))
            << to_string(ops[k]) << " of " << to_string(t) << " " << x[i] << " and " << y << ": got " << got[i];
      }
    }
  }
}

// A variable narrowed to int, shifted by more than an int's width.
TEST(CudaArithmetic, IndicesAreShiftedInSixtyFourBits) {
  const ir::Kernel kernel = ir::parse(R"(kernel shift() {
  in x: i64[64]
  out y: i64[64]
  out z: i64[64]
  for b in 0 .. 1 grid {
    for i in 0 .. 64 thread {
      y[i] = (i - 32) >> floor_mod(x[i], 64)
      z[i] = (i - 32) << floor_mod(x[i], 64)
    }
  }
})");
  std::vector<int64_t> x(64);
  for (int i = 0; i < 64; ++i) x[i] = i * 7;
  std::vector<int64_t> got(128), want(128);
  const codegen::CudaModule module = codegen::emit_cuda(kernel);
  void* const host[] = {x.data(), got.data(), got.data() + 64};
  codegen::run_on_host(module, *codegen::HostModule::compile(module), host, {});
  void* const reference[] = {x.data(), want.data(), want.data() + 64};
  ir::interpret(kernel, reference, {});
  EXPECT_EQ(got, want) << module.text;
}

}  // namespace
}  // namespace gradloom
