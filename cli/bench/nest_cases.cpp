#include "cli/bench/nest_cases.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <regex>

#include "cli/bench/nest_loops.h"
#include "cli/bench/nest_texts.h"  // made by the build from nests/*.loop
#include "gradloom/text.h"
#include "ir/analysis/linear.h"

namespace gradloom::cli {
namespace {

using Draw = NestCase::Draw;

std::vector<NestCase> make_cases() {
  using namespace loops;
  constexpr int64_t k = 1 << 10, m = 1 << 20;
  return {
      {"relu_grad", "relu_grad", {16 * m}, relu_grad},
      {"softmax_grad", "softmax_grad", {8 * k, k}, softmax_grad},
      {"layer_norm_grad", "layer_norm_grad", {8 * k, k}, layer_norm_grad},
      {"row_sum", "row_sum", {8 * k, k}, row_sum},
      {"short_row_sum", "row_sum", {100000, 16}, row_sum},
      {"column_sum", "column_sum", {8 * k, k}, column_sum},
      {"stencil", "stencil", {4 * k, 4 * k}, stencil},
      {"tiny_stencil", "stencil", {5, 5}, stencil},
      {"transpose", "transpose", {2 * k, 2 * k}, transpose},
      {"pool_grad", "pool_grad", {k, k}, pool_grad},
      {"product", "product", {512, 512, 512}, product},
      {"fma_product", "fma_product", {512, 512, 512}, fma_product},
      {"embedding_bag",
       "embedding_bag",
       {8 * k, 400 * k, 100000},
       embedding_bag,
       tuned_embedding_bag,
       {{"offsets", {400 * k, Draw::spaced}}, {"indices", {100000}}}},
      {"max_pool_grad", "max_pool_grad", {512, 3136, 12544}, max_pool_grad, nullptr, {{"argmax", {12544}}}},
      {"few_bins", "histogram", {16 * m, 256}, histogram, tuned_few_bins, {{"values", {256}}}},
      {"many_bins", "histogram", {16 * m, 16 * m}, histogram, tuned_many_bins, {{"values", {16 * m}}}},
      {"scatter_nd", "scatter_nd", {m, k, k}, scatter_nd, tuned_scatter_nd, {{"indices", {k}}}},
      {"segment_sum",
       "segment_sum",
       {256 * k, 16 * k},
       segment_sum,
       tuned_segment_sum,
       {{"ids", {16 * k, Draw::ascending}}}},
      {"csr_transposed",
       "csr_transposed",
       {64 * k, m, 64 * k},
       csr_transposed,
       tuned_csr_transposed,
       {{"begin", {m, Draw::spaced}}, {"column", {64 * k}}}},
      {"bilinear_grad",
       "bilinear_grad",
       {4 * m, 2 * k, 2 * k},
       bilinear_grad,
       tuned_bilinear_grad,
       {{"py", {2 * k - 1}}, {"px", {2 * k - 1}}}},
      {"column_scatter",
       "column_scatter",
       {4 * k, 4 * k, 4 * k},
       column_scatter,
       tuned_column_scatter,
       {{"indices", {4 * k}}}},
  };
}

std::string text_of(const std::string& nest) {
  for (const auto& [name, text] : nest_texts)
    if (name == nest) return text;
  throw Error(ErrorCode::internal, "bench: no nest " + nest);
}

template <class T>
void draw(T* to, int64_t count, const Draw& how, std::mt19937_64& random) {
  for (int64_t i = 0; i < count; ++i)
    to[i] =
        how.lie == Draw::spaced ? static_cast<T>(i * how.bound / std::max<int64_t>(count - 1, 1))
        : std::is_floating_point_v<T>
            ? static_cast<T>(std::uniform_real_distribution<double>(0, 0.999 * static_cast<double>(how.bound))(random))
            : static_cast<T>(random() % static_cast<uint64_t>(how.bound));
  if (how.lie == Draw::ascending) std::sort(to, to + count);
}

}  // namespace

const std::vector<NestCase>& nest_cases() {
  static const std::vector<NestCase> cases = make_cases();
  return cases;
}

ir::Kernel nest_kernel(const NestCase& c, bool any_shape) {
  std::string text = text_of(c.nest);
  const ir::Kernel open = ir::parse(text);
  if (any_shape) return open;
  text.replace(text.find('('), text.find(')') + 1 - text.find('('), "()");
  for (size_t s = 0; s < open.scalars.size(); ++s)
    text = std::regex_replace(text, std::regex("\\b" + open.scalars[s].var.name + "\\b"), std::to_string(c.scalars[s]));
  return ir::parse(text);
}

std::vector<Tensor> nest_buffers(const NestCase& c) {
  std::mt19937_64 random(1);
  std::vector<Tensor> all;
  for (const ir::Buffer& b : nest_kernel(c, false).buffers) {
    Dims dims;
    for (const ir::Expr& d : b->dims) dims.push_back(ir::linear(d).constant);  // of constants
    Tensor t = Tensor::empty(b->dtype, dims);
    const int64_t n = t.elements();
    const auto found = c.draws.find(b->name);
    if (b->role == ir::Role::out) {
      std::memset(t.data(), 0xff, static_cast<size_t>(n * size_of(b->dtype)));
    } else if (found == c.draws.end() && b->dtype == DType::f32) {
      std::generate_n(static_cast<float*>(t.data()), n,
                      [&] { return static_cast<float>(static_cast<int32_t>(random() >> 32)) * 0x1p-31f; });
    } else if (found == c.draws.end()) {
      std::memset(t.data(), 0, static_cast<size_t>(n * size_of(b->dtype)));
    } else if (b->dtype == DType::i64) {
      draw(static_cast<int64_t*>(t.data()), n, found->second, random);
    } else if (b->dtype == DType::i32) {
      draw(static_cast<int32_t*>(t.data()), n, found->second, random);
    } else {
      draw(static_cast<float*>(t.data()), n, found->second, random);
    }
    all.push_back(std::move(t));
  }
  return all;
}

}  // namespace gradloom::cli
