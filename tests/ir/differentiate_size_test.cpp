// The work of a derivation is linear in the nest's size: it is counted in allocations, which every copy, substitution
// and proof makes, so that no machine's load shows.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>

#include "gradloom/differentiate.h"

namespace {
std::atomic<int64_t> allocations;
}

void* operator new(size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
// Sorting and merging allocate by this one; the sanitizer's own would not fit the deletes below.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }

namespace gradloom::ir {
namespace {

std::string repeated(int n, const std::function<std::string(const std::string& k, const std::string& before)>& line) {
  std::string text;
  for (int k = 0; k < n; ++k) text += line(std::to_string(k), std::to_string(k - 1)) + "\n";
  return text;
}

// A nest of n statements.
struct Family {
  const char* name;
  std::function<std::string(int n)> text;
  int wanted = 1;  // 0: as many inputs as statements
};
void PrintTo(const Family& f, std::ostream* out) { *out << f.name; }

const std::string one_input = "in x: f32[n]\nout y: f32[n]\n";
const Family families[] = {
    {"temporaries",
     [](int n) {
       return one_input + "for i in 0 .. n {\n" +
              repeated(n,
                       [](auto& k, auto& before) {
                         return "alloc t" + k + ": f32[1]\nt" + k + "[0] = tanh(" +
                                (k == "0" ? "x[i]" : "t" + before + "[0]") + ")";
                       }) +
              "y[i] = t" + std::to_string(n - 1) + "[0] }";
     }},
    {"arrays",
     [](int n) {
       return one_input +
              repeated(n,
                       [](auto& k, auto& before) {
                         return "alloc t" + k + ": f32[n]\nfor i in 0 .. n { t" + k + "[i] = tanh(" +
                                (k == "0" ? "x" : "t" + before) + "[i]) }";
                       }) +
              "for i in 0 .. n { y[i] = t" + std::to_string(n - 1) + "[i] }";
     }},
    {"lets",
     [](int n) {
       return one_input + "for i in 0 .. n {\n" +
              repeated(n,
                       [](auto& k, auto& before) {
                         return "let t" + k + " = tanh(" + (k == "0" ? "x[i]" : "t" + before) + ")";
                       }) +
              "y[i] = t" + std::to_string(n - 1) + " }";
     }},
    {"columns",
     [](int n) {
       return "in x: f32[n]\nout y: f32[n, " + std::to_string(n) + "]\nfor i in 0 .. n {\n" +
              repeated(n, [](auto& k, auto&) { return "y[i, " + k + "] = tanh(x[i])"; }) + "}";
     }},
    {"outputs",
     [](int n) {
       return "in x: f32[n]\n" + repeated(n, [](auto& k, auto&) { return "out y" + k + ": f32[n]"; }) +
              repeated(n, [](auto& k, auto&) { return "for i in 0 .. n { y" + k + "[i] = tanh(x[i]) }"; });
     }},
    {"inputs",
     [](int n) {
       return repeated(n, [](auto& k, auto&) { return "in x" + k + ": f32[n]\nout y" + k + ": f32[n]"; }) +
              repeated(n, [](auto& k, auto&) { return "for i in 0 .. n { y" + k + "[i] = tanh(x" + k + "[i]) }"; });
     },
     0},
};

class Size : public ::testing::TestWithParam<Family> {};

int64_t work(const Family& family, int n) {
  Derivation how;
  if (family.wanted) how.wanted = {"x"};
  for (int k = 0; k < n && !family.wanted; ++k) how.wanted.push_back("x" + std::to_string(k));
  const Kernel forward = parse("kernel k(n: i64 in [0, ]) {\n" + family.text(n) + "}\n");
  const int64_t before = allocations;
  differentiate(forward, how);
  return allocations - before;
}

TEST_P(Size, WorkIsLinear) {
  const int64_t small = work(GetParam(), 32), large = work(GetParam(), 256);
  EXPECT_GT(small, 0);
  EXPECT_LT(static_cast<double>(large), 1.2 * 8 * static_cast<double>(small));
}

// A sum of more terms than an expression may have.
TEST(DifferentiateSize, ManyTermsOfOneElement) {
  const std::string text = "kernel k(n: i64 in [0, ]) { in x: f32[n]\nout y: f32[n, 1500]\nfor i in 0 .. n {\n" +
                           repeated(1500, [](auto& k, auto&) { return "y[i, " + k + "] = tanh(x[i])"; }) + "} }";
  EXPECT_EQ(differentiate(parse(text), {.wanted = {"x"}}).buffers.size(), 4);
}

INSTANTIATE_TEST_SUITE_P(Differentiate, Size, ::testing::ValuesIn(families),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace gradloom::ir
