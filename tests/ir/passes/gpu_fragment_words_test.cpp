// The matrix-unit helpers of kernel text, against the PTX ISA: the mapping of elements to lanes, in the helpers' host
// twins and in NVRTC's output.
#include <gtest/gtest.h>

#include <numeric>

#include "ir/scalar_math.h"
#ifdef GRADLOOM_WITH_CUDA
#include "codegen/cuda/nvrtc.h"
#include "codegen/cuda_host/host_executor.h"
#include "codegen/cuda_host/host_matrix.h"
#include "codegen/cuda_host/host_state.h"

namespace gradloom {
namespace {

using namespace ir;

// The host twin, against the layout of mma.m16n8k16 in the PTX ISA: each element of A, B and C at its lane and
// register.
TEST(GpuFragmentWords, EachElementIsInItsLane) {
  struct Lane {
    float sums[4] = {};
    uint32_t a[4] = {}, b[2] = {};
  };
  const auto value = [](int v) { return static_cast<uint32_t>(bits_from_double(DType::f16, v)); };
  const auto run = [](std::vector<Lane>& lanes) {
    std::vector<codegen::GlMatrixPiece> pieces;
    for (Lane& lane : lanes) pieces.push_back({lane.sums, lane.a, lane.b, false});
    uint64_t addresses[32];
    for (int i = 0; i < 32; ++i) addresses[i] = reinterpret_cast<uint64_t>(&pieces[static_cast<size_t>(i)]);
    codegen::matrix_unit(addresses);
  };
  const auto sum = [](const std::vector<Lane>& lanes, int row, int column) {
    return lanes[static_cast<size_t>(row % 8 * 4 + column / 2)].sums[row / 8 * 2 + column % 2];
  };
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < 16; ++k) {
      // Only A(row, k) is 1, and B(k, column) is 16 k + column: row `row` of the sums is row k of B, others are 0.
      std::vector<Lane> lanes(32);
      lanes[static_cast<size_t>(row % 8 * 4 + k % 8 / 2)].a[row / 8 + k / 8 * 2] = value(1) << (k % 2 * 16);
      for (int kk = 0; kk < 16; ++kk)
        for (int column = 0; column < 8; ++column)
          lanes[static_cast<size_t>(column * 4 + kk % 8 / 2)].b[kk / 8] |= value(16 * kk + column) << (kk % 2 * 16);
      run(lanes);
      for (int i = 0; i < 16; ++i)
        for (int column = 0; column < 8; ++column)
          ASSERT_EQ(sum(lanes, i, column), i == row ? static_cast<float>(16 * k + column) : 0) << row << " " << k;
    }
}

// The host twin of ldmatrix.x4, against the PTX ISA: register m of lane l contains elements 2 (l % 4) and the next of
// row l / 4 of matrix m, or of its column.
TEST(GpuFragmentWords, EachLaneGetsItsPairOfFourMatrices) {
  constexpr int64_t rows = 32;
  alignas(16) uint16_t memory[rows * 8 + 8];
  const auto place = [](int64_t row) { return row * 5 % rows * 8; };  // the rows of a matrix are at arbitrary addresses
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t j = 0; j < 8; ++j) memory[place(row) + j] = static_cast<uint16_t>(row * 8 + j);
  for (const bool transposed : {false, true}) {
    uint32_t pieces[rows][4] = {};
    std::vector<codegen::GlMatrixRow> own;
    for (int64_t lane = 0; lane < rows; ++lane) own.push_back({pieces[lane], memory + place(lane), transposed});
    uint64_t addresses[rows];
    for (int64_t lane = 0; lane < rows; ++lane)
      addresses[lane] = reinterpret_cast<uint64_t>(&own[static_cast<size_t>(lane)]);
    codegen::load_matrices(addresses);
    for (int64_t matrix = 0; matrix < 4; ++matrix)
      for (int64_t i = 0; i < 8; ++i)
        for (int64_t j = 0; j < 8; ++j) {
          const int64_t lane = transposed ? j * 4 + i / 2 : i * 4 + j / 2, half = transposed ? i % 2 : j % 2;
          ASSERT_EQ(pieces[lane][matrix] >> (16 * half) & 0xffff, static_cast<uint32_t>((matrix * 8 + i) * 8 + j))
              << matrix << " " << i << " " << j;
        }
    own[13].row += 1;
    EXPECT_THROW(codegen::load_matrices(addresses), Error);
  }
}

// Operand loads per lane (gl_pairs, gl_matrices) and the positions of its sums (gl_fragment_row, gl_fragment_pair),
// against the layout of mma.m16n8k16: two tiles along each axis, so that each stride matters.
struct Word {
  std::string type;
  int along, along_k;
};
const Word words[] = {{"gl_pairs<24, 1, true>", 24, 1},    {"gl_pairs<24, 1, false>", 24, 1},
                      {"gl_pairs<19, 1, false>", 19, 1},   {"gl_pairs<1, 40, false>", 1, 40},
                      {"gl_pairs<3, 101, false>", 3, 101}, {"gl_matrices<24, 1>", 24, 1},
                      {"gl_matrices<1, 40>", 1, 40}};
constexpr int first_element = 64;

codegen::CudaModule words_module() {
  codegen::CudaModule m;
  const auto function = [&](const std::string& body, int64_t shared_bytes) {
    const std::string name = "f" + std::to_string(m.functions.size());
    m.text += "GL_KERNEL(32) " + name + "(unsigned* out, const unsigned short* in) {\n" + body + "}\n\n";
    m.functions.push_back({.name = name, .threads = 32, .shared_bytes = shared_bytes});
    for (const int buffer : {0, 1}) m.functions.back().arguments.push_back({codegen::CudaArgument::buffer, buffer});
  };
  for (const Word& word : words)
    for (const char* which : {"rows", "columns"})
      function(
          "  GL_SHARED(8192);\n"
          "  unsigned short* const x = (unsigned short*)gl_shared;\n"
          "  for (int i = gl_thread(); i < 4096; i += 32) x[i] = in[i];\n"
          "  gl_sync_block();\n"
          "  unsigned piece[8];\n"
          "  " +
              word.type + "()." + which + "(piece, x + " + std::to_string(first_element) +
              ");\n"
              "  for (int i = 0; i < 8; ++i) out[gl_thread() * 8 + i] = piece[i];\n",
          8192);
  function(
      "  for (int pair = 0; pair < 8; ++pair) {\n"
      "    unsigned* const place = out + gl_fragment_row<16>(pair) * 16 + gl_fragment_pair<16>(pair) * 2;\n"
      "    for (int i = 0; i < 2; ++i) place[i] = gl_thread() * 100 + pair * 2 + i;\n"
      "  }\n",
      0);
  m.steps.push_back({.kind = codegen::HostStep::launch, .index = 0, .value = {{codegen::HostCode::constant, 1}}});
  m.buffers = 2;
  return m;
}

TEST(GpuFragmentWords, GiveEachLaneItsElements) {
  codegen::CudaModule m = words_module();
  const auto loaded = codegen::HostModule::compile(m);
  std::vector<uint16_t> in(4096);
  std::iota(in.begin(), in.end(), uint16_t{0});
  const auto run = [&](int index) {
    std::vector<uint32_t> out(32 * 16, ~0u);
    void* const buffers[] = {out.data(), in.data()};
    m.steps[0].index = index;
    codegen::run_on_host(m, *loaded, buffers, {}, codegen::HostOrder::shuffled, 5);
    return out;
  };
  int index = 0;
  for (const Word& word : words)
    for (const bool rows : {true, false}) {
      const std::vector<uint32_t> out = run(index++);
      for (int i = 0; i < 32; ++i)  // a row of A, or a column of B
        for (int k = 0; k < 16; ++k) {
          const int lane = i % 8 * 4 + k % 8 / 2,
                    piece = rows ? i / 16 * 4 + i % 16 / 8 + k / 8 * 2 : i / 8 * 2 + k / 8;
          const uint32_t got = out[static_cast<size_t>(lane * 8 + piece)] >> (k % 2 * 16) & 0xffff;
          ASSERT_EQ(got, static_cast<uint32_t>(first_element + i * word.along + k * word.along_k))
              << word.type << (rows ? " row " : " column ") << i << " k " << k;
        }
    }
  const std::vector<uint32_t> out = run(index);
  for (int i = 0; i < 32; ++i)
    for (int j = 0; j < 16; ++j)
      ASSERT_EQ(
          out[static_cast<size_t>(i * 16 + j)],
          static_cast<uint32_t>((i % 8 * 4 + j % 8 / 2) * 100 + (i / 16 * 2 + j / 8) * 4 + i % 16 / 8 * 2 + j % 2));
}

// Pairs are loaded as one access where possible, matrices by ldmatrix, a transposed operand by its .trans form, and no
// other loads are emitted.
TEST(GpuFragmentWords, BecomeTheirLoads) {
  const codegen::Nvrtc* nvrtc = nullptr;
  try {
    nvrtc = &codegen::Nvrtc::get();
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  const codegen::CudaModule m = words_module();
  const std::string ptx = nvrtc->compile_to_ptx(m, 80).images[0].bytes;
  int index = 0;
  for (const Word& word : words)
    for (int which = 0; which < 2; ++which) {
      const size_t at = ptx.find(".entry f" + std::to_string(index++) + "(");
      ASSERT_NE(at, std::string::npos);
      const std::string body = ptx.substr(at, ptx.find(".entry", at + 1) - at);
      const auto count = [&](const std::string& instruction) {
        int found = 0;
        for (size_t p = body.find(instruction); p != std::string::npos; p = body.find(instruction, p + 1)) ++found;
        return found;
      };
      const bool matrices = word.type.starts_with("gl_matrices"), together = word.type.ends_with("true>");
      EXPECT_EQ(count("ldmatrix.sync.aligned.m8n8.x4.shared.b16"), matrices && word.along_k == 1 ? 2 : 0) << word.type;
      EXPECT_EQ(count("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"), matrices && word.along_k != 1 ? 2 : 0)
          << word.type;
      EXPECT_EQ(count("ld.shared.u32") + count("ld.shared.b32"), together ? 8 : 0) << word.type;
      EXPECT_EQ(count("ld.shared.u16") + count("ld.shared.b16") + 2 * count("ld.shared.v2."),
                matrices || together ? 0 : 16)
          << word.type;
    }
}

}  // namespace
}  // namespace gradloom
#endif
