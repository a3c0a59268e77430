// Every rule of the verifier: a kernel that violates it, and the message. What no text can express (ids bound twice,
// names out of scope) is built by hand.
#include "ir/analysis/verify.h"

#include <gtest/gtest.h>

#include "gradloom/text.h"
#include "tests/support/error_of.h"

namespace gradloom::ir {
namespace {

// The message without "kernel k (stage): ".
std::string refusal(const Kernel& kernel, Stage stage) {
  const std::string message = error_of([&] { verify(kernel, stage); }),
                    head = std::string("kernel k (") + to_string(stage) + "): ";
  return message.starts_with(head) ? message.substr(head.size()) : message;
}

std::string refusal(const std::string& body, Stage stage,
                    const std::string& scalars = "n: i64 in [0, 1000], d: i64 in [0, 9]") {
  return refusal(
      parse("kernel k(" + scalars +
            ") {\nin x: f32[n]\nin b: bool[n]\nin h: f16[n]\nin idx: i64[n]\nout y: f32[n]\ninout s: i64[n]\n" + body +
            "\n}"),
      stage);
}

Buffer buffer(std::string name, DType dtype, std::vector<Expr> dims, Role role) {
  return make_buffer({.name = std::move(name), .dtype = dtype, .dims = std::move(dims), .role = role});
}

TEST(Verify, AcceptsAnAuthoredKernel) {
  EXPECT_EQ(refusal(R"(
    alloc t: f32[16]
    for i in 0 .. n {
      let j: i64 = idx[i]
      check j >= 0 & j < n at i "idx" { y[j] = x[i] * 2.0f32 }
      if d > 0 { s[floor_mod(i, d)] = floor_div(i, d) << 63 }
      t[floor_mod(i, 16)] = f32(h[i])
    })",
                    Stage::authored),
            "");
}

TEST(Verify, RefusesUnboundAndRebound) {
  const Buffer y = buffer("y", DType::i64, {8}, Role::out), x = buffer("x", DType::i64, {8}, Role::in);
  const Var i = make_var("i");
  const auto with = [&](Stmt body) { return Kernel{"k", {}, {y}, std::move(body)}; };
  const auto loop = [&](Stmt body) { return for_loop(i, 0, 8, ForKind::serial, std::move(body)); };
  const Stmt put = store(y, {0}, var(i));
  EXPECT_EQ(refusal(with(put), Stage::lowered), "i: the variable is not bound here");
  EXPECT_EQ(refusal(with(block({loop(put), put})), Stage::lowered), "i: the variable is not bound here");
  EXPECT_EQ(refusal(with(let(i, var(i), put)), Stage::lowered), "i: the variable is not bound here");
  EXPECT_EQ(refusal(with(block({loop(put), loop(put)})), Stage::lowered),
            "for i in 0 .. 8: the variable i is bound twice (id " + std::to_string(i.id) + ")");
  Var other = i;
  other.type = {DType::i32, 1};
  EXPECT_EQ(refusal(with(loop(store(y, {0}, cast(DType::i64, var(other))))), Stage::lowered),
            "i: the variable is bound as i64, used as i32");
  EXPECT_EQ(refusal(with(store(y, {0}, load(x, {0}))), Stage::lowered),
            "x[0]: the buffer x is neither a parameter nor allocated here");
  const Buffer t = buffer("t", DType::i64, {8}, Role::temp);
  const Stmt use = store(t, {0}, 1);
  EXPECT_EQ(refusal(with(block({alloc(t, use), use})), Stage::lowered),
            "t[0] = 1: the buffer t is neither a parameter nor allocated here");
  EXPECT_EQ(refusal(with(alloc(t, alloc(t, use))), Stage::lowered),
            "alloc t: i64[8]: the buffer t is declared twice (id " + std::to_string(t->id) + ")");
  BufferNode wider = *y;
  wider.dims = {8, 8};
  EXPECT_EQ(refusal(with(store(make_buffer(wider), {0, 0}, 1)), Stage::lowered),
            "y[0, 0] = 1: the buffer y is used with another dtype, rank, role or space than it was declared with");
  EXPECT_EQ(refusal(Kernel{"k", {}, {y}, {}}, Stage::lowered), "body: a kernel has a body");
  EXPECT_EQ(refusal(with(store(y, {0}, cast(DType::i64, constant_bits(DType::i8, 0x100)))), Stage::lowered),
            "0i8: a constant has the bits of its dtype, zero-extended");
}

TEST(Verify, ChecksDeclarations) {
  const auto header = [](const std::string& text) {
    return refusal(parse("kernel k(" + text + "\n}"), Stage::lowered);
  };
  EXPECT_EQ(header("n: i64) {\nin x: f32[n, floor_div(n, 2)] strides [n, 1] in [0, n]"), "");
  EXPECT_EQ(header("v: f32x4) {"), "scalar v: a parameter has one lane");
  EXPECT_EQ(header(") {\ntemp x: f32[4]"), "temp x: a parameter is in, out or inout");
  EXPECT_EQ(header(") {\nin x: f32[4] registers"), "in x: a parameter is neither in registers nor shared");
  EXPECT_EQ(header(") {\nin x: f32[4] exclusive"), "in x: exclusive is a fact of temp buffers only");
  EXPECT_EQ(header(") {\nin x: f32[-1]"), "in x: a dim is negative");
  EXPECT_EQ(header(") {\nin m: i64[1]\nalloc t: f32[m[0]]"),
            "alloc t: f32[m[0]]: a declaration holds scalars and reads no memory, got m[0]");
  EXPECT_EQ(header("n: i64) {\nalloc t: f32[n] registers"),
            "alloc t: f32[n] registers: a buffer in registers has constant dims");
}

TEST(Verify, ChecksWrites) {
  EXPECT_EQ(refusal("x[0] = 1.0f32", Stage::lowered), "x[0] = 1.0f32: the buffer x is an input");
  EXPECT_EQ(refusal("x[0] += 1.0f32", Stage::lowered), "x[0] += 1.0f32: the buffer x is an input");
  EXPECT_EQ(refusal("alloc t: bool[1]\nt[0] min= true", Stage::lowered),
            "t[0] min= true: an accumulate goes into integers, f32 or f64, got bool");
}

TEST(Verify, ProvesDivisorsAndShifts) {
  EXPECT_EQ(refusal("s[0] = floor_div(n, 0)", Stage::lowered), "floor_div(n, 0): the divisor must be proved nonzero");
  EXPECT_EQ(refusal("s[0] = floor_mod(n, d)", Stage::lowered), "floor_mod(n, d): the divisor must be proved nonzero");
  EXPECT_EQ(refusal("s[0] = floor_mod(n, d + 1)", Stage::lowered), "");
  EXPECT_EQ(refusal("s[0] = floor_mod(n, d - 10)", Stage::lowered), "");
  EXPECT_EQ(refusal("s[0] = floor_mod(n, select(d > 0, d, 1))", Stage::lowered), "");
  EXPECT_EQ(refusal("if d != 0 { s[0] = floor_mod(n, d) }", Stage::lowered), "");
  EXPECT_EQ(refusal("if d != 0 { } else { s[0] = floor_mod(n, d) }", Stage::lowered),
            "floor_mod(n, d): the divisor must be proved nonzero");
  EXPECT_EQ(refusal("check d > 0 at 0 \"d\" { s[0] = floor_mod(n, d) }", Stage::lowered), "");
  EXPECT_EQ(refusal("for i in 0 .. d { s[0] = floor_mod(i, d) }", Stage::lowered), "");
  EXPECT_EQ(refusal("s[0] = select(d != 0, floor_mod(n, d), 0)", Stage::lowered),
            "floor_mod(n, d): the divisor must be proved nonzero");
  EXPECT_EQ(refusal("s[ramp(0, 1, 4)] = floor_div(ramp(n, 1, 4), broadcast(4, 4))", Stage::lowered), "");
  EXPECT_EQ(refusal("s[0] = 1 << 64", Stage::lowered), "1 << 64: the shift count must be proved within [0, 64)");
  EXPECT_EQ(refusal("s[0] = n >> n", Stage::lowered), "n >> n: the shift count must be proved within [0, 64)");
  EXPECT_EQ(refusal("s[0] = i64(1u8 << 8u8)", Stage::lowered),
            "1u8 << 8u8: the shift count must be proved within [0, 8)");
  EXPECT_EQ(refusal("s[0] = n >> d", Stage::lowered), "");
}

TEST(Verify, HoldsExpressionsToTheirPlace) {
  EXPECT_EQ(refusal("if prefetch(x[0], 1) { }", Stage::lowered),
            "prefetch(x[0], 1): a prefetch stands in a statement of its own");
  EXPECT_EQ(refusal("evaluate prefetch(x[n], 1)", Stage::lowered), "");
  EXPECT_EQ(refusal("let a = broadcast(1, 4096)\nlet c = shuffle(a, a, [0])", Stage::lowered), "");
  const Expr wide = broadcast(true_value(), 8192);
  EXPECT_EQ(refusal(Kernel{"k", {}, {}, if_then(all_lanes(wide), {})}, Stage::lowered),
            "broadcast(true, 8192): a vector has at most 4096 lanes, got boolx8192");
}

TEST(Verify, AuthoredKernelsAreSerialAndScalar) {
  const Stage a = Stage::authored;
  EXPECT_EQ(refusal("for i in 0 .. n parallel { y[i] = 0.0f32 }", a),
            "for i in 0 .. n parallel: an authored kernel has serial loops only");
  EXPECT_EQ(refusal("for i in 0 .. 8 unroll { y[i] = 0.0f32 }", a),
            "for i in 0 .. 8 unroll: an authored kernel has serial loops only");
  EXPECT_EQ(refusal("y[ramp(0, 1, 4)] = broadcast(0.0f32, 4)", a),
            "ramp(0, 1, 4): an authored kernel has scalars only, got i64x4");
  EXPECT_EQ(refusal("let v: f32 = shuffle(broadcast(1.0f32, 4), [0])", a),
            "broadcast(1.0f32, 4): an authored kernel has scalars only, got f32x4");
  EXPECT_EQ(refusal("y[0] = 0.0f32 streaming", a),
            "y[0] = 0.0f32 streaming: an authored kernel has no streaming stores");
}

TEST(Verify, ScheduledLoopsAreProved) {
  const Stage s = Stage::scheduled;
  EXPECT_EQ(refusal("for i in 0 .. n parallel { y[i] = x[i] }", s), "");
  EXPECT_EQ(refusal("for i in 0 .. 8 vector { y[i] = x[i] }\nfor i in 0 .. 8 unroll { y[i] = x[i] }", s), "");
  EXPECT_EQ(refusal("for i in 0 .. n vector { y[i] = x[i] }", s),
            "for i in 0 .. n vector: a vector loop has a constant extent of 2 to 64");
  EXPECT_EQ(refusal("for i in 0 .. 1 vector { y[i] = x[i] }", s),
            "for i in 0 .. 1 vector: a vector loop has a constant extent of 2 to 64");
  EXPECT_EQ(refusal("for i in 0 .. 65 vector { y[i] = x[i] }", s),
            "for i in 0 .. 65 vector: a vector loop has a constant extent of 2 to 64");
  EXPECT_EQ(refusal("for i in 0 .. 65 unroll { y[i] = x[i] }", s),
            "for i in 0 .. 65 unroll: an unroll loop has a constant extent of at most 64");
  EXPECT_EQ(refusal("for i in 0 .. 4 vector { for j in 0 .. 4 vector { y[i * 4 + j] = 0.0f32 } }", s),
            "for j in 0 .. 4 vector: no loop below a vector loop is parallel or vector");
  EXPECT_TRUE(refusal("for i in 0 .. n parallel { y[0] += x[i] }", s)
                  .starts_with("for i in 0 .. n parallel: the parallel loop is not proved: "));
  EXPECT_TRUE(refusal("for i in 0 .. 8 vector { y[i + 1] = y[i] }", s)
                  .starts_with("for i in 0 .. 8 vector: the vector loop is not proved: "));
}

TEST(Verify, LoweredKernelsHaveNoVectorLoops) {
  const Stage l = Stage::lowered;
  EXPECT_EQ(refusal("for i in 0 .. 8 vector { y[i] = x[i] }", l),
            "for i in 0 .. 8 vector: a lowered kernel has no vector loop");
  EXPECT_EQ(refusal("for i in 0 .. 8 unroll { y[i] = x[i] }", l),
            "for i in 0 .. 8 unroll: a lowered kernel has no unroll loop");
  EXPECT_TRUE(refusal("for i in 0 .. n parallel { y[0] = x[i] }", l)
                  .starts_with("for i in 0 .. n parallel: the parallel loop is not proved: "));
  const std::string alloc = "alloc t: f32[16] registers\n";
  EXPECT_EQ(refusal(alloc + "t[ramp(8, 1, 8)] = x[ramp(0, 1, 8)]\nt[broadcast(1, 2)] = broadcast(t[3], 2)", l), "");
  EXPECT_EQ(refusal(alloc + "t[d] = 0.0f32", l),
            "t[d] = 0.0f32: the buffer t is in registers: its index must be constant, got d");
  EXPECT_EQ(refusal(alloc + "y[0] = t[d]", l), "t[d]: the buffer t is in registers: its index must be constant, got d");
  EXPECT_EQ(refusal(alloc + "t[d] = 0.0f32", Stage::scheduled), "");
}

}  // namespace
}  // namespace gradloom::ir
