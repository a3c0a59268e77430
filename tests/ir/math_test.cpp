// The elementary functions of gradloom/math.h against wider arithmetic: their bounds, limits and special values;
// interpreter and machine code agree. GRADLOOM_EXHAUSTIVE=1 tests every float.
#include "gradloom/math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <ostream>
#include <random>

#include "gradloom/runtime.h"
#include "gradloom/schedule.h"
#include "ir/interpret/interpret.h"
#include "tests/support/error_of.h"

namespace gradloom {
namespace {

using namespace ir;

struct Function {
  const char* name;
  Expr (*write)(KernelBuilder&, Expr);
  double (*reference)(double);
  long double (*wide_reference)(long double);
  double bound;  // ulp, as gradloom/math.h states it
  double low = -HUGE_VAL, high = HUGE_VAL;
};

void PrintTo(const Function& f, std::ostream* out) { *out << f.name; }

template <class T>
T logistic_of(T x) {
  const T e = std::exp(-std::abs(x));
  return (x < 0 ? e : T{1}) / (1 + e);
}
template <class T>
T softplus_of(T x) {
  return (x > 0 ? x : T{0}) + std::log1p(std::exp(-std::abs(x)));
}

// x to the power of a quotient that every dtype holds.
template <int over, int under = 1>
Function power(const char* name, double bound, double low = -HUGE_VAL, double high = HUGE_VAL) {
  static constexpr double exponent = double{over} / under;
  return {name,
          [](KernelBuilder& b, Expr x) { return ir::pow(b, std::move(x), exponent); },
          [](double x) { return std::pow(x, exponent); },
          [](long double x) { return std::pow(x, static_cast<long double>(exponent)); },
          bound,
          low,
          high};
}

const Function functions[] = {
    {"exp", ir::exp, [](double x) { return std::exp(x); }, [](long double x) { return std::exp(x); }, 1.1, 0},
    {"expm1", ir::expm1, [](double x) { return std::expm1(x); }, [](long double x) { return std::expm1(x); }, 2.0, -1},
    {"log", ir::log, [](double x) { return std::log(x); }, [](long double x) { return std::log(x); }, 1.0},
    {"log1p", ir::log1p, [](double x) { return std::log1p(x); }, [](long double x) { return std::log1p(x); }, 1.7},
    {"tanh", ir::tanh, [](double x) { return std::tanh(x); }, [](long double x) { return std::tanh(x); }, 2.7, -1, 1},
    {"logistic", ir::logistic, logistic_of<double>, logistic_of<long double>, 2.5, 0, 1},
    {"softplus", ir::softplus, softplus_of<double>, softplus_of<long double>, 2.1, 0},
    {"erf", ir::erf, [](double x) { return std::erf(x); }, [](long double x) { return std::erf(x); }, 1.3, -1, 1},
    {"sin", ir::sin, [](double x) { return std::sin(x); }, [](long double x) { return std::sin(x); }, 0.9, -1, 1},
    {"cos", ir::cos, [](double x) { return std::cos(x); }, [](long double x) { return std::cos(x); }, 0.9, -1, 1},
    power<2>("square", 0.5, 0),
    power<3>("cube", 1.5),
    power<4>("fourth_power", 2.0, 0),
    power<-1>("reciprocal", 0.5),
    power<-2>("inverse_square", 2.0, 0),
    power<1, 2>("root", 0.5, 0),
    power<-1, 2>("reciprocal_root", 1.5, 0),
    power<0>("zeroth_power", 0, 1, 1),
    power<7, 4>("non_integer_power", 1.5, 0),
    power<-9, 4>("negative_power", 1.5, 0),
    power<5>("fifth_power", 1.5),
    power<-7>("odd_negative_power", 1.5),
    power<1, 1024>("small_power", 1.5, 0),
    power<800>("large_power", 1.5, 0),
};

Kernel kernel_of(const Function& f, DType dtype, int64_t n, int lanes) {
  KernelBuilder b(std::string(f.name) + "_" + to_string(dtype));
  const Buffer x = b.input("x", dtype, {n}), y = b.output("y", dtype, {n});
  b.loop("i", 0, n, [&](Expr i) { b.store(y, {i}, f.write(b, load(x, {i}))); });
  Schedule schedule(b.build());
  if (lanes > 1) schedule.vectorize(schedule.loop("i"), lanes);
  return schedule.kernel();
}

template <class T>
constexpr DType dtype_of = sizeof(T) == 4 ? DType::f32 : DType::f64;

template <class T>
std::vector<T> call(const KernelExecutable& executable, const std::vector<T>& x) {
  std::vector<T> y(x.size());
  const Dims dims{static_cast<int64_t>(x.size())};
  const Tensor tensors[] = {Tensor::borrow(x.data(), dtype_of<T>, dims), Tensor::borrow(y.data(), dtype_of<T>, dims)};
  const auto done = executable(tensors);
  EXPECT_TRUE(done.ok());
  return y;
}

// |got - want| in ulps of got's type at want; an overflow counts as the power of two above the largest number.
template <class T, class Wide>
double error_in_ulp(T got, Wide want) {
  if (std::isnan(got) || std::isnan(want)) return std::isnan(got) && std::isnan(want) ? 0 : HUGE_VAL;
  const Wide beyond = std::ldexp(Wide{1}, std::numeric_limits<T>::max_exponent);
  const Wide wanted = std::clamp<Wide>(want, -beyond, beyond);
  const Wide value = std::isinf(got) ? std::copysign(beyond, static_cast<Wide>(got)) : static_cast<Wide>(got);
  if (value == wanted) return 0;
  const int exponent = wanted == 0 ? std::numeric_limits<T>::min_exponent
                                   : std::max(std::ilogb(wanted) + 1, std::numeric_limits<T>::min_exponent);
  return static_cast<double>(
      std::abs(value - wanted) /
      std::ldexp(Wide{1}, std::min(exponent, std::numeric_limits<T>::max_exponent) - std::numeric_limits<T>::digits));
}

class Math : public ::testing::TestWithParam<Function> {};
INSTANTIATE_TEST_SUITE_P(Functions, Math, ::testing::ValuesIn(functions),
                         [](const auto& info) { return std::string(info.param.name); });

struct Worst {
  double error = 0, at = 0;
};
template <class T, class Reference>
void measure(const Function& f, const std::vector<T>& x, const std::vector<T>& y, Reference reference, Worst& worst) {
  for (size_t i = 0; i < x.size(); ++i) {
    const double error = error_in_ulp(y[i], reference(x[i]));
    if (error > worst.error) worst = {error, static_cast<double>(x[i])};
    if (y[i] < f.low || y[i] > f.high) ADD_FAILURE() << f.name << "(" << x[i] << ") is " << y[i];
  }
}

TEST_P(Math, Float32IsWithinItsBound) {
  const Function& f = GetParam();
  Runtime runtime;
  const bool all = std::getenv("GRADLOOM_EXHAUSTIVE");
  const bool interpreted = runtime.target_name() == "interpreter";
  constexpr int64_t block = 1 << 20;
  const uint64_t step = all ? 1 : interpreted ? 65537 : 509;
  const auto executable = runtime.compile(kernel_of(f, DType::f32, block, 8));
  ASSERT_TRUE(executable.ok()) << executable.error().what();
  Worst worst;
  std::vector<float> x(block);
  for (uint64_t bits = 0; bits < uint64_t{1} << 32;) {
    for (float& value : x) {
      value = std::bit_cast<float>(static_cast<uint32_t>(bits));
      bits += step;  // wraps at the end: some values repeat
    }
    measure(
        f, x, call(executable.value(), x), [&](float v) { return f.reference(v); }, worst);
  }
  RecordProperty("ulp", std::to_string(worst.error));
  EXPECT_LE(worst.error, f.bound) << "at " << worst.at;
}

TEST_P(Math, Float64IsWithinItsBound) {
  const Function& f = GetParam();
  Runtime runtime;
  constexpr int64_t block = 1 << 16;
  const int blocks = runtime.target_name() == "interpreter" ? 1 : 12;
  const auto executable = runtime.compile(kernel_of(f, DType::f64, block, 4));
  ASSERT_TRUE(executable.ok()) << executable.error().what();
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> near(-3, 3), far(-800, 800), exponent(-80, 10);
  Worst worst;
  std::vector<double> x(block);
  for (int k = 0; k < blocks; ++k) {
    for (double& value : x) {
      switch (random() % 4) {
        case 0:
          value = near(random);
          break;
        case 1:
          value = far(random);
          break;
        case 2:
          value = (random() % 2 ? 1 : -1) * std::exp2(exponent(random));
          break;
        default:
          value = std::bit_cast<double>(random());
          break;
      }
    }
    measure(
        f, x, call(executable.value(), x), [&](double v) { return f.wide_reference(v); }, worst);
  }
  RecordProperty("ulp", std::to_string(worst.error));
  EXPECT_LE(worst.error, f.bound) << "at " << worst.at;
}

template <class T>
std::vector<T> hard_values() {
  using L = std::numeric_limits<T>;
  std::vector<T> x{0,        L::denorm_min(), L::denorm_min() * 3, L::min(), L::min() * 3, L::epsilon(),
                   L::max(), L::infinity(),   L::quiet_NaN(),      T(1)};
  for (const double v : {0.3,
                         0.34657359,
                         0.34657360,
                         0.5,
                         0.70710678,
                         0.7071068,
                         1.4142135,
                         9.9,
                         10.1,
                         17.3,
                         18.1,
                         22.0,
                         37.5,
                         40.0,
                         87.3,
                         88.3,
                         88.722839,
                         88.722840,
                         103.9,
                         104.1,
                         709.78,
                         709.79,
                         745.1,
                         745.2,
                         1e30,
                         1e22,
                         0x1.921fb6p+0,
                         0x1.6ac5b262ca1ffp+849,
                         0x1.8951c8p+119})
    x.push_back(static_cast<T>(v));
  const size_t n = x.size();
  for (size_t i = 0; i < n; ++i) x.push_back(-x[i]);
  x.resize((x.size() + 15) / 16 * 16, T(0.25));
  return x;
}

template <class T>
void agree(const Function& f) {
  const std::vector<T> x = hard_values<T>();
  const int64_t n = static_cast<int64_t>(x.size());
  std::vector<T> want(x.size());
  const Kernel scalar = kernel_of(f, dtype_of<T>, n, 1);
  void* pointers[] = {const_cast<T*>(x.data()), want.data()};
  ASSERT_TRUE(ir::interpret(scalar, pointers, {}).ok());
  for (size_t i = 0; i < x.size(); ++i) {
    const double error =
        sizeof(T) == 4 ? error_in_ulp(want[i], f.reference(x[i])) : error_in_ulp(want[i], f.wide_reference(x[i]));
    EXPECT_LE(error, f.bound) << f.name << "(" << x[i] << ") is " << want[i];
    const long double reference = f.wide_reference(x[i]);
    if (std::isinf(x[i]) && !std::isnan(reference)) {
      EXPECT_EQ(want[i], reference) << f.name << "(" << x[i] << ")";
    }
    if (x[i] == 0 && reference == 0) {
      EXPECT_EQ(std::signbit(want[i]), std::signbit(reference)) << f.name << "(" << x[i] << ")";
    }
  }
  Runtime runtime;
  for (const int lanes : {1, 4, 16}) {
    const auto executable = runtime.compile(kernel_of(f, dtype_of<T>, n, lanes));
    ASSERT_TRUE(executable.ok()) << executable.error().what();
    const std::vector<T> got = call(executable.value(), x);
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(want[i]) && std::isnan(got[i])) continue;
      EXPECT_EQ(std::memcmp(&got[i], &want[i], sizeof(T)), 0)
          << f.name << "(" << x[i] << ") with " << lanes << " lanes: " << got[i] << ", want " << want[i];
    }
  }
}

TEST_P(Math, HardValuesAndEveryExecutor) {
  agree<float>(GetParam());
  agree<double>(GetParam());
}

TEST(MathRefusal, OtherDTypes) {
  KernelBuilder b("halves");
  const Buffer x = b.input("x", DType::f16, {4});
  EXPECT_EQ(error_of([&] { ir::exp(b, load(x, {0})); }), "elementary functions take f32 or f64, got f16");
}

}  // namespace
}  // namespace gradloom
